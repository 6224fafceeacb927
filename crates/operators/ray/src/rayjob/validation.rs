//! What a RayJob must be like. Errors are sentences for the user, in upstream's words where tools look for
//! them.

use std::collections::BTreeMap;

use quintet_api::ray::events;
use quintet_api::ray::v1::{
    DeletionJobStatus, DeletionPolicy, DeletionPolicyType, DeletionRule, DeletionStrategy, RayClusterSpec,
    RayJob, RayJobSpec,
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
        .map_err(|error| format!("The RayJob metadata is invalid: {error}"))
}

fn wrong(text: &str) -> Result<(), String> {
    Err(format!("The RayJob spec is invalid: {text}"))
}

/// Some of upstream's errors do not say what is invalid.
fn bare(text: &str) -> Result<(), String> {
    Err(text.to_owned())
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
        return wrong("a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended");
    }
    let ttl = spec.ttl_seconds_after_finished.unwrap_or_default();
    if ttl < 0 {
        return wrong("TTLSecondsAfterFinished must be a non-negative integer");
    }
    if ttl > 0 && !shuts_down {
        return wrong(
            "a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished",
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
        return wrong("one of RayClusterSpec or ClusterSelector must be set");
    }
    let retries = spec.backoff_limit.unwrap_or_default();
    if let Some(selector) = selector {
        if selector.get(labels::CLUSTER).is_none_or(String::is_empty) {
            return bare("cluster name in ClusterSelector should not be empty");
        }
        if mode == Mode::Sidecar {
            return bare("ClusterSelector is not supported in SidecarMode");
        }
        if retries > 0 {
            return wrong("BackoffLimit is incompatible with ClusterSelector mode");
        }
    }
    if mode == Mode::Interactive && retries > 0 {
        return wrong("BackoffLimit is incompatible with InteractiveMode");
    }
    if mode == Mode::Sidecar {
        validate_sidecar(spec)?;
    }
    if let Some(cluster_spec) = &spec.ray_cluster_spec {
        validate_cluster(cluster_spec, annotations, settings)?;
    }
    runtime_env(spec)?;
    if spec.active_deadline_seconds.is_some_and(|seconds| seconds <= 0) {
        return wrong("activeDeadlineSeconds must be a positive integer");
    }
    if spec.pre_running_deadline_seconds.is_some_and(|seconds| seconds <= 0) {
        return wrong("preRunningDeadlineSeconds must be a positive integer");
    }
    if retries < 0 {
        return wrong("backoffLimit must be a positive integer");
    }
    Ok(())
}

fn validate_cluster(
    spec: &RayClusterSpec,
    annotations: &BTreeMap<String, String>,
    settings: &Settings,
) -> Result<(), String> {
    if spec.auth_options.as_ref().is_some_and(|options| options.enable_k8s_token_auth == Some(true)) {
        return wrong("K8s token auth mode is currently not supported for RayJob");
    }
    raycluster::validate_spec(spec, annotations, settings)
        .map_err(|error| format!("The RayJob spec is invalid: {error}"))
}

fn validate_sidecar(spec: &RayJobSpec) -> Result<(), String> {
    if spec.submitter_pod_template.is_some() {
        return bare("Currently, SidecarMode doesn't support SubmitterPodTemplate");
    }
    if spec.submitter_config.is_some() {
        return bare("Currently, SidecarMode doesn't support SubmitterConfig");
    }
    let head = spec
        .ray_cluster_spec
        .as_ref()
        .and_then(|cluster| cluster.head_group_spec.template.spec.as_ref()?.restart_policy.as_deref());
    match head {
        None | Some("" | "Never") => Ok(()),
        Some(_) => bare("restartPolicy for head Pod should be Never or unset when using SidecarMode"),
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
        Ok(_) => Err("failed to unmarshal RuntimeEnvYAML: it must be a YAML mapping, such as `pip: [torch]`"
            .to_owned()),
        // Upstream quotes all of it; it may hold secrets.
        Err(error) => {
            let text = error.to_string();
            Err(format!("failed to unmarshal RuntimeEnvYAML: {}", text.lines().next().unwrap_or_default()))
        }
    }
}

fn validate_deletion(
    spec: &RayJobSpec,
    strategy: &DeletionStrategy,
    settings: &Settings,
) -> Result<(), String> {
    if !settings.gates.job_deletion_policy {
        return bare("RayJobDeletionPolicy feature gate must be enabled to use DeletionStrategy");
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
            "DeletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot be \
             empty)",
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
    let (Some(success), Some(failure)) = (&strategy.on_success, &strategy.on_failure) else {
        return bare(
            "both DeletionStrategy.OnSuccess and DeletionStrategy.OnFailure must be set when using the legacy deletion \
             policy fields of DeletionStrategy",
        );
    };
    let policy = |side: &DeletionPolicy, name: &str| {
        side.policy.ok_or_else(|| {
            format!(
                "the DeletionPolicyType field of DeletionStrategy.{name} cannot be unset when DeletionStrategy is \
                 enabled"
            )
        })
    };
    let (success, failure) = (policy(success, "OnSuccess")?, policy(failure, "OnFailure")?);
    for (policy, outcome) in [(success, "success"), (failure, "failure")] {
        if selects_cluster(spec) && matches!(policy, DeleteCluster | DeleteWorkers) {
            return Err(format!(
                "the ClusterSelector mode doesn't support DeletionStrategy={policy:?} on {outcome}"
            ));
        }
    }
    let either = |wanted: DeletionPolicyType| success == wanted || failure == wanted;
    if autoscales(spec) && either(DeleteWorkers) {
        return bare(
            "DeletionStrategy=DeleteWorkers currently does not support RayCluster with autoscaling enabled",
        );
    }
    if spec.shutdown_after_job_finishes == Some(true) && either(DeleteNone) {
        // Upstream's spelling.
        return wrong("shutdownAfterJobFinshes is set to 'true' while deletion policy is 'DeleteNone'");
    }
    Ok(())
}

/// All that is wrong with the rules at once, one to a line: they are fixed together.
fn validate_rules(spec: &RayJobSpec, rules: &[DeletionRule]) -> Result<(), String> {
    let mut errors = Vec::new();
    let mut due: BTreeMap<&str, BTreeMap<DeletionPolicyType, i32>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        match validate_rule(spec, rule, &due) {
            Ok(status) => {
                let ttl = rule.condition.ttl_seconds.unwrap_or_default();
                due.entry(status).or_default().insert(rule.policy, ttl);
            }
            Err(error) => errors.push(format!("deletionRules[{index}]: {error}")),
        }
    }
    for (status, ttls) in due {
        errors.extend(out_of_order(status, &ttls));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// The status that a rule is about, unless something is wrong with it alone or beside the rules before it.
fn validate_rule(
    spec: &RayJobSpec,
    rule: &DeletionRule,
    before: &BTreeMap<&str, BTreeMap<DeletionPolicyType, i32>>,
) -> Result<&'static str, String> {
    use DeletionPolicyType::{DeleteCluster, DeleteWorkers};
    let (condition, policy) = (&rule.condition, rule.policy);
    let status = match (condition.job_status, condition.job_deployment_status) {
        (Some(_), Some(_)) => {
            return Err("cannot set both JobStatus and JobDeploymentStatus at the same time".to_owned());
        }
        (None, None) => {
            return Err("exactly one of JobStatus and JobDeploymentStatus must be set".to_owned());
        }
        (Some(DeletionJobStatus::Succeeded), None) => "JobStatus 'SUCCEEDED'",
        (Some(DeletionJobStatus::Failed), None) => "JobStatus 'FAILED'",
        (None, Some(_)) => "JobDeploymentStatus 'Failed'",
    };
    if condition.ttl_seconds.unwrap_or_default() < 0 {
        return Err("TTLSeconds must be non-negative".to_owned());
    }
    if selects_cluster(spec) && matches!(policy, DeleteCluster | DeleteWorkers) {
        return Err(format!("DeletionPolicyType '{policy:?}' not supported when ClusterSelector is set"));
    }
    if autoscales(spec) && policy == DeleteWorkers {
        return Err("DeletionPolicyType 'DeleteWorkers' not supported with autoscaling enabled".to_owned());
    }
    if before.get(status).is_some_and(|ttls| ttls.contains_key(&policy)) {
        return Err(format!("duplicate rule for DeletionPolicyType '{policy:?}' and {status}"));
    }
    Ok(status)
}

/// What is deleted first must not be due after what contains it.
fn out_of_order(status: &str, ttls: &BTreeMap<DeletionPolicyType, i32>) -> Vec<String> {
    use DeletionPolicyType::{DeleteCluster, DeleteSelf, DeleteWorkers};
    let order = [DeleteWorkers, DeleteCluster, DeleteSelf];
    let given: Vec<_> = order.iter().filter_map(|policy| Some((policy, *ttls.get(policy)?))).collect();
    let pairs = given.iter().zip(given.iter().skip(1)).filter(|((_, sooner), (_, later))| sooner > later);
    pairs
        .map(|((first, sooner), (last, later))| {
            format!("for {status}: {last:?} TTL ({later}) must be >= {first:?} TTL ({sooner})")
        })
        .collect()
}
