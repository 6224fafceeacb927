//! How long a Workload may wait for its pods, and how long it may run.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::config::kueue::WaitForPodsReady;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::reasons::{DeactivationReason, EvictionReason, PodsReadyReason};
use quintet_controller::Event;

use super::draft::Draft;
use super::plan::after;
use crate::concurrent_admission::parent_reference;

/// Evicts a Workload whose pods are not ready in time, with a growing backoff, and deactivates it after too many attempts.
pub(super) fn pods_ready(draft: &mut Draft<'_>) -> bool {
    // The pods are those of the parent of variants.
    if draft.observed.settings.scheduling.concurrent_admission && parent_reference(&draft.object).is_some() {
        return false;
    }
    let settings = draft.observed.settings.pods_ready().cloned();
    let Some(settings) = settings.filter(|_| draft.object.is_admitted()) else { return false };
    let Some((since, timeout, cause)) = waiting_since(draft, &settings) else { return false };
    let ends = after(since, timeout);
    if ends > draft.now() {
        draft.requeue_at(ends);
        return false;
    }
    let state = draft.object.status.as_ref().and_then(|status| status.requeue_state.as_ref());
    let attempts = state.and_then(|state| state.count).unwrap_or_default().saturating_add(1);
    let strategy = &settings.requeuing_strategy;
    if strategy.backoff_limit_count.is_some_and(|limit| attempts > limit) {
        let reason = DeactivationReason::RequeuingLimitExceeded.as_str();
        draft.target_deactivation(reason, "exceeding the maximum number of re-queuing retries");
        return true;
    }
    let wait = backoff(attempts, strategy.backoff_base_seconds, strategy.backoff_max_seconds);
    let at = after(draft.now(), wait);
    let state = draft.status().requeue_state.get_or_insert_default();
    state.count = Some(attempts);
    if state.requeue_at.as_ref().is_none_or(|known| known.0 < at) {
        state.requeue_at = Some(Time(at));
    }
    let message = format!("Exceeded the PodsReady timeout {}", draft.observed.workload.key);
    draft.evict(EvictionReason::PodsReadyTimeout.as_str(), cause.as_str(), &message);
    true
}

/// Since when a Workload waits for its pods, for how long it may, and for what.
fn waiting_since(
    draft: &Draft<'_>,
    settings: &WaitForPodsReady,
) -> Option<(Timestamp, Duration, PodsReadyReason)> {
    let ready = draft.condition(WorkloadCondition::PodsReady);
    match ready {
        Some(condition) if condition.status == "True" => None,
        Some(condition) if condition.reason == PodsReadyReason::WaitForRecovery.as_str() => {
            let timeout = settings.recovery_timeout.unwrap_or(settings.timeout).0;
            let since = condition.last_transition_time.0;
            (!timeout.is_zero()).then_some((since, timeout, PodsReadyReason::WaitForRecovery))
        }
        _ => {
            // Conditions have whole seconds: what is admitted now has all of the time, even if that is less than a second.
            let was_admitted = draft.observed.workload.object.is_admitted();
            let admitted = draft.condition(WorkloadCondition::Admitted)?.last_transition_time.0;
            let since = if was_admitted { admitted } else { draft.now() };
            Some((since, settings.timeout.0, PodsReadyReason::WaitForStart))
        }
    }
}

/// Doubles with every attempt, up to a limit.
fn backoff(attempts: i32, base: i32, max: i32) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or_default();
    let seconds = |seconds: i32| u64::try_from(seconds).unwrap_or_default();
    let wait = seconds(base).saturating_mul(2_u64.saturating_pow(doublings));
    Duration::from_secs(wait.min(seconds(max)))
}

/// Deactivates a Workload that has run for as long as it may, over all its admissions.
pub(super) fn execution(draft: &mut Draft<'_>) -> bool {
    let Some(limit) = draft.object.spec.maximum_execution_time_seconds else { return false };
    let Some(admitted) = draft.condition(WorkloadCondition::Admitted).filter(|own| own.status == "True")
    else {
        return false;
    };
    let since = admitted.last_transition_time.0;
    let status = draft.object.status.as_ref();
    let past = status.and_then(|status| status.accumulated_past_execution_time_seconds).unwrap_or_default();
    let left = u64::try_from(limit.saturating_sub(past)).unwrap_or_default();
    let ends = after(since, Duration::from_secs(left));
    if ends > draft.now() {
        draft.requeue_at(ends);
        return false;
    }
    draft.status().accumulated_past_execution_time_seconds = None;
    let reason = DeactivationReason::MaximumExecutionTimeExceeded.as_str();
    draft.target_deactivation(reason, "exceeding the maximum execution time");
    let reason = WorkloadEvent::MaximumExecutionTimeExceeded.as_str();
    let note = format!("The maximum execution time ({limit}s) exceeded");
    draft.events.push(Event::warning(reason, reason, note));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_up_to_its_limit() {
        let seconds = |attempts| backoff(attempts, 60, 3600).as_secs();
        let waits: Vec<u64> = (1..=8).map(seconds).collect();
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert_eq!(seconds(i32::MAX), 3600, "large counts do not overflow");
    }
}
