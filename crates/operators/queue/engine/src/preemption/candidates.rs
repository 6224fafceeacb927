//! Who may be preempted, and whom to take first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

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
    let rank = |id| Ranked::new(state, id, (), 0, (preemptor_queue, with_afs, now));
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.compare(&b),
        _ => a.cmp(&b),
    }
}

/// A candidate with everything that decides when its turn comes, as [`compare_candidates`] has it.
pub(super) struct Ranked<T> {
    pub(super) candidate: T,
    workload: Arc<Workload>,
    /// Lists are tried one after another, but what is evicted already goes first from all of them.
    is_running: bool,
    list: usize,
    is_own: bool,
    /// Its LocalQueue's usage, where that counts.
    share: Option<(QueueId, f64)>,
    priority: i64,
    reserved: Time,
}

impl<T> Ranked<T> {
    /// `None` if the workload holds nothing.
    fn new(
        state: &State,
        id: WorkloadId,
        candidate: T,
        list: usize,
        (preemptor_queue, with_afs, now): (QueueId, bool, Time),
    ) -> Option<Self> {
        let workload = Arc::clone(state.workload(id)?);
        let queue = state.held(id)?.queue;
        let usage = if with_afs { state.local_queue_usage(id) } else { None };
        Some(Self {
            is_running: !workload.is_evicted(),
            list,
            is_own: queue == preemptor_queue,
            share: usage.map(|usage| (queue, usage)),
            priority: workload.effective_priority(&state.settings.gates),
            reserved: workload.reservation_time(now),
            workload,
            candidate,
        })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.workload, &other.workload);
        (self.is_running, self.list, self.is_own)
            .cmp(&(other.is_running, other.list, other.is_own))
            .then_with(|| match (self.share, other.share) {
                (Some((queue_a, usage_a)), Some((queue_b, usage_b)))
                    if queue_a == queue_b && a.local_queue != b.local_queue =>
                {
                    usage_b.total_cmp(&usage_a)
                }
                _ => Ordering::Equal,
            })
            .then_with(|| (self.priority, other.reserved).cmp(&(other.priority, self.reserved)))
            .then_with(|| a.uid.cmp(&b.uid))
            .then_with(|| a.key.cmp(&b.key))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first to be tried is the greatest, so that a heap gives it first.
impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.compare(self)
    }
}

/// Candidates in the order in which they are tried. A search mostly ends after a few of many, so they are
/// not sorted but taken from a heap. That also bears an order that is not total: usage of LocalQueues
/// counts between workloads of one queue only.
pub(super) struct Candidates<T> {
    heap: BinaryHeap<Ranked<T>>,
}

impl<T> Candidates<T> {
    /// Puts lists of candidates in order.
    pub(super) fn new(
        state: &State,
        need: &Need<'_>,
        lists: impl IntoIterator<Item = Vec<T>>,
        id: impl Fn(&T) -> WorkloadId,
    ) -> Self {
        let context = (need.subject.queue, state.settings.afs().is_some(), need.now);
        let rank = |list: usize, candidate: T| Ranked::new(state, id(&candidate), candidate, list, context);
        let ranked = lists
            .into_iter()
            .enumerate()
            .flat_map(|(list, members)| members.into_iter().filter_map(move |own| rank(list, own)));
        Self { heap: ranked.collect() }
    }
}

impl<T> Iterator for Candidates<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.heap.pop().map(|ranked| ranked.candidate)
    }
}
