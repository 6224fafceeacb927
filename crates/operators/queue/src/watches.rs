//! What the controllers watch, with the indexes by which they find objects.

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::PROVISIONING_REQUEST_CONTROLLER;
use quintet_api::kueue::v1beta2::{AdmissionCheck, ClusterQueue, LocalQueue, ResourceFlavor, Workload};
use quintet_controller::ObjectKey;
use quintet_controller::cache::{Entry, WatchSpec};

use crate::jobs::SLICE_NAME;
use crate::topology::assigned_nodes;

/// Workloads by the uid of an owner.
pub(crate) const BY_OWNER: &str = "owner";
/// Workloads by kind and name of the job that controls them, see [`job_index`].
pub(crate) const BY_JOB: &str = "job";
/// Workloads by the LocalQueue they name, as `namespace/name`.
pub(crate) const BY_LOCAL_QUEUE: &str = "localQueue";
/// Workloads by namespace.
pub(crate) const BY_NAMESPACE: &str = "namespace";
/// Workloads by the ClusterQueue that they have quota of.
pub(crate) const BY_ADMISSION: &str = "admission";
/// Workloads by their WorkloadPriorityClass.
pub(crate) const BY_PRIORITY_CLASS: &str = "priorityClass";
/// Workloads of elastic jobs by the first of their slices, as `namespace/name`.
pub(crate) const BY_SLICE: &str = "slice";
/// Workloads by the nodes that they are placed on.
pub(crate) const BY_NODE: &str = "node";
/// Workloads by the checks that they list.
pub(crate) const BY_STATE_OF_CHECK: &str = "stateOfCheck";
/// LocalQueues by ClusterQueue.
pub(crate) const BY_CLUSTER_QUEUE: &str = "clusterQueue";
/// ClusterQueues by flavor.
pub(crate) const BY_FLAVOR: &str = "flavor";
/// ClusterQueues by admission check.
pub(crate) const BY_CHECK: &str = "check";
/// AdmissionChecks of ProvisioningRequests by ProvisioningRequestConfig.
pub(crate) const BY_CONFIG: &str = "config";
/// ResourceFlavors by topology.
pub(crate) const BY_TOPOLOGY: &str = "topology";

pub(crate) fn workloads() -> WatchSpec<Workload> {
    WatchSpec::<Workload>::typed()
        .index(BY_OWNER, |entry| {
            let owners = entry.object.metadata.owner_references.iter().flatten();
            owners.map(|owner| owner.uid.clone()).collect()
        })
        .index(BY_JOB, |entry| {
            let owners = entry.object.metadata.owner_references.iter().flatten();
            let job = |name: &str| ObjectKey::new(entry.key.namespace().unwrap_or_default(), name);
            let controllers = owners.filter(|owner| owner.controller == Some(true));
            controllers.map(|owner| job_index(&owner.kind, &job(&owner.name))).collect()
        })
        .index(BY_LOCAL_QUEUE, |entry| local_queue_of(entry).map(|key| key.to_string()).into_iter().collect())
        .index(BY_NAMESPACE, |entry| entry.key.namespace().map(str::to_owned).into_iter().collect())
        .index(BY_ADMISSION, |entry| {
            let admission = entry.object.status.as_ref().and_then(|status| status.admission.as_ref());
            admission.and_then(|admission| admission.cluster_queue.clone()).into_iter().collect()
        })
        .index(BY_PRIORITY_CLASS, |entry| {
            let class = entry.object.spec.priority_class_ref.as_ref();
            class.map(|class| class.name.clone()).into_iter().collect()
        })
        .index(BY_SLICE, |entry| {
            let annotations = entry.object.metadata.annotations.as_ref();
            let first = annotations.and_then(|annotations| annotations.get(SLICE_NAME));
            let namespace = entry.key.namespace().unwrap_or_default();
            first.map(|name| ObjectKey::new(namespace, name).to_string()).into_iter().collect()
        })
        .index(BY_NODE, |entry| {
            let is_over = entry.object.is_finished() || entry.object.is_evicted();
            if is_over { Vec::new() } else { assigned_nodes(&entry.object).into_iter().collect() }
        })
        .index(BY_STATE_OF_CHECK, |entry| {
            let status = entry.object.status.as_ref();
            let checks = status.into_iter().flat_map(|status| status.admission_checks.iter().flatten());
            checks.map(|check| check.name.clone()).collect()
        })
}

pub(crate) fn admission_checks() -> WatchSpec<AdmissionCheck> {
    WatchSpec::<AdmissionCheck>::typed().index(BY_CONFIG, |entry| {
        let spec = &entry.object.spec;
        let is_ours = spec.controller_name == PROVISIONING_REQUEST_CONTROLLER;
        let parameters = spec.parameters.as_ref().filter(|_| is_ours);
        parameters.map(|parameters| parameters.name.clone()).into_iter().collect()
    })
}

pub(crate) fn local_queues() -> WatchSpec<LocalQueue> {
    WatchSpec::<LocalQueue>::typed()
        .index(BY_CLUSTER_QUEUE, |entry| entry.object.spec.cluster_queue.clone().into_iter().collect())
}

pub(crate) fn cluster_queues() -> WatchSpec<ClusterQueue> {
    WatchSpec::<ClusterQueue>::typed().index(BY_FLAVOR, |entry| flavors_of(&entry.object)).index(
        BY_CHECK,
        |entry| {
            let strategy = entry.object.spec.admission_checks_strategy.as_ref();
            let rules = strategy.into_iter().flat_map(|strategy| &strategy.admission_checks);
            rules.map(|rule| rule.name.clone()).collect()
        },
    )
}

pub(crate) fn resource_flavors() -> WatchSpec<ResourceFlavor> {
    WatchSpec::<ResourceFlavor>::typed()
        .index(BY_TOPOLOGY, |entry| entry.object.spec.topology_name.clone().into_iter().collect())
}

/// The key of a job in [`BY_JOB`].
pub(crate) fn job_index(kind: &str, job: &ObjectKey) -> String {
    format!("{kind} {job}")
}

/// The flavors of a ClusterQueue, in order.
pub(crate) fn flavors_of(queue: &ClusterQueue) -> Vec<String> {
    let groups = queue.spec.resource_groups.iter().flatten();
    groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.clone()).collect()
}

/// The LocalQueue that a Workload names.
pub(crate) fn local_queue_of(entry: &Entry<Workload>) -> Option<ObjectKey> {
    let name = entry.object.spec.queue_name.as_deref()?;
    Some(ObjectKey::new(entry.key.namespace()?, name))
}
