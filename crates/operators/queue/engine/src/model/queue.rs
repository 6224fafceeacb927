//! Queues, cohorts and flavors.

use std::sync::Arc;

use crate::amount::Amount;
use crate::labels::{Labels, Selector, Taint, Toleration};
use crate::names::{CohortId, FlavorId, QueueId, ResourceId, TopologyId};

/// Quota of one flavor of one resource at a node of the cohort tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// What the node owns.
    pub nominal: Amount,
    /// How much more it may use; `None` is as much as there is.
    pub borrowing_limit: Option<Amount>,
    /// How much of its own others may use; `None` is all.
    pub lending_limit: Option<Amount>,
}

/// The quotas of one flavor in a resource group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// The flavor.
    pub flavor: FlavorId,
    /// Quota per resource of the group.
    pub quotas: Vec<(ResourceId, Quota)>,
}

/// Resources that must come from the same flavor, and the flavors they may come from, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGroup {
    /// The resources.
    pub resources: Vec<ResourceId>,
    /// The flavors, most wanted first.
    pub flavors: Vec<FlavorQuotas>,
}

impl ResourceGroup {
    /// One resource from one flavor.
    pub fn single(resource: ResourceId, flavor: FlavorId, quota: Quota) -> Self {
        let flavors = vec![FlavorQuotas { flavor, quotas: vec![(resource, quota)] }];
        Self { resources: vec![resource], flavors }
    }
}

/// How a queue treats a head that cannot be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// It blocks those behind it.
    StrictFifo,
    /// It steps aside.
    BestEffortFifo,
    /// Not set: as best effort, but without the bulk treatment of equivalent workloads.
    Unset,
}

/// Which workloads may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Those of lower priority, or of the same and queued later.
    LowerOrNewerEqualPriority,
    /// Any.
    Any,
    /// Not set, on an object that did not pass API defaulting: a policy that allows no victims.
    Unset,
}

/// Preemption of other queues' workloads while borrowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowWithinCohort {
    /// Whether the policy is `Never`.
    pub never: bool,
    /// Only workloads of at most this priority.
    pub max_priority: Option<i32>,
}

/// A queue's preemption policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// Among its own workloads.
    pub within_queue: PreemptionPolicy,
    /// Among the workloads of queues that borrowed its quota.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// While it borrows itself.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

impl Preemption {
    /// The priority threshold under which a borrowing queue may preempt, or `None` if it may not at all.
    pub fn borrowing_threshold(&self) -> Option<Option<i32>> {
        self.borrow_within_cohort.filter(|policy| !policy.never).map(|policy| policy.max_priority)
    }
}

/// When flavor search goes on although the current flavor would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FungibilityPolicy {
    /// Try the next flavor rather than borrow in this one.
    pub try_next_before_borrowing: bool,
    /// Try the next flavor rather than preempt in this one.
    pub try_next_before_preempting: bool,
    /// Rank flavors by borrowing first and preemption second.
    pub preemption_over_borrowing: bool,
}

impl Default for FungibilityPolicy {
    fn default() -> Self {
        Self {
            try_next_before_borrowing: false,
            try_next_before_preempting: true,
            preemption_over_borrowing: false,
        }
    }
}

/// An admission check of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRule {
    /// The name of the check.
    pub name: Arc<str>,
    /// The flavors it applies to; empty is all of the queue's.
    pub flavors: Vec<FlavorId>,
}

/// A ClusterQueue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// Its id.
    pub id: QueueId,
    /// The cohort it belongs to.
    pub cohort: Option<CohortId>,
    /// What a blocked head does.
    pub strategy: Strategy,
    /// Namespaces it serves; `None` is none.
    pub namespaces: Option<Selector>,
    /// Resource groups.
    pub groups: Vec<ResourceGroup>,
    /// Flavor search policies.
    pub fungibility: FungibilityPolicy,
    /// Preemption policies.
    pub preemption: Preemption,
    /// Fair sharing weight.
    pub weight: f64,
    /// Whether its LocalQueues share fairly at admission.
    pub usage_based_admission: bool,
    /// Whether it is stopped.
    pub stopped: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Admission checks.
    pub checks: Vec<CheckRule>,
    /// With a concurrent admission policy: the last flavor a workload may migrate to.
    pub migration: Option<Option<FlavorId>>,
}

impl QueueSpec {
    /// A queue of this name that owns nothing.
    pub fn new(id: QueueId) -> Self {
        Self {
            id,
            cohort: None,
            strategy: Strategy::BestEffortFifo,
            namespaces: Some(Selector::default()),
            groups: Vec::new(),
            fungibility: FungibilityPolicy::default(),
            preemption: Preemption::default(),
            weight: 1.0,
            usage_based_admission: false,
            stopped: false,
            terminating: false,
            checks: Vec::new(),
            migration: None,
        }
    }

    /// The group that covers a resource.
    pub fn group_of(&self, resource: ResourceId) -> Option<&ResourceGroup> {
        self.groups.iter().find(|group| group.resources.contains(&resource))
    }

    /// All flavors, group by group.
    pub fn flavors(&self) -> impl Iterator<Item = FlavorId> + '_ {
        self.groups.iter().flat_map(|group| group.flavors.iter().map(|quotas| quotas.flavor))
    }

    /// All quotas.
    pub fn quotas(&self) -> impl Iterator<Item = (super::Fr, Quota)> + '_ {
        quotas(&self.groups)
    }
}

/// The quotas of a list of resource groups.
fn quotas(groups: &[ResourceGroup]) -> impl Iterator<Item = (super::Fr, Quota)> + '_ {
    groups.iter().flat_map(|group| &group.flavors).flat_map(|quotas| {
        let flavor = quotas.flavor;
        quotas.quotas.iter().map(move |(resource, quota)| (super::Fr { flavor, resource: *resource }, *quota))
    })
}

/// A Cohort object.
#[derive(Clone, Debug, PartialEq)]
pub struct CohortSpec {
    /// Its id.
    pub id: CohortId,
    /// The cohort above.
    pub parent: Option<CohortId>,
    /// Quota of its own.
    pub groups: Vec<ResourceGroup>,
    /// Fair sharing weight.
    pub weight: f64,
}

impl CohortSpec {
    /// All quotas.
    pub fn quotas(&self) -> impl Iterator<Item = (super::Fr, Quota)> + '_ {
        quotas(&self.groups)
    }
}

/// A ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flavor {
    /// Labels of its nodes.
    pub node_labels: Labels,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// Tolerations every pod placed on it receives.
    pub tolerations: Vec<Toleration>,
    /// The topology of its nodes.
    pub topology: Option<TopologyId>,
}

/// A LocalQueue.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalQueue {
    /// The queue it feeds.
    pub queue: QueueId,
    /// Its weight in admission fair sharing.
    pub weight: f64,
    /// Whether it is stopped.
    pub stopped: bool,
}

impl LocalQueue {
    /// One that feeds this queue and is like any other.
    pub const fn feeding(queue: QueueId) -> Self {
        Self { queue, weight: 1.0, stopped: false }
    }
}
