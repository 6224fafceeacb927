//! Why nodes were left out of a placement, counted for the message people read.

use std::collections::BTreeMap;
use std::fmt::Write;

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
