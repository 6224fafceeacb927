//! The quota tree: ClusterQueues are leaves, Cohorts are inner nodes, and usage that exceeds what a
//! node keeps for itself bubbles up to its parent.
//!
//! ```text
//! subtree(queue)  = nominal
//! subtree(cohort) = nominal + Σ children (subtree − local)
//! local(n)        = lending limit ? max(0, subtree − limit) : 0        never visible to the parent
//! usage(cohort)   = Σ children max(0, usage − local)
//! ```
//!
//! Usage is kept incrementally: a change touches one cell per level of the tree. Trying something out
//! costs the same: changes made after a [`Mark`] are journaled and [`QuotaTree::rollback`] undoes them.

mod usage;

pub use usage::Mark;

use crate::amount::Amount;
use crate::model::{Fr, Quota, Usage};
use crate::names::{CohortId, QueueId, ResourceId};

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A ClusterQueue.
    Queue(QueueId),
    /// A Cohort.
    Cohort(CohortId),
}

/// One flavor of one resource at one node.
#[derive(Clone, Copy, Debug)]
struct Cell {
    fr: Fr,
    quota: Quota,
    subtree: Amount,
    usage: Amount,
    /// Whether some quota of the subtree mentions it; usage alone does not.
    quoted: bool,
    /// Position of the same flavor and resource in the parent's cells.
    up: Option<u32>,
}

impl Cell {
    const fn empty(fr: Fr) -> Self {
        Self {
            fr,
            quota: Quota { nominal: Amount::ZERO, borrowing_limit: None, lending_limit: None },
            subtree: Amount::ZERO,
            usage: Amount::ZERO,
            quoted: false,
            up: None,
        }
    }

    fn local(&self) -> Amount {
        self.quota.lending_limit.map_or(Amount::ZERO, |limit| (self.subtree - limit).floor_zero())
    }

    fn local_available(&self) -> Amount {
        (self.local() - self.usage).floor_zero()
    }
}

#[derive(Clone, Debug)]
struct Node {
    kind: NodeKind,
    parent: Option<NodeId>,
    children: Vec<NodeId>,
    quotas: Vec<(Fr, Quota)>,
    cells: Vec<Cell>,
    weight: f64,
    /// Queues that cannot admit are no children for heights and candidates, but their quota counts.
    active: bool,
    /// For queues: counts changes of what could be allocated.
    generation: i64,
    /// Levels of cohorts below, zero for a cohort without children.
    height: u32,
    /// What a child could borrow at most, per resource; depends on quotas only.
    lendable: Vec<(ResourceId, Amount)>,
}

/// The tree of all queues and cohorts.
#[derive(Clone, Debug, Default)]
pub struct QuotaTree {
    nodes: Vec<Node>,
    /// Nodes of queues that are gone.
    free: Vec<NodeId>,
    journal: Vec<usage::Undo>,
    /// Marks not yet rolled back.
    open_marks: u32,
}

impl QuotaTree {
    /// Adds a node without parent and quota.
    #[expect(clippy::cast_possible_truncation, reason = "nodes are counted in thousands")]
    pub fn add(&mut self, kind: NodeKind) -> NodeId {
        let node = Node {
            kind,
            parent: None,
            children: Vec::new(),
            quotas: Vec::new(),
            cells: Vec::new(),
            weight: 1.0,
            active: true,
            generation: 0,
            height: 0,
            lendable: Vec::new(),
        };
        if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Takes a queue out of its tree; another one may get its node.
    pub fn remove(&mut self, id: NodeId) {
        let root = self.root(id);
        self.clear_usage(id);
        self.set_quotas(id, []);
        self.set_parent(id, None);
        self.set_active(id, false);
        if root != id {
            self.rebuild(root);
        }
        self.free.push(id);
    }

    /// How many nodes there are, those of queues that are gone included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node yet.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "node ids come from `add` and nodes are used again, never dropped"
    )]
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "node ids come from `add` and nodes are used again, never dropped"
    )]
    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// What the node stands for.
    pub fn kind(&self, id: NodeId) -> NodeKind {
        self.node(id).kind
    }

    /// The queue at this node.
    pub fn queue_at(&self, id: NodeId) -> Option<QueueId> {
        match self.node(id).kind {
            NodeKind::Queue(queue) => Some(queue),
            NodeKind::Cohort(_) => None,
        }
    }

    /// The node above.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id).parent
    }

    /// The nodes from the parent to the root.
    pub fn ancestors(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.parent(id), |node| self.parent(*node))
    }

    /// The root of the tree the node is in.
    pub fn root(&self, id: NodeId) -> NodeId {
        self.ancestors(id).last().unwrap_or(id)
    }

    /// The cohorts directly below.
    pub fn child_cohorts(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.node(id).children.iter().copied().filter(|child| self.queue_at(*child).is_none())
    }

    /// The queues directly below that can admit.
    pub fn child_queues(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.node(id)
            .children
            .iter()
            .copied()
            .filter(|child| self.queue_at(*child).is_some() && self.is_active(*child))
    }

    /// All queues below that can admit, in a fixed order.
    pub fn queues_below(&self, id: NodeId) -> Vec<NodeId> {
        let mut found: Vec<_> = self.child_queues(id).collect();
        let cohorts: Vec<_> = self.child_cohorts(id).collect();
        for cohort in cohorts {
            found.extend(self.queues_below(cohort));
        }
        found
    }

    /// All queues below, whether they can admit or not.
    pub fn all_queues_below(&self, id: NodeId) -> Vec<QueueId> {
        let mut found = Vec::new();
        for child in &self.node(id).children {
            match self.kind(*child) {
                NodeKind::Queue(queue) => found.push(queue),
                NodeKind::Cohort(_) => found.extend(self.all_queues_below(*child)),
            }
        }
        found
    }

    /// Whether the node has children at all.
    pub fn has_children(&self, id: NodeId) -> bool {
        !self.node(id).children.is_empty()
    }

    /// Whether the queue can admit.
    pub fn is_active(&self, id: NodeId) -> bool {
        self.node(id).active
    }

    /// Sets whether the queue can admit.
    pub fn set_active(&mut self, id: NodeId, active: bool) {
        if self.node(id).active != active {
            self.node_mut(id).active = active;
            if let Some(parent) = self.parent(id) {
                self.refresh_heights(parent);
            }
        }
    }

    fn refresh_heights(&mut self, from: NodeId) {
        let mut next = Some(from);
        while let Some(id) = next {
            self.node_mut(id).height = self.own_height(id);
            next = self.parent(id);
        }
    }

    fn own_height(&self, id: NodeId) -> u32 {
        let below = self.child_cohorts(id).map(|child| self.node(child).height + 1).max();
        below.unwrap_or_else(|| u32::from(self.child_queues(id).next().is_some()))
    }

    /// How many levels of cohorts lie below, counting this one.
    pub fn height(&self, id: NodeId) -> u32 {
        self.node(id).height
    }

    /// The fair sharing weight.
    pub fn weight(&self, id: NodeId) -> f64 {
        self.node(id).weight
    }

    /// Sets the fair sharing weight.
    pub fn set_weight(&mut self, id: NodeId, weight: f64) {
        self.node_mut(id).weight = weight;
    }

    /// How often what a queue could allocate has changed.
    pub fn generation(&self, id: NodeId) -> i64 {
        self.node(id).generation
    }

    /// Counts a change of what the queue could allocate.
    pub fn bump_generation(&mut self, id: NodeId) {
        self.node_mut(id).generation += 1;
    }

    /// Replaces a node's own quotas; [`QuotaTree::rebuild`] makes them count.
    pub fn set_quotas(&mut self, id: NodeId, quotas: impl IntoIterator<Item = (Fr, Quota)>) {
        self.node_mut(id).quotas = quotas.into_iter().collect();
    }

    /// Moves a node under another parent, which must not be below it; [`QuotaTree::rebuild`] of both trees makes it count.
    pub fn set_parent(&mut self, id: NodeId, parent: Option<NodeId>) {
        let old = std::mem::replace(&mut self.node_mut(id).parent, parent);
        if old == parent {
            return;
        }
        if let Some(old) = old {
            self.node_mut(old).children.retain(|child| *child != id);
        }
        if let Some(parent) = parent {
            self.node_mut(parent).children.push(id);
        }
    }

    /// Recomputes everything derived in the tree of `id`: subtree quotas, cohort usage, heights.
    pub fn rebuild(&mut self, id: NodeId) {
        let root = self.root(id);
        self.rebuild_below(root);
        self.relink(root);
        let frs = self.quoted_frs(root);
        self.refresh_lendable(root, &frs);
    }

    fn rebuild_below(&mut self, id: NodeId) {
        let is_queue = self.queue_at(id).is_some();
        let children = self.node(id).children.clone();
        for child in &children {
            self.rebuild_below(*child);
        }
        let mut cells: Vec<Cell> = Vec::new();
        let node = self.node(id);
        for (fr, quota) in &node.quotas {
            let cell = cell_for(&mut cells, *fr);
            (cell.quota, cell.subtree, cell.quoted) = (*quota, quota.nominal, true);
        }
        if is_queue {
            for old in node.cells.iter().filter(|cell| cell.usage != 0) {
                cell_for(&mut cells, old.fr).usage = old.usage;
            }
        }
        for child in children {
            for below in &self.node(child).cells {
                let cell = cell_for(&mut cells, below.fr);
                cell.subtree += below.subtree - below.local();
                cell.usage += (below.usage - below.local()).floor_zero();
                cell.quoted |= below.quoted;
            }
        }
        cells.sort_by_key(|cell| cell.fr);
        let height = self.own_height(id);
        let node = self.node_mut(id);
        node.cells = cells;
        node.height = if is_queue { 0 } else { height };
        node.generation += i64::from(is_queue);
    }

    fn relink(&mut self, id: NodeId) {
        for child in self.node(id).children.clone() {
            let links: Vec<_> = self.node(child).cells.iter().map(|cell| self.find(id, cell.fr)).collect();
            for (cell, link) in self.node_mut(child).cells.iter_mut().zip(links) {
                cell.up = link;
            }
            self.relink(child);
        }
        if self.parent(id).is_none() {
            for cell in &mut self.node_mut(id).cells {
                cell.up = None;
            }
        }
    }

    fn quoted_frs(&self, id: NodeId) -> Vec<Fr> {
        self.node(id).cells.iter().filter(|cell| cell.quoted).map(|cell| cell.fr).collect()
    }

    fn refresh_lendable(&mut self, id: NodeId, root_frs: &[Fr]) {
        if self.queue_at(id).is_some() {
            return;
        }
        let mut lendable: Vec<(ResourceId, Amount)> = Vec::new();
        for fr in root_frs {
            let potential = self.potential(id, *fr);
            match lendable.iter_mut().find(|(resource, _)| *resource == fr.resource) {
                Some((_, sum)) => *sum += potential,
                None => lendable.push((fr.resource, potential)),
            }
        }
        self.node_mut(id).lendable = lendable;
        for child in self.node(id).children.clone() {
            self.refresh_lendable(child, root_frs);
        }
    }

    /// What a child of this cohort could borrow at most, per resource.
    pub fn lendable(&self, id: NodeId) -> &[(ResourceId, Amount)] {
        &self.node(id).lendable
    }

    #[expect(clippy::cast_possible_truncation, reason = "a node has tens of cells")]
    fn find(&self, id: NodeId, fr: Fr) -> Option<u32> {
        self.node(id).cells.iter().position(|cell| cell.fr == fr).map(|at| at as u32)
    }

    fn cell(&self, id: NodeId, at: Option<u32>, fr: Fr) -> Cell {
        at.and_then(|at| self.node(id).cells.get(at as usize)).copied().unwrap_or_else(|| Cell::empty(fr))
    }

    fn cell_of(&self, id: NodeId, fr: Fr) -> Cell {
        self.cell(id, self.find(id, fr), fr)
    }

    /// The parent's cell position for a cell of a child.
    fn up(&self, parent: NodeId, cell: &Cell) -> Option<u32> {
        cell.up.or_else(|| self.find(parent, cell.fr))
    }

    /// The node's own quota.
    pub fn quota(&self, id: NodeId, fr: Fr) -> Quota {
        self.cell_of(id, fr).quota
    }

    /// Quota of the node and of everything below it that is not kept back.
    pub fn subtree(&self, id: NodeId, fr: Fr) -> Amount {
        self.cell_of(id, fr).subtree
    }

    /// Usage at the node.
    pub fn usage(&self, id: NodeId, fr: Fr) -> Amount {
        self.cell_of(id, fr).usage
    }

    /// All flavors and resources some quota of the subtree mentions, with subtree quota and usage.
    pub fn quoted(&self, id: NodeId) -> impl Iterator<Item = (Fr, Amount, Amount)> + '_ {
        self.node(id).cells.iter().filter(|cell| cell.quoted).map(|cell| (cell.fr, cell.subtree, cell.usage))
    }

    /// All usage at the node that is not zero.
    pub fn usages(&self, id: NodeId) -> impl Iterator<Item = (Fr, Amount)> + '_ {
        self.node(id).cells.iter().filter(|cell| cell.usage != 0).map(|cell| (cell.fr, cell.usage))
    }

    /// Unused quota the node keeps for itself.
    pub fn local_available(&self, id: NodeId, fr: Fr) -> Amount {
        self.cell_of(id, fr).local_available()
    }

    /// Whether the node would use more than its subtree owns if it used `extra` more.
    pub fn is_borrowing_with(&self, id: NodeId, fr: Fr, extra: Amount) -> bool {
        let cell = self.cell_of(id, fr);
        let owned = if self.queue_at(id).is_some() { cell.quota.nominal } else { cell.subtree };
        owned < cell.usage + extra
    }

    /// Whether the node uses no more than its subtree owns of any of `frs`.
    pub fn is_within_quota(&self, id: NodeId, frs: &[Fr]) -> bool {
        frs.iter().all(|fr| {
            let cell = self.cell_of(id, *fr);
            cell.subtree >= cell.usage
        })
    }

    /// Whether `requests` fit into the subtree's quota on top of its usage, and what of them is left
    /// after the node's own unused quota.
    pub fn fit_in_quota(&self, id: NodeId, requests: &Usage) -> (bool, Usage) {
        let mut fits = true;
        let rest = requests
            .iter()
            .map(|(fr, value)| {
                let cell = self.cell_of(id, *fr);
                fits &= cell.subtree >= cell.usage + *value;
                (*fr, (*value - cell.local_available()).floor_zero())
            })
            .collect();
        (fits, rest)
    }

    /// What the node may still use; negative after quota cuts.
    pub fn available(&self, id: NodeId, fr: Fr) -> Amount {
        self.available_at(id, self.cell_of(id, fr))
    }

    fn available_at(&self, id: NodeId, cell: Cell) -> Amount {
        let Some(parent) = self.parent(id) else {
            return cell.subtree - cell.usage;
        };
        let above = self.available_at(parent, self.cell(parent, self.up(parent, &cell), cell.fr));
        let from_parent = match cell.quota.borrowing_limit {
            None => above,
            Some(limit) => {
                let local = cell.local();
                let stored = cell.subtree - local;
                let used = (cell.usage - local).floor_zero();
                above.min(stored - used + limit)
            }
        };
        cell.local_available() + from_parent
    }

    /// What the node could use if nothing was used.
    pub fn potential(&self, id: NodeId, fr: Fr) -> Amount {
        self.potential_at(id, self.cell_of(id, fr))
    }

    fn potential_at(&self, id: NodeId, cell: Cell) -> Amount {
        let Some(parent) = self.parent(id) else {
            return cell.subtree;
        };
        let above = self.potential_at(parent, self.cell(parent, self.up(parent, &cell), cell.fr));
        let most = cell.local() + above;
        cell.quota.borrowing_limit.map_or(most, |limit| most.min(cell.subtree + limit))
    }

    /// The height of the lowest subtree around the queue that has room for `value` within its own quota
    /// (zero if the queue itself has), and whether there is anything above to reclaim from.
    pub fn lowest_fitting_height(&self, queue: NodeId, fr: Fr, value: Amount) -> (u32, bool) {
        let has_parent = self.parent(queue).is_some();
        if !has_parent || !self.is_borrowing_with(queue, fr, value) {
            return (0, has_parent);
        }
        let mut rest = value - self.local_available(queue, fr);
        let mut top = queue;
        for node in self.ancestors(queue) {
            if !self.is_borrowing_with(node, fr, rest) {
                return (self.height(node), self.parent(node).is_some());
            }
            rest -= self.local_available(node, fr);
            top = node;
        }
        (self.height(top), false)
    }
}

fn cell_for(cells: &mut Vec<Cell>, fr: Fr) -> &mut Cell {
    let at = cells.iter().position(|cell| cell.fr == fr).unwrap_or_else(|| {
        cells.push(Cell::empty(fr));
        cells.len() - 1
    });
    #[expect(clippy::indexing_slicing, reason = "the position was found or pushed just above")]
    &mut cells[at]
}
