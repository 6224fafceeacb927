//! Labels, annotations and controller names of Kueue.

/// Label of a Workload: the UID of its job.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// Label of a Workload that runs as one of several variants: it is never queued itself.
pub const CONCURRENT_ADMISSION_PARENT: &str = "kueue.x-k8s.io/concurrent-admission-parent";

/// Annotation of a Workload: a number that is added to its priority.
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// Annotation of a Workload: a list of closed admission gates.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// Annotation of a slice: the slice it replaces, as `namespace/name`.
pub const SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// Annotation of a variant: the flavors it may use.
pub const ALLOWED_RESOURCE_FLAVORS: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// Annotation of a job that may change its size while it runs.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// Annotation of the Workload of a group of pods.
pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";

/// Finalizer of objects that others refer to, and of Workloads whose job exists.
pub const RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";

/// Annotations of a pod that is placed by topology aware scheduling.
pub const TOPOLOGY_REQUESTS: [&str; 5] = [
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
];

/// The controller of MultiKueue checks.
pub const MULTIKUEUE_CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// The controller of ProvisioningRequest checks.
pub const PROVISIONING_REQUEST_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
