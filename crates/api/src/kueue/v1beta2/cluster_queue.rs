//! `ClusterQueue`: quota for a set of resources, and the rules by which workloads get it.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kueue::rules::{CLUSTER_QUEUE_SPEC, FLAVOR_FUNGIBILITY, PREEMPTION, RESOURCE_GROUP};
use crate::resource::resource;
use crate::schema::{at_most, dns_subdomain, each, map_by, rules, set};

resource! {
    /// A pool of quota that LocalQueues feed with workloads, with rules for order, borrowing and preemption.
    ClusterQueue in "kueue.x-k8s.io" "v1beta2", cluster "clusterqueues" {
        /// Quota and the rules for handing it out.
        #[serde(default)]
        spec: ClusterQueueSpec,
    }
    maybe {
        /// What is pending and in use, and whether the queue can admit.
        status: ClusterQueueStatus,
    }
}

/// The quota of a ClusterQueue and the rules for handing it out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(CLUSTER_QUEUE_SPEC))]
pub struct ClusterQueueSpec {
    /// Checks that must be Ready, besides quota, before a workload starts. Absent means quota alone decides.
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether LocalQueues that used less come first. Only matters if the manager configures admission fair
    /// sharing; absent means no.
    pub admission_scope: Option<AdmissionScope>,
    /// Cohort with which this queue lends and borrows unused quota. Absent means it stands alone; a Cohort
    /// object of this name need not exist.
    #[schemars(transform = dns_subdomain)]
    pub cohort_name: Option<String>,
    /// Tries every flavor of the queue at once for each workload; absent means one after the other. Fixed at
    /// creation; needs the feature gate ConcurrentAdmission, exactly one resource group, and BestEffortFIFO.
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
    /// How much of the cohort's spare quota this queue may claim. Only matters if the manager has fair
    /// sharing enabled.
    pub fair_sharing: Option<FairSharing>,
    /// Whether to look at the next flavor when the current one would need borrowing or preemption.
    #[schemars(extend("default" = {}))]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Namespaces whose workloads may be admitted. Absent selects none and `{}` selects all.
    pub namespace_selector: Option<LabelSelector>,
    /// When a pending workload may evict running ones. By default it never does.
    #[schemars(extend("default" = {}))]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Whether a workload that does not fit blocks those behind it: BestEffortFIFO (the default) or
    /// StrictFIFO.
    #[schemars(extend("default" = "BestEffortFIFO"))]
    pub queueing_strategy: Option<QueueingStrategy>,
    /// Quota, by groups of resources that share the same flavors. A resource or a flavor may be in one group
    /// only; by default, workloads requesting a resource without quota are not admitted.
    #[schemars(length(max = 16))]
    pub resource_groups: Option<Vec<ResourceGroup>>,
    /// Pauses the queue with Hold, or also evicts what runs with HoldAndDrain. None, the default, admits
    /// normally.
    #[schemars(extend("default" = "None"))]
    pub stop_policy: Option<StopPolicy>,
}

/// The checks of a ClusterQueue and the flavors each applies to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// Checks to pass, each for all flavors or for some. Several MultiKueue checks, or MultiKueue with
    /// provisioning, leave the queue inactive.
    #[schemars(length(min = 1, max = 64), transform = map_by(&["name"]))]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One check and the flavors it applies to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// AdmissionCheck to pass. While it is missing or not Active, the queue admits nothing.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// Flavors of this queue for which the check runs. Empty or absent means all of them; MultiKueue checks
    /// cannot be limited to flavors.
    #[schemars(length(max = 64), transform = set, transform = each(dns_subdomain))]
    pub on_flavors: Option<Vec<String>>,
}

/// How LocalQueues of one ClusterQueue compete with each other.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// Whether past usage of the LocalQueues orders their pending workloads.
    pub admission_mode: AdmissionMode,
}

/// Whether past usage of LocalQueues orders pending workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionMode {
    #[default]
    /// Workloads from the LocalQueue with the lowest recent usage for its weight go first, even before higher
    /// priority.
    UsageBasedAdmissionFairSharing,
    /// Priority and time alone order workloads, whichever LocalQueue they come from.
    NoAdmissionFairSharing,
}

/// How a workload that tries several flavors at once settles on one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionPolicy {
    /// What happens to the other attempts when one flavor admits the workload.
    pub migration: ConcurrentAdmissionMigration,
}

/// Whether an admitted workload may still move to a better flavor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionMigration {
    /// Limits on moving to other flavors. Only allowed with TryPreferredFlavors; absent means any better
    /// flavor will do.
    pub constraints: Option<ConcurrentAdmissionConstraints>,
    /// Whether to keep trying for a better flavor once one has admitted the workload.
    #[schemars(transform = at_most(253))]
    pub mode: ConcurrentAdmissionMode,
}

/// Limits on moving to other flavors.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionConstraints {
    /// Least preferred flavor still worth moving to; flavors listed after it are no migration targets. Absent
    /// means every flavor better than the current one.
    #[schemars(transform = dns_subdomain)]
    pub last_acceptable_flavor_name: Option<String>,
}

/// Whether a workload still moves after its first admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrentAdmissionMode {
    #[default]
    /// Flavors listed before the admitting one keep trying; when one succeeds, the workload is evicted and
    /// restarts there.
    TryPreferredFlavors,
    /// The flavor that admits first keeps the workload, and all other attempts stop.
    RetainFirstAdmission,
}

/// Claim of a queue or cohort on quota it shares with others.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// Relative claim on shared quota: 2 is entitled to twice as much as 1, the default. With 0 it comes last
    /// whenever it borrows; otherwise it must exceed 1n.
    #[schemars(extend("default" = 1))]
    pub weight: Option<Quantity>,
}

/// How far the search for a flavor goes; flavors are tried in the order of their list.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(FLAVOR_FUNGIBILITY))]
pub struct FlavorFungibility {
    /// Which flavor wins when none fits without cost. Only allowed when both policies are TryNextFlavor;
    /// absent means BorrowingOverPreemption.
    pub preference: Option<FlavorFungibilityPreference>,
    /// What to do when a flavor fits only by borrowing: MayStopSearch (the default) takes it, TryNextFlavor
    /// looks on.
    #[schemars(extend("default" = "MayStopSearch"))]
    pub when_can_borrow: Option<FlavorFungibilityPolicy>,
    /// What to do when a flavor fits only by preempting: TryNextFlavor (the default) looks on, MayStopSearch
    /// takes it.
    #[schemars(extend("default" = "TryNextFlavor"))]
    pub when_can_preempt: Option<FlavorFungibilityPolicy>,
}

/// Which cost to avoid first when choosing among flavors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FlavorFungibilityPreference {
    #[default]
    /// Prefers a flavor where borrowing spares a preemption; borrowing less decides among the rest.
    BorrowingOverPreemption,
    /// Prefers the flavor that borrows least, even if workloads must be preempted there.
    PreemptionOverBorrowing,
}

/// Whether the search for a flavor may end at one that has a cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FlavorFungibilityPolicy {
    #[default]
    /// Takes the flavor, so those after it are not tried.
    MayStopSearch,
    /// Looks at the remaining flavors and returns to this one if none is better.
    TryNextFlavor,
}

/// Whom a pending workload of this queue may evict.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(PREEMPTION))]
pub struct ClusterQueuePreemption {
    /// Whether a workload may evict others of the cohort even if it then runs on borrowed quota. Ignored
    /// under fair sharing; needs reclaimWithinCohort other than Never.
    #[schemars(extend("default" = {}))]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// Which workloads of other queues, running on borrowed quota, may be evicted to get this queue's nominal
    /// quota back. Default Never.
    #[schemars(extend("default" = "Never"))]
    pub reclaim_within_cohort: Option<ReclaimWithinCohortPolicy>,
    /// Which workloads of this same queue may be evicted for a pending one. Default Never.
    #[schemars(extend("default" = "Never"))]
    pub within_cluster_queue: Option<WithinClusterQueuePolicy>,
}

/// Whether a workload may preempt others in the cohort while borrowing itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// Highest priority a victim may have; those above it are spared. Absent means only the rule of lower
    /// priority applies.
    pub max_priority_threshold: Option<i32>,
    /// Never (the default) or LowerPriority.
    #[schemars(extend("default" = "Never"))]
    pub policy: Option<BorrowWithinCohortPolicy>,
}

/// Whether preemption in the cohort is allowed to a workload that itself needs to borrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum BorrowWithinCohortPolicy {
    #[default]
    /// A workload that must borrow preempts nobody in the cohort.
    Never,
    /// A borrowing workload may preempt those of strictly lower priority, up to maxPriorityThreshold.
    LowerPriority,
}

/// Which borrowers in the cohort may be evicted so that lent quota returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimWithinCohortPolicy {
    #[default]
    /// Waits until borrowers finish by themselves.
    Never,
    /// Evicts borrowers of strictly lower priority than the pending workload.
    LowerPriority,
    /// Evicts borrowers whatever their priority.
    Any,
}

/// Which workloads of the same queue may be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WithinClusterQueuePolicy {
    #[default]
    /// Evicts nothing in its own queue.
    Never,
    /// Evicts workloads of strictly lower priority.
    LowerPriority,
    /// Evicts workloads of lower priority, and those of equal priority that were queued later.
    LowerOrNewerEqualPriority,
}

/// What happens behind a workload that does not fit. Both strategies order by priority, then by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QueueingStrategy {
    /// The first workload blocks all behind it until it is admitted; only one from a namespace that does not
    /// match steps aside.
    StrictFIFO,
    #[default]
    /// Workloads behind one that does not fit may pass it; it is tried again when quota frees up.
    BestEffortFIFO,
}

/// Resources that always come from the same flavor, and the flavors that offer them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RESOURCE_GROUP))]
pub struct ResourceGroup {
    /// Resources this group gives quota for, such as `cpu`, `memory` or `nvidia.com/gpu`; `pods` limits the
    /// number of pods.
    #[schemars(length(min = 1, max = 64))]
    pub covered_resources: Vec<String>,
    /// Flavors in order of preference. Each lists exactly the covered resources, in the same order.
    #[schemars(length(min = 1, max = 64), transform = map_by(&["name"]))]
    pub flavors: Vec<FlavorQuotas>,
}

/// Quota for one flavor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// ResourceFlavor the quota is for. While no such object exists, the ClusterQueue admits nothing.
    #[schemars(transform = dns_subdomain)]
    pub name: String,
    /// Quota of each covered resource, in the order of coveredResources.
    #[schemars(length(min = 1, max = 64), transform = map_by(&["name"]))]
    pub resources: Vec<ResourceQuota>,
}

/// Quota of one resource in one flavor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// Most that may be used beyond nominalQuota, taken from unused quota of the cohort. Absent means no
    /// limit, 0 means no borrowing; needs a cohort.
    pub borrowing_limit: Option<Quantity>,
    /// Most of the unused nominalQuota that others in the cohort may borrow; the rest stays reserved. Absent
    /// means all of it; needs a cohort.
    pub lending_limit: Option<Quantity>,
    /// Resource, as pods name it in their requests.
    pub name: String,
    /// Amount owned here, such as `40` (cores, for cpu) or `256Gi`, usable without borrowing. In a Cohort it
    /// adds to what all members share.
    pub nominal_quota: Quantity,
}

/// Whether a queue admits workloads, and what becomes of those it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    #[default]
    /// Admits workloads as usual.
    None,
    /// Admits nothing new and releases quota reserved but not yet admitted; admitted workloads run to their
    /// end.
    Hold,
    /// Admits nothing new, and evicts admitted workloads, which wait until the queue is resumed.
    HoldAndDrain,
}

/// What a ClusterQueue holds at the moment.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// Workloads admitted and not yet finished.
    pub admitted_workloads: Option<i32>,
    /// `Active` tells whether the queue can admit, with everything that prevents it in the message.
    /// `MultiKueueManagerQuotaAutomation` tells whether its quota follows the workers'.
    #[schemars(length(max = 16), transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// How much the queue borrows for its weight. Absent unless fair sharing is enabled.
    pub fair_sharing: Option<FairSharingStatus>,
    /// Quota held by workloads that have reserved it, whether or not they are admitted yet.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub flavors_reservation: Option<Vec<FlavorUsage>>,
    /// Quota held by admitted workloads only.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub flavors_usage: Option<Vec<FlavorUsage>>,
    /// Workloads waiting for quota, including those that cannot be admitted at present.
    pub pending_workloads: Option<i32>,
    /// Workloads holding quota, admitted or still waiting for their checks.
    pub reserving_workloads: Option<i32>,
}

/// Where a queue or cohort stands in fair sharing.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// Borrowed quota in thousandths of what the cohort can lend, for the resource with the highest ratio,
    /// divided by weight and rounded up. 0 means nothing borrowed; 9223372036854775807 means borrowing with
    /// weight 0.
    pub weighted_share: i64,
}

/// Usage of one flavor in a ClusterQueue.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// ResourceFlavor that is used.
    #[schemars(transform = dns_subdomain)]
    pub name: String,
    /// Usage of each resource in this flavor, sorted by name.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub resources: Vec<ResourceUsage>,
}

/// Usage of one resource in one flavor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// Part of total beyond the nominal quota, taken from the cohort. 0 without a cohort.
    pub borrowed: Option<Quantity>,
    /// Resource that is used.
    pub name: String,
    /// Everything in use, borrowed quota included.
    pub total: Option<Quantity>,
}
