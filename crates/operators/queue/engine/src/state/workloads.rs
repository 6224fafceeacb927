//! Workloads and what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;

use super::{Rank, State};
use crate::model::{Admission, Usage, Workload, WorkloadKey};
use crate::names::{FlavorId, Id, LocalQueueId, QueueId, WorkloadId};
use crate::requests::Total;
use crate::tas::{LeafUse, TasUse};

/// What a workload holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// The queue.
    pub queue: QueueId,
    /// Its quota.
    pub usage: Usage,
    /// Its places.
    pub tas: Vec<TasUse>,
    /// Where its places are accounted.
    pub(super) leaves: Vec<LeafUse>,
    /// Its rank among candidates for preemption.
    pub(crate) rank: Arc<Rank>,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) workload: Arc<Workload>,
    pub(super) held: Option<Box<Held>>,
}

impl State {
    /// The id of a workload.
    pub fn workload_id(&self, key: &WorkloadKey) -> Option<WorkloadId> {
        self.by_key.get(key).copied()
    }

    /// A workload.
    pub fn workload(&self, id: WorkloadId) -> Option<&Arc<Workload>> {
        self.slots.get(id.index()).and_then(Option::as_ref).map(|slot| &slot.workload)
    }

    /// All workloads.
    pub fn workloads(&self) -> impl Iterator<Item = (WorkloadId, &Arc<Workload>)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| slot.as_ref().map(|slot| (WorkloadId::from_index(at), &slot.workload)))
    }

    /// How many workloads there are.
    pub fn workload_count(&self) -> usize {
        self.by_key.len()
    }

    /// What a workload holds.
    pub fn held(&self, id: WorkloadId) -> Option<&Held> {
        self.slots.get(id.index()).and_then(Option::as_ref).and_then(|slot| slot.held.as_deref())
    }

    /// Adds or replaces a workload and accounts what it holds. True if quota may have become free.
    pub fn set_workload(&mut self, workload: Workload) -> (WorkloadId, bool) {
        let id = if let Some(id) = self.by_key.get(&workload.key) {
            *id
        } else {
            let id = self.free_slots.pop().unwrap_or_else(|| {
                self.slots.push(None);
                WorkloadId::from_index(self.slots.len() - 1)
            });
            self.by_key.insert(workload.key.clone(), id);
            id
        };
        let freed = self.release(id);
        if let Some(slot) = self.slots.get_mut(id.index()) {
            *slot = Some(Slot { workload: Arc::new(workload), held: None });
        }
        self.account(id);
        (id, freed)
    }

    /// Changes a workload in place and accounts what it holds afterwards.
    pub fn update_workload(&mut self, id: WorkloadId, change: impl FnOnce(&mut Workload)) {
        self.release(id);
        let Some(slot) = self.slots.get_mut(id.index()).and_then(Option::as_mut) else {
            return;
        };
        change(Arc::make_mut(&mut slot.workload));
        self.account(id);
    }

    /// Accounts what a workload holds by its status, now or when its queue comes.
    pub(super) fn account(&mut self, id: WorkloadId) {
        let Some(workload) = self.workload(id).map(Arc::clone) else {
            return;
        };
        if let Some(held) = self.holding(&workload) {
            self.hold(id, held);
        } else if let Some(admission) = workload.admission.as_ref().filter(|_| workload.holds_quota()) {
            self.orphans.entry(admission.queue).or_default().insert(id);
        }
    }

    /// Accounts the workloads that waited for this queue to exist.
    pub(super) fn adopt_orphans(&mut self, queue: QueueId) {
        for id in self.orphans.remove(&queue).into_iter().flatten() {
            self.account(id);
        }
    }

    fn forget_orphan(&mut self, id: WorkloadId) {
        let Some(queue) = self.workload(id).and_then(|workload| Some(workload.admission.as_ref()?.queue))
        else {
            return;
        };
        if let Some(orphans) = self.orphans.get_mut(&queue) {
            orphans.remove(&id);
            if orphans.is_empty() {
                self.orphans.remove(&queue);
            }
        }
    }

    /// Adds a workload as if it held quota of `queue`, whatever its status.
    pub fn set_workload_held(&mut self, workload: Workload, queue: QueueId) -> WorkloadId {
        let held = Held {
            queue,
            usage: workload.quota_usage(),
            tas: Vec::new(),
            leaves: Vec::new(),
            rank: self.rank_of(&workload),
        };
        let (id, _) = self.set_workload(workload);
        self.release(id);
        self.hold(id, held);
        id
    }

    /// Removes a workload. True if it held quota.
    pub fn remove_workload(&mut self, id: WorkloadId) -> bool {
        let freed = self.release(id);
        if let Some(slot) = self.slots.get_mut(id.index()).and_then(Option::take) {
            self.by_key.remove(&slot.workload.key);
            self.free_slots.push(id);
        }
        freed
    }

    /// What the workload would hold by its status.
    pub fn holding(&self, workload: &Workload) -> Option<Held> {
        let admission = workload.admission.as_ref().filter(|_| workload.holds_quota())?;
        self.queues.get(admission.queue)?;
        // Its variant has the quota and the places.
        if self.is_parent_of_variants(workload, Some(admission.queue)) {
            return None;
        }
        Some(Held {
            queue: admission.queue,
            usage: workload.quota_usage(),
            tas: if self.settings.gates.tas { tas_uses(workload, admission) } else { Vec::new() },
            leaves: Vec::new(),
            rank: self.rank_of(workload),
        })
    }

    /// Whether a workload of a queue is never queued itself, but its variants are. The label that says so follows a moment
    /// after its creation. As `IsConcurrentAdmissionParentWithoutLock` in Kueue's `pkg/cache/queue/manager.go`.
    pub(crate) fn is_parent_of_variants(&self, workload: &Workload, queue: Option<QueueId>) -> bool {
        let links = workload.links.as_ref();
        let is_labeled = links.is_some_and(|links| links.is_parent);
        let is_variant = links.is_some_and(|links| links.parent_uid.is_some());
        let tries_flavors = queue
            .and_then(|queue| self.queues.get(queue))
            .is_some_and(|row| row.queue.spec.migration.is_some());
        self.settings.gates.concurrent_admission && (is_labeled || tries_flavors && !is_variant)
    }

    fn rank_of(&self, workload: &Workload) -> Arc<Rank> {
        Arc::new(Rank::of(workload, &self.settings.gates))
    }

    fn hold(&mut self, id: WorkloadId, mut held: Held) {
        if let Some(row) = self.queues.get_mut(held.queue) {
            row.holders.insert(Arc::clone(&held.rank), id);
            self.tree.add_all(row.queue.node, &held.usage);
            held.leaves = self.tas.leaves_of(&held.tas);
            self.tas.change_leaves(&held.leaves, 1);
            if let Some(Some(slot)) = self.slots.get_mut(id.index()) {
                change_running(&mut self.running, &slot.workload, &held, 1);
                slot.held = Some(Box::new(held));
                if !slot.workload.is_true(WorkloadCondition::PodsReady) {
                    self.not_ready.insert(id);
                }
            }
        }
    }

    /// Frees what a workload holds. True if it held anything.
    pub(super) fn release(&mut self, id: WorkloadId) -> bool {
        self.forget_orphan(id);
        self.not_ready.remove(&id);
        let Some(Some(slot)) = self.slots.get_mut(id.index()) else {
            return false;
        };
        let Some(held) = slot.held.take() else {
            return false;
        };
        change_running(&mut self.running, &slot.workload, &held, -1);
        self.tas.change_leaves(&held.leaves, -1);
        if let Some(row) = self.queues.get_mut(held.queue) {
            row.holders.remove(&held.rank);
            self.tree.remove_all(row.queue.node, &held.usage);
            self.tree.bump_generation(row.queue.node);
        }
        true
    }
}

fn change_running(
    running: &mut BTreeMap<(LocalQueueId, QueueId), Total>,
    workload: &Workload,
    held: &Held,
    factor: i128,
) {
    if !workload.is_admitted() {
        return;
    }
    let key = (workload.local_queue, held.queue);
    let sums = running.entry(key).or_default();
    for (fr, amount) in &held.usage {
        sums.add(fr.resource, i128::from(amount.get()) * factor);
    }
    if sums.is_zero() {
        running.remove(&key);
    }
}

/// The places a workload occupies by its admission.
pub fn tas_uses(workload: &Workload, admission: &Admission) -> Vec<TasUse> {
    let mut uses = Vec::new();
    for pod_set in &admission.pod_sets {
        let Some(topology) = &pod_set.topology else {
            continue;
        };
        let per_pod = workload.pod_set(&pod_set.name).map_or_else(
            || pod_set.usage.divided(i64::from(pod_set.count)),
            |spec| spec.pod.requests.clone(),
        );
        let flavors: BTreeSet<FlavorId> = pod_set.flavors.iter().map(|(_, flavor)| *flavor).collect();
        for flavor in flavors {
            uses.extend(topology.domains.iter().map(|domain| TasUse {
                flavor,
                domain: domain.domain_id().into(),
                per_pod: per_pod.clone(),
                count: domain.count,
            }));
        }
    }
    uses
}
