//! Events about RayJobs, in KubeRay's words: users and tools search for them.

use quintet_api::ray::events as reasons;
use quintet_controller::{Event, ObjectKey};

use super::validation::Invalid;

/// The user has to fix something first.
pub(super) fn invalid(job: &ObjectKey, invalid: &Invalid) -> Event {
    Event::warning(invalid.reason, "Validate", format!("{job}: {}", invalid.message))
}

/// The cluster that the user names does not exist.
pub(super) fn cluster_not_found(cluster: &ObjectKey) -> Event {
    let note =
        format!("RayCluster {cluster} set in the clusterSelector is not found. It must be created manually");
    Event::warning(reasons::RAY_CLUSTER_NOT_FOUND, "Validate", note)
}

/// The cluster was created.
pub(super) fn created_cluster(cluster: &ObjectKey) -> Event {
    Event::normal(reasons::CREATED_RAY_CLUSTER, "Create", format!("Created RayCluster {cluster}"))
}

/// The cluster cannot be created.
pub(super) fn failed_to_create_cluster(cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to create RayCluster {cluster}: {cause}");
    Event::warning(reasons::FAILED_TO_CREATE_RAY_CLUSTER, "Create", note)
}

/// The cluster was deleted.
pub(super) fn deleted_cluster(cluster: &ObjectKey) -> Event {
    Event::normal(reasons::DELETED_RAY_CLUSTER, "Delete", format!("Deleted cluster {cluster}"))
}

/// The cluster cannot be deleted.
pub(super) fn failed_to_delete_cluster(cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to delete cluster {cluster}: {cause}");
    Event::warning(&reasons::failed_to("Delete", "RayCluster"), "Delete", note)
}

/// The worker groups of the cluster were suspended.
pub(super) fn suspended_workers(cluster: &ObjectKey) -> Event {
    let note = format!("Set the `suspend` field to true for all worker groups in cluster {cluster}");
    Event::normal(reasons::UPDATED_RAY_CLUSTER, "Update", note)
}

/// The worker groups of the cluster cannot be suspended.
pub(super) fn failed_to_suspend_workers(cluster: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to suspend worker groups in cluster {cluster}: {cause}");
    Event::warning(&reasons::failed_to("Update", "RayCluster"), "Update", note)
}

/// The submitter was created.
pub(super) fn created_submitter(submitter: &ObjectKey) -> Event {
    Event::normal(reasons::CREATED_RAY_JOB_SUBMITTER, "Create", format!("Created Kubernetes Job {submitter}"))
}

/// The submitter cannot be created.
pub(super) fn failed_to_create_submitter(submitter: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to create new Kubernetes Job {submitter}: {cause}");
    Event::warning(reasons::FAILED_TO_CREATE_RAY_JOB_SUBMITTER, "Create", note)
}

/// The submitter was deleted.
pub(super) fn deleted_submitter(submitter: &ObjectKey) -> Event {
    let note = format!("Deleted submitter K8s Job {submitter}");
    Event::normal(reasons::DELETED_RAY_JOB_SUBMITTER, "Delete", note)
}

/// The submitter cannot be deleted.
pub(super) fn failed_to_delete_submitter(submitter: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to delete submitter K8s Job {submitter}: {cause}");
    Event::warning(&reasons::failed_to("Delete", "RayJobSubmitter"), "Delete", note)
}

#[cfg(test)]
mod tests {
    use quintet_controller::plan::EventKind::{Normal, Warning};

    use super::*;

    #[test]
    fn events_about_rayjobs_have_kuberays_words() {
        let (job, cluster) = (ObjectKey::new("ns", "train"), ObjectKey::new("ns", "train-x7k2p"));
        let wrong = Invalid { reason: reasons::INVALID_RAY_JOB_SPEC, message: "no".to_owned() };
        for (event, kind, reason, action, note) in [
            (invalid(&job, &wrong), Warning, "InvalidRayJobSpec", "Validate", "ns/train: no"),
            (
                cluster_not_found(&cluster),
                Warning,
                "RayClusterNotFound",
                "Validate",
                "RayCluster ns/train-x7k2p set in the clusterSelector is not found. It must be created manually",
            ),
            (
                created_cluster(&cluster),
                Normal,
                "CreatedRayCluster",
                "Create",
                "Created RayCluster ns/train-x7k2p",
            ),
            (
                failed_to_create_cluster(&cluster, "no"),
                Warning,
                "FailedToCreateRayCluster",
                "Create",
                "Failed to create RayCluster ns/train-x7k2p: no",
            ),
            (
                deleted_cluster(&cluster),
                Normal,
                "DeletedRayCluster",
                "Delete",
                "Deleted cluster ns/train-x7k2p",
            ),
            (
                failed_to_delete_cluster(&cluster, "no"),
                Warning,
                "FailedToDeleteRayCluster",
                "Delete",
                "Failed to delete cluster ns/train-x7k2p: no",
            ),
            (
                suspended_workers(&cluster),
                Normal,
                "UpdatedRayCluster",
                "Update",
                "Set the `suspend` field to true for all worker groups in cluster ns/train-x7k2p",
            ),
            (
                failed_to_suspend_workers(&cluster, "no"),
                Warning,
                "FailedToUpdateRayCluster",
                "Update",
                "Failed to suspend worker groups in cluster ns/train-x7k2p: no",
            ),
            (
                created_submitter(&job),
                Normal,
                "CreatedRayJobSubmitter",
                "Create",
                "Created Kubernetes Job ns/train",
            ),
            (
                failed_to_create_submitter(&job, "no"),
                Warning,
                "FailedToCreateRayJobSubmitter",
                "Create",
                "Failed to create new Kubernetes Job ns/train: no",
            ),
            (
                deleted_submitter(&job),
                Normal,
                "DeletedRayJobSubmitter",
                "Delete",
                "Deleted submitter K8s Job ns/train",
            ),
            (
                failed_to_delete_submitter(&job, "no"),
                Warning,
                "FailedToDeleteRayJobSubmitter",
                "Delete",
                "Failed to delete submitter K8s Job ns/train: no",
            ),
        ] {
            let expected = Event { kind, ..Event::normal(reason, action, note) };
            assert_eq!(event, expected);
        }
    }
}
