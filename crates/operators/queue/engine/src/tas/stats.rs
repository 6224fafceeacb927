//! Why nodes were left out of a placement, counted for the message people read.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::names::ResourceId;

/// The resource every leaf lacks that can take no pod, and how many leaves lack it. Kept with the counts of
/// pods, so that a message about missing room costs no iteration over nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Shortages {
    by_leaf: Vec<Option<ResourceId>>,
    counts: BTreeMap<ResourceId, usize>,
}

impl Shortages {
    pub(super) fn none(leaves: usize) -> Self {
        Self { by_leaf: vec![None; leaves], counts: BTreeMap::new() }
    }

    /// Records what a leaf lacks; returns what it lacked before.
    pub(super) fn set(&mut self, leaf: usize, lacking: Option<ResourceId>) -> Option<ResourceId> {
        let known = self.by_leaf.get_mut(leaf)?;
        let before = std::mem::replace(known, lacking);
        if before != lacking {
            if let Some(count) = before.and_then(|before| self.counts.get_mut(&before)) {
                *count -= 1;
            }
            if let Some(lacking) = lacking {
                *self.counts.entry(lacking).or_default() += 1;
            }
        }
        before
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ResourceId, usize)> {
        self.counts.iter().map(|(id, count)| (*id, *count)).filter(|(_, count)| *count > 0)
    }
}

/// Counts of nodes by what excluded them.
#[derive(Clone, Debug, Default)]
pub(super) struct Exclusions {
    pub(super) total: usize,
    pub(super) node_selector: usize,
    pub(super) affinity: usize,
    pub(super) domain: usize,
    pub(super) taints: BTreeMap<String, usize>,
    pub(super) resources: BTreeMap<String, usize>,
}

impl Exclusions {
    /// Appends the summary, if anything was excluded.
    pub(super) fn append_to(&self, message: &mut String) {
        let mut reasons = Vec::new();
        for (label, count) in [
            ("nodeSelector", self.node_selector),
            ("affinity", self.affinity),
            ("topologyDomain", self.domain),
        ] {
            if count > 0 {
                reasons.push(format!("{label}: {count}"));
            }
        }
        reasons.extend(self.taints.iter().map(|(taint, count)| format!("taint \"{taint}\": {count}")));
        reasons.extend(self.resources.iter().map(|(name, count)| format!("resource \"{name}\": {count}")));
        if !reasons.is_empty() {
            reasons.sort();
            let _ = write!(message, ". Total nodes: {}; excluded: {}", self.total, reasons.join(", "));
        }
    }
}
