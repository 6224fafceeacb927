//! What to do about an MLflowOperator.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::mlflow::conditions::READY;
use quintet_api::mlflow::metadata::MODULE_PROTECTION;
use quintet_api::mlflow::{messages, reasons};
use quintet_api::platform::{
    ComponentCondition, ComponentRelease, ConditionStatus, MLflowOperator, MLflowOperatorStatus,
};
use quintet_controller::{Action, ApiKind, Plan, StatusPatch};
use serde_json::json;

use super::Observed;

/// The longest version of the platform that is taken.
const VERSION_LENGTH: usize = 64;

/// Computes the plan for an MLflowOperator. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> Plan {
    let finalizers = observed.module.object.metadata.finalizers.clone().unwrap_or_default();
    let is_protected = finalizers.iter().any(|finalizer| finalizer == MODULE_PROTECTION);
    if observed.module.deleting {
        return if is_protected { finalize(observed, finalizers) } else { Plan::nothing() };
    }
    if !is_protected {
        let finalizers = finalizers.into_iter().chain([MODULE_PROTECTION.to_owned()]).collect::<Vec<_>>();
        return Plan { steps: vec![set_finalizers(observed, &finalizers).into()], ..Plan::default() };
    }
    let platform = match platform_version(observed) {
        Ok(platform) => platform,
        Err(wait) => return Plan::awaiting(wait),
    };
    let missing = missing_settings(observed);
    let ready = if missing.is_empty() {
        ready(observed, ConditionStatus::True, reasons::READY, messages::MODULE_READY)
    } else {
        let message = messages::module_config_pending(&missing);
        ready(observed, ConditionStatus::False, reasons::CONFIG_PENDING, &message)
    };
    Plan { awaits: missing, status: reported(observed, ready, platform), ..Plan::default() }
}

/// The module stays while an MLflow exists.
fn finalize(observed: &Observed, mut finalizers: Vec<String>) -> Plan {
    if observed.instances == 0 {
        finalizers.retain(|finalizer| finalizer != MODULE_PROTECTION);
        return Plan { steps: vec![set_finalizers(observed, &finalizers).into()], ..Plan::default() };
    }
    let platform = match platform_version(observed) {
        Ok(platform) => platform,
        Err(wait) => return Plan::awaiting(wait),
    };
    let message = messages::mlflow_instances_present(observed.instances);
    let ready = ready(observed, ConditionStatus::False, reasons::MLFLOW_INSTANCES_PRESENT, &message);
    Plan {
        awaits: vec!["the deletion of the MLflow".to_owned()],
        status: reported(observed, ready, platform),
        ..Plan::default()
    }
}

/// The version of the platform, if its ConfigMap says one. The error is for the user to fix.
fn platform_version(observed: &Observed) -> Result<Option<&str>, String> {
    match observed.platform_version.as_deref().filter(|version| !version.is_empty()) {
        Some(version) if !is_semver(version) => {
            Err(format!("a platformVersion that is a semantic version instead of {version:?}"))
        }
        platform => Ok(platform),
    }
}

/// The status with this `Ready` condition, if it differs.
fn reported(observed: &Observed, ready: ComponentCondition, platform: Option<&str>) -> Option<StatusPatch> {
    let release = |name: &str, version: &str, repo_url: Option<&str>| ComponentRelease {
        name: name.to_owned(),
        version: Some(version.to_owned()),
        repo_url: repo_url.map(str::to_owned),
    };
    let phase = if ready.status == ConditionStatus::True { "Ready" } else { "Progressing" };
    let platform = platform.map(|version| release("platform", version, None));
    let mlflow = release("MLflow", &observed.version, Some("https://github.com/mlflow/mlflow"));
    let status = MLflowOperatorStatus {
        phase: Some(phase.to_owned()),
        releases: Some(platform.into_iter().chain([mlflow]).collect()),
        ..with_ready(observed, ready)
    };
    StatusPatch::between(&observed.module, &status_of(observed), &status)
}

fn missing_settings(observed: &Observed) -> Vec<String> {
    let spec = &observed.module.object.spec;
    [("spec.gatewayName", &spec.gateway_name), ("spec.sectionTitle", &spec.section_title)]
        .into_iter()
        .filter(|(_, value)| value.as_deref().unwrap_or_default().is_empty())
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Its `Ready` condition. Unlike in other kinds, its time moves with any of its fields.
fn ready(observed: &Observed, status: ConditionStatus, reason: &str, message: &str) -> ComponentCondition {
    let ready = ComponentCondition {
        type_: READY.to_owned(),
        status,
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        observed_generation: observed.module.object.metadata.generation,
        ..ComponentCondition::default()
    };
    let before = status_of(observed).conditions.unwrap_or_default();
    let before = before.into_iter().find(|condition| condition.type_ == READY).unwrap_or_default();
    let is_same = ComponentCondition { last_transition_time: None, ..before.clone() } == ready;
    let since = before.last_transition_time.filter(|_| is_same);
    ComponentCondition { last_transition_time: Some(since.unwrap_or(Time(observed.now))), ..ready }
}

fn status_of(observed: &Observed) -> MLflowOperatorStatus {
    observed.module.object.status.clone().unwrap_or_default()
}

/// The status as it is, with another `Ready` condition.
fn with_ready(observed: &Observed, ready: ComponentCondition) -> MLflowOperatorStatus {
    let mut status = status_of(observed);
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == READY) {
        Some(before) => *before = ready,
        None => conditions.push(ready),
    }
    status.observed_generation = observed.module.object.metadata.generation;
    status
}

/// Changes the finalizers of the observed state, and of no other.
fn set_finalizers(observed: &Observed, finalizers: &[String]) -> Action {
    let version = observed.module.version.to_string();
    let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
    Action::merge(ApiKind::of::<MLflowOperator>(), observed.module.key.clone(), patch)
}

/// Whether a text is a semantic version as Masterminds' `semver.NewVersion` takes it: with one to three numbers, also
/// after a `v`, and of bounded length.
fn is_semver(text: &str) -> bool {
    let plain = text.strip_prefix('v').unwrap_or(text);
    let plain = plain.strip_prefix('v').unwrap_or(plain);
    let (rest, build) = plain.split_once('+').map_or((plain, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_pre = |part: &str| is_word(part) && (part == "0" || !part.starts_with('0') || !is_digits(part));
    let numbers: Vec<_> = core.split('.').collect();
    text.len() <= VERSION_LENGTH
        && numbers.len() <= 3
        && numbers.into_iter().all(|number| is_digits(number) && number.parse::<u64>().is_ok())
        && pre.is_none_or(|pre| pre.split('.').all(is_pre))
        && build.is_none_or(|build| build.split('.').all(is_word))
}
