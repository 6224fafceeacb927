//! What decisions are made on: quotas, usage, flavors, topology and the workloads that hold quota.
//!
//! There is one state and it is always live. A decision that needs to know "what if these were gone?"
//! changes usage and rolls it back ([`State::mark`]); nothing is copied.

mod holders;
mod queues;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::fair::Share;
use crate::labels::Labels;
use crate::model::{
    Admission, CohortSpec, ConditionKind, Flavor, Fr, LocalQueue, QueueSpec, Usage, Workload, WorkloadKey,
};
use crate::names::{
    CohortId, FlavorId, Id, LocalQueueId, Names, NamespaceId, QueueId, TopologyId, WorkloadId,
};
use crate::quota::{self, NodeId, NodeKind, QuotaTree};
use crate::requests::{Requests, Total};
use crate::settings::Settings;
use crate::tas::{LeafUse, Tas, TasUse};
use holders::Holders;
pub(crate) use holders::Rank;
pub use queues::{InactiveReason, MULTIKUEUE, PROVISIONING};

/// Values by id.
#[derive(Clone, Debug)]
pub(crate) struct Table<I, T> {
    rows: Vec<Option<T>>,
    ids: std::marker::PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self { rows: Vec::new(), ids: std::marker::PhantomData }
    }
}

impl<I: Id, T> Table<I, T> {
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.rows.get(id.index()).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.rows.get_mut(id.index()).and_then(Option::as_mut)
    }

    pub(crate) fn insert(&mut self, id: I, value: T) -> Option<T> {
        if self.rows.len() <= id.index() {
            self.rows.resize_with(id.index() + 1, || None);
        }
        self.rows.get_mut(id.index()).and_then(|row| row.replace(value))
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        self.rows.get_mut(id.index()).and_then(Option::take)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| row.as_ref().map(|value| (I::from_index(at), value)))
    }
}

/// An admission check object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckInfo {
    /// Whether its controller is working.
    pub active: bool,
    /// The controller that answers it.
    pub controller: Arc<str>,
}

/// A ClusterQueue with what hangs on it.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its specification.
    pub spec: QueueSpec,
    /// Its place in the quota tree.
    pub node: NodeId,
    /// Why it cannot admit; empty if it can.
    pub inactive: Vec<InactiveReason>,
    /// All its flavors have a topology.
    pub tas_only: bool,
    /// Flavors with a topology.
    pub tas_flavors: Vec<FlavorId>,
    /// Workloads run on another cluster.
    pub multikueue: bool,
    /// Flavors whose nodes are provisioned after reservation.
    pub provisioned: Vec<FlavorId>,
}

#[derive(Clone, Debug)]
struct QueueRow {
    /// Shared, so that evaluations can hold it while they change usage.
    queue: Arc<Queue>,
    /// Workloads that hold its quota.
    holders: Holders,
}

#[derive(Clone, Debug)]
struct Cohort {
    node: NodeId,
    /// The object, if there is one; a cohort also exists by being referred to.
    spec: Option<CohortSpec>,
    in_cycle: bool,
}

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
    leaves: Vec<LeafUse>,
    /// When its turn to be preempted comes.
    pub(crate) rank: Arc<Rank>,
}

#[derive(Clone, Debug)]
struct Slot {
    workload: Arc<Workload>,
    held: Option<Box<Held>>,
}

/// A place to roll back to.
#[must_use = "changes after a mark stay until they are rolled back"]
pub struct Mark {
    quota: quota::Mark,
    tas: crate::tas::TasMark,
    hidden: BTreeSet<WorkloadId>,
}

/// The live state.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Names.
    pub names: Names,
    /// Configuration.
    pub settings: Settings,
    /// Quota and its usage.
    pub tree: QuotaTree,
    /// Nodes, topologies and their usage.
    pub tas: Tas,
    queues: Table<QueueId, QueueRow>,
    cohorts: Table<CohortId, Cohort>,
    flavors: Table<FlavorId, Flavor>,
    local_queues: Table<LocalQueueId, LocalQueue>,
    namespaces: Table<NamespaceId, Labels>,
    checks: BTreeMap<Arc<str>, CheckInfo>,
    slots: Vec<Option<Slot>>,
    free_slots: Vec<WorkloadId>,
    by_key: HashMap<WorkloadKey, WorkloadId>,
    /// Workloads whose status says they hold quota of a queue that is not there.
    orphans: BTreeMap<QueueId, BTreeSet<WorkloadId>>,
    /// Workloads that hold quota and whose pods are not ready.
    not_ready: BTreeSet<WorkloadId>,
    /// What admitted workloads of a LocalQueue use of a queue.
    running: BTreeMap<(LocalQueueId, QueueId), Total>,
    /// Workloads that count as gone while something is tried out.
    hidden: BTreeSet<WorkloadId>,
    /// Usage of LocalQueues for admission fair sharing.
    pub afs: crate::afs::UsageLedger,
}

impl State {
    /// A state without objects.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    // --- flavors, topologies, nodes, checks, namespaces ---

    /// Adds or changes a flavor.
    pub fn set_flavor(&mut self, id: FlavorId, flavor: Flavor) {
        self.flavors.insert(id, flavor);
        self.refresh_tas_flavor(id);
        self.refresh_all_queues();
    }

    fn refresh_tas_flavor(&mut self, id: FlavorId) {
        let topology = self.flavors.get(id).and_then(|flavor| flavor.topology);
        match (self.flavors.get(id), topology) {
            (Some(flavor), Some(topology)) => self.tas.set_flavor(
                id,
                topology,
                flavor.node_labels.clone(),
                flavor.tolerations.clone(),
                &self.names,
                &self.settings.gates,
            ),
            _ => self.tas.remove_flavor(id),
        }
        self.recount_tas_usage();
    }

    /// Counts the places of all workloads again: flavors came, went or changed their levels.
    fn recount_tas_usage(&mut self) {
        self.tas.clear_usage();
        for held in self.slots.iter_mut().flatten().filter_map(|slot| slot.held.as_mut()) {
            held.leaves = self.tas.leaves_of(&held.tas);
            self.tas.change_leaves(&held.leaves, 1);
        }
    }

    /// Removes a flavor.
    pub fn remove_flavor(&mut self, id: FlavorId) {
        self.flavors.remove(id);
        self.tas.remove_flavor(id);
        self.refresh_all_queues();
    }

    /// A flavor.
    pub fn flavor(&self, id: FlavorId) -> Option<&Flavor> {
        self.flavors.get(id)
    }

    /// All flavors.
    pub fn flavors(&self) -> impl Iterator<Item = (FlavorId, &Flavor)> {
        self.flavors.iter()
    }

    /// Adds or changes a topology.
    pub fn set_topology(&mut self, id: TopologyId, levels: Vec<Arc<str>>) {
        self.tas.set_topology(id, levels);
        let users: Vec<_> = self
            .flavors
            .iter()
            .filter(|(_, flavor)| flavor.topology == Some(id))
            .map(|(flavor, _)| flavor)
            .collect();
        for flavor in users {
            self.refresh_tas_flavor(flavor);
        }
        self.refresh_all_queues();
    }

    /// Removes a topology.
    pub fn remove_topology(&mut self, id: TopologyId) {
        self.tas.remove_topology(id);
        self.refresh_all_queues();
    }

    /// Adds or changes an admission check.
    pub fn set_check(&mut self, name: Arc<str>, check: Option<CheckInfo>) {
        match check {
            Some(check) => self.checks.insert(name, check),
            None => self.checks.remove(&name),
        };
        self.refresh_all_queues();
    }

    /// Says which labels a namespace has; `None` if it is gone.
    pub fn set_namespace(&mut self, id: NamespaceId, labels: Option<Labels>) {
        match labels {
            Some(labels) => self.namespaces.insert(id, labels),
            None => self.namespaces.remove(id),
        };
    }

    /// The labels of a namespace.
    pub fn namespace(&self, id: NamespaceId) -> Option<&Labels> {
        self.namespaces.get(id)
    }

    /// Adds or changes a LocalQueue; `None` removes it.
    pub fn set_local_queue(&mut self, id: LocalQueueId, local_queue: Option<LocalQueue>) {
        match local_queue {
            Some(local_queue) => self.local_queues.insert(id, local_queue),
            None => self.local_queues.remove(id),
        };
    }

    /// A LocalQueue.
    pub fn local_queue(&self, id: LocalQueueId) -> Option<&LocalQueue> {
        self.local_queues.get(id)
    }

    /// All LocalQueues.
    pub fn local_queues(&self) -> impl Iterator<Item = (LocalQueueId, &LocalQueue)> {
        self.local_queues.iter()
    }

    // --- workloads ---

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
    fn account(&mut self, id: WorkloadId) {
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
    fn adopt_orphans(&mut self, queue: QueueId) {
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

    /// Adds a workload as if it held quota of `queue`, whatever its status says.
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
        Some(Held {
            queue: admission.queue,
            usage: workload.quota_usage(),
            tas: if self.settings.gates.tas { tas_uses(workload, admission) } else { Vec::new() },
            leaves: Vec::new(),
            rank: self.rank_of(workload),
        })
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
                if !slot.workload.is_true(ConditionKind::PodsReady) {
                    self.not_ready.insert(id);
                }
            }
        }
    }

    /// Frees what a workload holds. True if it held anything.
    fn release(&mut self, id: WorkloadId) -> bool {
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

    // --- trying things out ---

    /// From here on usage can be rolled back.
    pub fn mark(&mut self) -> Mark {
        Mark { quota: self.tree.mark(), tas: self.tas.mark(), hidden: self.hidden.clone() }
    }

    /// Undoes every change of usage since `mark`.
    pub fn rollback(&mut self, mark: Mark) {
        self.tree.rollback(mark.quota);
        self.tas.rollback(mark.tas);
        self.hidden = mark.hidden;
    }

    /// Takes away what a workload holds, until rolled back; `hide` also makes it no candidate.
    pub fn try_without(&mut self, id: WorkloadId, hide: bool) {
        self.try_change(id, -1);
        if hide {
            self.hidden.insert(id);
        }
    }

    /// Gives back what [`State::try_without`] took.
    pub fn try_with(&mut self, id: WorkloadId) {
        self.try_change(id, 1);
        self.hidden.remove(&id);
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

    /// Workloads that hold quota of the queue and are not hidden, in the order in which they would lose it.
    pub fn candidates(&self, queue: QueueId) -> impl Iterator<Item = WorkloadId> + '_ {
        self.candidates_after(queue, None).map(|(_, id)| id)
    }

    /// Candidates whose turn comes after this one's, or all.
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
        self.hidden.contains(&id)
    }

    /// What the queue may still use, never below zero.
    pub fn available(&self, node: NodeId, fr: Fr) -> crate::amount::Amount {
        self.tree.available(node, fr).floor_zero()
    }

    /// The share of a node.
    pub fn share(&self, node: NodeId) -> Share {
        self.tree.share(node, &self.names)
    }

    /// The cohorts above a queue from the root down, and the queue: `/root/…/queue`.
    pub fn path(&self, queue: QueueId) -> String {
        let mut parts = vec![self.names.queue_name(queue)];
        if let Some(queue) = self.queue(queue) {
            parts.extend(self.tree.ancestors(queue.node).map(|node| match self.tree.kind(node) {
                NodeKind::Queue(queue) => self.names.queue_name(queue),
                NodeKind::Cohort(cohort) => self.names.cohort_name(cohort),
            }));
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    /// A workload's key as `namespace/name`.
    pub fn key_text(&self, key: &WorkloadKey) -> String {
        format!("{}/{}", self.names.namespaces.name(key.namespace), key.name)
    }

    /// Whether all workloads that hold quota have their pods ready.
    pub fn all_pods_ready(&self) -> bool {
        self.not_ready.is_empty()
    }

    /// What admitted workloads of a LocalQueue use of the queue it feeds, without one of them.
    pub fn running_in(&self, local_queue: LocalQueueId, without: Option<WorkloadId>) -> Requests {
        let Some(queue) = self.local_queue(local_queue).map(|local_queue| local_queue.queue) else {
            return Requests::new();
        };
        let mut sums = self.running.get(&(local_queue, queue)).cloned().unwrap_or_default();
        let spared = without.and_then(|id| Some((self.workload(id)?, self.held(id)?)));
        if let Some((workload, held)) = spared
            && workload.is_admitted()
            && (workload.local_queue, held.queue) == (local_queue, queue)
        {
            for (fr, amount) in &held.usage {
                sums.add(fr.resource, -i128::from(amount.get()));
            }
        }
        sums.requests().floor_zero()
    }

    /// Usage of the LocalQueue of a workload, if its queue shares fairly at admission.
    pub fn local_queue_usage(&self, id: WorkloadId) -> Option<f64> {
        let config = self.settings.afs()?;
        let held = self.held(id)?;
        if !self.queue(held.queue)?.spec.usage_based_admission {
            return None;
        }
        let local_queue = self.workload(id)?.local_queue;
        let weight = self.local_queues.get(local_queue).map_or(1.0, |local_queue| local_queue.weight);
        Some(self.afs.usage(local_queue, weight, config, &self.names))
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
