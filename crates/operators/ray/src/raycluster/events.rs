//! Events about RayClusters, in KubeRay's words: users and tools search for them.

use quintet_api::ray::events as reasons;
use quintet_controller::{Event, ObjectKey};

use super::{
    Observed,
    observe::{Pod, hosts},
    plan::{Suspension, is_named, is_outdated, is_over, suspension},
};
use crate::pod_view::ContainerState;

/// The metadata cannot be used.
pub(super) fn invalid_metadata(cluster: &ObjectKey, error: &str) -> Event {
    let note = format!("The RayCluster metadata is invalid {cluster}: {error}");
    Event::warning(reasons::INVALID_RAY_CLUSTER_METADATA, "Validate", note)
}

/// The spec cannot be carried out.
pub(super) fn invalid_spec(cluster: &ObjectKey, error: &str) -> Event {
    let note = format!("The RayCluster spec is invalid {cluster}: {error}");
    Event::warning(reasons::INVALID_RAY_CLUSTER_SPEC, "Validate", note)
}

/// The spec has an upgrade strategy where another object decides about upgrades.
pub(super) fn invalid_upgrade_strategy(cluster: &ObjectKey, error: &str) -> Event {
    let note = format!("The RayCluster UpgradeStrategy is invalid {cluster}: {error}");
    Event::warning(reasons::INVALID_RAY_CLUSTER_SPEC, "Validate", note)
}

/// The conditions contradict each other.
pub(super) fn invalid_status(cluster: &ObjectKey, error: &str) -> Event {
    let note = format!("The RayCluster status is invalid {cluster}, {error}");
    Event::warning(reasons::INVALID_RAY_CLUSTER_STATUS, "Validate", note)
}

/// The spec can be carried out, but is probably not what was meant.
pub(super) fn questionable_spec(cluster: &ObjectKey, warning: &str) -> Event {
    let note = format!("RayCluster spec warning {cluster}: {warning}");
    Event::warning(reasons::INVALID_RAY_CLUSTER_SPEC, "Validate", note)
}

/// The service account that the user names for the autoscaler does not exist.
pub(super) fn service_account_not_found(cluster: &ObjectKey, account: &str) -> Event {
    let note = format!(
        "Failed to reconcile RayCluster {cluster}. If users specify ServiceAccountName for the head Pod, they need to \
         create a ServiceAccount themselves. However, ServiceAccount {account} is not found. Please create one."
    );
    Event::warning(reasons::AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND, "Validate", note)
}

/// How events call an object of a kind: in reasons, and in notes.
fn words(kind: &str) -> (&str, &str) {
    match kind {
        "ServiceAccount" => ("ServiceAccount", "service account"),
        "Role" => ("Role", "role"),
        "RoleBinding" => ("RoleBinding", "role binding"),
        "Ingress" => ("Ingress", "ingress"),
        "Route" => ("Route", "route"),
        "Service" => ("Service", "service"),
        "PersistentVolumeClaim" => ("PVC", "GCS storage PVC"),
        "Job" => ("RedisCleanupJob", "Redis cleanup Job"),
        other => (other, other),
    }
}

/// An object other than a pod was created.
pub(super) fn created(kind: &str, object: &ObjectKey) -> Event {
    let (noun, phrase) = words(kind);
    Event::normal(&reasons::created(noun), "Create", format!("Created {phrase} {object}"))
}

/// The Ingress was changed.
pub(super) fn updated_ingress(ingress: &ObjectKey) -> Event {
    Event::normal(reasons::UPDATED_INGRESS, "Update", format!("Updated ingress {ingress}"))
}

/// The Ingress of our name belongs to something else.
pub(super) fn foreign_ingress(ingress: &ObjectKey) -> Event {
    let note =
        format!("Ingress {ingress} already exists and is not owned by this RayCluster; not modifying it");
    Event::warning(reasons::FAILED_TO_CREATE_INGRESS, "Create", note)
}

/// The claim that the user names does not exist.
pub(super) fn claim_not_found(claim: &ObjectKey) -> Event {
    let note = format!(
        "GcsFaultToleranceOptions.Storage.ClaimName {:?} not found in namespace {}; the head Pod will not start until \
         it exists",
        claim.name(),
        claim.namespace().unwrap_or_default()
    );
    Event::warning(reasons::FAILED_TO_CREATE_PVC, "Validate", note)
}

/// The claim cannot become what the spec says.
pub(super) fn claim_differs(claim: &ObjectKey, differences: &str) -> Event {
    let note = format!(
        "GCS storage PVC {claim} already exists and cannot be reconfigured in place ({differences}); delete the PVC to \
         recreate it with the new settings"
    );
    Event::warning(reasons::FAILED_TO_CREATE_PVC, "Update", note)
}

/// The finalizer was removed although Redis may not be cleared.
pub(super) fn force_deleted(after: &str, storage_namespace: &str) -> Event {
    let note = format!(
        "Force-removed GCS FT finalizer after {after} due to Redis cleanup timeout; Redis storage namespace \
         {storage_namespace:?} may need manual cleanup"
    );
    Event::warning(reasons::FORCE_DELETED_STUCK_CLUSTER, "Cleanup", note)
}

/// An object other than a pod cannot be created or changed.
pub(super) fn failed_to_write(verb: &str, kind: &str, object: &ObjectKey, cause: &str) -> Event {
    let (noun, phrase) = words(kind);
    let attempt = match (noun, verb) {
        ("RedisCleanupJob" | "PVC", _) => format!("Failed to {} {phrase}", verb.to_lowercase()),
        (_, "Create") => format!("Failed creating {phrase}"),
        (_, "Delete") => format!("Failed deleting {phrase}"),
        _ => format!("Failed updating {phrase}"),
    };
    Event::warning(&reasons::failed_to(verb, noun), verb, format!("{attempt} {object}, {cause}"))
}

/// The head was created.
pub(super) fn created_head_pod(pod: &ObjectKey) -> Event {
    Event::normal(reasons::CREATED_HEAD_POD, "Create", format!("Created head Pod {pod}"))
}

/// A worker was created.
pub(super) fn created_worker_pod(pod: &ObjectKey) -> Event {
    Event::normal(reasons::CREATED_WORKER_POD, "Create", format!("Created worker Pod {pod}"))
}

/// The head cannot be created.
pub(super) fn failed_to_create_head_pod(pod: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to create head Pod {pod}, {cause}");
    Event::warning(reasons::FAILED_TO_CREATE_HEAD_POD, "Create", note)
}

/// A worker cannot be created.
pub(super) fn failed_to_create_worker_pod(cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to create worker Pod for the cluster {cluster}, {cause}");
    Event::warning(reasons::FAILED_TO_CREATE_WORKER_POD, "Create", note)
}

/// Why a pod is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deletion<'a> {
    /// The cluster is suspended.
    Suspension,
    /// The cluster changed, and its strategy is to make all pods again.
    Recreation,
    /// Its group is suspended.
    SuspendedGroup(&'a str),
    /// It has come to its end.
    Over,
    /// It is listed in `workersToDelete`.
    Named,
    /// There are more than wanted.
    Surplus,
    /// It belongs to a replica of several hosts that goes as a whole: its group, and why.
    Replica(&'a str, String),
    /// Another one is the head.
    SecondHead(ObjectKey),
}

impl<'a> Deletion<'a> {
    /// Why the plan for this cluster deletes a pod.
    pub(super) fn of(observed: &'a Observed, pod: &Pod) -> Self {
        if suspension(observed) == Suspension::DeletesPods {
            return Self::Suspension;
        }
        if is_outdated(observed) {
            return Self::Recreation;
        }
        let name = pod.object.label(crate::labels::GROUP);
        let group = observed.groups().iter().find(|group| pod.object.is_worker() && group.group_name == name);
        match group {
            Some(group) if group.suspend == Some(true) => Self::SuspendedGroup(&group.group_name),
            Some(group) if hosts(group) > 1 && observed.settings.gates.multi_host_indexing => {
                Self::Replica(&group.group_name, String::new())
            }
            _ if is_over(&pod.object) => Self::Over,
            Some(group) if is_named(group, pod) => Self::Named,
            _ => Self::Surplus,
        }
    }
}

/// A pod was deleted, or all of those that go for one reason.
pub(super) fn deleted(cluster: &ObjectKey, pod: &Pod, why: &Deletion<'_>) -> Event {
    let key = &pod.key;
    let of_pod = if pod.object.is_head() { reasons::DELETED_HEAD_POD } else { reasons::DELETED_WORKER_POD };
    let (reason, note) = match why {
        Deletion::Suspension => {
            (reasons::DELETED_POD, format!("Deleted Pods for RayCluster {cluster} due to suspension"))
        }
        Deletion::Recreation => (
            reasons::DELETED_POD,
            format!(
                "Deleted all Pods for RayCluster {cluster} due to spec change with Recreate upgradeStrategy"
            ),
        ),
        Deletion::SuspendedGroup(group) => {
            (of_pod, format!("Deleted all pods for suspended worker group {group} in RayCluster {cluster}"))
        }
        Deletion::Over => (of_pod, format!("Deleted {} Pod {key}; {}", role(pod), end(pod))),
        Deletion::Named => (of_pod, format!("Deleted pod {key}")),
        Deletion::Surplus => (of_pod, format!("Deleted Pod {key}")),
        Deletion::Replica(group, reason) => {
            (of_pod, format!("Deleted worker Pod {key} for group {group}: {reason}"))
        }
        Deletion::SecondHead(kept) => (of_pod, format!("Deleted head Pod {key}, because the head is {kept}")),
    };
    Event::normal(reason, "Delete", note)
}

/// A pod cannot be deleted.
pub(super) fn failed_to_delete(cluster: &ObjectKey, pod: &Pod, why: &Deletion<'_>, cause: &str) -> Event {
    let key = &pod.key;
    let (noun, what) = match why {
        Deletion::Suspension => ("PodCollection", format!("Pods due to suspension for RayCluster {cluster}")),
        Deletion::Recreation => (
            "PodCollection",
            format!("Pods due to spec change with Recreate upgradeStrategy for RayCluster {cluster}"),
        ),
        Deletion::SuspendedGroup(group) => (
            "WorkerPodCollection",
            format!("worker Pods for suspended group {group} in RayCluster {cluster}"),
        ),
        Deletion::Replica(group, _) => {
            ("WorkerPod", format!("worker Pod {key} for group {group}; {}", end(pod)))
        }
        Deletion::Over if pod.object.is_head() => ("HeadPod", format!("head Pod {key}; {}", end(pod))),
        Deletion::Over => ("WorkerPod", format!("worker Pod {key}; {}", end(pod))),
        Deletion::Named => ("WorkerPod", format!("pod {key}")),
        Deletion::Surplus | Deletion::SecondHead(_) if pod.object.is_head() => {
            ("HeadPod", format!("Pod {key}"))
        }
        Deletion::Surplus | Deletion::SecondHead(_) => ("WorkerPod", format!("Pod {key}")),
    };
    let note = format!("Failed deleting {what}, {cause}");
    Event::warning(&reasons::failed_to("Delete", noun), "Delete", note)
}

fn role(pod: &Pod) -> &'static str {
    if pod.object.is_head() { "head" } else { "worker" }
}

/// How a pod came to its end.
fn end(pod: &Pod) -> String {
    let view = &pod.object;
    let policy = view.restart_policy;
    format!(
        "Pod status: {:?}; Pod restart policy: {policy:?}; Ray container terminated status: {}",
        view.phase,
        terminated(pod)
    )
}

fn terminated(pod: &Pod) -> String {
    match pod.object.containers.first().map(|ray| &ray.state) {
        Some(ContainerState::Terminated { exit_code, reason, .. }) => {
            format!("exit code {exit_code}, reason {reason}")
        }
        _ => "nil".to_owned(),
    }
}

/// Why a replica goes with a host of it that has come to its end.
pub(super) fn replica_over(pod: &Pod) -> String {
    let (name, phase) = (pod.key.name(), pod.object.phase);
    if phase.is_terminal() {
        return format!(
            "The worker Pod {name} status is {phase:?} which is a terminal state. KubeRay will delete the Pod and create \
             new Pods in the next reconciliation if necessary."
        );
    }
    format!(
        "The Pod status of the worker Pod {name} is {phase:?}, and the Ray container terminated status is {}. The container \
         is unable to restart due to its restart policy {:?}, so KubeRay will delete it.",
        terminated(pod),
        pod.object.restart_policy
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quintet_controller::{
        cache::Entry,
        plan::EventKind::{self, Normal, Warning},
    };
    use serde_json::json;

    use super::*;
    use crate::pod_view::PodView;

    fn pod(node_type: &str, status: &serde_json::Value) -> Pod {
        let pod = json!({
            "metadata": {"labels": {"ray.io/node-type": node_type}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "ray"}]},
            "status": status,
        });
        Arc::new(Entry::new(ObjectKey::new("ns", "p"), PodView::project(&pod.to_string()).unwrap()))
    }

    #[test]
    fn events_about_rayclusters_have_kuberays_words() {
        let (cluster, key) = (ObjectKey::new("ns", "demo"), ObjectKey::new("ns", "x"));
        let rows: Vec<(Event, EventKind, &str, &str)> = vec![
            (
                invalid_metadata(&cluster, "no"),
                Warning,
                "InvalidRayClusterMetadata",
                "The RayCluster metadata is invalid ns/demo: no",
            ),
            (
                invalid_spec(&cluster, "no"),
                Warning,
                "InvalidRayClusterSpec",
                "The RayCluster spec is invalid ns/demo: no",
            ),
            (
                invalid_upgrade_strategy(&cluster, "no"),
                Warning,
                "InvalidRayClusterSpec",
                "The RayCluster UpgradeStrategy is invalid ns/demo: no",
            ),
            (
                invalid_status(&cluster, "no"),
                Warning,
                "InvalidRayClusterStatus",
                "The RayCluster status is invalid ns/demo, no",
            ),
            (
                questionable_spec(&cluster, "hm"),
                Warning,
                "InvalidRayClusterSpec",
                "RayCluster spec warning ns/demo: hm",
            ),
            (created("Service", &key), Normal, "CreatedService", "Created service ns/x"),
            (
                created("ServiceAccount", &key),
                Normal,
                "CreatedServiceAccount",
                "Created service account ns/x",
            ),
            (created("Role", &key), Normal, "CreatedRole", "Created role ns/x"),
            (created("RoleBinding", &key), Normal, "CreatedRoleBinding", "Created role binding ns/x"),
            (created("Ingress", &key), Normal, "CreatedIngress", "Created ingress ns/x"),
            (created("Route", &key), Normal, "CreatedRoute", "Created route ns/x"),
            (created("PersistentVolumeClaim", &key), Normal, "CreatedPVC", "Created GCS storage PVC ns/x"),
            (created("Job", &key), Normal, "CreatedRedisCleanupJob", "Created Redis cleanup Job ns/x"),
            (updated_ingress(&key), Normal, "UpdatedIngress", "Updated ingress ns/x"),
            (
                foreign_ingress(&key),
                Warning,
                "FailedToCreateIngress",
                "Ingress ns/x already exists and is not owned by this RayCluster; not modifying it",
            ),
            (
                claim_not_found(&key),
                Warning,
                "FailedToCreatePVC",
                "GcsFaultToleranceOptions.Storage.ClaimName \"x\" not found in namespace ns; the head Pod will not start \
                 until it exists",
            ),
            (
                claim_differs(&key, "requested size 2Gi != current 1Gi"),
                Warning,
                "FailedToCreatePVC",
                "GCS storage PVC ns/x already exists and cannot be reconfigured in place (requested size 2Gi != current \
                 1Gi); delete the PVC to recreate it with the new settings",
            ),
            (
                force_deleted("5m0s", "demo-ns"),
                Warning,
                "ForceDeletedStuckCluster",
                "Force-removed GCS FT finalizer after 5m0s due to Redis cleanup timeout; Redis storage namespace \
                 \"demo-ns\" may need manual cleanup",
            ),
            (
                failed_to_write("Create", "Service", &key, "no"),
                Warning,
                "FailedToCreateService",
                "Failed creating service ns/x, no",
            ),
            (
                failed_to_write("Create", "RoleBinding", &key, "no"),
                Warning,
                "FailedToCreateRoleBinding",
                "Failed creating role binding ns/x, no",
            ),
            (
                failed_to_write("Update", "Ingress", &key, "no"),
                Warning,
                "FailedToUpdateIngress",
                "Failed updating ingress ns/x, no",
            ),
            (
                failed_to_write("Create", "Job", &key, "no"),
                Warning,
                "FailedToCreateRedisCleanupJob",
                "Failed to create Redis cleanup Job ns/x, no",
            ),
            (
                failed_to_write("Create", "PersistentVolumeClaim", &key, "no"),
                Warning,
                "FailedToCreatePVC",
                "Failed to create GCS storage PVC ns/x, no",
            ),
            (created_head_pod(&key), Normal, "CreatedHeadPod", "Created head Pod ns/x"),
            (created_worker_pod(&key), Normal, "CreatedWorkerPod", "Created worker Pod ns/x"),
            (
                failed_to_create_head_pod(&key, "no"),
                Warning,
                "FailedToCreateHeadPod",
                "Failed to create head Pod ns/x, no",
            ),
            (
                failed_to_create_worker_pod(&cluster, "no"),
                Warning,
                "FailedToCreateWorkerPod",
                "Failed to create worker Pod for the cluster ns/demo, no",
            ),
        ];
        for (event, kind, reason, note) in rows {
            assert_eq!((event.kind, event.reason.as_str(), event.note.as_str()), (kind, reason, note));
        }
    }

    #[test]
    fn events_about_deleted_pods_have_kuberays_words() {
        let cluster = ObjectKey::new("ns", "demo");
        let ended = json!({"phase": "Running", "containerStatuses": [
            {"name": "ray", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
        ]});
        let (head, worker) = (pod("head", &json!({"phase": "Failed"})), pod("worker", &ended));
        let failed = "Pod status: Failed; Pod restart policy: Never; Ray container terminated status: nil";
        let over = "Pod status: Running; Pod restart policy: Never; Ray container terminated status: exit code 1, \
                    reason Error";
        let rows: Vec<(&Pod, Deletion<'_>, &str, String, &str, String)> = vec![
            (
                &head,
                Deletion::Suspension,
                "DeletedPod",
                "Deleted Pods for RayCluster ns/demo due to suspension".into(),
                "FailedToDeletePodCollection",
                "Failed deleting Pods due to suspension for RayCluster ns/demo, no".into(),
            ),
            (
                &head,
                Deletion::Recreation,
                "DeletedPod",
                "Deleted all Pods for RayCluster ns/demo due to spec change with Recreate upgradeStrategy".into(),
                "FailedToDeletePodCollection",
                "Failed deleting Pods due to spec change with Recreate upgradeStrategy for RayCluster ns/demo, no".into(),
            ),
            (
                &worker,
                Deletion::SuspendedGroup("small"),
                "DeletedWorkerPod",
                "Deleted all pods for suspended worker group small in RayCluster ns/demo".into(),
                "FailedToDeleteWorkerPodCollection",
                "Failed deleting worker Pods for suspended group small in RayCluster ns/demo, no".into(),
            ),
            (
                &head,
                Deletion::Over,
                "DeletedHeadPod",
                format!("Deleted head Pod ns/p; {failed}"),
                "FailedToDeleteHeadPod",
                format!("Failed deleting head Pod ns/p; {failed}, no"),
            ),
            (
                &worker,
                Deletion::Over,
                "DeletedWorkerPod",
                format!("Deleted worker Pod ns/p; {over}"),
                "FailedToDeleteWorkerPod",
                format!("Failed deleting worker Pod ns/p; {over}, no"),
            ),
            (
                &worker,
                Deletion::Named,
                "DeletedWorkerPod",
                "Deleted pod ns/p".into(),
                "FailedToDeleteWorkerPod",
                "Failed deleting pod ns/p, no".into(),
            ),
            (
                &worker,
                Deletion::Surplus,
                "DeletedWorkerPod",
                "Deleted Pod ns/p".into(),
                "FailedToDeleteWorkerPod",
                "Failed deleting Pod ns/p, no".into(),
            ),
            (
                &worker,
                Deletion::Replica("small", "scaling down".into()),
                "DeletedWorkerPod",
                "Deleted worker Pod ns/p for group small: scaling down".into(),
                "FailedToDeleteWorkerPod",
                format!("Failed deleting worker Pod ns/p for group small; {over}, no"),
            ),
        ];
        for (pod, why, reason, note, failed_reason, failed_note) in rows {
            let event = deleted(&cluster, pod, &why);
            assert_eq!((event.reason.as_str(), event.note), (reason, note), "{why:?}");
            let event = failed_to_delete(&cluster, pod, &why, "no");
            assert_eq!((event.reason.as_str(), event.note), (failed_reason, failed_note), "{why:?}");
        }
        assert!(
            replica_over(&head).starts_with("The worker Pod p status is Failed which is a terminal state.")
        );
    }
}
