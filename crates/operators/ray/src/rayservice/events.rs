//! Events about RayServices, in KubeRay's words: users and tools search for them.

use quintet_api::{duration::GoDuration, ray::events as reasons};
use quintet_controller::{Event, ObjectKey};

use super::upgrade::Side;

/// The user has to fix something first.
pub(super) fn invalid(service: &ObjectKey, reason: &str, error: &str) -> Event {
    Event::warning(reason, "Validate", format!("{service}: {error}"))
}

/// A cluster was created.
pub(super) fn created_cluster(cluster: &ObjectKey) -> Event {
    Event::normal(reasons::CREATED_RAY_CLUSTER, "Create", format!("Created the RayCluster {cluster}"))
}

/// A cluster cannot be created.
pub(super) fn failed_to_create_cluster(cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to create the RayCluster {cluster}: {cause}");
    Event::warning(reasons::FAILED_TO_CREATE_RAY_CLUSTER, "Create", note)
}

fn word(side: Side) -> &'static str {
    match side {
        Side::Active => "active",
        Side::Pending => "pending",
    }
}

/// A cluster was changed in place.
pub(super) fn updated_cluster(side: Side, cluster: &ObjectKey) -> Event {
    let note = format!("Updated the {} RayCluster {cluster}", word(side));
    Event::normal(reasons::UPDATED_RAY_CLUSTER, "Update", note)
}

/// A cluster cannot be changed.
pub(super) fn failed_to_update_cluster(side: Side, cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to update the {} RayCluster {cluster}: {cause}", word(side));
    Event::warning(&reasons::failed_to("Update", "RayCluster"), "Update", note)
}

/// Why something of a RayService is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// It is not used any more.
    Unused,
    /// The service is suspended.
    Suspension,
}

impl Deletion {
    fn suffix(self) -> &'static str {
        match self {
            Self::Unused => "",
            Self::Suspension => " during suspend",
        }
    }
}

/// Something of the service was deleted.
pub(super) fn deleted(kind: &str, object: &ObjectKey, why: Deletion) -> Event {
    let note = format!("Deleted the {kind} {object}{}", why.suffix());
    Event::normal(&reasons::deleted(kind), "Delete", note)
}

/// Something of the service cannot be deleted.
pub(super) fn failed_to_delete(kind: &str, object: &ObjectKey, why: Deletion, cause: &str) -> Event {
    let note = format!("Failed to delete the {kind} {object}{}: {cause}", why.suffix());
    Event::warning(&reasons::failed_to("Delete", kind), "Delete", note)
}

/// The Gateway or HTTPRoute was created.
pub(super) fn created_routing(kind: &str, object: &ObjectKey) -> Event {
    let note = format!("Created {kind} for RayService {object}");
    Event::normal(&reasons::created(kind), "Create", note)
}

/// The Gateway or HTTPRoute cannot be created.
pub(super) fn failed_to_create_routing(kind: &str, object: &ObjectKey, cause: &str) -> Event {
    let article = if kind == "HTTPRoute" { "the " } else { "" };
    let note = format!("Failed to create {article}{kind} for RayService {object}: {cause}");
    Event::warning(&reasons::failed_to("Create", kind), "Create", note)
}

/// The Gateway or HTTPRoute was changed.
pub(super) fn updated_routing(kind: &str, object: &ObjectKey) -> Event {
    Event::normal(&reasons::updated(kind), "Update", format!("Updated the {kind} {object}"))
}

/// The Gateway or HTTPRoute cannot be changed.
pub(super) fn failed_to_update_routing(kind: &str, object: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to update the {kind} {object}: {cause}");
    Event::warning(&reasons::failed_to("Update", kind), "Update", note)
}

/// The Serve config was deployed.
pub(super) fn updated_applications(cluster: &ObjectKey) -> Event {
    let note = format!("Updated serve applications to the RayCluster {cluster}");
    Event::normal(reasons::UPDATED_SERVE_APPLICATIONS, "Update", note)
}

/// The Serve config cannot be deployed.
pub(super) fn failed_to_update_applications(cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to update serve applications to the RayCluster {cluster}: {cause}");
    Event::warning(reasons::FAILED_TO_UPDATE_SERVE_APPLICATIONS, "Update", note)
}

/// The capacity of a cluster was changed. The repeated word is upstream's.
pub(super) fn updated_capacity(cluster: &ObjectKey) -> Event {
    let note = format!("Updated target_capacity of serve applications to to the RayCluster {cluster}");
    Event::normal(reasons::UPDATED_SERVE_TARGET_CAPACITY, "Update", note)
}

/// The capacity of a cluster cannot be changed.
pub(super) fn failed_to_update_capacity(cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!(
        "Failed to update target_capacity of serve applications to the RayCluster {cluster}: {cause}"
    );
    Event::warning(reasons::FAILED_TO_UPDATE_TARGET_CAPACITY, "Update", note)
}

/// A head takes requests now, or does not any more.
pub(super) fn updated_serve_label(head: &ObjectKey, label: &str) -> Event {
    let note = format!("Updated the serve label to {label:?} for the Head Pod {head}");
    Event::normal(reasons::UPDATED_HEAD_POD_SERVE_LABEL, "Update", note)
}

/// The serve label of a head cannot be changed.
pub(super) fn failed_to_update_serve_label(head: &ObjectKey, label: &str, cause: &str) -> Event {
    let note = format!("Failed to update the serve label to {label:?} for the Head Pod {head}: {cause}");
    Event::warning(reasons::FAILED_TO_UPDATE_HEAD_POD_SERVE_LABEL, "Update", note)
}

/// The service did not become ready in time.
pub(super) fn initializing_timeout(after: GoDuration, timeout: GoDuration) -> Event {
    let note =
        format!("RayService initializing timeout exceeded after {after} (configured timeout: {timeout})");
    Event::warning(reasons::RAY_SERVICE_INITIALIZING_TIMEOUT, "Reconcile", note)
}

/// An upgrade should go back to a cluster that does not exist.
pub(super) fn rollback_impossible() -> Event {
    let note = "Active cluster not found, rollback cannot be initiated";
    Event::warning(reasons::ROLLBACK_IMPOSSIBLE, "Reconcile", note)
}

#[cfg(test)]
mod tests {
    use quintet_controller::plan::EventKind::{self, Normal, Warning};

    use super::*;
    use crate::k8s_service::events as k8s_service;

    #[test]
    fn events_about_rayservices_have_kuberays_words() {
        let key = ObjectKey::new("ns", "x");
        let (hour, day) = (GoDuration::from_secs(3600), GoDuration::from_secs(90_000));
        let (active, pending) = (Side::Active, Side::Pending);
        let (unused, suspended) = (Deletion::Unused, Deletion::Suspension);
        let rows: Vec<(Event, EventKind, &str, &str)> = vec![
            (invalid(&key, "InvalidRayServiceSpec", "no"), Warning, "InvalidRayServiceSpec", "ns/x: no"),
            (created_cluster(&key), Normal, "CreatedRayCluster", "Created the RayCluster ns/x"),
            (
                failed_to_create_cluster(&key, "no"),
                Warning,
                "FailedToCreateRayCluster",
                "Failed to create the RayCluster ns/x: no",
            ),
            (
                updated_cluster(active, &key),
                Normal,
                "UpdatedRayCluster",
                "Updated the active RayCluster ns/x",
            ),
            (
                updated_cluster(pending, &key),
                Normal,
                "UpdatedRayCluster",
                "Updated the pending RayCluster ns/x",
            ),
            (
                failed_to_update_cluster(active, &key, "no"),
                Warning,
                "FailedToUpdateRayCluster",
                "Failed to update the active RayCluster ns/x: no",
            ),
            (
                failed_to_update_cluster(pending, &key, "no"),
                Warning,
                "FailedToUpdateRayCluster",
                "Failed to update the pending RayCluster ns/x: no",
            ),
            (deleted("RayCluster", &key, unused), Normal, "DeletedRayCluster", "Deleted the RayCluster ns/x"),
            (
                failed_to_delete("RayCluster", &key, unused, "no"),
                Warning,
                "FailedToDeleteRayCluster",
                "Failed to delete the RayCluster ns/x: no",
            ),
            (
                deleted("Service", &key, suspended),
                Normal,
                "DeletedService",
                "Deleted the Service ns/x during suspend",
            ),
            (
                failed_to_delete("Gateway", &key, suspended, "no"),
                Warning,
                "FailedToDeleteGateway",
                "Failed to delete the Gateway ns/x during suspend: no",
            ),
            (
                created_routing("Gateway", &key),
                Normal,
                "CreatedGateway",
                "Created Gateway for RayService ns/x",
            ),
            (
                created_routing("HTTPRoute", &key),
                Normal,
                "CreatedHTTPRoute",
                "Created HTTPRoute for RayService ns/x",
            ),
            (
                failed_to_create_routing("Gateway", &key, "no"),
                Warning,
                "FailedToCreateGateway",
                "Failed to create Gateway for RayService ns/x: no",
            ),
            (
                failed_to_create_routing("HTTPRoute", &key, "no"),
                Warning,
                "FailedToCreateHTTPRoute",
                "Failed to create the HTTPRoute for RayService ns/x: no",
            ),
            (updated_routing("Gateway", &key), Normal, "UpdatedGateway", "Updated the Gateway ns/x"),
            (
                failed_to_update_routing("HTTPRoute", &key, "no"),
                Warning,
                "FailedToUpdateHTTPRoute",
                "Failed to update the HTTPRoute ns/x: no",
            ),
            (k8s_service::created(&key), Normal, "CreatedService", "Created the service ns/x"),
            (k8s_service::updated(&key), Normal, "UpdatedService", "Updated the service ns/x"),
            (
                k8s_service::failed_to_create(&key, "no"),
                Warning,
                "FailedToCreateService",
                "Failed to create the service ns/x, no",
            ),
            (
                k8s_service::failed_to_update(&key, "no"),
                Warning,
                "FailedToUpdateService",
                "Failed to update the service ns/x, no",
            ),
            (
                updated_applications(&key),
                Normal,
                "UpdatedServeApplications",
                "Updated serve applications to the RayCluster ns/x",
            ),
            (
                failed_to_update_applications(&key, "no"),
                Warning,
                "FailedToUpdateServeApplications",
                "Failed to update serve applications to the RayCluster ns/x: no",
            ),
            (
                updated_capacity(&key),
                Normal,
                "UpdatedServeTargetCapacity",
                "Updated target_capacity of serve applications to to the RayCluster ns/x",
            ),
            (
                failed_to_update_capacity(&key, "no"),
                Warning,
                "FailedToUpdateTargetCapacity",
                "Failed to update target_capacity of serve applications to the RayCluster ns/x: no",
            ),
            (
                updated_serve_label(&key, "true"),
                Normal,
                "UpdatedHeadPodServeLabel",
                "Updated the serve label to \"true\" for the Head Pod ns/x",
            ),
            (
                failed_to_update_serve_label(&key, "false", "no"),
                Warning,
                "FailedToUpdateHeadPodServeLabel",
                "Failed to update the serve label to \"false\" for the Head Pod ns/x: no",
            ),
            (
                initializing_timeout(day, hour),
                Warning,
                "RayServiceInitializingTimeout",
                "RayService initializing timeout exceeded after 25h0m0s (configured timeout: 1h0m0s)",
            ),
            (
                rollback_impossible(),
                Warning,
                "RollbackImpossible",
                "Active cluster not found, rollback cannot be initiated",
            ),
        ];
        for (event, kind, reason, note) in rows {
            assert_eq!((event.kind, event.reason.as_str(), event.note.as_str()), (kind, reason, note));
        }
    }
}
