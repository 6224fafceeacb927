//! Reasons in the status of Ray's kinds: of conditions, and of RayJobs.

// Conditions of RayClusters.

/// `HeadPodReady`: no head Pod exists.
pub const HEAD_POD_NOT_FOUND: &str = "HeadPodNotFound";
/// `HeadPodReady`: the head Pod is ready.
pub const HEAD_POD_RUNNING_AND_READY: &str = "HeadPodRunningAndReady";
/// `HeadPodReady`: the kubelet gives no valid reason.
pub const UNKNOWN: &str = "Unknown";
/// `RayClusterProvisioned`: all Pods were ready once.
pub const ALL_POD_RUNNING_AND_READY_FIRST_TIME: &str = "AllPodRunningAndReadyFirstTime";
/// `RayClusterProvisioned`: Pods are starting.
pub const RAY_CLUSTER_PODS_PROVISIONING: &str = "RayClusterPodsProvisioning";
/// `ReplicaFailure`: the head Pod cannot be created.
pub const FAILED_CREATE_HEAD_POD: &str = "FailedCreateHeadPod";
/// `ReplicaFailure`: a worker Pod cannot be created.
pub const FAILED_CREATE_WORKER_POD: &str = "FailedCreateWorkerPod";
/// `ReplicaFailure`: the head Pod cannot be deleted.
pub const FAILED_DELETE_HEAD_POD: &str = "FailedDeleteHeadPod";
/// `ReplicaFailure`: a worker Pod cannot be deleted.
pub const FAILED_DELETE_WORKER_POD: &str = "FailedDeleteWorkerPod";
/// `ReplicaFailure`: the Pods of a suspended cluster cannot be deleted.
pub const FAILED_DELETE_ALL_PODS: &str = "FailedDeleteAllPods";

// Conditions of RayServices.

/// Nothing has served yet.
pub const INITIALIZING: &str = "Initializing";
/// Nothing has served for too long.
pub const INITIALIZING_TIMEOUT: &str = "InitializingTimeout";
/// The spec is invalid. Also `status.reason` of RayJobs.
pub const VALIDATION_FAILED: &str = "ValidationFailed";
/// `Ready`: some endpoint takes requests.
pub const NON_ZERO_SERVE_ENDPOINTS: &str = "NonZeroServeEndpoints";
/// `Ready`: no endpoint takes requests any more.
pub const ZERO_SERVE_ENDPOINTS: &str = "ZeroServeEndpoints";
/// `UpgradeInProgress`: an active and a pending cluster exist.
pub const BOTH_ACTIVE_PENDING_CLUSTERS_EXIST: &str = "BothActivePendingClustersExist";
/// `UpgradeInProgress`: only an active cluster exists.
pub const NO_PENDING_CLUSTER: &str = "NoPendingCluster";
/// `UpgradeInProgress`: no active cluster exists.
pub const NO_ACTIVE_CLUSTER: &str = "NoActiveCluster";
/// `RollbackInProgress`: the spec is not that of the pending cluster any more.
pub const DESIRED_CLUSTER_SPEC_CHANGED: &str = "DesiredClusterSpecChanged";
/// `spec.suspend` was set.
pub const SUSPEND_REQUESTED: &str = "SuspendRequested";
/// Objects are being deleted.
pub const SUSPEND_IN_PROGRESS: &str = "SuspendInProgress";
/// All objects are deleted.
pub const SUSPEND_COMPLETE: &str = "SuspendComplete";
/// `spec.suspend` was unset.
pub const RAY_SERVICE_RESUMED: &str = "RayServiceResumed";

// `status.reason` of RayJobs.

/// The submitter failed.
pub const SUBMISSION_FAILED: &str = "SubmissionFailed";
/// `activeDeadlineSeconds` have passed.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// `preRunningDeadlineSeconds` have passed.
pub const PRE_RUNNING_DEADLINE_EXCEEDED: &str = "PreRunningDeadlineExceeded";
/// The Ray job failed.
pub const APP_FAILED: &str = "AppFailed";
/// Ray and the submitter do not agree that the job has ended.
pub const JOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_EXCEEDED: &str =
    "JobDeploymentStatusTransitionGracePeriodExceeded";
/// The status of the Ray job could not be read for too long.
pub const JOB_STATUS_CHECK_TIMEOUT_EXCEEDED: &str = "JobStatusCheckTimeoutExceeded";
