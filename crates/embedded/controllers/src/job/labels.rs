//! Labels, annotations, conditions and reasons of Jobs, as upstream's `batch/v1` types name them.

pub(crate) const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(super) const CONTROLLER: &str = "kubernetes.io/job-controller";
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
pub(super) const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

pub(crate) const COMPLETE: &str = "Complete";
pub(crate) const FAILED: &str = "Failed";
pub(super) const SUSPENDED: &str = "Suspended";
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

pub(super) const COMPLETIONS_REACHED: &str = "CompletionsReached";
pub(super) const SUCCESS_POLICY: &str = "SuccessPolicy";
pub(super) const BACKOFF_LIMIT_EXCEEDED: &str = "BackoffLimitExceeded";
pub(super) const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
pub(super) const POD_FAILURE_POLICY: &str = "PodFailurePolicy";
pub(super) const MAX_FAILED_INDEXES_EXCEEDED: &str = "MaxFailedIndexesExceeded";
pub(super) const FAILED_INDEXES: &str = "FailedIndexes";
pub(super) const JOB_SUSPENDED: &str = "JobSuspended";
pub(super) const JOB_RESUMED: &str = "JobResumed";

pub(super) const EVENT_COMPLETED: &str = "Completed";
pub(super) const EVENT_SUSPENDED: &str = "Suspended";
pub(super) const EVENT_RESUMED: &str = "Resumed";
pub(super) const EVENT_TOO_MANY_SUCCEEDED: &str = "TooManySucceededPods";
