//! In which order the entries of a cycle are decided about.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use quintet_api::kueue::WorkloadLifecycle;

use super::{Entry, Head};
use crate::fair::Share;
use crate::model::{Usage, Workload};
use crate::names::QueueId;
use crate::quota::NodeId;
use crate::settings::Settings;
use crate::state::State;

/// Classical order: second passes first, then (if so configured) preemptors, then those that borrow from
/// a lower subtree, then higher priority, then earlier.
pub fn compare_classical(settings: &Settings, a: &Entry, b: &Entry) -> Ordering {
    let key = |entry: &Entry| {
        let workload = &entry.subject.workload;
        let preemptor = settings.gates.prioritize_preemptors && entry.is_preemptor;
        (
            !workload.has_quota_reservation(),
            !preemptor,
            entry.assignment.borrowing,
            by_priority(settings, workload),
        )
    };
    key(a).cmp(&key(b))
}

fn by_priority(settings: &Settings, workload: &Workload) -> (Reverse<i64>, crate::time::Time) {
    let priority = if settings.gates.priority_sorting_within_cohort {
        workload.effective_priority(&settings.gates)
    } else {
        0
    };
    (Reverse(priority), workload.queue_timestamp(settings))
}

/// Fair order of two entries below the same cohort, given the shares their sides would have.
pub fn compare_fair(
    settings: &Settings,
    (a, share_a, usage_a): (&Entry, &Share, &Usage),
    (b, share_b, usage_b): (&Entry, &Share, &Usage),
) -> Ordering {
    let gates = &settings.gates;
    let preemptors =
        if gates.prioritize_preemptors { b.is_preemptor.cmp(&a.is_preemptor) } else { Ordering::Equal };
    preemptors
        .then_with(|| {
            if gates.fair_sharing_prioritize_non_borrowing {
                share_a.is_borrowing_on(usage_a).cmp(&share_b.is_borrowing_on(usage_b))
            } else {
                Ordering::Equal
            }
        })
        .then_with(|| share_a.compare(share_b))
        .then_with(|| {
            by_priority(settings, &a.subject.workload).cmp(&by_priority(settings, &b.subject.workload))
        })
}

/// Which entry comes next.
pub(crate) enum Order {
    /// Sorted beforehand; the next is the last.
    Classical(Vec<usize>),
    /// A tournament before every entry, because each admission changes shares.
    Fair {
        /// By queue.
        remaining: BTreeMap<QueueId, usize>,
        /// By the root of the tree.
        tournaments: BTreeMap<NodeId, Tournament>,
    },
}

impl Order {
    pub(crate) fn new(settings: &Settings, entries: &[Head]) -> Self {
        if settings.is_fair() {
            // One entry per queue; a regular head goes before a second pass of the same queue.
            let by_queue = entries.iter().enumerate().map(|(at, entry)| (entry.subject.queue, at));
            return Self::Fair { remaining: by_queue.collect(), tournaments: BTreeMap::new() };
        }
        let mut sorted: Vec<usize> = (0..entries.len()).collect();
        sorted.sort_by(|a, b| match (entries.get(*a), entries.get(*b)) {
            (Some(a), Some(b)) => compare_classical(settings, a, b),
            _ => Ordering::Equal,
        });
        sorted.reverse();
        Self::Classical(sorted)
    }

    /// The next entry; what was decided about those before it counts.
    pub(crate) fn next(&mut self, state: &mut State, entries: &[Head]) -> Option<usize> {
        let (remaining, tournaments) = match self {
            Self::Classical(sorted) => return sorted.pop(),
            Self::Fair { remaining, tournaments } => (remaining, tournaments),
        };
        let (first, at) = remaining.iter().next().map(|(queue, at)| (*queue, *at))?;
        let node = state.queue(first).map(|queue| queue.node);
        let root = node.filter(|node| state.tree.parent(*node).is_some()).map(|node| state.tree.root(node));
        let winner = root.and_then(|root| {
            let tournament = tournaments.entry(root).or_default();
            tournament.prepare(state, root, entries, remaining);
            let winner = tournament.winner(state, root, (entries, remaining))?;
            let queue = entries.get(winner)?.subject.queue;
            tournament.decided = state.queue(queue).map(|queue| queue.node);
            Some((queue, winner))
        });
        let (queue, at) = winner.unwrap_or((first, at));
        remaining.remove(&queue);
        Some(at)
    }
}

/// The remaining entries of a tree, with the shares their queues and cohorts would have.
#[derive(Default)]
pub(crate) struct Tournament {
    /// By entry and cohort: the share of the cohort's child on the entry's side.
    shares: BTreeMap<(usize, NodeId), Share>,
    usages: BTreeMap<usize, Usage>,
    is_prepared: bool,
    /// The queue that was decided about last.
    decided: Option<NodeId>,
}

impl Tournament {
    /// Works out the shares: of all entries, or, when one was decided about, of those whose queues share a cohort with its queue
    /// below the root in common. What a queue uses changes no share but its own and those of the cohorts above it.
    fn prepare(
        &mut self,
        state: &mut State,
        root: NodeId,
        entries: &[Head],
        remaining: &BTreeMap<QueueId, usize>,
    ) {
        let changed = match self.decided {
            _ if !self.is_prepared => Some(root),
            None => None,
            Some(decided) => state.tree.ancestors(decided).take_while(|node| *node != root).last(),
        };
        let Some(changed) = changed else {
            return;
        };
        self.is_prepared = true;
        for node in state.tree.queues_below(changed) {
            let Some(at) = state.tree.queue_at(node).and_then(|queue| remaining.get(&queue)) else {
                continue;
            };
            let Some(entry) = entries.get(*at) else {
                continue;
            };
            let (usage, _) = entry.net_usage(state);
            let mark = state.mark();
            state.tree.add_all(node, &usage);
            let mut share = state.share(node);
            for ancestor in state.tree.ancestors(node) {
                let next = state.share(ancestor);
                self.shares.insert((*at, ancestor), std::mem::replace(&mut share, next));
            }
            state.rollback(mark);
            self.usages.insert(*at, usage);
        }
    }

    fn winner(
        &self,
        state: &State,
        cohort: NodeId,
        (entries, remaining): (&[Head], &BTreeMap<QueueId, usize>),
    ) -> Option<usize> {
        let cohorts = state
            .tree
            .child_cohorts(cohort)
            .filter_map(|child| self.winner(state, child, (entries, remaining)));
        let queues = state
            .tree
            .child_queues(cohort)
            .filter_map(|child| state.tree.queue_at(child).and_then(|queue| remaining.get(&queue).copied()));
        let side = |at: usize| {
            let entry: &Entry = entries.get(at)?;
            Some((entry, self.shares.get(&(at, cohort))?, self.usages.get(&at)?))
        };
        let sides = cohorts.chain(queues).map(|at| (at, side(at)));
        let best = sides.reduce(|best, next| match (&next.1, &best.1) {
            (Some(a), Some(b)) if compare_fair(&state.settings, *a, *b).is_lt() => next,
            _ => best,
        });
        best.map(|(at, _)| at)
    }
}
