//! Labels, annotations and the finalizer of AppWrappers.

/// Holds an AppWrapper until its components are gone.
pub const FINALIZER: &str = "workload.codeflare.dev/finalizer";
/// On components and their pods: the AppWrapper they belong to.
pub const APP_WRAPPER: &str = "workload.codeflare.dev/appwrapper";
/// On AppWrappers: who created it.
pub const USER: &str = "workload.codeflare.dev/user";
/// On AppWrappers: the uid of who created it.
pub const USER_ID: &str = "workload.codeflare.dev/userid";
/// The value of `spec.managedBy` that means this operator.
pub const CONTROLLER: &str = "workload.codeflare.dev/appwrapper-controller";

/// Time for components to be created and for all pods to appear.
pub const ADMISSION_GRACE_PERIOD: &str = "workload.codeflare.dev.appwrapper/admissionGracePeriodDuration";
/// Time for all pods to run.
pub const WARMUP_GRACE_PERIOD: &str = "workload.codeflare.dev.appwrapper/warmupGracePeriodDuration";
/// Time for failed pods to be replaced.
pub const FAILURE_GRACE_PERIOD: &str = "workload.codeflare.dev.appwrapper/failureGracePeriodDuration";
/// Pause before a retry.
pub const RETRY_PAUSE_PERIOD: &str = "workload.codeflare.dev.appwrapper/retryPausePeriodDuration";
/// Retries before an AppWrapper fails.
pub const RETRY_LIMIT: &str = "workload.codeflare.dev.appwrapper/retryLimit";
/// Time for deleted components to go before they are forced to.
pub const FORCEFUL_DELETION_GRACE_PERIOD: &str =
    "workload.codeflare.dev.appwrapper/forcefulDeletionGracePeriodDuration";
/// How long the components of a failed AppWrapper are kept.
pub const DELETION_ON_FAILURE_GRACE_PERIOD: &str =
    "workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration";
/// How long the components of an AppWrapper that succeeded are kept.
pub const SUCCESS_TTL: &str = "workload.codeflare.dev.appwrapper/successTTLDuration";
/// Exit codes after which an AppWrapper is not retried.
pub const TERMINAL_EXIT_CODES: &str = "workload.codeflare.dev.appwrapper/terminalExitCodes";
/// The only exit codes after which an AppWrapper is retried.
pub const RETRYABLE_EXIT_CODES: &str = "workload.codeflare.dev.appwrapper/retryableExitCodes";

/// On pod sets: the label that numbers the pods.
pub const TAS_POD_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
/// On pod sets: the label that numbers groups of pods.
pub const TAS_SUB_GROUP_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
/// On pod sets: the number of groups of pods.
pub const TAS_SUB_GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";
