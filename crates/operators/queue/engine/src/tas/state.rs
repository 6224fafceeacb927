//! Nodes, topologies and the flavors that use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cache::CountCache;
use super::placement::{Placement, PlacementRequest, Placer};
use super::tree::Tree;
use super::usage::{Assumed, LeafUse, Ledger, Slot, TasUse};
use super::{HOSTNAME, TopologyAssignment, join};
use crate::labels::{Labels, Taint, Toleration};
use crate::model::Workload;
use crate::names::{FlavorId, Names, ResourceId, TopologyId};
use crate::requests::Requests;
use crate::settings::Gates;

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What it can give to pods.
    pub allocatable: Requests,
    /// Ready and not cordoned.
    pub usable: bool,
    /// What pods outside topology aware scheduling use.
    pub non_tas_usage: Requests,
}

/// A flavor with a topology.
#[derive(Clone, Debug)]
pub struct TasFlavor {
    /// The topology's name, for messages.
    pub topology_name: Arc<str>,
    /// The topology.
    pub topology: TopologyId,
    /// Tolerations its pods receive.
    pub tolerations: Vec<Toleration>,
    /// Labels of its nodes.
    pub node_labels: Labels,
    /// Its domains.
    pub tree: Tree,
    pub(super) ledger: usize,
    pub(super) slots: Vec<Slot>,
    /// The leaf of every slot of the ledger.
    pub(super) leaf_of: Vec<Option<usize>>,
}

impl NodeInfo {
    /// Whether pods of a flavor with these labels may go to it.
    fn is_of(&self, labels: &Labels, levels: &[Arc<str>]) -> bool {
        self.usable
            && labels.iter().all(|(key, value)| self.labels.get(key) == Some(value))
            && levels.iter().all(|level| self.labels.contains_key(level))
    }
}

impl TasFlavor {
    /// The position of the leaf that a node is part of.
    fn leaf_of_node(&self, node: &NodeInfo) -> Option<usize> {
        if !node.is_of(&self.node_labels, &self.tree.levels) {
            return None;
        }
        let values: Vec<Arc<str>> =
            self.tree.levels.iter().filter_map(|level| node.labels.get(level).cloned()).collect();
        if self.tree.is_by_host() { self.tree.leaf(values.last()?) } else { self.tree.leaf(&join(&values)) }
    }
}

/// What a placement considers besides the requests.
#[derive(Clone, Copy, Default)]
pub struct PlaceOptions<'a> {
    /// Pretend no workload was placed; pods outside the topology still count.
    pub simulate_empty: bool,
    /// The workload being placed: its failed nodes and its present placement.
    pub workload: Option<&'a Workload>,
    /// Say why there is no placement; counting what excluded every node costs as much as placing.
    pub explain: bool,
}

impl<'a> PlaceOptions<'a> {
    /// On the cluster as it is, with the reason if there is no placement.
    pub const fn explained(workload: &'a Workload) -> Self {
        Self { simulate_empty: false, workload: Some(workload), explain: true }
    }

    /// On the cluster as if no workload was placed.
    pub const fn on_empty(workload: &'a Workload) -> Self {
        Self { simulate_empty: true, workload: Some(workload), explain: false }
    }
}

/// A place in the journal to go back to.
#[derive(Clone, Copy, Debug)]
#[must_use = "changes after a mark stay until they are rolled back"]
pub struct TasMark(usize);

/// The ledger shared by all flavors whose leaves are hosts.
const HOSTS: usize = 0;

#[derive(Clone, Debug)]
struct Undo {
    change: LeafUse,
    factor: i64,
}

/// Everything topology aware scheduling knows.
#[derive(Clone, Debug, Default)]
pub struct Tas {
    nodes: BTreeMap<Arc<str>, NodeInfo>,
    topologies: BTreeMap<TopologyId, Vec<Arc<str>>>,
    flavors: BTreeMap<FlavorId, TasFlavor>,
    ledgers: Vec<Ledger>,
    journal: Vec<Undo>,
    open_marks: u32,
    pub(super) counts: CountCache,
}

impl Tas {
    /// The flavor, if it has a topology that exists.
    pub fn flavor(&self, id: FlavorId) -> Option<&TasFlavor> {
        self.flavors.get(&id)
    }

    /// All flavors with a topology.
    pub fn flavors(&self) -> impl Iterator<Item = (FlavorId, &TasFlavor)> {
        self.flavors.iter().map(|(id, flavor)| (*id, flavor))
    }

    /// The levels of a topology.
    pub fn topology(&self, id: TopologyId) -> Option<&[Arc<str>]> {
        self.topologies.get(&id).map(Vec::as_slice)
    }

    /// Adds or changes a topology. Flavors must be set again afterwards.
    pub fn set_topology(&mut self, id: TopologyId, levels: Vec<Arc<str>>) {
        self.topologies.insert(id, levels);
    }

    /// Forgets a topology.
    pub fn remove_topology(&mut self, id: TopologyId) {
        self.topologies.remove(&id);
        self.flavors.retain(|_, flavor| flavor.topology != id);
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(name)
    }

    /// Adds or changes nodes, and forgets those given as `None`; the trees are built once at the end.
    pub fn set_nodes(&mut self, nodes: impl IntoIterator<Item = (Arc<str>, Option<NodeInfo>)>) {
        for (name, node) in nodes {
            match node {
                Some(node) => self.nodes.insert(name, node),
                None => self.nodes.remove(&name),
            };
        }
        for id in self.flavors.keys().copied().collect::<Vec<_>>() {
            self.rebuild(id);
        }
    }

    /// Counts what pods outside topology aware scheduling use of a node. Domains stay as they are.
    pub fn set_non_tas_usage(&mut self, name: &str, usage: Requests) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let before = std::mem::replace(&mut node.non_tas_usage, usage);
        let node = &*node;
        for flavor in self.flavors.values_mut() {
            let leaf = flavor.leaf_of_node(node).and_then(|leaf| flavor.tree.leaves.get_mut(leaf));
            if let Some(leaf) = leaf {
                leaf.free.add(&before);
                leaf.free.sub(&node.non_tas_usage);
                self.counts.clear();
            }
        }
    }

    /// The flavors whose pods may go to a node.
    pub fn flavors_of_node(&self, name: &str) -> Vec<FlavorId> {
        let Some(node) = self.nodes.get(name) else { return Vec::new() };
        let of_node = self.flavors.iter().filter(|(_, flavor)| flavor.leaf_of_node(node).is_some());
        of_node.map(|(id, _)| *id).collect()
    }

    /// Adds or changes a flavor with a topology. Without that topology it is unknown here.
    pub fn set_flavor(
        &mut self,
        id: FlavorId,
        topology: TopologyId,
        node_labels: Labels,
        tolerations: Vec<Toleration>,
        names: &Names,
        gates: &Gates,
    ) {
        let Some(levels) = self.topologies.get(&topology) else {
            self.flavors.remove(&id);
            return;
        };
        if self.ledgers.is_empty() {
            self.ledgers.push(Ledger::default());
        }
        let by_host = levels.last().is_some_and(|level| &**level == HOSTNAME);
        let known = self.flavors.get(&id).map(|flavor| flavor.ledger);
        let ledger = if by_host && gates.tas_overlapping_flavors {
            HOSTS
        } else {
            known.filter(|ledger| *ledger != HOSTS).unwrap_or_else(|| {
                self.ledgers.push(Ledger::default());
                self.ledgers.len() - 1
            })
        };
        self.flavors.insert(
            id,
            TasFlavor {
                topology_name: names.topologies.shared(topology),
                topology,
                tolerations,
                node_labels,
                tree: Tree::default(),
                ledger,
                slots: Vec::new(),
                leaf_of: Vec::new(),
            },
        );
        self.rebuild(id);
    }

    /// Forgets a flavor.
    pub fn remove_flavor(&mut self, id: FlavorId) {
        self.flavors.remove(&id);
    }

    fn rebuild(&mut self, id: FlavorId) {
        self.counts.clear();
        let Some(flavor) = self.flavors.get_mut(&id) else {
            return;
        };
        let Some(levels) = self.topologies.get(&flavor.topology) else {
            return;
        };
        let nodes = self.nodes.values().filter(|node| node.is_of(&flavor.node_labels, levels));
        flavor.tree = Tree::build(levels, nodes);
        if let Some(ledger) = self.ledgers.get_mut(flavor.ledger) {
            let tree = &flavor.tree;
            flavor.slots = tree.leaves.iter().map(|leaf| ledger.slot(&tree.domain(leaf.domain).id)).collect();
            let last = flavor.slots.iter().max().map_or(0, |last| last + 1);
            flavor.leaf_of = vec![None; last];
            for (leaf, slot) in flavor.slots.iter().enumerate() {
                if let Some(entry) = flavor.leaf_of.get_mut(*slot) {
                    *entry = Some(leaf);
                }
            }
        }
    }

    /// Counts pods as placed (`factor` 1) or gone (`factor` −1).
    pub fn change_usage(&mut self, uses: &[TasUse], factor: i64) {
        let leaves = self.leaves_of(uses);
        self.change_leaves(&leaves, factor);
    }

    /// Where pods are accounted; good until flavors or topologies change.
    pub fn leaves_of(&mut self, uses: &[TasUse]) -> Vec<LeafUse> {
        let mut found = Vec::with_capacity(uses.len());
        let mut last: Option<(&TasUse, Arc<Requests>)> = None;
        for usage in uses {
            let Some(ledger) = self.flavors.get(&usage.flavor).map(|flavor| flavor.ledger) else {
                continue;
            };
            let Some(slot) = self.ledgers.get_mut(ledger).map(|ledger| ledger.slot(&usage.domain)) else {
                continue;
            };
            let same = last
                .as_ref()
                .filter(|(other, _)| other.count == usage.count && other.per_pod == usage.per_pod);
            let amount = same.map_or_else(|| Arc::new(usage.total()), |(_, amount)| Arc::clone(amount));
            last = Some((usage, Arc::clone(&amount)));
            found.push(LeafUse { ledger, slot, amount });
        }
        found
    }

    /// As [`Tas::change_usage`], for leaves looked up before.
    pub fn change_leaves(&mut self, leaves: &[LeafUse], factor: i64) {
        for change in leaves {
            if let Some(ledger) = self.ledgers.get_mut(change.ledger) {
                ledger.change(change.slot, &change.amount, factor);
                if self.open_marks > 0 {
                    self.journal.push(Undo { change: change.clone(), factor });
                }
            }
        }
    }

    /// Forgets all usage.
    pub fn clear_usage(&mut self) {
        self.counts.clear();
        for ledger in &mut self.ledgers {
            ledger.clear();
        }
    }

    /// From here on changes of usage can be undone.
    pub fn mark(&mut self) -> TasMark {
        self.open_marks += 1;
        TasMark(self.journal.len())
    }

    /// Undoes all changes of usage since `mark`.
    pub fn rollback(&mut self, mark: TasMark) {
        while self.journal.len() > mark.0 {
            if let Some(Undo { change, factor }) = self.journal.pop()
                && let Some(ledger) = self.ledgers.get_mut(change.ledger)
            {
                ledger.change(change.slot, &change.amount, -factor);
            }
        }
        self.open_marks = self.open_marks.saturating_sub(1);
    }

    /// Whether every domain of `uses` exists and has room for the pods.
    pub fn fits(&self, uses: &[TasUse]) -> bool {
        uses.iter().all(|usage| {
            let Some(flavor) = self.flavors.get(&usage.flavor) else {
                return false;
            };
            flavor.tree.leaf(&usage.domain).and_then(|leaf| self.remaining(flavor, leaf, false)).is_some_and(
                |remaining| usage.per_pod.count_in(|resource| remaining.get(resource)) >= usage.count,
            )
        })
    }

    /// What is left of a leaf.
    pub(super) fn remaining(
        &self,
        flavor: &TasFlavor,
        leaf: usize,
        simulate_empty: bool,
    ) -> Option<Requests> {
        let mut remaining = flavor.tree.leaves.get(leaf)?.free.clone();
        if !simulate_empty && let Some(used) = self.leaf_usage(flavor, leaf) {
            remaining.sub(used);
        }
        Some(remaining)
    }

    /// The ledger of a flavor.
    pub(super) fn ledger(&self, flavor: &TasFlavor) -> Option<&Ledger> {
        self.ledgers.get(flavor.ledger)
    }

    /// What workloads use of a leaf.
    pub fn leaf_usage(&self, flavor: &TasFlavor, leaf: usize) -> Option<&Requests> {
        let slot = *flavor.slots.get(leaf)?;
        self.ledgers.get(flavor.ledger)?.usage(slot)
    }

    /// Places the pod sets of one workload that use the same flavor, in order; stops at the first
    /// that cannot be placed. What is placed counts as `assumed` for those that follow.
    pub fn place(
        &self,
        id: FlavorId,
        requests: &[PlacementRequest<'_>],
        options: PlaceOptions<'_>,
        assumed: &mut Assumed,
        context: (&Names, &Gates),
    ) -> Vec<Placement> {
        let Some(flavor) = self.flavors.get(&id) else {
            return Vec::new();
        };
        Placer::new(self, (id, flavor), options, context).place_all(requests, assumed)
    }

    /// Whether a pod set could be placed if it was alone, without saying where: much cheaper than
    /// [`Tas::place`], and the same answer.
    pub fn has_room(
        &self,
        id: FlavorId,
        request: &PlacementRequest<'_>,
        options: PlaceOptions<'_>,
        context: (&Names, &Gates),
    ) -> bool {
        self.flavors
            .get(&id)
            .is_some_and(|flavor| Placer::new(self, (id, flavor), options, context).has_room(request))
    }

    pub(super) fn assume(
        flavor: &TasFlavor,
        assumed: &mut Assumed,
        assignment: &TopologyAssignment,
        per_pod: &Requests,
    ) {
        for domain in &assignment.domains {
            let Some(leaf) = flavor.tree.leaf(&domain.domain_id()) else {
                continue;
            };
            if let Some(slot) = flavor.slots.get(leaf) {
                let mut amount = per_pod.times(i64::from(domain.count));
                let pods = amount.get(ResourceId::PODS).saturating_add(i64::from(domain.count));
                amount.set(ResourceId::PODS, pods);
                assumed.add(flavor.ledger, *slot, &amount);
            }
        }
    }
}
