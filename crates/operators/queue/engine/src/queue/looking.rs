//! What can be said about the pending workloads of a ClusterQueue.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::lane::{OrderKey, order_key};
use super::pending::{Pending, PendingQueue, Place, change_total};
use crate::model::ShapeHash;
use crate::names::{LocalQueueId, WorkloadId};
use crate::requests::Requests;
use crate::settings::Settings;

impl PendingQueue {
    /// How many are active (with the one in flight) and inadmissible.
    pub fn counts(&self) -> (usize, usize) {
        (self.active + usize::from(self.in_flight.is_some()), self.parked.len() + self.bulk)
    }

    /// How many of a LocalQueue are active (with the one in flight) and inadmissible, at a cost of as many
    /// as there are shapes.
    pub fn counts_of(&self, local_queue: LocalQueueId) -> (usize, usize) {
        let active: usize = self.lanes.values().map(|lane| lane.active.of(local_queue)).sum();
        let flying = self.in_flight.as_ref().map(|(_, pending)| pending.workload.local_queue);
        (active + usize::from(flying == Some(local_queue)), self.local_queues.get(local_queue) - active)
    }

    /// Whether the workload waits for its turn.
    pub fn is_active(&self, id: WorkloadId) -> bool {
        self.rows.get(&id).is_some_and(|row| {
            row.place == Place::Lane
                && self
                    .lanes
                    .get(&self.lane_of(&row.pending))
                    .is_some_and(|lane| lane.active.contains(&row.key))
        })
    }

    /// Whether the workload is parked.
    pub fn is_inadmissible(&self, id: WorkloadId) -> bool {
        self.rows.contains_key(&id) && !self.is_active(id)
    }

    /// Whether the workload is being decided about.
    pub fn is_in_flight(&self, id: WorkloadId) -> bool {
        self.in_flight.as_ref().is_some_and(|(flying, _)| *flying == id)
    }

    /// The workload as the queue knows it, in flight or not.
    pub fn get(&self, id: WorkloadId) -> Option<&Pending> {
        let flying = self.in_flight.as_ref().filter(|(flying, _)| *flying == id).map(|(_, pending)| pending);
        self.rows.get(&id).map(|row| &row.pending).or(flying)
    }

    /// Active workloads, in no order.
    pub fn active_ids(&self) -> Vec<WorkloadId> {
        self.lanes.values().flat_map(|lane| lane.active.iter().map(|key| key.3)).collect()
    }

    /// Inadmissible workloads, in no order.
    pub fn inadmissible_ids(&self) -> Vec<WorkloadId> {
        let bulk = self.lanes.values().flat_map(|lane| lane.bulk.iter().map(|key| key.3));
        self.parked.iter().copied().chain(bulk).collect()
    }

    /// All workloads, also the one in flight, in the order in which they would be popped if all were active.
    pub fn ordered(&self, usage: &dyn Fn(LocalQueueId) -> f64, settings: &Settings) -> Vec<WorkloadId> {
        let flying =
            self.in_flight.iter().map(|(id, pending)| (order_key(*id, &pending.workload, settings), pending));
        let waiting = self.rows.values().map(|row| (row.key.clone(), &row.pending));
        let mut all: Vec<(f64, bool, OrderKey)> = waiting
            .chain(flying)
            .map(|(key, pending)| {
                let used = if self.by_usage { usage(pending.workload.local_queue) } else { 0.0 };
                (used, !self.is_sticky(key.3), key)
            })
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(&b.2)));
        all.into_iter().map(|(_, _, key)| key.3).collect()
    }

    /// The reason workloads of this one's shape are parked for.
    pub fn unfit_reason(&self, id: WorkloadId) -> Option<&str> {
        let shape = self.rows.get(&id).filter(|_| self.is_inadmissible(id))?.pending.shape?;
        self.unfit.get(&shape).map(|reason| &**reason)
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
        for ((_, shape), lane) in &self.lanes {
            count(true, *shape, lane.active.len());
            count(false, *shape, lane.bulk.len());
        }
        for (shape, number) in self.parked_shapes.iter() {
            count(false, Some(shape), number);
        }
        (active, inadmissible)
    }

    /// The shape of the workload in flight, if there is one and its shape is known.
    pub fn shape_in_flight(&self) -> Option<ShapeHash> {
        self.in_flight.as_ref().and_then(|(_, pending)| pending.shape)
    }

    /// What all pending workloads ask for together.
    pub fn pending_requests(&self) -> Requests {
        let mut total = self.total.clone();
        if let Some((_, pending)) = &self.in_flight {
            change_total(&mut total, &pending.workload, 1);
        }
        total.requests()
    }

    /// Hashes who waits where, how far each has come, and who waits for victims. How far somebody has come counts
    /// in relation to the cycle and the queue's generation.
    pub(crate) fn hash_into(&self, cycle: i64, generation: i64, hasher: &mut impl Hasher) {
        for (key, lane) in &self.lanes {
            key.hash(hasher);
            for members in [&lane.active, &lane.bulk] {
                members.len().hash(hasher);
                members.iter().for_each(|key| key.hash(hasher));
            }
        }
        self.parked.hash(hasher);
        let in_lanes = self.lanes.values().flat_map(|lane| lane.active.iter().chain(lane.bulk.iter()));
        for id in in_lanes.map(|key| key.3).chain(self.parked.iter().copied()) {
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
