//! Topology aware scheduling: nodes as a tree of domains, and pods placed into its leaves.
//!
//! A flavor with a topology sees the ready nodes that carry its labels as a [`Tree`]. What
//! admitted workloads use of a leaf is kept in a ledger that flavors sharing nodes
//! share. Placement counts how many pods fit into every leaf, sums that up the tree,
//! picks domains at the requested level and descends to leaves.

mod balanced;
mod cache;
mod counting;
mod elastic;
mod message;
mod params;
mod placement;
mod replacement;
mod state;
mod stats;
mod tree;
mod usage;

use std::sync::Arc;

use quintet_api::kueue::{Domain, v1beta2};

pub use placement::{Placement, PlacementRequest};
pub use state::{NodeInfo, PlaceOptions, Tas, TasFlavor, TasMark};
pub use tree::{DomainIdx, DomainState, Tree};
pub use usage::{Assumed, LeafUse, TasUse};

/// The label of the level whose domains are single nodes.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Pods in one domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DomainAssignment {
    /// The domain, by its value at every level of the assignment.
    pub values: Vec<Arc<str>>,
    /// How many pods.
    pub count: i32,
}

impl DomainAssignment {
    /// The domain's id.
    pub fn domain_id(&self) -> String {
        join(&self.values)
    }
}

/// Where the pods of a pod set run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyAssignment {
    /// The levels that name a domain: all, or only the host when hosts are the lowest level.
    pub levels: Vec<Arc<str>>,
    /// The domains, in order.
    pub domains: Vec<DomainAssignment>,
}

impl TopologyAssignment {
    /// Reads the compact form of the API; `None` if it promises more than it has.
    pub fn decoded(encoded: &v1beta2::TopologyAssignment) -> Option<Self> {
        let domains = encoded.domains()?.into_iter().map(|(values, count)| DomainAssignment {
            values: values.into_iter().map(Into::into).collect(),
            count,
        });
        Some(Self {
            domains: domains.collect(),
            levels: encoded.levels.iter().map(|level| level.as_str().into()).collect(),
        })
    }

    /// The compact form of the API: in runs of hosts whose names begin alike, or all in one slice.
    pub fn encoded(&self, in_runs: bool) -> v1beta2::TopologyAssignment {
        let (levels, domains) = self.plain();
        if in_runs {
            v1beta2::TopologyAssignment::from_domains(levels, &domains)
        } else {
            v1beta2::TopologyAssignment::in_fewest_slices(levels, &domains)
        }
    }

    /// Levels and domains as the compact form takes them.
    pub fn plain(&self) -> (Vec<String>, Vec<Domain<Arc<str>>>) {
        let levels = self.levels.iter().map(ToString::to_string).collect();
        (levels, self.domains.iter().map(|domain| (domain.values.clone(), domain.count)).collect())
    }

    /// All pods.
    pub fn pods(&self) -> i32 {
        self.domains.iter().map(|domain| domain.count).sum()
    }

    /// The first `count` pods.
    #[must_use]
    pub fn truncated(&self, count: i32) -> Self {
        let mut left = count;
        let mut domains = Vec::new();
        for domain in &self.domains {
            if left <= 0 {
                break;
            }
            let taken = domain.count.min(left);
            domains.push(DomainAssignment { values: domain.values.clone(), count: taken });
            left -= taken;
        }
        Self { levels: self.levels.clone(), domains }
    }
}

/// The id of the domain with these values.
pub(crate) fn join(values: &[Arc<str>]) -> String {
    values.join(",")
}
