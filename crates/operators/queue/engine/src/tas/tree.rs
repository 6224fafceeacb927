//! The domains of a topology as an arena.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::state::NodeInfo;
use super::{HOSTNAME, join};
use crate::requests::Requests;

/// A domain's position in the arena. Within a level, positions follow the order of level values, so
/// comparing positions compares names.
pub type DomainIdx = usize;

/// How many pods of one request a domain could take, and while domains are chosen, what it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainState {
    /// Pods; after selection, the pods it got.
    pub pods: i32,
    /// Slices.
    pub slices: i32,
    /// Pods when it also hosts a leader.
    pub pods_with_leader: i32,
    /// Slices when it also hosts a leader.
    pub slices_with_leader: i32,
    /// Leaders it can host; after selection, those it got.
    pub leaders: i32,
    /// How well its nodes match preferred affinity.
    pub affinity: i64,
}

/// A domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Its id: the level values joined, or the host name alone.
    pub id: Arc<str>,
    /// Its value at every level down to its own.
    pub values: Vec<Arc<str>>,
    /// The domain above.
    pub parent: Option<DomainIdx>,
    /// The domains below, in order of values.
    pub children: Vec<DomainIdx>,
    /// Its position among the leaves.
    pub leaf: Option<usize>,
}

/// A lowest domain.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The domain.
    pub domain: DomainIdx,
    /// What its nodes have, without what pods outside the topology use.
    pub free: Requests,
    /// The only node, if hosts are the lowest level.
    pub node: Option<Arc<str>>,
}

/// The domains a flavor sees.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Node labels of the levels, highest first.
    pub levels: Vec<Arc<str>>,
    /// All domains.
    pub domains: Vec<Domain>,
    /// Domains of every level, in order of values.
    pub by_level: Vec<Vec<DomainIdx>>,
    /// The leaves, in order of values.
    pub leaves: Vec<Leaf>,
    leaf_by_id: HashMap<Arc<str>, usize>,
    /// Whether some node has a taint that keeps pods away.
    pub has_taints: bool,
}

impl Tree {
    /// Builds the tree of the given nodes; all carry every level label.
    pub fn build<'n>(levels: &[Arc<str>], nodes: impl Iterator<Item = &'n NodeInfo>) -> Self {
        let by_host = levels.last().is_some_and(|level| &**level == HOSTNAME);
        // Keyed by level values, so that positions come out in order.
        let mut leaves: BTreeMap<Vec<Arc<str>>, Leaf> = BTreeMap::new();
        let mut hosts: HashMap<Arc<str>, Vec<Arc<str>>> = HashMap::new();
        let mut has_taints = false;
        for node in nodes {
            has_taints |= !node.taints.is_empty();
            let mut values: Vec<Arc<str>> =
                levels.iter().filter_map(|level| node.labels.get(level).cloned()).collect();
            if by_host && let Some(host) = values.last() {
                let known = hosts.entry(Arc::clone(host)).or_insert_with(|| values.clone());
                values.clone_from(known);
            }
            let leaf = leaves.entry(values).or_insert_with(|| Leaf {
                domain: 0,
                free: Requests::new(),
                node: by_host.then(|| Arc::clone(&node.name)),
            });
            leaf.free.add(&node.allocatable);
            leaf.free.sub(&node.non_tas_usage);
        }
        let mut tree = Self { levels: levels.to_vec(), has_taints, ..Self::default() };
        tree.by_level = vec![Vec::new(); levels.len()];
        for (values, leaf) in leaves {
            tree.add_leaf(&values, leaf, by_host);
        }
        tree
    }

    /// Leaves arrive in order of values, so the last domain of a level is the only one to compare with.
    fn add_leaf(&mut self, values: &[Arc<str>], mut leaf: Leaf, by_host: bool) {
        let mut parent: Option<DomainIdx> = None;
        let lowest = values.len().saturating_sub(1);
        for depth in 0..values.len() {
            let path = values.get(..=depth).unwrap_or_default();
            let last = self.by_level.get(depth).and_then(|level| level.last().copied());
            let same =
                last.filter(|last| self.domains.get(*last).is_some_and(|domain| domain.values == path));
            let index = same.unwrap_or_else(|| {
                let index = self.domains.len();
                let host = path.last().filter(|_| by_host && depth == lowest);
                let id = host.map_or_else(|| join(path).into(), Arc::clone);
                self.domains.push(Domain {
                    id,
                    values: path.to_vec(),
                    parent,
                    children: Vec::new(),
                    leaf: None,
                });
                if let Some(level) = self.by_level.get_mut(depth) {
                    level.push(index);
                }
                if let Some(above) = parent.and_then(|parent| self.domains.get_mut(parent)) {
                    above.children.push(index);
                }
                index
            });
            parent = Some(index);
        }
        if let Some(domain) = parent {
            leaf.domain = domain;
            let position = self.leaves.len();
            if let Some(entry) = self.domains.get_mut(domain) {
                entry.leaf = Some(position);
                self.leaf_by_id.insert(Arc::clone(&entry.id), position);
            }
            self.leaves.push(leaf);
        }
    }

    /// Whether hosts are the lowest level.
    pub fn is_by_host(&self) -> bool {
        self.levels.last().is_some_and(|level| &**level == HOSTNAME)
    }

    /// The position of a level.
    pub fn level(&self, label: &str) -> Option<usize> {
        self.levels.iter().position(|level| &**level == label)
    }

    /// The leaf with this domain id.
    pub fn leaf(&self, id: &str) -> Option<usize> {
        self.leaf_by_id.get(id).copied()
    }

    /// A domain.
    #[expect(clippy::indexing_slicing, reason = "positions come from this arena")]
    pub fn domain(&self, index: DomainIdx) -> &Domain {
        &self.domains[index]
    }

    /// The domain of the leaf with this id.
    pub fn leaf_domain(&self, id: &str) -> Option<DomainIdx> {
        self.leaf(id).and_then(|leaf| self.leaves.get(leaf)).map(|leaf| leaf.domain)
    }

    /// The domain at `level` that contains a domain, or the domain itself if it is higher.
    pub fn ancestor_at(&self, mut index: DomainIdx, level: usize) -> DomainIdx {
        while self.domain(index).values.len() > level + 1 {
            match self.domain(index).parent {
                Some(parent) => index = parent,
                None => break,
            }
        }
        index
    }
}
