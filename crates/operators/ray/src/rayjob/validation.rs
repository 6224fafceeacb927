//! What a RayJob must be like. Errors are sentences for the user, in upstream's words where tools look for
//! them.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::ray::events;
use quintet_api::ray::v1::{
    DeletionPolicyType, DeletionRule, DeletionStrategy, RayClusterSpec, RayJob, RayJobSpec,
};

use crate::{labels, names, raycluster::validation as raycluster, settings::Settings, validation::metadata};

/// A RayJob that cannot be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Reason of the event.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
}

/// All rules, in the order in which users hear of them.
pub fn validate(job: &RayJob, settings: &Settings) -> Result<(), Invalid> {
    let invalid = |reason| move |message| Invalid { reason, message };
    validate_metadata(job).map_err(invalid(events::INVALID_RAY_JOB_METADATA))?;
    let annotations = job.metadata.annotations.clone().unwrap_or_default();
    validate_spec(&job.spec, &annotations, settings).map_err(invalid(events::INVALID_RAY_JOB_SPEC))?;
    validate_status(job).map_err(invalid(events::INVALID_RAY_JOB_STATUS))
}

/// The rules for `metadata`, which a webhook can check before anything is stored.
pub fn validate_metadata(job: &RayJob) -> Result<(), String> {
    metadata::name("RayJob", job.metadata.name.as_deref().unwrap_or_default(), names::MAX_WORKLOAD_NAME)
}

fn wrong(text: impl AsRef<str>) -> Result<(), String> {
    Err(format!("The RayJob spec is invalid: {}", text.as_ref()))
}

/// The rules for `spec`.
pub fn validate_spec(
    spec: &RayJobSpec,
    annotations: &BTreeMap<String, String>,
    settings: &Settings,
) -> Result<(), String> {
    let shuts_down = spec.shutdown_after_job_finishes == Some(true);
    let suspended = spec.suspend == Some(true);
    let mode = Mode::of(spec);
    if suspended && !shuts_down {
        return wrong(
            "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended; set \
             shutdownAfterJobFinishes to true",
        );
    }
    let ttl = spec.ttl_seconds_after_finished.unwrap_or_default();
    if ttl < 0 {
        return wrong("ttlSecondsAfterFinished must be a non-negative integer");
    }
    if ttl > 0 && !shuts_down {
        return wrong(
            "a RayJob with shutdownAfterJobFinishes set to false cannot have ttlSecondsAfterFinished",
        );
    }
    if let Some(strategy) = &spec.deletion_strategy {
        validate_deletion(spec, strategy, settings)?;
    }
    let selector = spec.cluster_selector.as_ref().filter(|selector| !selector.is_empty());
    if suspended && selector.is_some() {
        return wrong("the ClusterSelector mode doesn't support the suspend operation");
    }
    if spec.ray_cluster_spec.is_none() && selector.is_none() {
        return wrong("one of rayClusterSpec or clusterSelector must be set");
    }
    let retries = spec.backoff_limit.unwrap_or_default();
    if let Some(selector) = selector {
        if selector.get(labels::CLUSTER).is_none_or(String::is_empty) {
            return wrong(format!(
                "cluster name in clusterSelector should not be empty; name the RayCluster under {}",
                labels::CLUSTER
            ));
        }
        if mode == Mode::Sidecar {
            return wrong("ClusterSelector is not supported in SidecarMode");
        }
        if retries > 0 {
            return wrong("backoffLimit is incompatible with ClusterSelector mode");
        }
    }
    if mode == Mode::Interactive && retries > 0 {
        return wrong("backoffLimit is incompatible with InteractiveMode");
    }
    if mode == Mode::Sidecar {
        validate_sidecar(spec)?;
    }
    if let Some(cluster_spec) = &spec.ray_cluster_spec {
        validate_cluster(cluster_spec, annotations, settings)?;
    }
    runtime_env(spec).map_err(|error| format!("The RayJob spec is invalid: {error}"))?;
    if spec.active_deadline_seconds.is_some_and(|seconds| seconds <= 0) {
        return wrong("activeDeadlineSeconds must be a positive integer");
    }
    if spec.pre_running_deadline_seconds.is_some_and(|seconds| seconds <= 0) {
        return wrong("preRunningDeadlineSeconds must be a positive integer");
    }
    if retries < 0 {
        return wrong("backoffLimit must be a non-negative integer");
    }
    Ok(())
}

fn validate_cluster(
    spec: &RayClusterSpec,
    annotations: &BTreeMap<String, String>,
    settings: &Settings,
) -> Result<(), String> {
    if spec.auth_options.as_ref().is_some_and(|options| options.enable_k8s_token_auth == Some(true)) {
        return wrong("authOptions.enableK8sTokenAuth is not supported for RayJob");
    }
    raycluster::validate_spec(spec, annotations, settings)
        .map_err(|error| format!("The RayJob spec is invalid: {error}"))
}

fn validate_sidecar(spec: &RayJobSpec) -> Result<(), String> {
    if spec.submitter_pod_template.is_some() {
        return wrong("submitterPodTemplate is not supported in SidecarMode");
    }
    if spec.submitter_config.is_some() {
        return wrong("submitterConfig is not supported in SidecarMode");
    }
    let head = spec
        .ray_cluster_spec
        .as_ref()
        .and_then(|cluster| cluster.head_group_spec.template.spec.as_ref()?.restart_policy.as_deref());
    match head {
        None | Some("" | "Never") => Ok(()),
        Some(_) => wrong("restartPolicy for head Pod should be Never or unset when using SidecarMode"),
    }
}

fn validate_status(job: &RayJob) -> Result<(), String> {
    let state = job.status.as_ref().and_then(|status| status.job_deployment_status.as_deref());
    if state == Some("Waiting") && Mode::of(&job.spec) != Mode::Interactive {
        return Err("The RayJob status is invalid: JobDeploymentStatus cannot be `Waiting` when \
                    SubmissionMode is not InteractiveMode"
            .to_owned());
    }
    Ok(())
}

/// How a job reaches Ray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A Job runs `ray job submit`; also what is not known counts as this nowhere but in its waiting.
    K8sJob,
    /// The operator posts it.
    Http,
    /// A container of the head submits it.
    Sidecar,
    /// The user submits it.
    Interactive,
    /// An unknown mode: nothing is submitted.
    Unknown,
}

impl Mode {
    /// The mode of a RayJob.
    pub fn of(spec: &RayJobSpec) -> Self {
        match spec.submission_mode.as_deref() {
            None | Some("" | "K8sJobMode") => Self::K8sJob,
            Some("HTTPMode") => Self::Http,
            Some("SidecarMode") => Self::Sidecar,
            Some("InteractiveMode") => Self::Interactive,
            Some(_) => Self::Unknown,
        }
    }

    /// Whether something of ours runs `ray job submit`, whose end has to be awaited.
    pub fn has_submitter(self) -> bool {
        matches!(self, Self::K8sJob | Self::Sidecar)
    }
}

/// The runtime environment as a JSON object, if there is one.
pub fn runtime_env(spec: &RayJobSpec) -> Result<Option<serde_json::Map<String, serde_json::Value>>, String> {
    let Some(text) = spec.runtime_env_yaml.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match serde_saphyr::from_str::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(map)) => Ok(Some(map)),
        Ok(serde_json::Value::Null) => Ok(None),
        Ok(_) => {
            Err("failed to parse runtimeEnvYAML: it must be a YAML mapping, such as `pip: [torch]`"
                .to_owned())
        }
        Err(error) => {
            let text = error.to_string();
            Err(format!("failed to parse runtimeEnvYAML: {}", text.lines().next().unwrap_or_default()))
        }
    }
}

fn validate_deletion(
    spec: &RayJobSpec,
    strategy: &DeletionStrategy,
    settings: &Settings,
) -> Result<(), String> {
    if !settings.gates.job_deletion_policy {
        return wrong(
            "RayJobDeletionPolicy feature gate must be enabled to use the DeletionStrategy feature",
        );
    }
    let rules = strategy.deletion_rules.as_deref().unwrap_or_default();
    let has_legacy = strategy.on_success.is_some() || strategy.on_failure.is_some();
    if spec.shutdown_after_job_finishes == Some(true) && !rules.is_empty() {
        return wrong(
            "spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are mutually exclusive",
        );
    }
    match (rules.is_empty(), has_legacy) {
        (false, true) => {
            wrong("Cannot use both legacy onSuccess/onFailure fields and deletionRules simultaneously")
        }
        (true, false) => wrong(
            "deletionStrategy requires either BOTH onSuccess and onFailure fields (legacy) OR deletionRules",
        ),
        (true, true) => validate_legacy(spec, strategy),
        (false, false) => validate_rules(spec, rules),
    }
}

fn autoscales(spec: &RayJobSpec) -> bool {
    spec.ray_cluster_spec.as_ref().is_some_and(|cluster| cluster.enable_in_tree_autoscaling == Some(true))
}

fn selects_cluster(spec: &RayJobSpec) -> bool {
    spec.cluster_selector.as_ref().is_some_and(|selector| !selector.is_empty())
}

fn validate_legacy(spec: &RayJobSpec, strategy: &DeletionStrategy) -> Result<(), String> {
    use DeletionPolicyType::{DeleteCluster, DeleteNone, DeleteWorkers};
    let policy =
        |side: &Option<quintet_api::ray::v1::DeletionPolicy>| side.as_ref().and_then(|side| side.policy);
    let (Some(success), Some(failure)) = (policy(&strategy.on_success), policy(&strategy.on_failure)) else {
        return wrong(
            "both deletionStrategy.onSuccess.policy and deletionStrategy.onFailure.policy must be set",
        );
    };
    let either = |wanted: &[DeletionPolicyType]| wanted.contains(&success) || wanted.contains(&failure);
    if selects_cluster(spec) && either(&[DeleteCluster, DeleteWorkers]) {
        return wrong(
            "the ClusterSelector mode doesn't support DeletionStrategy=DeleteCluster or DeleteWorkers",
        );
    }
    if autoscales(spec) && either(&[DeleteWorkers]) {
        return wrong(
            "DeletionStrategy=DeleteWorkers currently does not support RayCluster with autoscaling enabled",
        );
    }
    if spec.shutdown_after_job_finishes == Some(true) && either(&[DeleteNone]) {
        return wrong(
            "shutdownAfterJobFinishes is set to true while deletion policy is DeleteNone; choose one of them",
        );
    }
    Ok(())
}

/// All that is wrong with the rules at once: they are fixed together.
fn validate_rules(spec: &RayJobSpec, rules: &[DeletionRule]) -> Result<(), String> {
    use DeletionPolicyType::{DeleteCluster, DeleteWorkers};
    let mut errors = Vec::new();
    let mut observed = BTreeSet::new();
    let mut due: BTreeMap<&str, BTreeMap<DeletionPolicyType, i32>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let mut complain = |text: String| errors.push(format!("deletionRules[{index}]: {text}"));
        let condition = &rule.condition;
        let policy = rule.policy;
        let status = match (condition.job_status, condition.job_deployment_status) {
            (Some(_), Some(_)) => {
                complain("jobStatus and jobDeploymentStatus cannot be used together".to_owned());
                continue;
            }
            (None, None) => {
                complain("exactly one of jobStatus and jobDeploymentStatus must be set".to_owned());
                continue;
            }
            (Some(quintet_api::ray::v1::DeletionJobStatus::Succeeded), None) => "jobStatus SUCCEEDED",
            (Some(quintet_api::ray::v1::DeletionJobStatus::Failed), None) => "jobStatus FAILED",
            (None, Some(_)) => "jobDeploymentStatus Failed",
        };
        let ttl = condition.ttl_seconds.unwrap_or_default();
        if ttl < 0 {
            complain("ttlSeconds must be non-negative".to_owned());
        }
        if selects_cluster(spec) && matches!(policy, DeleteCluster | DeleteWorkers) {
            complain(format!("{policy:?} is not supported when using clusterSelector"));
        }
        if autoscales(spec) && policy == DeleteWorkers {
            complain("DeleteWorkers is not supported with autoscaling enabled".to_owned());
        }
        if !observed.insert((policy, status)) {
            complain(format!("duplicate rule for {policy:?} and {status}"));
        }
        due.entry(status).or_default().insert(policy, ttl);
    }
    for (status, ttls) in due {
        errors.extend(out_of_order(status, &ttls));
    }
    if errors.is_empty() { Ok(()) } else { wrong(errors.join("; ")) }
}

/// What is deleted first must not be due after what contains it.
fn out_of_order(status: &str, ttls: &BTreeMap<DeletionPolicyType, i32>) -> Vec<String> {
    use DeletionPolicyType::{DeleteCluster, DeleteSelf, DeleteWorkers};
    let pairs = [(DeleteWorkers, DeleteCluster), (DeleteCluster, DeleteSelf), (DeleteWorkers, DeleteSelf)];
    let wrong = pairs.into_iter().filter_map(|(first, last)| {
        let (sooner, later) = (*ttls.get(&first)?, *ttls.get(&last)?);
        (sooner > later)
            .then(|| format!("for {status}: {last:?} TTL ({later}) must be >= {first:?} TTL ({sooner})"))
    });
    wrong.collect()
}
