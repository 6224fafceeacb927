//! Preemption by fair shares.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::candidates::{InQueue, compare_candidates};
use super::removal::fill_back;
use super::{Need, PreemptionReason, Target};
use crate::fair::Share;
use crate::model::PreemptionPolicy;
use crate::names::{QueueId, WorkloadId};
use crate::quota::NodeId;
use crate::settings::{FairStrategy, Settings};
use crate::state::State;

pub(super) fn search(state: &mut State, need: &Need<'_>) -> Vec<Target> {
    let candidates = collect(state, need);
    if candidates.is_empty() {
        return Vec::new();
    }
    let configured = state.settings.fair_sharing.clone().unwrap_or_default();
    let strategies = if configured.is_empty() { Settings::DEFAULT_STRATEGIES.to_vec() } else { configured };
    let first = strategies.first().copied().unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);

    let mark = state.mark();
    // Shares are compared as they would be with the workload admitted.
    state.tree.add_all(need.node(), &need.usage);
    state.tas.change_usage(&need.tas, 1);
    let mut run = Run { need, targets: Vec::new(), retry: Vec::new() };
    let mut fits = run.first_strategy(state, candidates, first);
    if !fits && strategies.len() > 1 {
        fits = run.second_strategy(state);
    }
    state.tree.remove_all(need.node(), &need.usage);
    state.tas.change_usage(&need.tas, -1);
    let mut targets = run.targets;
    if fits {
        fill_back(state, need, &mut targets, true);
    } else {
        targets.clear();
    }
    state.rollback(mark);
    targets
}

/// Candidates, those of each queue in order.
fn collect(state: &State, need: &Need<'_>) -> Vec<WorkloadId> {
    let preemption = &need.queue.spec.preemption;
    let mut found = Vec::new();
    let mut from = |queue: QueueId, policy: PreemptionPolicy| {
        let mut members = InQueue::new(state, queue, policy);
        found.extend(std::iter::from_fn(|| members.next(state, need)).map(|(_, id)| id));
    };
    if preemption.within_queue != PreemptionPolicy::Never {
        from(need.subject.queue, preemption.within_queue);
    }
    if preemption.reclaim_within_cohort != PreemptionPolicy::Never && state.tree.parent(need.node()).is_some()
    {
        for node in state.tree.queues_below(state.tree.root(need.node())) {
            let borrows = need
                .frs
                .iter()
                .any(|fr| state.tree.is_borrowing_with(node, *fr, crate::amount::Amount::ZERO));
            if node != need.node()
                && borrows
                && let Some(queue) = state.tree.queue_at(node)
            {
                from(queue, preemption.reclaim_within_cohort);
            }
        }
    }
    found
}

struct Run<'a> {
    need: &'a Need<'a>,
    targets: Vec<Target>,
    retry: Vec<WorkloadId>,
}

impl Run<'_> {
    /// Whether the workload fits, leaving out that it was counted in already.
    fn fits(&self, state: &mut State) -> bool {
        let mark = state.mark();
        state.tree.remove_all(self.need.node(), &self.need.usage);
        state.tas.change_usage(&self.need.tas, -1);
        let fits = self.need.fits(state, true);
        state.rollback(mark);
        fits
    }

    fn take(&mut self, state: &mut State, workload: WorkloadId, reason: PreemptionReason) -> bool {
        state.try_without(workload, true);
        self.targets.push(Target { workload, reason: Some(reason) });
        self.fits(state)
    }

    fn first_strategy(
        &mut self,
        state: &mut State,
        candidates: Vec<WorkloadId>,
        strategy: FairStrategy,
    ) -> bool {
        let need = self.need;
        let mut order = FairOrder::new(state, need.node(), need.subject.queue, candidates);
        let entitled = state.settings.gates.fair_sharing_preempt_within_nominal
            && need
                .frs
                .iter()
                .all(|fr| !state.tree.is_borrowing_with(need.node(), *fr, crate::amount::Amount::ZERO));
        while let Some(target) = order.next(state) {
            if target.node == need.node() || entitled {
                let reason = if target.node == need.node() {
                    PreemptionReason::InClusterQueue
                } else {
                    PreemptionReason::InCohortReclamation
                };
                let Some(workload) = order.pop(target) else {
                    continue;
                };
                if self.take(state, workload, reason) {
                    return true;
                }
                continue;
            }
            let (own, theirs) = order.shares(state, target);
            if own.weighted().is_infinite() && !theirs.weighted().is_infinite() {
                self.retry.extend(order.drain(target));
                continue;
            }
            while let Some(workload) = order.pop(target) {
                let passes = match strategy {
                    FairStrategy::LessThanInitialShare => own.compare(&theirs).is_lt(),
                    FairStrategy::LessThanOrEqualToFinalShare => {
                        own.compare(&order.share_without(state, target, workload)).is_le()
                    }
                };
                if !passes {
                    self.retry.push(workload);
                } else if self.take(state, workload, PreemptionReason::InCohortFairSharing) {
                    return true;
                } else {
                    break;
                }
            }
        }
        false
    }

    fn second_strategy(&mut self, state: &mut State) -> bool {
        let need = self.need;
        let retry = std::mem::take(&mut self.retry);
        let mut order = FairOrder::new(state, need.node(), need.subject.queue, retry);
        while let Some(target) = order.next(state) {
            let (own, theirs) = order.shares(state, target);
            let Some(workload) = order.pop(target) else {
                continue;
            };
            if own.compare(&theirs).is_lt()
                && self.take(state, workload, PreemptionReason::InCohortFairSharing)
            {
                return true;
            }
            order.drop_queue(target);
        }
        false
    }
}

/// A queue to take the next victim from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetQueue {
    /// Its node.
    pub node: NodeId,
    /// The queue.
    pub queue: QueueId,
}

/// Yields repeatedly the queue with the highest share, searched from the root down.
#[derive(Debug)]
pub struct FairOrder {
    preemptor: NodeId,
    preemptor_queue: QueueId,
    ancestors: Vec<NodeId>,
    candidates: BTreeMap<QueueId, VecDeque<WorkloadId>>,
    pruned: BTreeSet<NodeId>,
}

impl FairOrder {
    /// Candidates in the order in which they are to be taken within each queue.
    pub fn new(
        state: &State,
        preemptor: NodeId,
        preemptor_queue: QueueId,
        candidates: Vec<WorkloadId>,
    ) -> Self {
        let mut by_queue: BTreeMap<QueueId, VecDeque<WorkloadId>> = BTreeMap::new();
        for candidate in candidates {
            if let Some(held) = state.held(candidate) {
                by_queue.entry(held.queue).or_default().push_back(candidate);
            }
        }
        let ancestors = state.tree.ancestors(preemptor).collect();
        Self { preemptor, preemptor_queue, ancestors, candidates: by_queue, pruned: BTreeSet::new() }
    }

    /// The next queue, or `None` when no candidates are left.
    pub fn next(&mut self, state: &State) -> Option<TargetQueue> {
        let Some(root) = self.ancestors.last().copied() else {
            let own = TargetQueue { node: self.preemptor, queue: self.preemptor_queue };
            return (!self.pruned.contains(&self.preemptor) && self.has_candidates(self.preemptor_queue))
                .then_some(own);
        };
        while !self.pruned.contains(&root) {
            if let Some(target) = self.next_below(state, root) {
                return Some(target);
            }
        }
        None
    }

    fn has_candidates(&self, queue: QueueId) -> bool {
        self.candidates.get(&queue).is_some_and(|list| !list.is_empty())
    }

    fn next_below(&mut self, state: &State, cohort: NodeId) -> Option<TargetQueue> {
        let mut best_queue: Option<(TargetQueue, Share)> = None;
        for node in state.tree.child_queues(cohort).collect::<Vec<_>>() {
            let Some(queue) = state.tree.queue_at(node).filter(|_| !self.pruned.contains(&node)) else {
                continue;
            };
            let share = state.share(node);
            if !share.is_borrowing() && node != self.preemptor || !self.has_candidates(queue) {
                self.pruned.insert(node);
                continue;
            }
            let order = best_queue.as_ref().map_or(Ordering::Greater, |(_, best)| share.compare(best));
            let better = match order {
                Ordering::Less => false,
                Ordering::Greater => true,
                Ordering::Equal => best_queue
                    .as_ref()
                    .is_some_and(|(best, _)| self.is_better_first(state, queue, best.queue)),
            };
            if better {
                best_queue = Some((TargetQueue { node, queue }, share));
            }
        }
        let mut best_cohort: Option<(NodeId, Share)> = None;
        for child in state.tree.child_cohorts(cohort).collect::<Vec<_>>() {
            if self.pruned.contains(&child) {
                continue;
            }
            let share = state.share(child);
            if !share.is_borrowing() && !self.ancestors.contains(&child) {
                self.pruned.insert(child);
            } else if best_cohort.as_ref().is_none_or(|(_, best)| share.compare(best).is_ge()) {
                best_cohort = Some((child, share));
            }
        }
        match (best_cohort, best_queue) {
            (None, None) => {
                self.pruned.insert(cohort);
                None
            }
            (Some((child, share)), queue)
                if queue.as_ref().is_none_or(|(_, best)| share.compare(best).is_ge()) =>
            {
                self.next_below(state, child)
            }
            (_, queue) => queue.map(|(target, _)| target),
        }
    }

    fn is_better_first(&self, state: &State, queue: QueueId, than: QueueId) -> bool {
        let first = |queue: QueueId| self.candidates.get(&queue).and_then(|list| list.front().copied());
        match (first(queue), first(than)) {
            (Some(a), Some(b)) => compare_candidates(state, a, b, self.preemptor_queue, false).is_lt(),
            _ => false,
        }
    }

    /// Takes the first candidate of a queue.
    pub fn pop(&mut self, target: TargetQueue) -> Option<WorkloadId> {
        self.candidates.get_mut(&target.queue).and_then(VecDeque::pop_front)
    }

    fn drain(&mut self, target: TargetQueue) -> Vec<WorkloadId> {
        self.candidates.get_mut(&target.queue).map(|list| list.drain(..).collect()).unwrap_or_default()
    }

    /// Leaves a queue out from now on.
    pub fn drop_queue(&mut self, target: TargetQueue) {
        self.pruned.insert(target.node);
    }

    /// The children of the lowest common ancestor on the preemptor's and on the target's side.
    fn sides(&self, state: &State, target: TargetQueue) -> (NodeId, NodeId) {
        let meets_at = state.tree.ancestors(target.node).find(|node| self.ancestors.contains(node));
        let side = |node: NodeId| {
            let path = std::iter::once(node).chain(state.tree.ancestors(node));
            path.take_while(|node| Some(*node) != meets_at).last().unwrap_or(node)
        };
        (side(self.preemptor), side(target.node))
    }

    fn shares(&self, state: &State, target: TargetQueue) -> (Share, Share) {
        let (own, theirs) = self.sides(state, target);
        (state.share(own), state.share(theirs))
    }

    fn share_without(&self, state: &mut State, target: TargetQueue, workload: WorkloadId) -> Share {
        let mark = state.mark();
        state.try_without(workload, false);
        let share = state.share(self.sides(state, target).1);
        state.rollback(mark);
        share
    }
}
