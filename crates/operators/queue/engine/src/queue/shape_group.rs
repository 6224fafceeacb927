//! Pending workloads of one shape, and counts of them that cost no iteration.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{ShapeHash, Workload};
use crate::names::{LocalQueueId, WorkloadId};
use crate::settings::Settings;
use crate::time::Time;

/// Order in the queue: priority, then time, then UID.
pub(super) type OrderKey = (Reverse<i64>, Time, Arc<str>, WorkloadId);

pub(super) fn order_key(id: WorkloadId, workload: &Workload, settings: &Settings) -> OrderKey {
    let priority = Reverse(workload.effective_priority(&settings.gates));
    (priority, workload.queue_timestamp(settings), Arc::clone(&workload.uid), id)
}

/// With admission fair sharing, LocalQueues are ordered by usage and have groups of their own.
pub(super) type GroupKey = (Option<LocalQueueId>, Option<ShapeHash>);

#[derive(Clone, Debug, Default)]
pub(super) struct ShapeGroup {
    pub(super) active: Members,
    /// Inadmissible because another workload of the shape did not fit. None of them ever waits for a backoff,
    /// so that all become active together.
    pub(super) bulk: Members,
    /// Those of the active ones that may wait for a backoff once they are inadmissible.
    pub(super) delayed: BTreeSet<OrderKey>,
}

/// Workloads in order, counted by LocalQueue.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    keys: BTreeSet<OrderKey>,
    by_local_queue: Tally<LocalQueueId>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn first(&self) -> Option<&OrderKey> {
        self.keys.first()
    }

    pub(super) fn contains(&self, key: &OrderKey) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OrderKey> {
        self.keys.iter()
    }

    /// How many are of a LocalQueue.
    pub(super) fn of(&self, local_queue: LocalQueueId) -> usize {
        self.by_local_queue.get(local_queue)
    }

    pub(super) fn insert(&mut self, key: OrderKey, local_queue: LocalQueueId) {
        if self.keys.insert(key) {
            self.by_local_queue.add(local_queue, 1);
        }
    }

    pub(super) fn remove(&mut self, key: &OrderKey, local_queue: LocalQueueId) -> bool {
        let known = self.keys.remove(key);
        if known {
            self.by_local_queue.remove(local_queue);
        }
        known
    }

    /// Takes in all of `other`, at a cost that depends on the smaller of the two.
    pub(super) fn merge(&mut self, mut other: Self) {
        if self.len() < other.len() {
            std::mem::swap(self, &mut other);
        }
        self.keys.extend(other.keys);
        for (local_queue, count) in other.by_local_queue.counts {
            self.by_local_queue.add(local_queue, count);
        }
    }
}

/// How many there are of each.
#[derive(Clone, Debug)]
pub(super) struct Tally<T> {
    counts: BTreeMap<T, usize>,
}

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self { counts: BTreeMap::new() }
    }
}

impl<T: Copy + Ord> Tally<T> {
    pub(super) fn get(&self, of: T) -> usize {
        self.counts.get(&of).copied().unwrap_or(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (T, usize)> {
        self.counts.iter().map(|(of, count)| (*of, *count))
    }

    pub(super) fn add(&mut self, of: T, count: usize) {
        *self.counts.entry(of).or_default() += count;
    }

    pub(super) fn remove(&mut self, of: T) {
        if let Some(count) = self.counts.get_mut(&of) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&of);
            }
        }
    }
}
