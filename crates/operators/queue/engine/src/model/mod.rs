//! The objects the engine decides about, reduced to what decisions need.

mod queue;
mod workload;

pub use queue::{
    BorrowWithinCohort, CheckRule, CohortSpec, Flavor, FlavorQuotas, FungibilityPolicy, LocalQueue,
    Preemption, PreemptionPolicy, QueueSpec, Quota, ResourceGroup, Strategy,
};
pub use workload::{
    Admission, Check, CheckState, Condition, ConditionReason, Delayed, Demand, Links, PodSet,
    PodSetAdmission, PodSetUpdate, PodShape, ShapeHash, SliceLayer, TopologyRequest, Workload, WorkloadKey,
};

use crate::names::{FlavorId, ResourceId};

/// A flavor of a resource: what quota is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fr {
    /// The flavor.
    pub flavor: FlavorId,
    /// The resource.
    pub resource: ResourceId,
}

/// Quota amounts per flavor and resource, in the order they were first met.
pub type Usage = Vec<(Fr, crate::amount::Amount)>;

/// Adds `amount` to the entry of `fr`.
pub fn add_usage(usage: &mut Usage, fr: Fr, amount: crate::amount::Amount) {
    match usage.iter_mut().find(|(key, _)| *key == fr) {
        Some((_, sum)) => *sum += amount,
        None => usage.push((fr, amount)),
    }
}

/// The amount listed for `fr`, or zero.
pub fn usage_of(usage: &Usage, fr: Fr) -> crate::amount::Amount {
    usage.iter().find(|(key, _)| *key == fr).map_or(crate::amount::Amount::ZERO, |(_, sum)| *sum)
}
