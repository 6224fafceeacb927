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

/// Annotation of the Workload of a StatefulSet or a LeaderWorkerSet: group, version and kind of that.
pub const JOB_OWNER_GVK: &str = "kueue.x-k8s.io/job-owner-gvk";
/// Annotation of the Workload of a StatefulSet or a LeaderWorkerSet: the name of that.
pub const JOB_OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";

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
/// Label of objects that a manager cluster has created: which manager.
pub const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// Label of pods on a worker cluster whose job belongs to a manager cluster.
pub const MULTIKUEUE_WORKER_POD: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";
/// The dispatcher that tries all clusters at the same time.
pub const DISPATCHER_ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
/// The dispatcher that tries some clusters first, and more later.
pub const DISPATCHER_INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
/// The controller of ProvisioningRequest checks.
pub const PROVISIONING_REQUEST_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";

/// Label of a job: its LocalQueue.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// Label of a job: its WorkloadPriorityClass.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// Label of a job: how long it may run, in seconds.
pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// Annotation or label of a job: the Workload that its user has made for it.
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// Annotation of a pod: its Workload.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// Label of a pod: its pod set.
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
/// Label of a pod: its LocalQueue.
pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
/// Label of a pod: the ClusterQueue it has quota of.
pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";

/// Annotation of a Job: how few of its pods may run at the same time.
pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Annotation of a Job whose completions follow its parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// Annotation of a Job that is being stopped.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";

/// Prefix of annotations that are parameters of a ProvisioningRequest.
pub const PROVISIONING_PREFIX: &str = "provreq.kueue.x-k8s.io/";

/// Label of pods that Kueue manages.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Finalizer of pods that Kueue manages.
pub const MANAGED_FINALIZER: &str = "kueue.x-k8s.io/managed";
/// Scheduling gate of pods that wait for admission.
pub const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";
/// Scheduling gate of pods that wait for their place in a topology.
pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
/// Annotation of a pod: a hash of what makes it like others of its group.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Annotation of a pod whose Deployment, StatefulSet or LeaderWorkerSet Kueue manages: the kind.
pub const POD_SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Annotation or label of a pod: its group.
pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// Annotation of a pod: how many pods its group has.
pub const POD_GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Annotation of a pod whose group is admitted before all of its pods exist.
pub const POD_GROUP_FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// Annotation of a pod: what is taken off its index to get its rank.
pub const POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
/// Annotation of a Workload of a LeaderWorkerSet: which group it is for.
pub const COMPONENT_WORKLOAD_INDEX: &str = "kueue.x-k8s.io/component-workload-index";
/// Annotation of a pod of a group that serves and never ends.
pub const POD_GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// Annotation of a pod that may be deleted without its end being known, when its node is unreachable.
pub const SAFE_TO_FORCEFULLY_DELETE: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";
/// Annotation of a pod that must not be replaced.
pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
/// Annotation of a pod: the label with its index in the group.
pub const POD_GROUP_POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// Label of a pod: its index in the group.
pub const POD_GROUP_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
