//! Workloads that have their quota and wait for a placement.

use std::collections::BTreeMap;

use crate::names::WorkloadId;
use crate::time::{Span, Time};

/// Workloads waiting for their second pass, with growing delays.
#[derive(Clone, Debug, Default)]
pub struct SecondPass {
    waiting: BTreeMap<WorkloadId, (Time, u32)>,
}

impl SecondPass {
    /// Enqueues a workload that needs a second pass for its next try; false if it is waiting already.
    pub fn push(&mut self, workload: WorkloadId, iteration: u32, now: Time) -> bool {
        let iteration = iteration + 1;
        let at = now + delay(iteration);
        let entry = self.waiting.entry(workload);
        let is_new = matches!(entry, std::collections::btree_map::Entry::Vacant(_));
        entry.or_insert((at, iteration));
        is_new
    }

    /// Forgets a workload.
    pub fn remove(&mut self, workload: WorkloadId) {
        self.waiting.remove(&workload);
    }

    /// Takes everything whose time has come, with the number of its try.
    pub fn take_ready(&mut self, now: Time) -> Vec<(WorkloadId, u32)> {
        let ready: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, (at, _))| *at <= now)
            .map(|(id, (_, iteration))| (*id, *iteration))
            .collect();
        for (id, _) in &ready {
            self.waiting.remove(id);
        }
        ready
    }

    /// Lets everything be tried at once.
    pub fn make_due(&mut self) {
        for (at, _) in self.waiting.values_mut() {
            *at = Time::ZERO;
        }
    }

    /// When the next try is due.
    pub fn next_at(&self) -> Option<Time> {
        self.waiting.values().map(|(at, _)| *at).min()
    }
}

/// 1, 2, 4, 8, 16 and then 30 seconds.
fn delay(iteration: u32) -> Span {
    Span::secs((1i64 << iteration.saturating_sub(1).min(5)).min(30))
}
