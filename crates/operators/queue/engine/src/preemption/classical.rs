//! Preemption by priority and by hierarchy.

use super::candidates::{InQueue, Merged};
use super::removal::Removal;
use super::{Need, PreemptionReason, Target};
use crate::model::PreemptionPolicy;
use crate::names::{QueueId, WorkloadId};
use crate::quota::NodeId;
use crate::state::State;

/// How a candidate may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    WithinQueue,
    /// The preemptor's side has quota of its own at the level where both meet.
    Hierarchical,
    /// Only if the preemptor does not borrow.
    WithoutBorrowing,
    /// Even if the preemptor borrows.
    WhileBorrowing,
}

impl Variant {
    const fn reason(self) -> PreemptionReason {
        match self {
            Self::WithinQueue => PreemptionReason::InClusterQueue,
            Self::Hierarchical | Self::WithoutBorrowing => PreemptionReason::InCohortReclamation,
            Self::WhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
        }
    }
}

/// Where a candidate comes from.
#[derive(Clone, Copy, Debug)]
struct Origin {
    queue: QueueId,
    /// The lowest cohort above both sides, if it is another queue.
    meets_at: Option<NodeId>,
    /// The preemptor's side has quota of its own there.
    advantage: bool,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    workload: WorkloadId,
    origin: Origin,
    variant: Variant,
}

impl Candidate {
    const fn target(&self) -> Target {
        Target { workload: self.workload, reason: Some(self.variant.reason()) }
    }
}

/// The lists of candidates, in the order in which they are tried.
const HIERARCHICAL: usize = 0;
const BY_PRIORITY: usize = 1;
const OWN: usize = 2;

/// All candidates, those of another attempt first.
struct Candidates {
    merged: Merged<Origin>,
    /// Those tried before, in order.
    tried: Vec<Candidate>,
    is_hierarchical: bool,
    from_others: bool,
}

impl Candidates {
    fn get(&mut self, at: usize, state: &State, need: &Need<'_>) -> Option<Candidate> {
        if let Some(known) = self.tried.get(at) {
            return Some(*known);
        }
        let (workload, origin) = self.merged.next(state, need)?;
        let candidate = Candidate { workload, origin, variant: variant(state, need, workload, &origin) };
        self.tried.push(candidate);
        Some(candidate)
    }
}

pub(super) fn search(state: &mut State, need: &Need<'_>) -> Vec<Target> {
    let may_not_borrow = need.queue.spec.preemption.borrowing_threshold().is_none();
    // Such a workload takes from others by hierarchy only.
    let only_borrowing = may_not_borrow && !is_under_nominal(state, need);
    let mut candidates = collect(state, need, only_borrowing);
    let attempts: &[bool] = if !candidates.from_others || only_borrowing {
        &[true]
    } else if may_not_borrow && !candidates.is_hierarchical {
        &[false, true]
    } else {
        &[true, false]
    };
    for borrowing in attempts {
        let mark = state.mark();
        let found = attempt(state, need, &mut candidates, *borrowing);
        state.rollback(mark);
        if let Some(targets) = found {
            return targets;
        }
    }
    Vec::new()
}

/// Removes candidates in order until the workload fits, then gives back those it can do without.
fn attempt(
    state: &mut State,
    need: &Need<'_>,
    candidates: &mut Candidates,
    borrowing: bool,
) -> Option<Vec<Target>> {
    let mut removal = Removal::new(need, borrowing);
    let mut at = 0;
    let mut fits = false;
    while !fits && let Some(candidate) = candidates.get(at, state, need) {
        at += 1;
        if is_still_valid(state, need, &candidate, borrowing) {
            fits = removal.take(state, candidate.target());
        }
    }
    removal.finish(state)
}

fn is_under_nominal(state: &State, need: &Need<'_>) -> bool {
    need.frs.iter().all(|fr| state.tree.quota(need.node(), *fr).nominal > state.tree.usage(need.node(), *fr))
}

/// A candidate of another queue counts only while its queue, and every cohort below the meeting point,
/// uses more than it owns of what is needed.
fn is_still_valid(state: &State, need: &Need<'_>, candidate: &Candidate, borrowing: bool) -> bool {
    if candidate.origin.queue == need.subject.queue {
        return true;
    }
    if borrowing && candidate.variant == Variant::WithoutBorrowing {
        return false;
    }
    let Some(queue) = state.queue(candidate.origin.queue) else {
        return false;
    };
    let below = state.tree.ancestors(queue.node).take_while(|node| Some(*node) != candidate.origin.meets_at);
    std::iter::once(queue.node).chain(below).all(|node| !state.tree.is_within_quota(node, &need.frs))
}

fn collect(state: &State, need: &Need<'_>, only_borrowing: bool) -> Candidates {
    let mut found =
        Candidates { merged: Merged::new(), tried: Vec::new(), is_hierarchical: false, from_others: false };
    let preemption = &need.queue.spec.preemption;
    if preemption.within_queue != PreemptionPolicy::Never {
        let own = Origin { queue: need.subject.queue, meets_at: None, advantage: false };
        let queue = InQueue::new(state, own.queue, preemption.within_queue);
        found.merged.add(state, need, OWN, queue, own);
    }
    if preemption.reclaim_within_cohort != PreemptionPolicy::Never {
        let (mut advantage, mut rest) = state.tree.fit_in_quota(need.node(), &need.usage);
        let mut visited = None;
        for cohort in state.tree.ancestors(need.node()) {
            if advantage || !only_borrowing {
                below(state, need, cohort, (cohort, visited), advantage, &mut found);
            }
            let fits;
            (fits, rest) = state.tree.fit_in_quota(cohort, &rest);
            advantage |= fits;
            visited = Some(cohort);
        }
    }
    found
}

/// Candidates below a cohort, leaving out the subtree visited before and everything within its quota.
fn below(
    state: &State,
    need: &Need<'_>,
    cohort: NodeId,
    (meets_at, visited): (NodeId, Option<NodeId>),
    advantage: bool,
    found: &mut Candidates,
) {
    for child in state.tree.child_cohorts(cohort) {
        if Some(child) != visited && !state.tree.is_within_quota(child, &need.frs) {
            below(state, need, child, (meets_at, visited), advantage, found);
        }
    }
    for child in state.tree.child_queues(cohort) {
        if child != need.node()
            && !state.tree.is_within_quota(child, &need.frs)
            && let Some(queue) = state.tree.queue_at(child)
        {
            let origin = Origin { queue, meets_at: Some(meets_at), advantage };
            let list = if advantage { HIERARCHICAL } else { BY_PRIORITY };
            let queue = InQueue::new(state, queue, need.queue.spec.preemption.reclaim_within_cohort);
            let any = found.merged.add(state, need, list, queue, origin);
            found.from_others |= any;
            found.is_hierarchical |= any && advantage;
        }
    }
}

/// How a candidate may be taken.
fn variant(state: &State, need: &Need<'_>, id: WorkloadId, origin: &Origin) -> Variant {
    if origin.queue == need.subject.queue {
        return Variant::WithinQueue;
    }
    if origin.advantage {
        return Variant::Hierarchical;
    }
    let Some(threshold) = need.queue.spec.preemption.borrowing_threshold() else {
        return Variant::WithoutBorrowing;
    };
    let priority = state.held(id).map_or(i64::MAX, |held| held.rank.priority);
    let too_high = priority >= need.subject.workload.effective_priority(&state.settings.gates)
        || threshold.is_some_and(|threshold| priority > i64::from(threshold));
    if too_high { Variant::WithoutBorrowing } else { Variant::WhileBorrowing }
}
