//! The decision about one Workload, in the order of Kueue's `workload_controller.go`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::metadata::{CONCURRENT_ADMISSION_PARENT, JOB_UID, RESOURCE_IN_USE};
use quintet_api::kueue::reasons::{DEACTIVATED_DUE_TO, EvictionReason, FinishedReason, RequeuedReason};
use quintet_api::kueue::v1beta2::{CheckState, StopPolicy, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan};
use serde_json::json;

use super::draft::Draft;
use super::{Observed, checks, timeouts, unadmitted};
use crate::concurrent_admission::{is_parent, parent_reference};

/// The plan for a Workload.
pub(super) fn plan(observed: &Observed) -> Plan {
    let mut draft = Draft::new(observed);
    decide(&mut draft);
    draft.into_plan()
}

/// Each step may be the last.
fn decide(draft: &mut Draft<'_>) {
    if finish_orphan(draft) || label_parent(draft) || retain(draft) {
        return;
    }
    postpone_retries(draft);
    let is_done = if draft.object.is_active() { follow_backoff(draft) } else { deactivate(draft) };
    if is_done {
        return;
    }
    follow_restarts(draft);
    // Checks are those of variants.
    let has_checks = !(draft.observed.settings.scheduling.concurrent_admission && is_parent(&draft.object));
    if has_checks {
        checks::follow_queue(draft);
    }
    // An admitted Workload stays admitted until its job has stopped, whatever becomes of its checks.
    if !draft.object.is_admitted() {
        unadmitted::report(draft);
    }
    if draft.object.has_quota_reservation() && draft.object.is_active() && !draft.object.is_evicted() {
        let _ = has_checks && checks::follow_states(draft)
            || follow_stop_policies(draft)
            || timeouts::pods_ready(draft)
            || timeouts::execution(draft);
    }
}

/// A Workload whose job is gone is finished, and gone with its finalizer.
fn finish_orphan(draft: &mut Draft<'_>) -> bool {
    let entry = &draft.observed.workload;
    let metadata = &entry.object.metadata;
    let has_owner = metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let was_of_job = draft.observed.settings.gates.finish_orphaned_workloads
        && metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(JOB_UID));
    if has_owner || !(entry.deleting || was_of_job) {
        return false;
    }
    if !entry.deleting && !draft.object.is_finished() {
        let reason = FinishedReason::OwnerNotFound.as_str();
        draft.set(WorkloadCondition::Finished, true, reason, "The workload's owner no longer exists");
        return true;
    }
    match without_finalizer(&draft.observed.workload) {
        Some(action) => {
            draft.step(action);
            true
        }
        // The retention of those that are not deleted yet follows.
        None => entry.deleting,
    }
}

/// In a queue that tries several flavors at once, a Workload is the parent of its variants.
fn label_parent(draft: &mut Draft<'_>) -> bool {
    let queue = draft.observed.cluster_queue.as_ref();
    let tries_flavors = draft.observed.settings.scheduling.concurrent_admission
        && queue.is_some_and(|queue| queue.object.spec.concurrent_admission_policy.is_some());
    if !tries_flavors || is_parent(&draft.object) || parent_reference(&draft.object).is_some() {
        return false;
    }
    let patch = json!({ "metadata": { "labels": { CONCURRENT_ADMISSION_PARENT: "true" } } });
    draft.step(Action::merge_exactly(ApiKind::of::<Workload>(), &draft.observed.workload, patch));
    true
}

/// Removes the finalizer that keeps a Workload while its job exists.
pub(crate) fn without_finalizer(workload: &Entry<Workload>) -> Option<Action> {
    let finalizers = workload.object.metadata.finalizers.as_deref().unwrap_or_default();
    let left: Vec<&String> = finalizers.iter().filter(|own| *own != RESOURCE_IN_USE).collect();
    if left.len() == finalizers.len() {
        return None;
    }
    let patch = json!({ "metadata": { "finalizers": left } });
    Some(Action::merge_exactly(ApiKind::of::<Workload>(), workload, patch))
}

/// Finished Workloads are kept for a time, without limit if none is set.
fn retain(draft: &mut Draft<'_>) -> bool {
    let Some(finished) = draft.condition(WorkloadCondition::Finished).filter(|own| own.status == "True")
    else {
        return false;
    };
    let since = finished.last_transition_time.0;
    if let Some(kept) = draft.observed.settings.retention().after_finished {
        let ends = after(since, kept.0);
        if ends > draft.now() {
            draft.requeue_at(ends);
        } else if !draft.observed.workload.deleting {
            let delete = Action::delete(ApiKind::of::<Workload>(), &draft.observed.workload);
            draft.steps.extend(without_finalizer(&draft.observed.workload).map(Into::into));
            let reason = WorkloadEvent::Deleted.as_str();
            let event = Event::normal(reason, reason, "Deleted finished workload due to elapsed retention");
            draft.steps.push(delete.with_event(event));
        }
    }
    true
}

/// A time after another.
pub(crate) fn after(since: Timestamp, wait: std::time::Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    since.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// A check that wants to be retried later says when. The time never moves back.
fn postpone_retries(draft: &mut Draft<'_>) {
    let status = draft.object.status.as_ref();
    let checks = status.and_then(|status| status.admission_checks.as_deref()).unwrap_or_default();
    let retries = checks.iter().filter(|check| check.state == CheckState::Retry).filter_map(|check| {
        let wait = u64::try_from(check.requeue_after_seconds?).ok()?;
        Some(after(check.last_transition_time.0, std::time::Duration::from_secs(wait)))
    });
    let Some(at) = retries.max().filter(|at| *at > draft.now()) else { return };
    let state = draft.status().requeue_state.get_or_insert_default();
    if state.requeue_at.as_ref().is_none_or(|known| known.0 < at) {
        state.requeue_at = Some(Time(at));
    }
}

/// An active Workload waits for the end of its backoff, and is queued again after it.
fn follow_backoff(draft: &mut Draft<'_>) -> bool {
    if draft.object.is_true(WorkloadCondition::DeactivationTarget) {
        let patch = json!({ "spec": { "active": false } });
        draft.step(Action::merge_exactly(ApiKind::of::<Workload>(), &draft.observed.workload, patch));
        return true;
    }
    let requeue_at =
        draft.object.status.as_ref().and_then(|status| status.requeue_state.as_ref()?.requeue_at.clone());
    if let Some(Time(at)) = requeue_at {
        if at > draft.now() {
            draft.requeue_at(at);
            return true;
        }
        // One that holds quota is evicted first: the time stays until the quota is given back.
        let is_pending = !draft.object.has_quota_reservation();
        if let Some(state) = draft.status().requeue_state.as_mut().filter(|_| is_pending) {
            state.requeue_at = None;
        }
    }
    let Some(reason) = draft.false_condition(WorkloadCondition::Requeued).map(|own| own.reason.clone())
    else {
        return false;
    };
    let is_deactivated =
        reason == EvictionReason::Deactivated.as_str() || reason.starts_with(DEACTIVATED_DUE_TO);
    let waited = [EvictionReason::PodsReadyTimeout.as_str(), EvictionReason::AdmissionCheck.as_str()];
    if is_deactivated {
        let reason = RequeuedReason::Reactivated.as_str();
        draft.set(WorkloadCondition::Requeued, true, reason, "The workload was reactivated");
    } else if waited.contains(&reason.as_str()) {
        if let Some(state) = draft.status().requeue_state.as_mut() {
            state.requeue_at = None;
        }
        let reason = RequeuedReason::BackoffFinished.as_str();
        draft.set(WorkloadCondition::Requeued, true, reason, "The workload backoff was finished");
    }
    false
}

/// An inactive Workload is evicted, and forgets why it was to be deactivated.
fn deactivate(draft: &mut Draft<'_>) -> bool {
    let target = draft.condition(WorkloadCondition::DeactivationTarget).cloned();
    if !draft.object.is_evicted() {
        let deactivated = EvictionReason::Deactivated.as_str();
        match &target {
            Some(target) => {
                let message = format!("The workload is deactivated due to {}", target.message);
                draft.evict(&format!("{DEACTIVATED_DUE_TO}{}", target.reason), "", &message);
            }
            None => draft.evict(deactivated, "", "The workload is deactivated"),
        }
    }
    let status = draft.status();
    status.requeue_state = None;
    let target = WorkloadCondition::DeactivationTarget.as_str();
    quintet_api::conditions::remove(status.conditions.get_or_insert_default(), target);
    false
}

/// Workloads that were evicted from a stopped queue are queued again when it is restarted.
fn follow_restarts(draft: &mut Draft<'_>) {
    let Some(reason) = draft.false_condition(WorkloadCondition::Requeued).map(|own| own.reason.clone())
    else {
        return;
    };
    let local_queue = draft.observed.local_queue.as_ref();
    let cluster_queue = draft.observed.cluster_queue.as_ref();
    let (restarted, message) = if reason == EvictionReason::LocalQueueStopped.as_str()
        && local_queue.is_some_and(|queue| !is_stopped(queue.object.spec.stop_policy))
    {
        (RequeuedReason::LocalQueueRestarted, "The LocalQueue was restarted after being stopped")
    } else if reason == EvictionReason::ClusterQueueStopped.as_str()
        && cluster_queue.is_some_and(|queue| !is_stopped(queue.object.spec.stop_policy))
    {
        (RequeuedReason::ClusterQueueRestarted, "The ClusterQueue was restarted after being stopped")
    } else {
        return;
    };
    draft.set(WorkloadCondition::Requeued, true, restarted.as_str(), message);
}

pub(super) fn is_stopped(policy: Option<StopPolicy>) -> bool {
    !matches!(policy, None | Some(StopPolicy::None))
}

/// A queue that drains evicts what is admitted; one that holds keeps it. Reservations of both are released.
fn follow_stop_policies(draft: &mut Draft<'_>) -> bool {
    let local_queue = draft.observed.local_queue.as_ref();
    let policy = local_queue.and_then(|queue| queue.object.spec.stop_policy);
    let (is_gone, name) = (local_queue.is_none(), draft.object.spec.queue_name.clone().unwrap_or_default());
    let of_local_queue = Stop { kind: "LocalQueue", name, policy, is_gone };
    if of_local_queue.follow(draft, EvictionReason::LocalQueueStopped) {
        return true;
    }
    let queue = draft.observed.cluster_queue.as_ref();
    let policy = queue.and_then(|queue| queue.object.spec.stop_policy);
    let admission = draft.object.status.as_ref().and_then(|status| status.admission.as_ref());
    let name = admission.and_then(|admission| admission.cluster_queue.clone()).unwrap_or_default();
    let is_gone = queue.is_none_or(|queue| queue.deleting);
    Stop { kind: "ClusterQueue", name, policy, is_gone }.follow(draft, EvictionReason::ClusterQueueStopped)
}

/// A queue that may be stopped.
struct Stop {
    kind: &'static str,
    name: String,
    policy: Option<StopPolicy>,
    is_gone: bool,
}

impl Stop {
    fn follow(&self, draft: &mut Draft<'_>, reason: EvictionReason) -> bool {
        let Self { kind, name, policy, is_gone } = self;
        if draft.object.is_admitted() {
            let drains = *policy == Some(StopPolicy::HoldAndDrain);
            if drains {
                draft.evict(reason.as_str(), "", &format!("The {kind} is stopped"));
            }
            return drains;
        }
        let is_released = *is_gone || is_stopped(*policy);
        if is_released {
            let why = if *is_gone { "is terminating or missing" } else { "is stopped" };
            unadmitted::release(draft, &format!("{kind} {name} {why}"));
        }
        is_released
    }
}
