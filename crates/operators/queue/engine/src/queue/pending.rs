//! The pending workloads of one ClusterQueue.
//!
//! A pending workload is *active* (to be tried), *inadmissible* (not tried until something changes) or
//! *in flight* (popped, being decided about). Workloads of the same shape form a *shape group*: when one of
//! them does not fit, the whole group becomes inadmissible at once, and when something changes, active again
//! at once, whatever its size. As `ClusterQueue` in Kueue's `pkg/cache/queue/cluster_queue.go`, with
//! `handleInadmissibleHash`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::QuotaReservedReason;

use super::RequeueReason;
use super::shape_group::{GroupKey, OrderKey, ShapeGroup, Tally, order_key};
use crate::flavors::Progress;
use crate::model::{ShapeHash, Strategy, Workload};
use crate::names::{IdMap, LocalQueueId, NamespaceId, WorkloadId};
use crate::requests::{Requests, Total};
use crate::settings::Settings;
use crate::time::Time;

/// A workload waiting for admission.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The workload as last seen.
    pub workload: Arc<Workload>,
    /// Its shape; `None` is unknown and shared with no other workload.
    pub shape: Option<ShapeHash>,
    /// How far flavor search came.
    pub progress: Option<Box<Progress>>,
    /// The generation last decided about, zero if none.
    pub evaluated_generation: i64,
}

impl Pending {
    /// A workload not decided about yet.
    pub fn new(workload: Arc<Workload>) -> Self {
        Self { shape: workload.shape, workload, progress: None, evaluated_generation: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// With those of its shape, active or inadmissible.
    ShapeGroup,
    /// Inadmissible by itself.
    Alone,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) pending: Pending,
    pub(super) key: OrderKey,
    pub(super) membership: Membership,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Preemptor {
    pub(super) workload: WorkloadId,
    pub(super) generation: i64,
    pub(super) sticky: bool,
}

/// The pending workloads of one ClusterQueue.
#[derive(Clone, Debug)]
pub struct PendingQueue {
    /// What a blocked head does.
    pub strategy: Strategy,
    /// Order by LocalQueue usage; set when the queue is made.
    pub(super) by_usage: bool,
    pub(super) rows: IdMap<WorkloadId, Row>,
    pub(super) shape_groups: BTreeMap<GroupKey, ShapeGroup>,
    /// The first active workload of every group.
    pub(super) heads: BTreeMap<Option<LocalQueueId>, BTreeSet<(OrderKey, Option<ShapeHash>)>>,
    pub(super) inadmissible: BTreeSet<WorkloadId>,
    /// Shapes known not to fit, with the reason their workloads report.
    pub(super) unfit: BTreeMap<ShapeHash, QuotaReservedReason>,
    pub(super) in_flight: Option<(WorkloadId, Pending)>,
    /// Of all that wait, without the one in flight.
    pub(super) namespaces: Tally<NamespaceId>,
    pub(super) local_queues: Tally<LocalQueueId>,
    pub(super) total: Total,
    /// The shapes of those in `inadmissible`.
    pub(super) inadmissible_shapes: Tally<ShapeHash>,
    pub(super) active: usize,
    pub(super) bulk: usize,
    pub(super) pop_cycle: i64,
    pub(super) flush_cycle: i64,
    pub(super) preemptor: Option<Preemptor>,
    /// The preemptor before the last one.
    pub(super) last_preemptor: Option<Preemptor>,
}

impl PendingQueue {
    /// An empty queue.
    pub fn new(strategy: Strategy, by_usage: bool) -> Self {
        Self {
            strategy,
            by_usage,
            rows: IdMap::default(),
            shape_groups: BTreeMap::new(),
            heads: BTreeMap::new(),
            inadmissible: BTreeSet::new(),
            unfit: BTreeMap::new(),
            in_flight: None,
            namespaces: Tally::default(),
            local_queues: Tally::default(),
            total: Total::default(),
            inadmissible_shapes: Tally::default(),
            active: 0,
            bulk: 0,
            pop_cycle: 0,
            flush_cycle: -1,
            preemptor: None,
            last_preemptor: None,
        }
    }

    fn insert(&mut self, id: WorkloadId, pending: Pending, membership: Membership, settings: &Settings) {
        let workload = &pending.workload;
        let key = order_key(id, workload, settings);
        self.namespaces.add(workload.key.namespace, 1);
        self.local_queues.add(workload.local_queue, 1);
        change_total(&mut self.total, workload, 1);
        if membership == Membership::Alone {
            self.note_inadmissible(id, pending.shape);
        }
        self.rows.insert(id, Row { pending, key, membership });
    }

    fn note_inadmissible(&mut self, id: WorkloadId, shape: Option<ShapeHash>) {
        if self.inadmissible.insert(id)
            && let Some(shape) = shape
        {
            self.inadmissible_shapes.add(shape, 1);
        }
    }

    fn note_active(&mut self, id: WorkloadId, shape: Option<ShapeHash>) {
        if self.inadmissible.remove(&id)
            && let Some(shape) = shape
        {
            self.inadmissible_shapes.remove(shape);
        }
    }

    fn push_active(&mut self, id: WorkloadId, pending: Pending, settings: &Settings) {
        self.insert(id, pending, Membership::ShapeGroup, settings);
        self.activate(id);
    }

    fn activate(&mut self, id: WorkloadId) {
        let Some(row) = self.rows.get_mut(&id) else {
            return;
        };
        row.membership = Membership::ShapeGroup;
        let (key, shape, local_queue) =
            (row.key.clone(), row.pending.shape, row.pending.workload.local_queue);
        let delayed = row.pending.workload.has_backoff();
        self.note_active(id, shape);
        self.change_group(self.group_key(local_queue, shape), |group| {
            if delayed {
                group.delayed.insert(key.clone());
            }
            group.active.insert(key, local_queue);
        });
    }

    fn add_inadmissible(&mut self, id: WorkloadId, pending: Pending, settings: &Settings) {
        self.insert(id, pending, Membership::Alone, settings);
    }

    /// Adds an inadmissible workload to the group of its shape, or alone if it may have to wait for a backoff.
    fn add_inadmissible_with_shape(&mut self, id: WorkloadId, pending: Pending, settings: &Settings) {
        if pending.workload.has_backoff() {
            self.add_inadmissible(id, pending, settings);
            return;
        }
        self.insert(id, pending, Membership::ShapeGroup, settings);
        if let Some(row) = self.rows.get(&id) {
            let (key, local_queue) = (row.key.clone(), row.pending.workload.local_queue);
            self.change_group(self.group_key_of(&row.pending), |group| {
                group.bulk.insert(key, local_queue);
            });
        }
    }

    /// The group key of a workload: its LocalQueue, if usage orders them, and its shape.
    pub(super) fn group_key_of(&self, pending: &Pending) -> GroupKey {
        self.group_key(pending.workload.local_queue, pending.shape)
    }

    fn group_key(&self, local_queue: LocalQueueId, shape: Option<ShapeHash>) -> GroupKey {
        (self.by_usage.then_some(local_queue), shape)
    }

    /// Changes a group and keeps counts and heads right.
    fn change_group(&mut self, group_key: GroupKey, change: impl FnOnce(&mut ShapeGroup)) {
        let group = self.shape_groups.entry(group_key).or_default();
        let before = group.active.first().cloned();
        let (active, bulk) = (group.active.len(), group.bulk.len());
        change(group);
        self.active = self.active + group.active.len() - active;
        self.bulk = self.bulk + group.bulk.len() - bulk;
        let after = group.active.first().cloned();
        if group.active.is_empty() && group.bulk.is_empty() {
            self.shape_groups.remove(&group_key);
        }
        if before == after {
            return;
        }
        let heads = self.heads.entry(group_key.0).or_default();
        if let Some(before) = before {
            heads.remove(&(before, group_key.1));
        }
        if let Some(after) = after {
            heads.insert((after, group_key.1));
        }
        if heads.is_empty() {
            self.heads.remove(&group_key.0);
        }
    }

    fn take(&mut self, id: WorkloadId) -> Option<Pending> {
        let row = self.rows.remove(&id)?;
        let workload = &row.pending.workload;
        let local_queue = workload.local_queue;
        self.namespaces.remove(workload.key.namespace);
        self.local_queues.remove(local_queue);
        change_total(&mut self.total, workload, -1);
        if row.membership == Membership::ShapeGroup {
            self.change_group(self.group_key_of(&row.pending), |group| {
                group.delayed.remove(&row.key);
                if !group.active.remove(&row.key, local_queue) {
                    group.bulk.remove(&row.key, local_queue);
                }
            });
        } else {
            self.note_active(id, row.pending.shape);
        }
        Some(row.pending)
    }

    /// Adds a workload or refreshes it. An inadmissible one stays so unless something changed that could
    /// make it fit; one in flight is left alone, but for the progress that the update carries over.
    pub fn push_or_update(&mut self, id: WorkloadId, pending: Pending, settings: &Settings, now: Time) {
        if let Some((_, in_flight)) = self.in_flight.as_mut().filter(|(known, _)| *known == id) {
            in_flight.progress = pending.progress;
            return;
        }
        if self.is_inadmissible(id) {
            let same = self.rows.get(&id).is_some_and(|row| is_unchanged(&row.pending, &pending, settings));
            if same {
                let is_in_group =
                    self.rows.get(&id).is_some_and(|row| row.membership == Membership::ShapeGroup);
                let evaluated = self.take(id).map_or(0, |old| old.evaluated_generation);
                let pending = Pending { evaluated_generation: evaluated, ..pending };
                if is_in_group {
                    self.add_inadmissible_with_shape(id, pending, settings);
                } else {
                    self.add_inadmissible(id, pending, settings);
                }
                return;
            }
            self.take(id);
        }
        if self.is_active(id) {
            self.take(id);
        } else if !pending.workload.backoff_expired(now) {
            self.add_inadmissible(id, pending, settings);
            return;
        } else if self.strategy == Strategy::BestEffortFifo
            && pending.shape.is_some_and(|shape| self.unfit.contains_key(&shape))
        {
            self.add_inadmissible_with_shape(id, pending, settings);
            return;
        }
        self.push_active(id, pending, settings);
    }

    /// Adds a workload to the active ones unless it is known already.
    pub fn push_if_absent(&mut self, id: WorkloadId, pending: Pending, settings: &Settings) -> bool {
        let absent = !self.rows.contains_key(&id) && !self.is_in_flight(id);
        if absent {
            self.push_active(id, pending, settings);
        }
        absent
    }

    /// Makes a workload inadmissible, known or not.
    pub fn insert_inadmissible(&mut self, id: WorkloadId, pending: Pending, settings: &Settings) {
        self.take(id);
        self.add_inadmissible(id, pending, settings);
    }

    /// Pops the next workload; it is in flight until it is requeued or removed.
    pub fn pop(&mut self, usage: &dyn Fn(LocalQueueId) -> f64) -> Option<(WorkloadId, Pending)> {
        self.pop_cycle += 1;
        // The one popped before was decided about, or is not to be.
        self.in_flight = None;
        let id = self.peek(usage)?;
        Some((id, self.start(id)?))
    }

    /// Pops an active workload whose turn it is, wherever it is in the order.
    pub fn pop_out_of_order(&mut self, id: WorkloadId) -> Option<Pending> {
        if !self.is_active(id) {
            return None;
        }
        self.pop_cycle += 1;
        self.in_flight = None;
        self.start(id)
    }

    fn start(&mut self, id: WorkloadId) -> Option<Pending> {
        let mut pending = self.take(id)?;
        pending.evaluated_generation = pending.workload.generation;
        self.in_flight = Some((id, pending.clone()));
        Some(pending)
    }

    fn peek(&self, usage: &dyn Fn(LocalQueueId) -> f64) -> Option<WorkloadId> {
        let sticky = self.preemptor.as_ref().filter(|known| known.sticky).map(|known| known.workload);
        let sticky = sticky.filter(|id| self.is_active(*id));
        if !self.by_usage {
            return sticky.or_else(|| self.heads.get(&None)?.first().map(|(key, _)| key.3));
        }
        let sticky_queue =
            sticky.and_then(|id| Some((self.group_key_of(&self.rows.get(&id)?.pending).0?, id)));
        let firsts = self.heads.iter().filter_map(|(local_queue, heads)| {
            let (key, _) = heads.first()?;
            let local_queue = (*local_queue)?;
            let own = sticky_queue.filter(|(queue, _)| *queue == local_queue).map(|(_, id)| id);
            let key = own.and_then(|id| self.rows.get(&id)).map_or(key, |row| &row.key);
            Some((usage(local_queue), own.is_none(), key))
        });
        firsts
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(b.2)))
            .map(|(_, _, key)| key.3)
    }

    /// Puts a popped workload back. `unfit_reason` is what workloads of its shape report if it becomes
    /// inadmissible for its shape. True if it was added anywhere.
    pub fn requeue(
        &mut self,
        id: WorkloadId,
        pending: Pending,
        reason: RequeueReason,
        unfit_reason: Option<QuotaReservedReason>,
        (settings, now): (&Settings, Time),
    ) -> bool {
        self.requeue_with(
            id,
            pending,
            reason.is_immediate(self.strategy),
            reason,
            unfit_reason,
            (settings, now),
        )
    }

    /// As [`PendingQueue::requeue`], saying whether it goes back at once.
    pub fn requeue_with(
        &mut self,
        id: WorkloadId,
        pending: Pending,
        immediate: bool,
        reason: RequeueReason,
        unfit_reason: Option<QuotaReservedReason>,
        (settings, now): (&Settings, Time),
    ) -> bool {
        if matches!(reason, RequeueReason::PendingPreemption | RequeueReason::PendingMigration) {
            let sticky = self.strategy == Strategy::BestEffortFifo;
            let preemptor = Preemptor { workload: id, generation: pending.evaluated_generation, sticky };
            self.last_preemptor = self.preemptor.replace(preemptor);
        }
        self.clear_in_flight(id);
        // A flush since the pop may have freed what was missing, and flavors not yet tried may fit.
        let retry = immediate
            || self.flush_cycle >= self.pop_cycle
            || pending.progress.as_ref().is_some_and(|progress| progress.has_pending_flavors());
        if pending.workload.backoff_expired(now) && retry {
            if self.is_active(id) {
                return false;
            }
            // An inadmissible copy is newer than what was decided about.
            let pending = self.take(id).unwrap_or(pending);
            self.push_active(id, pending, settings);
            return true;
        }
        if self.rows.contains_key(&id) {
            return false;
        }
        let hashing = settings.gates.equivalence_hashing && self.strategy == Strategy::BestEffortFifo;
        match pending.shape {
            Some(shape) if hashing && reason.is_about_shape() => {
                self.add_inadmissible_with_shape(id, pending, settings);
                self.set_shape_inadmissible(shape, unfit_reason);
            }
            _ => self.add_inadmissible(id, pending, settings),
        }
        true
    }

    /// The workload does not wait for victims after all: the preemptor before it is the preemptor again.
    pub fn forget_preemptor(&mut self, id: WorkloadId) {
        if self.preemptor.as_ref().is_some_and(|known| known.workload == id) {
            self.preemptor = self.last_preemptor.take();
        }
    }

    fn clear_in_flight(&mut self, id: WorkloadId) {
        if self.is_in_flight(id) {
            self.in_flight = None;
        }
    }

    /// Remembers that a shape does not fit and makes all active workloads of it inadmissible. Returns how many.
    pub fn set_shape_inadmissible(&mut self, shape: ShapeHash, reason: Option<QuotaReservedReason>) -> usize {
        if self.strategy != Strategy::BestEffortFifo {
            return 0;
        }
        self.mark_unfit(shape, reason);
        let shape_groups: Vec<GroupKey> = if self.by_usage {
            self.shape_groups.keys().filter(|(_, own)| *own == Some(shape)).copied().collect()
        } else {
            vec![(None, Some(shape))]
        };
        let before = self.active;
        for group in shape_groups {
            let delayed: Vec<WorkloadId> = self
                .shape_groups
                .get(&group)
                .into_iter()
                .flat_map(|group| &group.delayed)
                .map(|key| key.3)
                .collect();
            // Those that may wait for a backoff are not flushed with the group.
            for id in delayed {
                if let Some(row) = self.rows.get_mut(&id) {
                    row.membership = Membership::Alone;
                    let (key, local_queue) = (row.key.clone(), row.pending.workload.local_queue);
                    self.note_inadmissible(id, Some(shape));
                    self.change_group(group, |group| {
                        group.delayed.remove(&key);
                        group.active.remove(&key, local_queue);
                    });
                }
            }
            self.change_group(group, |group| group.bulk.merge(std::mem::take(&mut group.active)));
        }
        before - self.active
    }

    /// Remembers that a shape does not fit, so that arrivals of it become inadmissible.
    pub fn mark_unfit(&mut self, shape: ShapeHash, reason: Option<QuotaReservedReason>) {
        self.unfit.insert(shape, reason.unwrap_or(QuotaReservedReason::PendingEvaluation));
    }

    /// Whether the shape is known not to fit.
    pub fn is_unfit(&self, shape: ShapeHash) -> bool {
        self.unfit.contains_key(&shape)
    }

    /// Something changed: inadmissible workloads whose namespace is served and whose backoff is over become
    /// active again. Returns how many.
    pub fn flush(&mut self, serves: &dyn Fn(NamespaceId) -> bool, now: Time) -> usize {
        self.flush_cycle = self.pop_cycle;
        self.unfit.clear();
        let before = self.active;
        let unserved: BTreeSet<NamespaceId> =
            self.namespaces.iter().map(|(id, _)| id).filter(|id| !serves(*id)).collect();
        let shape_groups: Vec<GroupKey> = self
            .shape_groups
            .iter()
            .filter(|(_, group)| !group.bulk.is_empty())
            .map(|(key, _)| *key)
            .collect();
        for group in shape_groups {
            let kept = self.of_namespaces(group, &unserved);
            self.change_group(group, |group| {
                let mut flushed = std::mem::take(&mut group.bulk);
                for (key, local_queue) in kept {
                    flushed.remove(&key, local_queue);
                    group.bulk.insert(key, local_queue);
                }
                group.active.merge(flushed);
            });
        }
        for id in self.inadmissible.clone() {
            let ready = self.rows.get(&id).is_some_and(|row| {
                let workload = &row.pending.workload;
                workload.backoff_expired(now) && !unserved.contains(&workload.key.namespace)
            });
            if ready {
                self.activate(id);
            }
        }
        self.active - before
    }

    /// The inadmissible workloads of a group whose namespace is one of these.
    fn of_namespaces(
        &self,
        group: GroupKey,
        namespaces: &BTreeSet<NamespaceId>,
    ) -> Vec<(OrderKey, LocalQueueId)> {
        if namespaces.is_empty() {
            return Vec::new();
        }
        let rows = self.shape_groups.get(&group).into_iter().flat_map(|group| group.bulk.iter());
        rows.filter_map(|key| {
            let workload = &self.rows.get(&key.3)?.pending.workload;
            namespaces.contains(&workload.key.namespace).then(|| (key.clone(), workload.local_queue))
        })
        .collect()
    }

    /// Notes how far flavor search came for a workload, in flight or not.
    pub fn set_progress(&mut self, id: WorkloadId, progress: Progress) {
        let in_flight =
            self.in_flight.as_mut().filter(|(in_flight, _)| *in_flight == id).map(|(_, pending)| pending);
        if let Some(pending) = self.rows.get_mut(&id).map(|row| &mut row.pending).or(in_flight) {
            pending.progress = Some(Box::new(progress));
        }
    }

    /// Forgets a workload.
    pub fn remove(&mut self, id: WorkloadId) {
        self.take(id);
        self.clear_in_flight(id);
        for preemptor in [&mut self.preemptor, &mut self.last_preemptor] {
            if preemptor.as_ref().is_some_and(|known| known.workload == id) {
                *preemptor = None;
            }
        }
    }

    /// Counts a pop that took nothing.
    pub fn advance_pop_cycle(&mut self) {
        self.pop_cycle += 1;
    }
}

/// Adds what a workload requests (`factor` 1), or takes it away (`factor` −1).
pub(super) fn change_total(total: &mut Total, workload: &Workload, factor: i128) {
    let mut change = |requests: &Requests, pods: i64| {
        for (resource, value) in requests.iter() {
            total.add(resource, i128::from(value.saturating_mul(pods)) * factor);
        }
    };
    if workload.admission.is_some() {
        workload.demands().iter().for_each(|demand| change(&demand.requests, 1));
    } else {
        workload.pod_sets.iter().for_each(|own| change(&own.requests, own.effective_count.into()));
    }
}

/// Whether nothing changed that could make an inadmissible workload fit.
fn is_unchanged(old: &Pending, new: &Pending, settings: &Settings) -> bool {
    let (a, b) = (&old.workload, &new.workload);
    let spec_evaluated = old.evaluated_generation == 0 || b.generation == old.evaluated_generation;
    let condition = |kind| a.condition(kind) == b.condition(kind);
    let totals = || {
        let cost = |workload: &Workload| -> Vec<_> {
            workload
                .pod_sets
                .iter()
                .map(|pod_set| (pod_set.requests.clone(), pod_set.effective_count))
                .collect()
        };
        cost(a) == cost(b)
    };
    spec_evaluated
        && a.spec_fingerprint == b.spec_fingerprint
        && (!settings.gates.priority_boost || a.boost == b.boost)
        && a.reclaim_fingerprint == b.reclaim_fingerprint
        && condition(WorkloadCondition::Evicted)
        && condition(WorkloadCondition::Requeued)
        && a.requeue_at == b.requeue_at
        && a.is_preemption_gated() == b.is_preemption_gated()
        && (!settings.gates.dra || totals())
}
