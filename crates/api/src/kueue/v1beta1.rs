//! `kueue.x-k8s.io/v1beta1`: the deprecated version; `v1beta2` is the one to write.

use k8s_openapi::api::core::v1::{PodTemplateSpec, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::rules::{
    CLUSTER_QUEUE_SPEC_V1BETA1, FLAVOR_FUNGIBILITY, POD_SET, TOPOLOGY_LEVELS_V1BETA1, WORKLOAD_SPEC_V1BETA1,
    WORKLOAD_STATUS, WORKLOAD_V1BETA1,
};
use super::v1beta2::{
    AdmissionFairSharingStatus, CheckState, ClusterProfileReference, ClusterQueuePreemption, CohortSpec,
    FairSharing, FlavorFungibilityPreference, FlavorUsage, LocalQueueFlavorUsage, LocalQueueSpec,
    LocationType, PodSetRequest, PodSetUpdate, ProvisioningRequestConfigPodSetMergePolicy,
    ProvisioningRequestPodSetUpdatesNodeSelector, ProvisioningRequestRetryStrategy, QueueingStrategy,
    ReclaimablePod, RequeueState, ResourceFlavorSpec, ResourceGroup, StopPolicy, TopologyLevel,
    WorkloadSchedulingStatsEviction,
};
use crate::resource::resource;
use crate::schema::{at_most, atomic, dns_label, dns_subdomain, each, immutable, map_by, rules, set};

resource! {
    /// A job's request for quota: which pods it runs and from which queue. Usually made and deleted along
    /// with its job; all pods get their quota together or none does.
    #[schemars(transform = rules(WORKLOAD_V1BETA1))]
    Workload in "kueue.x-k8s.io" "v1beta1", namespaced "workloads" {
        /// What is to run, in which queue and with which priority.
        #[serde(default)]
        spec: WorkloadSpec,
    }
    maybe {
        /// How far admission has come and what was assigned.
        status: WorkloadStatus,
    }
}

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

resource! {
    /// The entrance to a ClusterQueue for one namespace. Jobs name it in the label
    /// `kueue.x-k8s.io/queue-name`; the queue called `default` takes jobs without that label.
    LocalQueue in "kueue.x-k8s.io" "v1beta1", namespaced "localqueues" {
        /// Where workloads go from here.
        #[serde(default)]
        spec: LocalQueueSpec,
    }
    maybe {
        /// What is pending and in use, and whether the queue can admit.
        status: LocalQueueStatus,
    }
}

resource! {
    /// A node in the tree of ClusterQueues that lend quota to each other. ClusterQueues can share a cohort
    /// without an object for it; create one to nest cohorts or give them quota.
    Cohort in "kueue.x-k8s.io" "v1beta1", cluster "cohorts" {
        /// Place in the tree, own quota and weight.
        #[serde(default)]
        spec: CohortSpec,
    }
    maybe {
        /// Standing in fair sharing.
        status: CohortStatus,
    }
}

resource! {
    /// A kind of capacity, such as a GPU model, a zone or spot nodes, for which ClusterQueues set quota. One
    /// without labels or taints stands for any node.
    ResourceFlavor in "kueue.x-k8s.io" "v1beta1", cluster "resourceflavors" {
        /// Which nodes the flavor stands for.
        #[serde(default)]
        spec: ResourceFlavorSpec,
    }
}

resource! {
    /// The hierarchy of a data center, as labels on nodes, used to place pods of a workload close together.
    Topology in "kueue.x-k8s.io" "v1beta1", cluster "topologies" {
        /// The levels of the hierarchy.
        #[serde(default)]
        spec: TopologySpec,
    }
}

resource! {
    /// A condition besides quota, decided by its own controller, that must hold before a workload is
    /// admitted.
    AdmissionCheck in "kueue.x-k8s.io" "v1beta1", cluster "admissionchecks" {
        /// Which controller decides this check, and with which parameters.
        #[serde(default)]
        spec: AdmissionCheckSpec,
    }
    maybe {
        /// Whether the check is fit to be used.
        status: AdmissionCheckStatus,
    }
}

resource! {
    /// A worker cluster to which this manager cluster can send workloads.
    MultiKueueCluster in "kueue.x-k8s.io" "v1beta1", cluster "multikueueclusters" {
        /// How to reach the worker cluster.
        #[serde(default)]
        spec: MultiKueueClusterSpec,
    }
    maybe {
        /// Whether the worker cluster is reachable.
        status: MultiKueueClusterStatus,
    }
}

resource! {
    /// Parameters of an AdmissionCheck that sends workloads to worker clusters.
    MultiKueueConfig in "kueue.x-k8s.io" "v1beta1", cluster "multikueueconfigs" {
        /// The worker clusters and where quota comes from.
        #[serde(default)]
        spec: MultiKueueConfigSpec,
    }
}

resource! {
    /// Parameters of an AdmissionCheck that asks the cluster autoscaler for nodes before a workload starts.
    ProvisioningRequestConfig in "kueue.x-k8s.io" "v1beta1", cluster "provisioningrequestconfigs" {
        /// What to ask for, and how often to retry.
        #[serde(default)]
        spec: ProvisioningRequestConfigSpec,
    }
}

resource! {
    /// A named priority for workloads. Jobs name it in the label `kueue.x-k8s.io/priority-class`; the class
    /// called `default` is given to jobs without that label.
    WorkloadPriorityClass in "kueue.x-k8s.io" "v1beta1", cluster "workloadpriorityclasses" {
        /// Priority of workloads in this class; higher goes first. A change reaches existing workloads, also
        /// running ones.
        value: i32,
    }
    maybe {
        /// When to use this class, for people to read.
        description: String,
    }
}

/// What a workload wants to run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(WORKLOAD_SPEC_V1BETA1))]
pub struct WorkloadSpec {
    /// False evicts the workload and keeps it out of the queue until set to true again. Set to false by the
    /// manager when retries or time run out. Default true.
    #[schemars(extend("default" = true))]
    pub active: Option<bool>,
    /// Seconds the workload may be admitted in total, over all its admissions, before it is deactivated.
    /// Absent means no limit; fixed while admitted.
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Groups of like pods, admitted together. Cannot change while quota is reserved, save for elastic jobs.
    #[schemars(length(min = 1, max = 18), transform = map_by(&["name"]))]
    pub pod_sets: Vec<PodSet>,
    /// Higher goes first, and may preempt lower where the queue allows it. Absent counts as 0; follows the
    /// value of a WorkloadPriorityClass but not of a PriorityClass.
    pub priority: Option<i32>,
    /// The priority class the priority came from; `priorityClassSource` says of which kind.
    #[schemars(transform = dns_subdomain)]
    pub priority_class_name: Option<String>,
    /// The kind of class that `priorityClassName` names; empty means none, whatever the name says.
    #[schemars(extend("default" = ""))]
    pub priority_class_source: Option<PriorityClassSource>,
    /// LocalQueue in the same namespace in which to wait. Without it, or while the queue is missing, the
    /// workload is not admitted; fixed while quota is reserved.
    #[schemars(transform = dns_subdomain)]
    pub queue_name: Option<String>,
}

/// Pods of a workload made from one template.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(POD_SET))]
pub struct PodSet {
    /// Pods in the set. Default 1; a set of 0 pods uses no quota.
    #[schemars(required, range(min = 0), extend("default" = 1))]
    pub count: Option<i32>,
    /// Fewest pods to run with if count does not fit. Absent means all or nothing; only one pod set of a
    /// workload may have it, and not in elastic jobs.
    #[schemars(range(min = 1))]
    pub min_count: Option<i32>,
    /// Identifies the set within its workload, as in the assignments of status. Default `main`.
    #[schemars(transform = dns_label, extend("default" = "main"))]
    pub name: Option<String>,
    /// Pod from which requests, selectors, affinity and tolerations are read. Of its metadata, only labels
    /// and annotations are kept.
    pub template: PodTemplateSpec,
    /// How close together the pods are to be placed. Absent means no demand, though queues that have only
    /// flavors with a topology still choose the nodes.
    pub topology_request: Option<PodSetTopologyRequest>,
}

/// How the pods of a set are placed in a topology. At most one of required, preferred and unconstrained is
/// set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// Pod label that holds the pod's index, so that pods with neighbouring indices land close together.
    /// Absent means any pod takes any assigned place.
    pub pod_index_label: Option<String>,
    /// Places this pod set together with the other of this name, on the same flavor. Such groups have exactly
    /// two sets, one of them a single pod, and the same required or preferred level.
    pub pod_set_group_name: Option<String>,
    /// Topology level, by node label, in one domain of which each slice of podSetSliceSize pods must fit
    /// entirely.
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods per slice; goes together with podSetSliceRequiredTopology and should divide count, as pods left
    /// over get no place.
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
    /// Topology level, by node label, in one domain of which to fit all pods if possible; else wider levels
    /// are tried, then several domains.
    pub preferred: Option<String>,
    /// Topology level, by node label, in one domain of which all pods must fit; otherwise the workload waits.
    pub required: Option<String>,
    /// Number of equal subgroups, such as the replicated Jobs of a JobSet, that the pods divide into. Needed
    /// with subGroupIndexLabel.
    pub sub_group_count: Option<i32>,
    /// Pod label that holds the index of the pod's subgroup; with podIndexLabel it gives the pod's rank in
    /// the whole set.
    pub sub_group_index_label: Option<String>,
    /// True places pods wherever nodes have room, in any domains, while still making sure that each pod fits
    /// on a node.
    pub unconstrained: Option<bool>,
}

/// The kind of a priority class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassSource {
    #[serde(rename = "kueue.x-k8s.io/workloadpriorityclass")]
    /// A WorkloadPriorityClass: counts in the queue only.
    KueueXK8sIoWorkloadpriorityclass,
    #[serde(rename = "scheduling.k8s.io/priorityclass")]
    /// A PriorityClass: counts for the pods too.
    SchedulingK8sIoPriorityclass,
    #[default]
    #[serde(rename = "")]
    /// No class.
    Unset,
}

/// How far a workload has come and what it was assigned.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(WORKLOAD_STATUS))]
pub struct WorkloadStatus {
    /// Seconds spent admitted in earlier admissions, counted against `maximumExecutionTimeSeconds`. The spelling is the wire's.
    pub accumulated_past_exexcution_time_seconds: Option<i32>,
    /// Queue, flavors and places reserved for the workload. Present while it holds quota, also before its
    /// checks are Ready.
    pub admission: Option<Admission>,
    /// State of each check the workload must pass. All must be Ready for it to start; eviction returns them
    /// to Pending.
    #[schemars(length(max = 8), transform = map_by(&["name"]))]
    pub admission_checks: Option<Vec<AdmissionCheckState>>,
    /// Worker cluster that runs the workload. Absent until one admits it; eviction clears it, and it never
    /// changes directly to another.
    pub cluster_name: Option<String>,
    /// `QuotaReserved`, `Admitted`, `PodsReady`, `Evicted` and `Finished` mark the workload's progress. If it
    /// waits, the message of `QuotaReserved` says why.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Worker clusters asked to admit the workload; the first to do so becomes clusterName, and this list is
    /// emptied.
    #[schemars(length(max = 20))]
    pub nominated_cluster_names: Option<Vec<String>>,
    /// Pods that are done and whose quota others may use while the rest runs. Counts only grow while quota is
    /// reserved, save for elastic jobs.
    #[schemars(length(max = 18), transform = map_by(&["name"]))]
    pub reclaimable_pods: Option<Vec<ReclaimablePod>>,
    /// Delay before the workload is tried again after an eviction or a failed check. Absent means no delay.
    pub requeue_state: Option<RequeueState>,
    /// Quota the workload asked for when it last failed to get it, by pod set, after defaults and
    /// transformations.
    #[schemars(length(max = 18), transform = map_by(&["name"]))]
    pub resource_requests: Option<Vec<PodSetRequest>>,
    /// Counts of what happened to the workload over its lifetime.
    pub scheduling_stats: Option<SchedulingStats>,
    /// Failed nodes among those assigned; a replacement is sought for one, and failure of a second evicts the
    /// workload. Empty or absent means none.
    pub unhealthy_nodes: Option<Vec<UnhealthyNode>>,
}

/// What is reserved for a workload.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// ClusterQueue that provides the quota.
    #[schemars(transform = dns_subdomain)]
    pub cluster_queue: String,
    /// Flavors and quota of each pod set; one entry for each in spec.
    #[schemars(length(max = 18), transform = map_by(&["name"]))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What is reserved for one pod set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Pods that may run, fewer than in spec if the set was admitted partially. Absent means the count in
    /// spec.
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Whether places are chosen only after the admission checks, as with autoscaled nodes or other clusters.
    /// Absent means they were not delayed.
    pub delayed_topology_request: Option<String>,
    /// Flavor chosen for each resource. Resources that the queue does not cover are left out.
    #[schemars(transform = each(dns_subdomain))]
    pub flavors: Option<BTreeMap<String, String>>,
    /// Pod set in spec to which the assignment belongs. Default `main`.
    #[schemars(required, transform = dns_label, extend("default" = "main"))]
    pub name: Option<String>,
    /// Quota held by all pods of the set together, not by each. Divided by count, it gives the share of one
    /// pod.
    pub resource_usage: Option<BTreeMap<String, Quantity>>,
    /// Domains in which the pods are to run. Absent if the flavor has no topology or places are not chosen
    /// yet.
    pub topology_assignment: Option<TopologyAssignment>,
}

/// Domains in which pods are to run, and how many in each, in compact form.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignment {
    /// The topology domains that hold the pods, and how many each holds.
    pub domains: Vec<TopologyDomainAssignment>,
    /// Node labels that identify a domain, widest first. Only `kubernetes.io/hostname` if that is the
    /// topology's last level.
    #[schemars(length(min = 1, max = 16))]
    pub levels: Vec<String>,
}

/// Pods placed in one topology domain.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyDomainAssignment {
    /// How many pods the domain holds.
    #[schemars(range(min = 1))]
    pub count: i32,
    /// The value of each level's node label, from the highest level down.
    #[schemars(length(min = 1, max = 16))]
    pub values: Vec<String>,
}

/// Where one check stands for a workload.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// When state last changed.
    pub last_transition_time: Time,
    /// What the check's controller says about the state, for people to read; may be empty.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// AdmissionCheck in question.
    #[schemars(length(max = 316))]
    pub name: String,
    /// Changes the check makes to pods when the workload starts. Cannot change while the state stays Ready.
    #[schemars(length(max = 18))]
    pub pod_set_updates: Option<Vec<PodSetUpdate>>,
    /// Seconds after lastTransitionTime before the workload is queued again; used when state is Retry. Absent
    /// means no delay.
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// Times the check asked to retry so far. Absent means none.
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// Pending, Ready, Retry or Rejected.
    pub state: CheckState,
}

/// Counts of what happened to a workload.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// Evictions so far, by reason and cause.
    #[schemars(transform = map_by(&["reason", "underlyingCause"]))]
    pub evictions: Option<Vec<WorkloadSchedulingStatsEviction>>,
}

/// A node that can no longer run pods assigned to it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// Name of the node, as in the topology assignment.
    pub name: String,
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

/// What a LocalQueue holds at the moment.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// Workloads from this queue that are admitted and not yet finished.
    pub admitted_workloads: Option<i32>,
    /// `Active` tells whether workloads can be admitted from here; it is False if this queue is stopped or
    /// its ClusterQueue is missing or inactive.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Past usage by which this queue is compared to others. Absent unless admission fair sharing is in use.
    pub fair_sharing: Option<FairSharingStatus>,
    /// Quota used by admitted workloads of this queue, per flavor; `v1beta2` calls it `flavorsUsage`.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub flavor_usage: Option<Vec<LocalQueueFlavorUsage>>,
    /// The flavors the ClusterQueue offers.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub flavors: Option<Vec<LocalQueueFlavorStatus>>,
    /// Quota held by workloads from this queue that have reserved it, whether or not they are admitted yet.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub flavors_reservation: Option<Vec<LocalQueueFlavorUsage>>,
    /// Workloads from this queue waiting for quota. Reads 0 while the queue is stopped.
    pub pending_workloads: Option<i32>,
    /// Workloads from this queue holding quota, admitted or still waiting for their checks.
    pub reserving_workloads: Option<i32>,
}

/// A flavor on offer, as a user of the queue sees it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorStatus {
    /// The name of the flavor.
    #[schemars(transform = dns_subdomain)]
    pub name: String,
    /// Labels of the nodes that belong to the flavor.
    #[schemars(extend("maxProperties" = 8), transform = atomic)]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Taints of the nodes that belong to the flavor.
    #[schemars(length(max = 8))]
    pub node_taints: Option<Vec<Taint>>,
    /// Resources the queue has quota for in the flavor.
    #[schemars(length(max = 64), transform = set)]
    pub resources: Option<Vec<String>>,
    /// The topology of the flavor's nodes, if it has one.
    pub topology: Option<TopologyInfo>,
}

/// A topology in short.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyInfo {
    /// Node labels of the levels, from the highest down.
    #[schemars(length(min = 1, max = 16))]
    pub levels: Vec<String>,
    /// The name of the Topology.
    #[schemars(transform = dns_subdomain)]
    pub name: String,
}

/// Where a cohort stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// How much the cohort borrows from its parent for its weight. Absent unless fair sharing is enabled.
    pub fair_sharing: Option<FairSharingStatus>,
}

/// The levels of a topology.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// Levels from the widest to the narrowest, such as block, rack, host. Can be changed only if
    /// `kubernetes.io/hostname` is the last level before and after.
    #[schemars(length(min = 1, max = 16), transform = rules(TOPOLOGY_LEVELS_V1BETA1))]
    pub levels: Vec<TopologyLevel>,
}

/// Who decides a check and how it is configured.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Controller that decides the check, such as `kueue.x-k8s.io/multikueue` or
    /// `kueue.x-k8s.io/provisioning-request`. Cannot be changed once set.
    #[schemars(transform = immutable)]
    pub controller_name: String,
    /// Cluster-scoped object that configures the controller for this check. Absent means the controller needs
    /// none.
    pub parameters: Option<AdmissionCheckParametersReference>,
    /// Without effect; the check's controller decides when to try again.
    #[schemars(extend("default" = 15))]
    pub retry_delay_minutes: Option<i64>,
}

/// Points at the object that holds a check's parameters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParametersReference {
    /// API group of the parameters object, without the version.
    #[schemars(transform = dns_subdomain)]
    pub api_group: String,
    /// Kind of the parameters object, such as `ProvisioningRequestConfig` or `MultiKueueConfig`.
    #[schemars(length(max = 63), regex(pattern = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub kind: String,
    /// Name of the parameters object.
    #[schemars(transform = dns_label)]
    pub name: String,
}

/// What the controller of a check says about it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStatus {
    /// `Active` is True when the check's controller is ready. ClusterQueues that use a check which is not
    /// Active admit nothing.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// How to reach a worker cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// The ClusterProfile to connect through, instead of a kubeconfig.
    pub cluster_profile_ref: Option<ClusterProfileReference>,
    /// The kubeconfig to connect with; an empty location means none.
    pub kube_config: KubeConfig,
}

/// Points at a kubeconfig.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Secret name or file path, as locationType says. Changes to the Secret or file are picked up.
    pub location: String,
    /// How location is read: Secret (the default) or Path.
    #[schemars(required, extend("default" = "Secret"))]
    pub location_type: Option<LocationType>,
}

/// The state of the connection to a worker cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// `Active` is True while connected; otherwise its reason tells a bad kubeconfig from a failed
    /// connection.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// The worker clusters of a MultiKueue check.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfigSpec {
    /// Names of the MultiKueueClusters that may run the workloads.
    #[schemars(length(min = 1, max = 20), transform = set)]
    pub clusters: Vec<String>,
}

/// How ProvisioningRequests for workloads are made.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// Resources for which capacity is requested; workloads whose pods use none of them pass at once. Empty
    /// or absent means all workloads need a request.
    #[schemars(length(max = 100), transform = set)]
    pub managed_resources: Option<Vec<String>>,
    /// Passed to the provisioning class as they are. Annotations `provreq.kueue.x-k8s.io/...` of a workload
    /// add to them.
    #[schemars(extend("maxProperties" = 100), transform = each(at_most(255)))]
    pub parameters: Option<BTreeMap<String, String>>,
    /// When to ask for several pod sets as one, which some provisioning classes need. Absent means each pod
    /// set is listed separately.
    pub pod_set_merge_policy: Option<ProvisioningRequestConfigPodSetMergePolicy>,
    /// What to add to the pods once capacity is provisioned. Absent adds only the annotations that let pods
    /// use it.
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Provisioning class of the autoscaler, such as `check-capacity.autoscaling.x-k8s.io`.
    #[schemars(transform = dns_subdomain)]
    pub provisioning_class_name: String,
    /// How often to ask again, and after what delay, when provisioning fails or its booking expires. By
    /// default 3 times, starting at 60 seconds.
    #[schemars(extend("default" = {"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800}))]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
}

/// Changes to the pods of a workload once its capacity is provisioned.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selectors to add, with values that the autoscaler reports for the request.
    #[schemars(length(max = 8))]
    pub node_selector: Option<Vec<ProvisioningRequestPodSetUpdatesNodeSelector>>,
}
