//! Admission checks of a Workload: which there are, and what follows from their states.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::reasons::{DeactivationReason, EvictionReason};
use quintet_api::kueue::v1beta2::{AdmissionCheckState, CheckState, ClusterQueue, Workload};
use quintet_controller::Event;
use quintet_queue_engine::status::api_time;

use super::draft::Draft;
use crate::watches;

/// Lists the checks that the queue demands. New ones are pending.
pub(super) fn follow_queue(draft: &mut Draft<'_>) {
    let Some(queue) = &draft.observed.cluster_queue else { return };
    let wanted = wanted(&queue.object, &draft.object);
    let status = draft.object.status.as_ref();
    let known = status.and_then(|status| status.admission_checks.as_deref()).unwrap_or_default();
    let is_same = known.len() == wanted.len() && known.iter().all(|check| wanted.contains(&check.name));
    if is_same {
        return;
    }
    let now: Time = api_time(draft.time());
    let checks = wanted.into_iter().map(|name| {
        known.iter().find(|check| check.name == name).cloned().unwrap_or_else(|| AdmissionCheckState {
            name,
            state: CheckState::Pending,
            message: String::new(),
            last_transition_time: now.clone(),
            pod_set_updates: None,
            requeue_after_seconds: None,
            retry_count: None,
        })
    });
    let checks: Vec<_> = checks.collect();
    draft.status().admission_checks = (!checks.is_empty()).then_some(checks);
}

/// With quota, the checks of the assigned flavors; without it, those of all flavors.
fn wanted(queue: &ClusterQueue, workload: &Workload) -> BTreeSet<String> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assigned: Option<BTreeSet<&String>> = admission.map(|admission| {
        let sets = admission.pod_set_assignments.iter().flatten();
        sets.flat_map(|set| set.flavors.iter().flatten()).map(|(_, flavor)| flavor).collect()
    });
    let all: BTreeSet<String> = watches::flavors_of(queue).into_iter().collect();
    let strategy = queue.spec.admission_checks_strategy.as_ref();
    let rules = strategy.into_iter().flat_map(|strategy| &strategy.admission_checks);
    let applies = rules.filter(|rule| {
        let on = rule.on_flavors.as_deref().unwrap_or_default();
        match &assigned {
            _ if on.is_empty() => true,
            Some(assigned) => on.iter().any(|flavor| assigned.contains(flavor)),
            None => all.iter().all(|flavor| on.contains(flavor)),
        }
    });
    applies.map(|rule| rule.name.clone()).collect()
}

/// A rejected check deactivates the Workload, one to be retried evicts it. True if one did.
pub(super) fn follow_states(draft: &mut Draft<'_>) -> bool {
    if let Some(rejected) = in_state(&draft.object, CheckState::Rejected) {
        draft.target_deactivation(DeactivationReason::AdmissionCheck.as_str(), &rejected);
        let reason = WorkloadEvent::AdmissionCheckRejected.as_str();
        draft.events.push(Event::warning(reason, reason, format!("Deactivated due to {rejected}")));
        return true;
    }
    let Some(retried) = in_state(&draft.object, CheckState::Retry) else { return false };
    draft.evict(EvictionReason::AdmissionCheck.as_str(), "", &format!("Evicted due to {retried}"));
    true
}

/// Says which checks are in a state, with their messages; `None` if there are none.
fn in_state(workload: &Workload, state: CheckState) -> Option<String> {
    let checks = workload.status.as_ref()?.admission_checks.iter().flatten();
    let mut found: Vec<&AdmissionCheckState> = checks.filter(|check| check.state == state).collect();
    found.sort_by_key(|check| &check.name);
    let noun = match found.len() {
        0 => return None,
        1 => "AdmissionCheck",
        _ => "AdmissionChecks",
    };
    let named = found.iter().map(|check| match check.message.as_str() {
        "" => format!("{:?}", check.name),
        message => format!("{:?} ({message})", check.name),
    });
    Some(format!("{noun} in {state:?} state: {}", named.collect::<Vec<_>>().join("; ")))
}
