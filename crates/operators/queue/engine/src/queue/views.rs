//! Read access to the pending workloads of a ClusterQueue.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use quintet_api::kueue::reasons::QuotaReservedReason;

use super::pending::{Membership, Pending, PendingQueue, change_total};
use super::shape_group::{OrderKey, order_key};
use crate::model::ShapeHash;
use crate::names::{LocalQueueId, WorkloadId};
use crate::requests::Requests;
use crate::settings::Settings;

impl PendingQueue {
    /// How many are active (with the one in flight) and inadmissible.
    pub fn counts(&self) -> (usize, usize) {
        (self.active + usize::from(self.in_flight.is_some()), self.inadmissible.len() + self.bulk)
    }

    /// How many of a LocalQueue are active (with the one in flight) and inadmissible, at a cost of as many
    /// as there are shapes.
    pub fn counts_of(&self, local_queue: LocalQueueId) -> (usize, usize) {
        let active: usize = self.shape_groups.values().map(|group| group.active.of(local_queue)).sum();
        let in_flight = self.in_flight.as_ref().map(|(_, pending)| pending.workload.local_queue);
        (active + usize::from(in_flight == Some(local_queue)), self.local_queues.get(local_queue) - active)
    }

    /// Whether the workload is active.
    pub fn is_active(&self, id: WorkloadId) -> bool {
        self.rows.get(&id).is_some_and(|row| {
            row.membership == Membership::ShapeGroup
                && self
                    .shape_groups
                    .get(&self.group_key_of(&row.pending))
                    .is_some_and(|group| group.active.contains(&row.key))
        })
    }

    /// Whether the workload is inadmissible.
    pub fn is_inadmissible(&self, id: WorkloadId) -> bool {
        self.rows.contains_key(&id) && !self.is_active(id)
    }

    /// Whether the workload is being decided about.
    pub fn is_in_flight(&self, id: WorkloadId) -> bool {
        self.in_flight.as_ref().is_some_and(|(in_flight, _)| *in_flight == id)
    }

    /// The workload as the queue knows it, in flight or not.
    pub fn get(&self, id: WorkloadId) -> Option<&Pending> {
        let in_flight =
            self.in_flight.as_ref().filter(|(in_flight, _)| *in_flight == id).map(|(_, pending)| pending);
        self.rows.get(&id).map(|row| &row.pending).or(in_flight)
    }

    /// Active workloads, in no order.
    pub fn active_ids(&self) -> Vec<WorkloadId> {
        self.shape_groups.values().flat_map(|group| group.active.iter().map(|key| key.3)).collect()
    }

    /// Inadmissible workloads, in no order.
    pub fn inadmissible_ids(&self) -> Vec<WorkloadId> {
        let bulk = self.shape_groups.values().flat_map(|group| group.bulk.iter().map(|key| key.3));
        self.inadmissible.iter().copied().chain(bulk).collect()
    }

    /// All workloads, also the one in flight, in the order in which they would be popped if all were active.
    pub fn ordered(&self, usage: &dyn Fn(LocalQueueId) -> f64, settings: &Settings) -> Vec<WorkloadId> {
        let in_flight =
            self.in_flight.iter().map(|(id, pending)| (order_key(*id, &pending.workload, settings), pending));
        let waiting = self.rows.values().map(|row| (row.key.clone(), &row.pending));
        let mut all: Vec<(f64, bool, OrderKey)> = waiting
            .chain(in_flight)
            .map(|(key, pending)| {
                let used = if self.by_usage { usage(pending.workload.local_queue) } else { 0.0 };
                (used, !self.is_sticky(key.3), key)
            })
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(&b.2)));
        all.into_iter().map(|(_, _, key)| key.3).collect()
    }

    /// The reason for which workloads of this one's shape are inadmissible.
    pub fn unfit_reason(&self, id: WorkloadId) -> Option<QuotaReservedReason> {
        let shape = self.rows.get(&id).filter(|_| self.is_inadmissible(id))?.pending.shape?;
        self.unfit.get(&shape).copied()
    }

    /// How many workloads of each known shape are active and inadmissible; the one in flight is neither.
    pub fn shapes(&self) -> (BTreeMap<ShapeHash, usize>, BTreeMap<ShapeHash, usize>) {
        let (mut active, mut inadmissible) = (BTreeMap::new(), BTreeMap::new());
        let mut count = |is_active: bool, shape: Option<ShapeHash>, number: usize| {
            let counts = if is_active { &mut active } else { &mut inadmissible };
            if let Some(shape) = shape.filter(|_| number > 0) {
                *counts.entry(shape).or_default() += number;
            }
        };
        for ((_, shape), group) in &self.shape_groups {
            count(true, *shape, group.active.len());
            count(false, *shape, group.bulk.len());
        }
        for (shape, number) in self.inadmissible_shapes.iter() {
            count(false, Some(shape), number);
        }
        (active, inadmissible)
    }

    /// The shape of the workload in flight, if there is one and its shape is known.
    pub fn shape_in_flight(&self) -> Option<ShapeHash> {
        self.in_flight.as_ref().and_then(|(_, pending)| pending.shape)
    }

    /// What all pending workloads request together.
    pub fn pending_requests(&self) -> Requests {
        let mut total = self.total.clone();
        if let Some((_, pending)) = &self.in_flight {
            change_total(&mut total, &pending.workload, 1);
        }
        total.requests()
    }

    /// Hashes which workloads wait where, the progress of their flavor search, and the preemptor. Progress counts
    /// relative to the cycle and the queue's generation.
    pub(crate) fn hash_into(&self, cycle: i64, generation: i64, hasher: &mut impl Hasher) {
        for (key, group) in &self.shape_groups {
            key.hash(hasher);
            for members in [&group.active, &group.bulk] {
                members.len().hash(hasher);
                members.iter().for_each(|key| key.hash(hasher));
            }
        }
        self.inadmissible.hash(hasher);
        let in_lanes =
            self.shape_groups.values().flat_map(|group| group.active.iter().chain(group.bulk.iter()));
        for id in in_lanes.map(|key| key.3).chain(self.inadmissible.iter().copied()) {
            let pending = self.rows.get(&id).map(|row| &row.pending);
            pending.map(|pending| pending.evaluated_generation).hash(hasher);
            if let Some(progress) = pending.and_then(|pending| pending.progress.as_deref()) {
                let (is_recent, is_old) = (progress.cycle >= cycle, generation > progress.generation);
                (&progress.tried, progress.shape, is_recent, is_old).hash(hasher);
            }
        }
        (&self.unfit, &self.preemptor, &self.last_preemptor).hash(hasher);
        self.in_flight.as_ref().map(|(id, _)| *id).hash(hasher);
    }

    /// Whether the workload waits for its victims and has not changed since.
    pub fn is_preemptor(&self, id: WorkloadId, generation: i64) -> bool {
        self.preemptor.as_ref().is_some_and(|known| known.workload == id && known.generation == generation)
    }

    /// Whether the workload goes first because it waits for its victims.
    pub fn is_sticky(&self, id: WorkloadId) -> bool {
        self.preemptor.as_ref().is_some_and(|known| known.workload == id && known.sticky)
    }
}
