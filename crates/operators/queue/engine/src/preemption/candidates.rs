//! Candidates for preemption, and their order.

use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::Need;
use crate::model::{Fr, PreemptionPolicy, Workload};
use crate::names::{LocalQueueId, QueueId, WorkloadId};
use crate::settings::Settings;
use crate::state::{Rank, State};

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

/// The order of candidates: evicted ones, then those of other queues, then (between LocalQueues of one queue)
/// those whose LocalQueue used more, then lower priority, then reserved later, then by UID.
pub fn compare_candidates(
    state: &State,
    a: WorkloadId,
    b: WorkloadId,
    preemptor_queue: QueueId,
    with_afs: bool,
) -> Ordering {
    let (Some(held_a), Some(held_b)) = (state.held(a), state.held(b)) else {
        return a.cmp(&b);
    };
    let own = |queue: QueueId| queue == preemptor_queue;
    let usage = |id| if with_afs { state.local_queue_usage(id) } else { None };
    if held_a.queue == held_b.queue {
        return compare_in_queue((usage(a), &held_a.rank), (usage(b), &held_b.rank));
    }
    (held_a.rank.is_running, own(held_a.queue))
        .cmp(&(held_b.rank.is_running, own(held_b.queue)))
        .then_with(|| held_a.rank.cmp(&held_b.rank))
}

/// The same for two of one queue: by the usage of their LocalQueues, where that counts, and their ranks.
fn compare_in_queue((usage_a, a): (Option<f64>, &Rank), (usage_b, b): (Option<f64>, &Rank)) -> Ordering {
    let by_usage = match (usage_a, usage_b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        _ => Ordering::Equal,
    };
    a.is_running.cmp(&b.is_running).then(by_usage).then_with(|| a.cmp(b))
}

/// The candidates of one queue in order, one at a time: a search mostly ends after a few of many.
#[derive(Debug)]
pub(super) struct InQueue {
    queue: QueueId,
    policy: PreemptionPolicy,
    order: InOrder,
}

#[derive(Debug)]
enum InOrder {
    /// As they are ranked, after this one.
    ByRank(Option<Arc<Rank>>),
    /// Where usage of LocalQueues counts: an order of their own, last first.
    ByUsage(Vec<WorkloadId>),
}

impl InQueue {
    /// Candidates the policy lets be taken.
    pub(super) fn new(state: &State, queue: QueueId, policy: PreemptionPolicy) -> Self {
        let shares = state.queue(queue).is_some_and(|queue| queue.spec.usage_based_admission);
        let order = if shares && state.settings.afs().is_some() {
            let mut known: BTreeMap<LocalQueueId, Option<f64>> = BTreeMap::new();
            let mut usage = |id| {
                let local_queue = state.workload(id)?.local_queue;
                *known.entry(local_queue).or_insert_with(|| state.local_queue_usage(id))
            };
            let all = state.candidates_after(queue, None);
            let mut all: Vec<_> = all.map(|(rank, id)| (usage(id), rank, id)).collect();
            all.sort_by(|(usage_a, a, _), (usage_b, b, _)| compare_in_queue((*usage_b, b), (*usage_a, a)));
            InOrder::ByUsage(all.into_iter().map(|(_, _, id)| id).collect())
        } else {
            InOrder::ByRank(None)
        };
        Self { queue, policy, order }
    }

    /// The next one.
    pub(super) fn next(&mut self, state: &State, need: &Need<'_>) -> Option<(Arc<Rank>, WorkloadId)> {
        let (policy, preemptor) = (self.policy, &need.subject.workload);
        // A slice takes the place of the one it replaces: to evict that would stop its own job.
        let replaced = need.subject.replaced.as_ref().map(|replaced| replaced.id);
        let may_take = |id: WorkloadId| {
            let is_allowed =
                |candidate: &Arc<Workload>| satisfies_policy(&state.settings, preemptor, candidate, policy);
            replaced != Some(id)
                && uses_any(state, id, &need.frs)
                && state.workload(id).is_some_and(is_allowed)
        };
        match &mut self.order {
            InOrder::ByRank(last) => {
                let own = preemptor.effective_priority(&state.settings.gates);
                let highest = match policy {
                    PreemptionPolicy::Any => i64::MAX,
                    PreemptionPolicy::LowerOrNewerEqualPriority => own,
                    PreemptionPolicy::LowerPriority => own - 1,
                    PreemptionPolicy::Never | PreemptionPolicy::Unset => return None,
                };
                let (rank, id) = state
                    .candidates_after(self.queue, last.as_ref())
                    .take_while(|(rank, _)| !rank.is_running || rank.priority <= highest)
                    .find(|(_, id)| may_take(*id))?;
                let rank = Arc::clone(rank);
                *last = Some(Arc::clone(&rank));
                Some((rank, id))
            }
            InOrder::ByUsage(listed) => loop {
                let id = listed.pop()?;
                if let Some(held) = state.held(id).filter(|_| may_take(id)) {
                    return Some((Arc::clone(&held.rank), id));
                }
            },
        }
    }
}

/// The next candidate of a queue, and where those after it come from.
struct Front<T> {
    /// Lists are tried one after another, but what is evicted already goes first from all of them.
    order: (bool, usize, Arc<Rank>),
    workload: WorkloadId,
    of: T,
    rest: InQueue,
}

impl<T> PartialEq for Front<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<T> Eq for Front<T> {}

impl<T> PartialOrd for Front<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first to be tried is the greatest, so that a heap gives it first.
impl<T> Ord for Front<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.order.cmp(&self.order)
    }
}

/// Candidates of several queues in the order in which they are tried: lists one after another, and queues
/// of the same list merged by rank. Every queue comes with something to remember about it.
pub(super) struct Merged<T> {
    fronts: BinaryHeap<Front<T>>,
}

impl<T: Copy> Merged<T> {
    pub(super) const fn new() -> Self {
        Self { fronts: BinaryHeap::new() }
    }

    /// Adds a queue to a list. True if it has candidates.
    pub(super) fn add(
        &mut self,
        state: &State,
        need: &Need<'_>,
        list: usize,
        mut rest: InQueue,
        of: T,
    ) -> bool {
        let Some((rank, workload)) = rest.next(state, need) else {
            return false;
        };
        self.fronts.push(Front { order: (rank.is_running, list, rank), workload, of, rest });
        true
    }

    pub(super) fn next(&mut self, state: &State, need: &Need<'_>) -> Option<(WorkloadId, T)> {
        let mut front = self.fronts.peek_mut()?;
        let found = (front.workload, front.of);
        match front.rest.next(state, need) {
            Some((rank, workload)) => {
                front.order = (rank.is_running, front.order.1, rank);
                front.workload = workload;
            }
            None => {
                PeekMut::pop(front);
            }
        }
        Some(found)
    }
}
