//! Preemption by priority and by hierarchy.

use super::candidates::{Candidates, satisfies_policy, uses_any};
use super::{Need, PreemptionReason, Target, fill_back};
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

#[derive(Clone, Copy, Debug)]
struct Candidate {
    workload: WorkloadId,
    queue: QueueId,
    variant: Variant,
    /// The lowest cohort above both sides.
    meets_at: Option<NodeId>,
}

impl Candidate {
    const fn target(&self) -> Target {
        Target { workload: self.workload, reason: Some(self.variant.reason()) }
    }
}

/// All candidates, by how they may be taken.
struct Collected {
    hierarchical: Vec<Candidate>,
    by_priority: Vec<Candidate>,
    own: Vec<Candidate>,
}

pub(super) fn search(state: &mut State, need: &Need<'_>) -> Vec<Target> {
    let Collected { hierarchical, mut by_priority, own } = collect(state, need);
    let (is_hierarchical, from_others) =
        (!hierarchical.is_empty(), !hierarchical.is_empty() || !by_priority.is_empty());
    let may_not_borrow = need.queue.spec.preemption.borrowing_threshold().is_none();
    let attempts: &[bool] = if !from_others || may_not_borrow && !is_under_nominal(state, need) {
        &[true]
    } else if may_not_borrow && !is_hierarchical {
        &[false, true]
    } else {
        &[true, false]
    };
    if !attempts.contains(&false) {
        by_priority.retain(|candidate| candidate.variant != Variant::WithoutBorrowing);
    }
    let mut candidates =
        Candidates::new(state, need, [hierarchical, by_priority, own], |candidate| candidate.workload);
    // Those tried before, in order, for the next attempt.
    let mut tried = Vec::new();
    for borrowing in attempts {
        let mark = state.mark();
        let mut targets = Vec::new();
        let mut at = 0;
        while let Some(candidate) = tried.get(at).copied().or_else(|| candidates.next()) {
            if at == tried.len() {
                tried.push(candidate);
            }
            at += 1;
            if !is_still_valid(state, need, &candidate, *borrowing) {
                continue;
            }
            state.try_without(candidate.workload, true);
            targets.push(candidate.target());
            if need.fits(state, *borrowing) {
                fill_back(state, need, &mut targets, *borrowing);
                state.rollback(mark);
                return targets;
            }
        }
        state.rollback(mark);
    }
    Vec::new()
}

fn is_under_nominal(state: &State, need: &Need<'_>) -> bool {
    need.frs.iter().all(|fr| state.tree.quota(need.node(), *fr).nominal > state.tree.usage(need.node(), *fr))
}

/// A candidate of another queue counts only while its queue, and every cohort below the meeting point,
/// uses more than it owns of what is needed.
fn is_still_valid(state: &State, need: &Need<'_>, candidate: &Candidate, borrowing: bool) -> bool {
    if candidate.queue == need.subject.queue {
        return true;
    }
    if borrowing && candidate.variant == Variant::WithoutBorrowing {
        return false;
    }
    let Some(queue) = state.queue(candidate.queue) else {
        return false;
    };
    let below = state.tree.ancestors(queue.node).take_while(|node| Some(*node) != candidate.meets_at);
    std::iter::once(queue.node).chain(below).all(|node| !state.tree.is_within_quota(node, &need.frs))
}

fn collect(state: &State, need: &Need<'_>) -> Collected {
    let mut own = Vec::new();
    let mut hierarchical = Vec::new();
    let mut by_priority = Vec::new();
    let preemption = &need.queue.spec.preemption;
    if preemption.within_queue != PreemptionPolicy::Never {
        from_queue(state, need, need.subject.queue, None, false, &mut own);
    }
    if preemption.reclaim_within_cohort != PreemptionPolicy::Never {
        let (mut advantage, mut rest) = state.tree.fit_in_quota(need.node(), &need.usage);
        let mut visited = None;
        for cohort in state.tree.ancestors(need.node()) {
            let list = if advantage { &mut hierarchical } else { &mut by_priority };
            below(state, need, cohort, (cohort, visited), advantage, list);
            let fits;
            (fits, rest) = state.tree.fit_in_quota(cohort, &rest);
            advantage |= fits;
            visited = Some(cohort);
        }
    }
    Collected { hierarchical, by_priority, own }
}

/// Candidates below a cohort, leaving out the subtree visited before and everything within its quota.
fn below(
    state: &State,
    need: &Need<'_>,
    cohort: NodeId,
    (meets_at, visited): (NodeId, Option<NodeId>),
    advantage: bool,
    found: &mut Vec<Candidate>,
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
            from_queue(state, need, queue, Some(meets_at), advantage, found);
        }
    }
}

fn from_queue(
    state: &State,
    need: &Need<'_>,
    queue: QueueId,
    meets_at: Option<NodeId>,
    advantage: bool,
    found: &mut Vec<Candidate>,
) {
    for workload in state.candidates(queue) {
        if let Some(variant) = classify(state, need, workload, queue, advantage) {
            found.push(Candidate { workload, queue, variant, meets_at });
        }
    }
}

fn classify(
    state: &State,
    need: &Need<'_>,
    id: WorkloadId,
    queue: QueueId,
    advantage: bool,
) -> Option<Variant> {
    let workload = state.workload(id)?;
    let preemptor = &need.subject.workload;
    let preemption = &need.queue.spec.preemption;
    let is_own = queue == need.subject.queue;
    let policy = if is_own { preemption.within_queue } else { preemption.reclaim_within_cohort };
    if !uses_any(state, id, &need.frs) || !satisfies_policy(&state.settings, preemptor, workload, policy) {
        return None;
    }
    if is_own {
        return Some(Variant::WithinQueue);
    }
    if advantage {
        return Some(Variant::Hierarchical);
    }
    let Some(threshold) = preemption.borrowing_threshold() else {
        return Some(Variant::WithoutBorrowing);
    };
    let gates = &state.settings.gates;
    let priority = workload.effective_priority(gates);
    let too_high = priority >= preemptor.effective_priority(gates)
        || threshold.is_some_and(|threshold| priority > i64::from(threshold));
    Some(if too_high { Variant::WithoutBorrowing } else { Variant::WhileBorrowing })
}
