//! Feature gates and configuration that change decisions, with the defaults of Kueue's
//! `pkg/features/kube_features.go` and `apis/config/v1beta2/defaults.go`.

use std::collections::BTreeMap;

use crate::ingest::RequestOptions;
use crate::names::ResourceId;
use crate::time::Span;

macro_rules! gates {
    ($($(#[$doc:meta])* $field:ident = $name:literal, $default:literal;)+) => {
        /// Feature gates that change scheduling decisions. Gates not listed here do not reach the engine.
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct Gates {
            $($(#[$doc])* pub $field: bool,)+
        }

        impl Default for Gates {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Gates {
            /// Sets a gate by its upstream name; false if the engine has no such gate.
            pub fn set(&mut self, name: &str, on: bool) -> bool {
                match name {
                    $($name => self.$field = on,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

gates! {
    /// Admit fewer pods than requested, down to the minimum of a pod set.
    partial_admission = "PartialAdmission", true;
    /// Flavor search follows the queue's fungibility policies and resumes where it stopped.
    flavor_fungibility = "FlavorFungibility", true;
    /// Flavor search progress survives being skipped.
    preserve_scan_progress = "FlavorFungibilityPreserveScanProgress", true;
    /// Priority orders entries across queues.
    priority_sorting_within_cohort = "PrioritySortingWithinCohort", true;
    /// A queue within its nominal quota preempts whatever its share is.
    fair_sharing_preempt_within_nominal = "FairSharingPreemptWithinNominal", true;
    /// Entries that do not borrow go before those that do.
    fair_sharing_prioritize_non_borrowing = "FairSharingPrioritizeNonBorrowing", true;
    /// Entries whose targets were taken by another entry are evaluated again.
    recompute_on_overlap = "RecomputeAssignmentUponPreemptionTargetsOverlap", true;
    /// Entries whose nodes were taken by another entry are evaluated again.
    tas_recompute_in_cycle = "TASRecomputeAssignmentWithinSchedulingCycle", true;
    /// Workloads of the same shape become inadmissible together.
    equivalence_hashing = "SchedulingEquivalenceHashing", true;
    /// Granular reasons on unadmitted workloads.
    observability = "UnadmittedWorkloadsObservability", true;
    /// Write the unadmitted conditions at the first reconcile.
    explicit_status = "UnadmittedWorkloadsExplicitStatus", false;
    /// Topology aware scheduling.
    tas = "TopologyAwareScheduling", true;
    /// Unconstrained placement prefers the least free capacity.
    tas_profile_mixed = "TASProfileMixed", true;
    /// Replace failed nodes of admitted workloads.
    tas_failed_node_replacement = "TASFailedNodeReplacement", true;
    /// Evict at once when a failed node cannot be replaced.
    tas_fail_fast = "TASFailedNodeReplacementFailFast", true;
    /// Several slice layers in one pod set.
    tas_multi_layer = "TASMultiLayerTopology", true;
    /// Flavors that share nodes share their usage.
    tas_overlapping_flavors = "TASHandleOverlappingFlavors", true;
    /// Encode assignments in runs of hosts with a common prefix.
    tas_prefix_encoding = "TASAssignmentsEncodingByHostnamePrefix", true;
    /// Workloads owned by one pod keep their placement when a node fails.
    skip_reassignment_for_pod_owned = "SkipReassignmentForPodOwnedWorkloads", true;
    /// Spread pods evenly for preferred requests.
    tas_balanced_placement = "TASBalancedPlacement", false;
    /// Preferred node affinity orders domains.
    tas_preferred_affinity = "TASRespectNodeAffinityPreferred", false;
    /// Elastic workload slices.
    elastic_slices = "ElasticJobsViaWorkloadSlices", true;
    /// Elastic workload slices with topology.
    elastic_slices_tas = "ElasticJobsViaWorkloadSlicesWithTAS", false;
    /// Several variants of a workload compete for flavors.
    concurrent_admission = "ConcurrentAdmission", false;
    /// Preemption gates opened from outside.
    orchestrated_preemption = "MultiKueueOrchestratedPreemption", false;
    /// The priority boost annotation counts.
    priority_boost = "PriorityBoost", false;
    /// Workloads waiting for their victims go first.
    prioritize_preemptors = "PrioritizePreemptorWorkloads", false;
    /// Finished pods give their quota back.
    reclaimable_pods = "ReclaimablePods", true;
    /// The admission gate annotation counts.
    admission_gated_by = "AdmissionGatedBy", true;
    /// Order by the historical usage of LocalQueues.
    admission_fair_sharing = "AdmissionFairSharing", true;
    /// Undeclared resources may be ignored.
    quota_check_strategy = "QuotaCheckStrategy", true;
    /// Resource claims count as quota.
    dra = "KueueDRAIntegration", true;
    /// Extended resources that a DeviceClass stands for count as its devices.
    dra_extended_resources = "KueueDRAIntegrationExtendedResource", true;
    /// Counters of devices count as quota.
    dra_counters = "KueueDRAIntegrationPartitionableDevices", true;
    /// Capacities of devices count as quota.
    dra_capacity = "KueueDRAIntegrationConsumableCapacity", false;
    /// Without the integration, Workloads with claims are rejected.
    dra_reject_when_disabled = "KueueDRARejectWorkloadsWhenDRADisabled", true;
}

/// When a fair-sharing victim may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairStrategy {
    /// The preemptor's new share is at most the victim's share after losing the workload.
    LessThanOrEqualToFinalShare,
    /// The preemptor's new share is below the victim's share before losing the workload.
    LessThanInitialShare,
}

/// Ordering of LocalQueues by their decayed usage.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionFairSharing {
    /// After this long, consumed usage counts half.
    pub half_life: Span,
    /// How often usage is sampled.
    pub sampling_interval: Span,
    /// Weight per resource; one if not listed.
    pub resource_weights: BTreeMap<ResourceId, f64>,
}

/// What to do with requested resources no resource group of the queue declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaCheck {
    /// They block admission.
    #[default]
    BlockUndeclared,
    /// They are ignored.
    IgnoreUndeclared,
}

/// Which timestamp orders a workload that was evicted because its pods did not become ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequeuingTimestamp {
    /// The time of the eviction.
    #[default]
    Eviction,
    /// The time of creation.
    Creation,
}

/// Everything configurable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Feature gates.
    pub gates: Gates,
    /// Fair sharing between queues; the strategies in order. `None` is classical.
    pub fair_sharing: Option<Vec<FairStrategy>>,
    /// Fair sharing between LocalQueues at admission.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Undeclared resources.
    pub quota_check: QuotaCheck,
    /// Hold admission until the pods of all admitted workloads are ready.
    pub block_admission: bool,
    /// Order of workloads evicted for unready pods.
    pub requeuing_timestamp: RequeuingTimestamp,
    /// What changes requests before they count against quota.
    pub requests: RequestOptions,
}

impl Settings {
    /// The two strategies used when fair sharing is configured without any.
    pub const DEFAULT_STRATEGIES: [FairStrategy; 2] =
        [FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];

    /// Whether undeclared resources are ignored.
    pub fn ignores_undeclared(&self) -> bool {
        self.gates.quota_check_strategy && self.quota_check == QuotaCheck::IgnoreUndeclared
    }

    /// Whether queues share fairly.
    pub fn is_fair(&self) -> bool {
        self.fair_sharing.is_some()
    }

    /// Admission fair sharing, if its gate is on and it is configured.
    pub fn afs(&self) -> Option<&AdmissionFairSharing> {
        self.admission_fair_sharing.as_ref().filter(|_| self.gates.admission_fair_sharing)
    }
}
