//! `ClusterQueue`: quota for a set of resources, and the rules by which workloads get it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kueue::rules::{CLUSTER_QUEUE_SPEC_V1BETA1, FLAVOR_FUNGIBILITY};
use crate::kueue::v1beta2::{
    AdmissionFairSharingStatus, ClusterQueuePreemption, FairSharing, FlavorFungibilityPreference,
    FlavorUsage, QueueingStrategy, ResourceGroup, StopPolicy,
};
use crate::resource::resource;
use crate::schema::{at_most, dns_subdomain, each, map_by, rules};

resource! {
    /// A pool of quota that LocalQueues feed with workloads, with rules for order, borrowing and preemption.
    ClusterQueue in "kueue.x-k8s.io" "v1beta1", cluster "clusterqueues" {
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
#[schemars(transform = rules(CLUSTER_QUEUE_SPEC_V1BETA1))]
pub struct ClusterQueueSpec {
    /// Admission checks that every workload must pass, whatever its flavors. Replaces `admissionChecksStrategy` when both are set.
    #[schemars(transform = each(at_most(316)))]
    pub admission_checks: Option<Vec<String>>,
    /// Checks that must be Ready, besides quota, before a workload starts. Absent means quota alone decides.
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether LocalQueues that used less come first. Only matters if the manager configures admission fair
    /// sharing; absent means no.
    pub admission_scope: Option<AdmissionScope>,
    /// The cohort to borrow from and lend to; `v1beta2` calls it `cohortName`.
    #[schemars(transform = dns_subdomain)]
    pub cohort: Option<String>,
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
    pub admission_checks: Option<Vec<AdmissionCheckStrategyRule>>,
}

/// One check and the flavors it applies to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// AdmissionCheck to pass. While it is missing or not Active, the queue admits nothing.
    #[schemars(length(max = 316))]
    pub name: String,
    /// Flavors of this queue for which the check runs. Empty or absent means all of them; MultiKueue checks
    /// cannot be limited to flavors.
    #[schemars(transform = each(dns_subdomain))]
    pub on_flavors: Option<Vec<String>>,
}

/// How LocalQueues of one ClusterQueue compete with each other.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// Whether past usage of the LocalQueues orders their pending workloads.
    pub admission_mode: String,
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
    pub when_can_borrow: Option<WhenCanBorrow>,
    /// What to do when a flavor fits only by preempting: TryNextFlavor (the default) looks on, MayStopSearch
    /// takes it.
    #[schemars(extend("default" = "TryNextFlavor"))]
    pub when_can_preempt: Option<WhenCanPreempt>,
}

/// Whether a flavor that fits by borrowing ends the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WhenCanBorrow {
    #[default]
    /// Take this flavor.
    MayStopSearch,
    /// Look at the next flavor first.
    TryNextFlavor,
    /// The old name of `MayStopSearch`.
    Borrow,
}

/// Whether a flavor that fits by preempting ends the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WhenCanPreempt {
    /// Take this flavor.
    MayStopSearch,
    #[default]
    /// Look at the next flavor first.
    TryNextFlavor,
    /// The old name of `MayStopSearch`.
    Preempt,
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
    #[schemars(transform = map_by(&["type"]))]
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
    /// No longer filled; ask the visibility API for pending workloads.
    pub pending_workloads_status: Option<ClusterQueuePendingWorkloadsStatus>,
    /// Workloads holding quota, admitted or still waiting for their checks.
    pub reserving_workloads: Option<i32>,
}

/// Where a queue or cohort stands in fair sharing.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// What admission fair sharing has counted so far.
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
    /// Borrowed quota in thousandths of what the cohort can lend, for the resource with the highest ratio,
    /// divided by weight and rounded up. 0 means nothing borrowed; 9223372036854775807 means borrowing with
    /// weight 0.
    pub weighted_share: i64,
}

/// The head of the queue at some moment.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePendingWorkloadsStatus {
    /// The first pending workloads, in queue order.
    pub cluster_queue_pending_workload: Option<Vec<ClusterQueuePendingWorkload>>,
    /// When the list was last taken.
    pub last_change_time: Time,
}

/// A pending workload.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePendingWorkload {
    /// The name of the workload.
    pub name: String,
    /// The namespace of the workload.
    pub namespace: String,
}
