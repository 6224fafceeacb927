//! Who may be preempted, and whom to take first.

use std::cmp::{Ordering, Reverse};

use super::Need;
use crate::model::{Fr, PreemptionPolicy, Workload};
use crate::names::{QueueId, WorkloadId};
use crate::settings::Settings;
use crate::state::State;
use crate::time::Time;

/// Whether the policy lets `preemptor` take `candidate`.
pub fn satisfies_policy(
    settings: &Settings,
    preemptor: &Workload,
    candidate: &Workload,
    policy: PreemptionPolicy,
) -> bool {
    let own = preemptor.effective_priority(&settings.gates);
    let other = candidate.effective_priority(&settings.gates);
    match policy {
        PreemptionPolicy::Never | PreemptionPolicy::Unset => false,
        PreemptionPolicy::Any => true,
        PreemptionPolicy::LowerPriority => own > other,
        PreemptionPolicy::LowerOrNewerEqualPriority => {
            let newer = || preemptor.queue_timestamp(settings) < candidate.queue_timestamp(settings);
            own > other || own == other && newer()
        }
    }
}

/// Whether the workload holds any of `frs`.
pub(super) fn uses_any(state: &State, id: WorkloadId, frs: &[Fr]) -> bool {
    state.held(id).is_some_and(|held| held.usage.iter().any(|(fr, _)| frs.contains(fr)))
}

/// Whom to take first: evicted ones, then those of other queues, then (between LocalQueues of one queue)
/// those whose LocalQueue used more, then lower priority, then reserved later, then by UID.
pub fn compare_candidates(
    state: &State,
    a: WorkloadId,
    b: WorkloadId,
    preemptor_queue: QueueId,
    with_afs: bool,
    now: Time,
) -> Ordering {
    let (Some(x), Some(y)) = (state.workload(a), state.workload(b)) else {
        return a.cmp(&b);
    };
    let queue_of = |id| state.held(id).map(|held| held.queue);
    let (queue_a, queue_b) = (queue_of(a), queue_of(b));
    let own = Some(preemptor_queue);
    let gates = &state.settings.gates;
    y.is_evicted()
        .cmp(&x.is_evicted())
        .then_with(|| (queue_a == own).cmp(&(queue_b == own)))
        .then_with(|| {
            if !with_afs || queue_a != queue_b || x.local_queue == y.local_queue {
                return Ordering::Equal;
            }
            match (state.local_queue_usage(a), state.local_queue_usage(b)) {
                (Some(usage_a), Some(usage_b)) => usage_b.total_cmp(&usage_a),
                _ => Ordering::Equal,
            }
        })
        .then_with(|| x.effective_priority(gates).cmp(&y.effective_priority(gates)))
        .then_with(|| y.reservation_time(now).cmp(&x.reservation_time(now)))
        .then_with(|| x.uid.cmp(&y.uid))
        .then_with(|| x.key.cmp(&y.key))
}

/// Sorts candidates for a need.
pub(super) fn sort(state: &State, need: &Need<'_>, candidates: &mut [WorkloadId]) {
    let queue = need.subject.queue;
    if state.settings.afs().is_some() {
        candidates.sort_by(|a, b| compare_candidates(state, *a, *b, queue, true, need.now));
        return;
    }
    let gates = &state.settings.gates;
    let key = |id: WorkloadId| {
        let workload = state.workload(id)?;
        let is_own = state.held(id).is_some_and(|held| held.queue == queue);
        let reserved = Reverse(workload.reservation_time(need.now));
        let priority = workload.effective_priority(gates);
        Some((!workload.is_evicted(), is_own, priority, reserved, &*workload.uid, &workload.key))
    };
    let mut keyed: Vec<_> = candidates.iter().map(|id| (key(*id), *id)).collect();
    keyed.sort_unstable();
    for (slot, (_, id)) in candidates.iter_mut().zip(keyed) {
        *slot = id;
    }
}
