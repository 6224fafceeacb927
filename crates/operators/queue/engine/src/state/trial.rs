//! Trying things out: what if these were gone? Usage is changed and rolled back; nothing is copied.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Rank, State};
use crate::names::{Id, QueueId, WorkloadId};
use crate::quota;

/// A place to roll back to.
#[must_use = "changes after a mark stay until they are rolled back"]
pub struct Mark {
    quota: quota::Mark,
    tas: crate::tas::TasMark,
    hidden: usize,
}

/// Workloads that count as gone. Every change is kept until it is undone, so that a mark costs nothing, however
/// many are hidden.
#[derive(Clone, Debug, Default)]
pub(super) struct Hidden {
    ids: BTreeSet<WorkloadId>,
    changed: Vec<WorkloadId>,
}

impl Hidden {
    fn set(&mut self, id: WorkloadId, is_hidden: bool) {
        let changed = if is_hidden { self.ids.insert(id) } else { self.ids.remove(&id) };
        if changed {
            self.changed.push(id);
        }
    }

    fn rollback(&mut self, to: usize) {
        for id in self.changed.drain(to.min(self.changed.len())..).rev() {
            if !self.ids.remove(&id) {
                self.ids.insert(id);
            }
        }
    }
}

impl State {
    /// From here on usage can be rolled back.
    pub fn mark(&mut self) -> Mark {
        Mark { quota: self.tree.mark(), tas: self.tas.mark(), hidden: self.hidden.changed.len() }
    }

    /// Undoes every change of usage since `mark`.
    #[expect(clippy::needless_pass_by_value, reason = "there is one way back to a mark")]
    pub fn rollback(&mut self, mark: Mark) {
        self.tree.rollback(mark.quota);
        self.tas.rollback(mark.tas);
        self.hidden.rollback(mark.hidden);
    }

    /// Takes away what a workload holds, until rolled back; `hide` also makes it no candidate.
    pub fn try_without(&mut self, id: WorkloadId, hide: bool) {
        self.try_change(id, -1);
        if hide {
            self.hidden.set(id, true);
        }
    }

    /// Gives back what [`State::try_without`] took.
    pub fn try_with(&mut self, id: WorkloadId) {
        self.try_change(id, 1);
        self.hidden.set(id, false);
    }

    fn try_change(&mut self, id: WorkloadId, factor: i64) {
        let Some(held) =
            self.slots.get(id.index()).and_then(Option::as_ref).and_then(|slot| slot.held.as_deref())
        else {
            return;
        };
        if let Some(row) = self.queues.get(held.queue) {
            if factor > 0 {
                self.tree.add_all(row.queue.node, &held.usage);
            } else {
                self.tree.remove_all(row.queue.node, &held.usage);
            }
            self.tas.change_leaves(&held.leaves, factor);
        }
    }

    /// Workloads that hold quota of the queue and are not hidden, by rank.
    pub fn candidates(&self, queue: QueueId) -> impl Iterator<Item = WorkloadId> + '_ {
        self.candidates_after(queue, None).map(|(_, id)| id)
    }

    /// Candidates that rank after this one, or all.
    pub(crate) fn candidates_after(
        &self,
        queue: QueueId,
        rank: Option<&Arc<Rank>>,
    ) -> impl Iterator<Item = (&Arc<Rank>, WorkloadId)> {
        let holders = self.queues.get(queue).map(|row| &row.holders);
        holders
            .into_iter()
            .flat_map(move |holders| holders.after(rank))
            .filter(|(_, id)| !self.is_hidden(*id))
    }

    /// Whether the workload counts as gone while something is tried out.
    pub(crate) fn is_hidden(&self, id: WorkloadId) -> bool {
        self.hidden.ids.contains(&id)
    }
}
