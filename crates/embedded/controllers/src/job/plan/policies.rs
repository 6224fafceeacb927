//! Pod failure policy and success policy.

use k8s_openapi::api::batch::v1::{PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use quintet_controller::cache::Entry;

use super::super::indexes::Indexes;
use super::super::settings::Settings;
use crate::pod::{ContainerStatus, PodView};

/// What a failed pod means for its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FailureAction {
    /// One more failure.
    Count,
    /// Not counted, but its replacement is delayed all the same.
    Ignore,
    /// Its index is not tried again.
    FailIndex,
    /// The Job has failed, for this reason.
    FailJob(String),
}

/// Applies the pod failure policy to a failed pod: the first rule that matches decides.
pub(super) fn failure_action(settings: &Settings<'_>, pod: &Entry<PodView>) -> FailureAction {
    for (number, rule) in settings.failure_rules.iter().enumerate() {
        if let Some(why) = matches_rule(rule, pod) {
            return match rule.action.as_str() {
                "Ignore" => FailureAction::Ignore,
                "FailIndex" => FailureAction::FailIndex,
                "FailJob" => FailureAction::FailJob(format!("{why} matching FailJob rule at index {number}")),
                _ => FailureAction::Count,
            };
        }
    }
    FailureAction::Count
}

/// Why a rule matches, in upstream's words.
fn matches_rule(rule: &PodFailurePolicyRule, pod: &Entry<PodView>) -> Option<String> {
    let key = &pod.key;
    if let Some(requirement) = &rule.on_exit_codes {
        let status = &pod.object.status;
        let mut statuses = status.container_statuses.iter().chain(&status.init_container_statuses);
        let (name, code) = statuses.find_map(|container| exit_code(requirement, container))?;
        return Some(format!("Container {name} for pod {key} failed with exit code {code}"));
    }
    let patterns = rule.on_pod_conditions.iter().flatten();
    let mut found = patterns.filter_map(|pattern| {
        let status = pattern.status.as_deref().unwrap_or("True");
        pod.object.condition(&pattern.type_).filter(|condition| condition.status == status)
    });
    found.next().map(|condition| format!("Pod {key} has condition {}", condition.type_))
}

/// The exit code of a container that failed in a way that the requirement describes.
fn exit_code<'a>(
    requirement: &PodFailurePolicyOnExitCodesRequirement,
    container: &'a ContainerStatus,
) -> Option<(&'a str, i32)> {
    let code = container.state.terminated.as_ref()?.exit_code;
    let is_named = requirement.container_name.as_ref().is_none_or(|name| *name == container.name);
    let is_listed = requirement.values.contains(&code);
    let matches = match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    };
    (is_named && code != 0 && matches).then_some((container.name.as_str(), code))
}

/// Which rule of the success policy is met, if any.
pub(super) fn met_success_rule(settings: &Settings<'_>, succeeded: &Indexes) -> Option<usize> {
    settings.success_rules.iter().position(|rule| {
        let wanted = rule.succeeded_indexes.as_deref();
        let wanted = wanted.map(|text| Indexes::parse(Some(text), settings.indexes()));
        let matching = match &wanted {
            Some(wanted) => succeeded.0.intersection(&wanted.0).count(),
            None => succeeded.0.len(),
        };
        let needed = match (rule.succeeded_count, &wanted) {
            (Some(count), _) => usize::try_from(count).unwrap_or_default(),
            (None, Some(wanted)) => wanted.0.len(),
            (None, None) => return false,
        };
        matching >= needed
    })
}
