//! RayJob: a Ray job with the cluster it runs on.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::{RayClusterSpec, RayClusterStatus};
use crate::ray::rules::{DELETION_CONDITION, DELETION_STRATEGY, MANAGED_BY};
use crate::resource::resource;
use crate::schema::rules;

resource! {
    /// Runs one job on Ray: makes a RayCluster or takes an existing one, submits the job, follows it and
    /// cleans up.
    RayJob in "ray.io" "v1", namespaced "rayjobs" {
        /// The job and the cluster it runs on.
        #[serde(default)]
        spec: RayJobSpec,
    }
    maybe {
        /// Progress of the job; written by the operator only.
        status: RayJobStatus,
    }
}

/// A Ray job. Either `rayClusterSpec` or `clusterSelector` is required. An invalid spec waits in
/// `ValidationFailed` until it is corrected.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobSpec {
    /// Seconds each attempt may take from its start, cluster creation included; above 0. A job that exceeds
    /// it fails and is not retried. Absent: no limit.
    pub active_deadline_seconds: Option<i32>,
    /// Retries after a failure, each with a new RayCluster; default 0. Not available with `clusterSelector`
    /// or `InteractiveMode`.
    #[schemars(extend("default" = 0))]
    pub backoff_limit: Option<i32>,
    /// Existing RayCluster to use, as `ray.io/cluster: NAME`: a name in this namespace, not a label query.
    /// Such a cluster is never deleted, and excludes `suspend`, retries and `SidecarMode`.
    pub cluster_selector: Option<BTreeMap<String, String>>,
    /// What to delete after the job, and when; finer than `shutdownAfterJobFinishes`. Its `deletionRules`
    /// exclude that field and hence `suspend`, on which Kueue depends.
    pub deletion_strategy: Option<DeletionStrategy>,
    /// Shell command Ray runs as the job, e.g. `python /home/ray/app.py`. Needed except in `InteractiveMode`.
    /// The submitter's shell expands `$` and backquotes in it.
    pub entrypoint: Option<String>,
    /// CPUs Ray reserves for the entrypoint, so that it may run on a worker; fractions allowed. 0 or absent:
    /// none, it runs on the head.
    pub entrypoint_num_cpus: Option<f64>,
    /// GPUs Ray reserves for the entrypoint, fractions allowed. 0 or absent: none.
    pub entrypoint_num_gpus: Option<f64>,
    /// Custom resources Ray reserves for the entrypoint, as the text of a JSON object, e.g. `{"disk": 1}`.
    pub entrypoint_resources: Option<String>,
    /// Submission ID of the job in Ray. Absent: the RayJob's name and five random characters. In
    /// `InteractiveMode` set it after submitting the job by hand.
    pub job_id: Option<String>,
    /// Who reconciles the job: `ray.io/kuberay-operator` (also when absent) or `kueue.x-k8s.io/multikueue`,
    /// which makes this operator leave the object alone. Cannot be changed once set.
    #[schemars(transform = rules(MANAGED_BY))]
    pub managed_by: Option<String>,
    /// Metadata stored with the job in Ray. With `rayClusterSpec.rayVersion` set, that must be 2.6.0 or
    /// newer.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Seconds from the start of an attempt within which the job must have been handed to Ray. Exceeding it
    /// is a failure, retried within `backoffLimit`. Absent: no limit.
    #[schemars(range(min = 1))]
    pub pre_running_deadline_seconds: Option<i32>,
    /// Cluster to make for the job, see `kubectl explain raycluster.spec`. Changes after creation are
    /// ignored.
    pub ray_cluster_spec: Option<RayClusterSpec>,
    /// Ray runtime environment of the job (`pip`, `env_vars`, `working_dir` ...), as the text of a YAML
    /// mapping.
    #[serde(rename = "runtimeEnvYAML")]
    pub runtime_env_yaml: Option<String>,
    /// When true, the RayCluster is deleted `ttlSecondsAfterFinished` after the job has ended; the RayJob and
    /// the submitter's logs stay. Default false. Required for `suspend`.
    pub shutdown_after_job_finishes: Option<bool>,
    /// How the job reaches Ray: `K8sJobMode` (default, a Job runs `ray job submit`), `HTTPMode` (the operator
    /// posts it), `SidecarMode` (a container in the head pod submits) or `InteractiveMode` (you do).
    #[schemars(extend("default" = "K8sJobMode"))]
    pub submission_mode: Option<String>,
    /// Settings of the submitting Job. Not allowed in `SidecarMode`.
    pub submitter_config: Option<SubmitterConfig>,
    /// Pod template of the submitter in `K8sJobMode`, see `kubectl explain pod.spec`; nothing is defaulted,
    /// so set `restartPolicy`. Without a command the first container gets the generated one. Absent: the
    /// head's image.
    pub submitter_pod_template: Option<PodTemplateSpec>,
    /// When true, the RayCluster and the submitter are deleted, and setting it to false starts the job anew;
    /// a finished job is unaffected. Default false. Used by Kueue; needs `shutdownAfterJobFinishes`.
    pub suspend: Option<bool>,
    /// Seconds to keep the RayCluster after the job has ended; default 0. Above 0 only with
    /// `shutdownAfterJobFinishes`.
    #[schemars(extend("default" = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// Cleanup after the job: either `deletionRules`, or both of `onSuccess` and `onFailure`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(DELETION_STRATEGY))]
pub struct DeletionStrategy {
    /// Rules applied once the job has ended. Of several that are due, only the one deleting most is carried
    /// out.
    #[schemars(length(min = 1))]
    pub deletion_rules: Option<Vec<DeletionRule>>,
    /// Cleanup after a failed job. Deprecated: use `deletionRules`.
    pub on_failure: Option<DeletionPolicy>,
    /// Cleanup after a job that succeeded. Deprecated: use `deletionRules`.
    pub on_success: Option<DeletionPolicy>,
}

/// One deletion and when it is due. Each pair of policy and status may occur once.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionRule {
    /// When the rule is due.
    pub condition: DeletionCondition,
    /// What the rule deletes. For one status, workers must not go later than the cluster, nor the cluster
    /// later than the RayJob.
    pub policy: DeletionPolicyType,
}

/// A state of the RayJob and a delay after its end. Exactly one of the two statuses is required.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(DELETION_CONDITION))]
pub struct DeletionCondition {
    /// Matches `status.jobDeploymentStatus`. Use it to also catch jobs that failed before Ray ran them, or at
    /// a deadline.
    pub job_deployment_status: Option<DeletionJobDeploymentStatus>,
    /// Matches `status.jobStatus`, what Ray says of the job. A job stopped by hand matches neither value.
    pub job_status: Option<DeletionJobStatus>,
    /// Seconds to wait after `status.endTime`; default 0.
    #[schemars(range(min = 0), extend("default" = 0))]
    pub ttl_seconds: Option<i32>,
}

/// States of the RayJob a rule can ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DeletionJobDeploymentStatus {
    #[default]
    /// The RayJob has failed, for whatever reason.
    Failed,
}

/// Results of the job in Ray a rule can ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DeletionJobStatus {
    #[default]
    #[serde(rename = "SUCCEEDED")]
    /// The job ended well.
    Succeeded,
    #[serde(rename = "FAILED")]
    /// The job ended with an error.
    Failed,
}

/// What to delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicyType {
    #[default]
    /// The RayCluster. Not allowed with `clusterSelector`.
    DeleteCluster,
    /// The worker pods; the head stays for its dashboard and logs. Not allowed with `clusterSelector` or
    /// autoscaling.
    DeleteWorkers,
    /// The RayJob and with it all it made.
    DeleteSelf,
    /// Nothing.
    DeleteNone,
}

/// Cleanup for one outcome of the job, due after `ttlSecondsAfterFinished`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionPolicy {
    /// What to delete; required. `DeleteNone` contradicts `shutdownAfterJobFinishes`.
    pub policy: Option<DeletionPolicyType>,
}

/// Settings of the Job that submits.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmitterConfig {
    /// How often Kubernetes retries the submitter pod; 2 when absent. Unlike the RayJob's own `backoffLimit`,
    /// this keeps the RayCluster.
    pub backoff_limit: Option<i32>,
}

/// What was observed of a RayJob.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobStatus {
    /// Host and port of the Ray dashboard, without a scheme; empty until the cluster is ready.
    #[serde(rename = "dashboardURL")]
    pub dashboard_url: Option<String>,
    /// When the RayJob became `Complete` or `Failed`; time-based cleanup counts from here.
    pub end_time: Option<Time>,
    /// Failed attempts so far, the last one included.
    #[schemars(extend("default" = 0))]
    pub failed: Option<i32>,
    /// Where the RayJob stands: empty, `Initializing`, `Waiting`, `Running`, `Complete`, `Failed`,
    /// `ValidationFailed`, `Suspending`, `Suspended` or `Retrying`.
    pub job_deployment_status: Option<String>,
    /// Submission ID of the current attempt in Ray, for `ray job logs` and the like.
    pub job_id: Option<String>,
    /// What Ray says of the job: empty before submission, then `PENDING`, `RUNNING`, `STOPPED`, `SUCCEEDED`
    /// or `FAILED`.
    pub job_status: Option<String>,
    /// Since when Ray cannot be asked about the job; absent while it can. After five minutes (by default) the
    /// RayJob fails.
    pub job_status_check_failure_start_time: Option<Time>,
    /// Explanation of the state, from Ray or from the operator.
    pub message: Option<String>,
    /// Not written; kept for old clients.
    pub observed_generation: Option<i64>,
    /// RayCluster of the current attempt.
    pub ray_cluster_name: Option<String>,
    /// Copy of that RayCluster's status.
    pub ray_cluster_status: Option<RayClusterStatus>,
    /// Times reported by Ray.
    pub ray_job_info: Option<RayJobInfo>,
    /// Why it failed: `SubmissionFailed`, `AppFailed`, `DeadlineExceeded`, `PreRunningDeadlineExceeded`,
    /// `JobStatusCheckTimeoutExceeded`, `JobDeploymentStatusTransitionGracePeriodExceeded` or
    /// `ValidationFailed`.
    pub reason: Option<String>,
    /// When the current attempt began; renewed by each retry and resumption, so deadlines count per attempt.
    pub start_time: Option<Time>,
    /// 1 once the job has succeeded, else 0.
    #[schemars(extend("default" = 0))]
    pub succeeded: Option<i32>,
}

/// Times of the job in Ray.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobInfo {
    /// When the job ended in Ray; absent while it runs.
    pub end_time: Option<Time>,
    /// When the job began in Ray.
    pub start_time: Option<Time>,
}
