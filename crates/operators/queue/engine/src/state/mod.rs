//! The live state of quotas, usage, flavors, topology and the workloads that hold quota.
//!
//! There is one state and no snapshot. A decision that depends on workloads being gone changes usage and
//! rolls it back ([`State::mark`]); nothing is copied.

mod holders;
mod queues;
mod trial;
mod workloads;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;

use crate::fair::Share;
use crate::labels::Labels;
use crate::model::{CohortSpec, Flavor, Fr, LocalQueue, QueueSpec, WorkloadKey};
use crate::names::{
    CohortId, FlavorId, Id, LocalQueueId, Names, NamespaceId, QueueId, ResourceId, TopologyId, WorkloadId,
};
use crate::quota::{NodeId, NodeKind, QuotaTree};
use crate::requests::{Requests, Total};
use crate::settings::Settings;
use crate::tas::Tas;
use holders::Holders;
pub(crate) use holders::Rank;
pub use queues::InactiveReason;
use trial::Hidden;
pub use trial::Mark;
use workloads::Slot;
pub use workloads::{Held, tas_uses};

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

/// The live state.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Names.
    pub names: Names,
    /// Configuration. Which gates are on has to be known before workloads are: what they hold is ranked by it.
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
    /// Workloads that hold quota of a queue that does not exist, by their status.
    orphans: BTreeMap<QueueId, BTreeSet<WorkloadId>>,
    /// Workloads that hold quota and whose pods are not ready.
    not_ready: BTreeSet<WorkloadId>,
    /// What admitted workloads of a LocalQueue use of a queue.
    running: BTreeMap<(LocalQueueId, QueueId), Total>,
    /// Workloads that count as gone while something is tried out.
    hidden: Hidden,
    /// Usage of LocalQueues for admission fair sharing.
    pub afs: crate::afs::UsageLedger,
}

impl State {
    /// A state without objects.
    pub fn new(settings: Settings) -> Self {
        let mut state = Self { settings, ..Self::default() };
        state.names.write_in_bytes(state.settings.requests.in_bytes());
        state
    }

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

    /// Sets the labels of a namespace; `None` if it is gone.
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

    /// The resources that admitted workloads of a queue use, whatever LocalQueue they are of.
    pub fn resources_running_in(&self, queue: QueueId) -> BTreeSet<ResourceId> {
        let of_queue = self.running.iter().filter(|((_, own), _)| *own == queue);
        of_queue
            .flat_map(|(_, total)| total.requests().iter().collect::<Vec<_>>())
            .map(|(id, _)| id)
            .collect()
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
