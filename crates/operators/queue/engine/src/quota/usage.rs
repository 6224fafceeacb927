//! Usage: added and taken up the tree, tried out and rolled back.

use super::{Cell, NodeId, QuotaTree};
use crate::amount::Amount;
use crate::model::{Fr, Usage};

/// A place in the journal to go back to.
#[derive(Clone, Copy, Debug)]
#[must_use = "changes after a mark stay until they are rolled back"]
pub struct Mark(usize);

#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    node: NodeId,
    cell: usize,
    usage: Amount,
}

impl QuotaTree {
    /// Adds usage to a queue, and to the cohorts above what exceeds their children's own quota.
    pub fn add_usage(&mut self, queue: NodeId, fr: Fr, value: Amount) {
        let (mut id, mut at, mut value) = (queue, self.ensure_cell(queue, fr), value);
        loop {
            let cell = self.cell(id, Some(at), fr);
            let local = cell.local_available();
            self.write_usage(id, at, cell.usage + value);
            match (self.parent(id), cell.up) {
                (Some(parent), Some(up)) if value > local => {
                    (id, at, value) = (parent, up, value - local);
                }
                _ => return,
            }
        }
    }

    /// Takes usage from a queue, and from the cohorts above what it had added there.
    pub fn remove_usage(&mut self, queue: NodeId, fr: Fr, value: Amount) {
        let (mut id, mut at, mut value) = (queue, self.ensure_cell(queue, fr), value);
        loop {
            let cell = self.cell(id, Some(at), fr);
            let stored_above = cell.usage - cell.local();
            self.write_usage(id, at, cell.usage - value);
            match (self.parent(id), cell.up) {
                (Some(parent), Some(up)) if stored_above > 0 => {
                    (id, at, value) = (parent, up, value.min(stored_above));
                }
                _ => return,
            }
        }
    }

    /// Adds several amounts.
    pub fn add_all(&mut self, queue: NodeId, usage: &Usage) {
        for (fr, value) in usage {
            self.add_usage(queue, *fr, *value);
        }
    }

    /// Takes several amounts.
    pub fn remove_all(&mut self, queue: NodeId, usage: &Usage) {
        for (fr, value) in usage {
            self.remove_usage(queue, *fr, *value);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a node has tens of cells")]
    fn ensure_cell(&mut self, id: NodeId, fr: Fr) -> u32 {
        if let Some(at) = self.find(id, fr) {
            return at;
        }
        let up = self.parent(id).map(|parent| self.ensure_cell(parent, fr));
        let cells = &mut self.node_mut(id).cells;
        cells.push(Cell { up, ..Cell::empty(fr) });
        (cells.len() - 1) as u32
    }

    fn write_usage(&mut self, id: NodeId, at: u32, usage: Amount) {
        let recording = self.open_marks > 0;
        let cell = at as usize;
        let Some(target) = self.node_mut(id).cells.get_mut(cell) else {
            return;
        };
        let before = std::mem::replace(&mut target.usage, usage);
        if recording {
            self.journal.push(Undo { node: id, cell, usage: before });
        }
    }

    /// From here on changes of usage can be undone.
    pub fn mark(&mut self) -> Mark {
        self.open_marks += 1;
        Mark(self.journal.len())
    }

    /// Undoes all changes of usage since `mark`.
    pub fn rollback(&mut self, mark: Mark) {
        while self.journal.len() > mark.0 {
            if let Some(undo) = self.journal.pop()
                && let Some(cell) = self.node_mut(undo.node).cells.get_mut(undo.cell)
            {
                cell.usage = undo.usage;
            }
        }
        self.open_marks = self.open_marks.saturating_sub(1);
    }

    /// Forgets a queue's usage and everything derived from it.
    pub fn clear_usage(&mut self, id: NodeId) {
        for cell in &mut self.node_mut(id).cells {
            cell.usage = Amount::ZERO;
        }
    }
}
