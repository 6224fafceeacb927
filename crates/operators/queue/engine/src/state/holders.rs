//! Holders of a queue's quota, in the order in which they are preempted if LocalQueues have used the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;

use crate::model::{Workload, WorkloadKey};
use crate::names::WorkloadId;
use crate::settings::Gates;
use crate::time::Time;

/// The order in which holders are preempted: those being evicted anyway first, then lower priority, then
/// reserved later, then by UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) is_running: bool,
    pub(crate) priority: i64,
    /// One without a reservation counts as having got it last.
    reserved: Reverse<Time>,
    uid: Arc<str>,
    key: WorkloadKey,
}

impl Rank {
    pub(super) fn of(workload: &Workload, gates: &Gates) -> Self {
        Self {
            is_running: !workload.is_evicted(),
            priority: workload.effective_priority(gates),
            reserved: Reverse(workload.reservation_time().unwrap_or(Time::LAST)),
            uid: Arc::clone(&workload.uid),
            key: workload.key.clone(),
        }
    }
}

/// The holders of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    by_rank: BTreeMap<Arc<Rank>, WorkloadId>,
}

impl Holders {
    pub(super) fn insert(&mut self, rank: Arc<Rank>, id: WorkloadId) {
        self.by_rank.insert(rank, id);
    }

    pub(super) fn remove(&mut self, rank: &Rank) {
        self.by_rank.remove(rank);
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = WorkloadId> {
        self.by_rank.values().copied()
    }

    /// Those after a rank, or all.
    pub(super) fn after(&self, rank: Option<&Arc<Rank>>) -> impl Iterator<Item = (&Arc<Rank>, WorkloadId)> {
        let from = rank.map_or(Unbounded, Excluded);
        self.by_rank.range::<Arc<Rank>, _>((from, Unbounded)).map(|(rank, id)| (rank, *id))
    }
}
