//! Queues and cohorts: the cohort tree, and whether a queue can admit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_api::kueue::metadata::{MULTIKUEUE_CONTROLLER, PROVISIONING_REQUEST_CONTROLLER};
use quintet_api::kueue::reasons::ClusterQueueActiveReason;

use super::{CheckInfo, Cohort, Holders, Queue, QueueRow, State};
use crate::model::{CheckRule, CohortSpec, QueueSpec};
use crate::names::{CohortId, FlavorId, QueueId, WorkloadId};
use crate::quota::{NodeId, NodeKind};

/// Why a queue cannot admit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InactiveReason {
    /// It is being deleted.
    Terminating,
    /// It is stopped.
    Stopped,
    /// These flavors do not exist.
    FlavorNotFound(Vec<FlavorId>),
    /// These checks do not exist.
    CheckNotFound(Vec<Arc<str>>),
    /// The controllers of these checks are not working.
    CheckInactive(Vec<Arc<str>>),
    /// More than one MultiKueue check.
    MultipleMultiKueue(Vec<Arc<str>>),
    /// A MultiKueue check for some flavors only.
    MultiKueuePerFlavor(Vec<Arc<str>>),
    /// MultiKueue together with ProvisioningRequest.
    MultiKueueWithProvisioning,
    /// The topology of these flavors does not exist.
    TopologyNotFound(Vec<FlavorId>),
    /// The cohorts above form a cycle.
    CohortCycle,
}

impl InactiveReason {
    /// The reason clients see.
    pub const fn reason(&self) -> ClusterQueueActiveReason {
        match self {
            Self::Terminating => ClusterQueueActiveReason::Terminating,
            Self::Stopped => ClusterQueueActiveReason::Stopped,
            Self::FlavorNotFound(_) => ClusterQueueActiveReason::FlavorNotFound,
            Self::CheckNotFound(_) => ClusterQueueActiveReason::AdmissionCheckNotFound,
            Self::CheckInactive(_) => ClusterQueueActiveReason::AdmissionCheckInactive,
            Self::MultipleMultiKueue(_) => ClusterQueueActiveReason::MultipleMultiKueueAdmissionChecks,
            Self::MultiKueuePerFlavor(_) => {
                ClusterQueueActiveReason::MultiKueueAdmissionCheckAppliedPerFlavor
            }
            Self::MultiKueueWithProvisioning => ClusterQueueActiveReason::MultiKueueWithProvisioningRequest,
            Self::TopologyNotFound(_) => ClusterQueueActiveReason::TopologyNotFound,
            Self::CohortCycle => ClusterQueueActiveReason::Unknown,
        }
    }
}

impl State {
    fn cohort_node(&mut self, id: CohortId) -> NodeId {
        if let Some(cohort) = self.cohorts.get(id) {
            return cohort.node;
        }
        let node = self.tree.add(NodeKind::Cohort(id));
        self.cohorts.insert(id, Cohort { node, spec: None, in_cycle: false });
        node
    }

    /// The node of a cohort.
    pub fn cohort(&self, id: CohortId) -> Option<NodeId> {
        self.cohorts.get(id).map(|cohort| cohort.node)
    }

    /// Adds or changes a cohort; `None` removes the object, and the cohort lives on while referred to.
    pub fn set_cohort(&mut self, id: CohortId, spec: Option<CohortSpec>) {
        let node = self.cohort_node(id);
        if self.cohorts.get(id).is_some_and(|cohort| cohort.spec == spec) {
            return;
        }
        self.tree.set_quotas(node, spec.iter().flat_map(CohortSpec::quotas));
        self.tree.set_weight(node, spec.as_ref().map_or(1.0, |spec| spec.weight));
        if let Some(parent) = spec.as_ref().and_then(|spec| spec.parent) {
            self.cohort_node(parent);
        }
        if let Some(cohort) = self.cohorts.get_mut(id) {
            cohort.spec = spec;
        }
        self.relink_cohorts(node);
    }

    /// Whether the cohorts above this one form a cycle.
    pub fn is_in_cycle(&self, id: CohortId) -> bool {
        self.cohorts.get(id).is_some_and(|cohort| cohort.in_cycle)
    }

    /// Follows parent names upwards; a cohort whose ancestors form a cycle stands alone and its queues
    /// do not admit until the cycle is broken. Only the trees that changed, among them that of `changed`,
    /// are worked out again.
    fn relink_cohorts(&mut self, changed: NodeId) {
        let parents: BTreeMap<CohortId, CohortId> = self
            .cohorts
            .iter()
            .filter_map(|(id, cohort)| Some((id, cohort.spec.as_ref()?.parent?)))
            .collect();
        let in_cycle = |start: CohortId| {
            let steps = std::iter::successors(Some(start), |id| parents.get(id).copied());
            steps.take(parents.len() + 2).count() > parents.len() + 1
        };
        let all: Vec<(CohortId, NodeId)> =
            self.cohorts.iter().map(|(id, cohort)| (id, cohort.node)).collect();
        let mut touched = BTreeSet::from([changed]);
        let mut cycles_changed = false;
        for (id, node) in &all {
            let cyclic = in_cycle(*id);
            let parent = parents.get(id).filter(|_| !cyclic).and_then(|parent| self.cohort(*parent));
            if self.tree.parent(*node) != parent {
                touched.extend([self.tree.root(*node), *node]);
                self.tree.set_parent(*node, parent);
            }
            if let Some(cohort) = self.cohorts.get_mut(*id) {
                cycles_changed |= cohort.in_cycle != cyclic;
                cohort.in_cycle = cyclic;
            }
        }
        let roots: BTreeSet<NodeId> = touched.into_iter().map(|node| self.tree.root(node)).collect();
        for root in roots {
            self.tree.rebuild(root);
        }
        if cycles_changed {
            self.refresh_all_queues();
        }
    }

    /// Adds or changes a queue.
    pub fn set_queue(&mut self, spec: QueueSpec) {
        let id = spec.id;
        let parent = spec.cohort.map(|cohort| self.cohort_node(cohort));
        let known = self.queues.get(id).map(|row| Arc::clone(&row.queue));
        let allocates_same = known
            .as_ref()
            .is_some_and(|known| known.spec.groups == spec.groups && known.spec.cohort == spec.cohort);
        let node = known.as_ref().map_or_else(|| self.tree.add(NodeKind::Queue(id)), |known| known.node);
        let old_root = self.tree.root(node);
        self.tree.set_quotas(node, spec.quotas());
        self.tree.set_weight(node, spec.weight);
        self.tree.set_parent(node, parent);
        let (inactive, tas_flavors, provisioned) = (Vec::new(), Vec::new(), Vec::new());
        let queue =
            Queue { spec, node, inactive, tas_only: false, tas_flavors, multikueue: false, provisioned };
        match self.queues.get_mut(id) {
            Some(row) => row.queue = Arc::new(queue),
            None => {
                self.queues.insert(id, QueueRow { queue: Arc::new(queue), holders: Holders::default() });
            }
        }
        if !allocates_same {
            self.tree.rebuild(old_root);
            if self.tree.root(node) != old_root {
                self.tree.rebuild(node);
            }
        }
        self.refresh_queue(id);
        if known.is_none() {
            self.adopt_orphans(id);
        }
    }

    /// Removes a queue; its workloads hold nothing any more.
    pub fn remove_queue(&mut self, id: QueueId) {
        let reserved: Vec<WorkloadId> = self.reserved(id).collect();
        for workload in &reserved {
            self.release(*workload);
        }
        let Some(QueueRow { queue, .. }) = self.queues.remove(id) else {
            return;
        };
        self.tree.remove(queue.node);
        for workload in reserved {
            self.account(workload);
        }
    }

    /// A queue.
    pub fn queue(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queues.get(id).map(|row| &row.queue)
    }

    /// Workloads that hold quota of the queue.
    pub fn reserved(&self, id: QueueId) -> impl Iterator<Item = WorkloadId> + '_ {
        self.queues.get(id).into_iter().flat_map(|row| row.holders.ids())
    }

    /// Whether a queue can admit, with the reason and message of its Active condition.
    pub fn active_condition(&self, id: QueueId) -> (bool, ClusterQueueActiveReason, String) {
        let Some(queue) = self.queue(id) else {
            return (false, ClusterQueueActiveReason::NotFound, "ClusterQueue not found".to_owned());
        };
        let Some(first) = queue.inactive.first() else {
            return (true, ClusterQueueActiveReason::Ready, "Can admit new workloads".to_owned());
        };
        if *first == InactiveReason::Terminating {
            let message = "Can't admit new workloads; clusterQueue is terminating";
            return (false, first.reason(), message.to_owned());
        }
        let texts: Vec<String> =
            queue.inactive.iter().flat_map(|reason| self.texts_of(queue, reason)).collect();
        (false, first.reason(), format!("Can't admit new workloads: {}.", texts.join(", ")))
    }

    fn texts_of(&self, queue: &Queue, reason: &InactiveReason) -> Vec<String> {
        let flavors = |ids: &[FlavorId]| {
            let names: Vec<&str> = ids.iter().map(|id| self.names.flavor_name(*id)).collect();
            names.join(",")
        };
        vec![match reason {
            InactiveReason::Terminating => "is terminating".to_owned(),
            InactiveReason::Stopped => "is stopped".to_owned(),
            InactiveReason::FlavorNotFound(ids) => {
                format!("references missing ResourceFlavor(s): {}", flavors(ids))
            }
            InactiveReason::CheckNotFound(names) => {
                format!("references missing AdmissionCheck(s): {}", names.join(","))
            }
            InactiveReason::CheckInactive(names) => {
                format!("references inactive AdmissionCheck(s): {}", names.join(","))
            }
            InactiveReason::MultipleMultiKueue(names) => format!(
                "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}",
                names.join(",")
            ),
            InactiveReason::MultiKueuePerFlavor(names) => {
                format!("Cannot specify MultiKueue AdmissionCheck per flavor, found: {}", names.join(","))
            }
            InactiveReason::MultiKueueWithProvisioning => {
                let of = |controller: &str| {
                    let rules = queue.spec.checks.iter().filter(|rule| {
                        self.checks.get(&rule.name).is_some_and(|check| &*check.controller == controller)
                    });
                    rules.map(|rule| rule.name.to_string()).collect::<Vec<_>>().join(",")
                };
                format!(
                    "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {}, {}",
                    of(MULTIKUEUE_CONTROLLER),
                    of(PROVISIONING_REQUEST_CONTROLLER)
                )
            }
            InactiveReason::TopologyNotFound(ids) => {
                let text = |id: &FlavorId| {
                    let topology = self.flavors.get(*id).and_then(|flavor| flavor.topology);
                    format!(
                        "there is no Topology \"{}\" for TAS flavor \"{}\"",
                        topology.map_or("", |topology| self.names.topologies.name(topology)),
                        self.names.flavor_name(*id)
                    )
                };
                return ids.iter().map(text).collect();
            }
            InactiveReason::CohortCycle => "its cohorts form a cycle".to_owned(),
        }]
    }

    /// All queues.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &Arc<Queue>)> {
        self.queues.iter().map(|(id, row)| (id, &row.queue))
    }

    /// Whether the queue exists and can admit.
    pub fn is_queue_active(&self, id: QueueId) -> bool {
        self.queue(id).is_some_and(|queue| queue.inactive.is_empty())
    }

    pub(super) fn refresh_all_queues(&mut self) {
        let ids: Vec<_> = self.queues.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.refresh_queue(id);
        }
    }

    /// Works out again whether a queue can admit, and what its flavors and checks mean.
    fn refresh_queue(&mut self, id: QueueId) {
        let Some(queue) = self.queue(id).cloned() else {
            return;
        };
        let spec = &queue.spec;
        let all: BTreeSet<FlavorId> = spec.flavors().collect();
        let with_controller = |controller: &str| -> Vec<&CheckRule> {
            let of =
                |name: &Arc<str>| self.checks.get(name).is_some_and(|check| &*check.controller == controller);
            spec.checks.iter().filter(|rule| of(&rule.name)).collect()
        };
        let (multikueue, provisioning) =
            (with_controller(MULTIKUEUE_CONTROLLER), with_controller(PROVISIONING_REQUEST_CONTROLLER));
        let topology = |flavor: &FlavorId| self.flavors.get(*flavor).and_then(|flavor| flavor.topology);
        let tas_flavors: Vec<_> =
            all.iter().copied().filter(|flavor| self.tas.flavor(*flavor).is_some()).collect();
        let tas_only = !all.is_empty() && all.iter().all(|flavor| topology(flavor).is_some());
        let provisioned = provisioning
            .iter()
            .flat_map(|rule| {
                if rule.flavors.is_empty() { all.iter().copied().collect() } else { rule.flavors.clone() }
            })
            .collect();

        let mut inactive = Vec::new();
        let mut note = |reason: InactiveReason, applies: bool| {
            if applies {
                inactive.push(reason);
            }
        };
        note(InactiveReason::Terminating, spec.terminating);
        note(InactiveReason::Stopped, spec.stopped);
        let missing: Vec<_> =
            all.iter().copied().filter(|flavor| self.flavors.get(*flavor).is_none()).collect();
        note(InactiveReason::FlavorNotFound(missing.clone()), !missing.is_empty());
        let names = |keep: &dyn Fn(Option<&CheckInfo>) -> bool| -> Vec<Arc<str>> {
            let found = spec.checks.iter().filter(|rule| keep(self.checks.get(&rule.name)));
            found.map(|rule| Arc::clone(&rule.name)).collect()
        };
        let unknown = names(&|check| check.is_none());
        note(InactiveReason::CheckNotFound(unknown.clone()), !unknown.is_empty());
        let idle = names(&|check| check.is_some_and(|check| !check.active));
        note(InactiveReason::CheckInactive(idle.clone()), !idle.is_empty());
        let list = |rules: &[&CheckRule]| rules.iter().map(|rule| Arc::clone(&rule.name)).collect();
        note(InactiveReason::MultipleMultiKueue(list(&multikueue)), multikueue.len() > 1);
        // Listing every flavor of the queue is the same as listing none.
        let is_partial = |rule: &&CheckRule| {
            !rule.flavors.is_empty() && rule.flavors.iter().copied().collect::<BTreeSet<_>>() != all
        };
        let per_flavor: Vec<_> = multikueue.iter().copied().filter(is_partial).collect();
        note(InactiveReason::MultiKueuePerFlavor(list(&per_flavor)), !per_flavor.is_empty());
        note(InactiveReason::MultiKueueWithProvisioning, !multikueue.is_empty() && !provisioning.is_empty());
        if self.settings.gates.tas && multikueue.is_empty() {
            let without_topology: Vec<_> = all
                .iter()
                .copied()
                .filter(|flavor| {
                    topology(flavor).is_some_and(|topology| self.tas.topology(topology).is_none())
                })
                .collect();
            note(InactiveReason::TopologyNotFound(without_topology.clone()), !without_topology.is_empty());
        }
        let in_cycle =
            spec.cohort.and_then(|cohort| self.cohorts.get(cohort)).is_some_and(|cohort| cohort.in_cycle);
        note(InactiveReason::CohortCycle, in_cycle);

        let is_multikueue = !multikueue.is_empty();
        let (place, active) = (queue.node, inactive.is_empty());
        if let Some(row) = self.queues.get_mut(id) {
            let queue = Arc::make_mut(&mut row.queue);
            queue.inactive = inactive;
            queue.tas_only = tas_only;
            queue.tas_flavors = tas_flavors;
            queue.multikueue = is_multikueue;
            queue.provisioned = provisioned;
        }
        self.tree.set_active(place, active);
    }
}
