//! `Workload`: the unit that waits for quota, is admitted as a whole, and can be evicted.

use k8s_openapi::api::core::v1::{PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use crate::kueue::rules::{
    POD_SET, PRIORITY_CLASS_REF, TOLERATIONS, TOPOLOGY_ASSIGNMENT, TOPOLOGY_SLICE, UNIVERSAL_OR_INDIVIDUAL,
    WORKLOAD, WORKLOAD_SPEC, WORKLOAD_STATUS,
};
use crate::resource::resource;
use crate::schema::{at_least, at_most, dns_label, dns_subdomain, each, map_by, requires, rules};

resource! {
    /// A job's request for quota: which pods it runs and from which queue. Usually made and deleted along
    /// with its job; all pods get their quota together or none does.
    #[schemars(transform = rules(WORKLOAD))]
    Workload in "kueue.x-k8s.io" "v1beta2", namespaced "workloads" {
        /// What is to run, in which queue and with which priority.
        #[serde(default)]
        spec: WorkloadSpec,
    }
    maybe {
        /// How far admission has come and what was assigned.
        status: WorkloadStatus,
    }
}

/// What a workload wants to run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(WORKLOAD_SPEC))]
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
    pub pod_sets: Option<Vec<PodSet>>,
    /// Gates that keep the workload from preempting others until each is Open in status. It is still admitted
    /// if it fits without preemption.
    #[schemars(length(max = 8), transform = map_by(&["name"]))]
    pub preemption_gates: Option<Vec<PreemptionGate>>,
    /// Higher goes first, and may preempt lower where the queue allows it. Absent counts as 0; follows the
    /// value of a WorkloadPriorityClass but not of a PriorityClass.
    pub priority: Option<i32>,
    /// Class from which priority was taken. While quota is reserved only the name of a WorkloadPriorityClass
    /// may still change.
    pub priority_class_ref: Option<PriorityClassRef>,
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
    #[schemars(range(min = 0), extend("default" = 1))]
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
    #[schemars(length(max = 317))]
    pub pod_index_label: Option<String>,
    /// Places this pod set together with the other of this name, on the same flavor. Such groups have exactly
    /// two sets, one of them a single pod, and the same required or preferred level.
    #[schemars(length(max = 256))]
    pub pod_set_group_name: Option<String>,
    /// Topology level, by node label, in one domain of which each slice of podSetSliceSize pods must fit
    /// entirely.
    #[schemars(length(max = 63))]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods per slice; goes together with podSetSliceRequiredTopology and should divide count, as pods left
    /// over get no place.
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
    /// Nested slices, widest first: each level is below, and each size divides, the one before. Replaces
    /// podSetSliceRequiredTopology and podSetSliceSize.
    #[schemars(length(max = 3))]
    pub podset_slice_required_topology_constraints: Option<Vec<PodSetSliceTopologyConstraint>>,
    /// Topology level, by node label, in one domain of which to fit all pods if possible; else wider levels
    /// are tried, then several domains.
    #[schemars(length(max = 63))]
    pub preferred: Option<String>,
    /// Topology level, by node label, in one domain of which all pods must fit; otherwise the workload waits.
    #[schemars(length(max = 63))]
    pub required: Option<String>,
    /// Number of equal subgroups, such as the replicated Jobs of a JobSet, that the pods divide into. Needed
    /// with subGroupIndexLabel.
    #[schemars(range(min = 0))]
    pub sub_group_count: Option<i32>,
    /// Pod label that holds the index of the pod's subgroup; with podIndexLabel it gives the pod's rank in
    /// the whole set.
    #[schemars(length(max = 317))]
    pub sub_group_index_label: Option<String>,
    /// True places pods wherever nodes have room, in any domains, while still making sure that each pod fits
    /// on a node.
    pub unconstrained: Option<bool>,
}

/// One layer of nested slices.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetSliceTopologyConstraint {
    /// Pods in each slice of this layer. Must divide the size of the layer before.
    #[schemars(range(min = 1))]
    pub size: i32,
    /// Topology level, by node label, in one domain of which a slice of this layer must fit.
    #[schemars(length(min = 1, max = 63))]
    pub topology: String,
}

/// Something that must agree before the workload may preempt others.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// Identifies the gate; its position in status goes by the same name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// Points at the class that gives a workload its priority.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(PRIORITY_CLASS_REF), transform = requires(&["name"]))]
pub struct PriorityClassRef {
    /// `kueue.x-k8s.io` for a WorkloadPriorityClass, `scheduling.k8s.io` for a PriorityClass.
    pub group: PriorityClassGroup,
    /// Kind of the class; must go with group.
    pub kind: PriorityClassKind,
    /// Name of the class.
    // Empty where the older version had a source and no name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(transform = dns_subdomain, length(min = 1))]
    pub name: String,
}

/// API group of a priority class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassGroup {
    #[default]
    #[serde(rename = "kueue.x-k8s.io")]
    /// The class only orders workloads in queues, without effect on the pods' own priority.
    KueueXK8sIo,
    #[serde(rename = "scheduling.k8s.io")]
    /// The class is the one that pods also use in the scheduler.
    SchedulingK8sIo,
}

/// Kind of a priority class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassKind {
    #[default]
    /// A class of the group `kueue.x-k8s.io`; changes to its value reach existing workloads.
    WorkloadPriorityClass,
    /// A class of the group `scheduling.k8s.io`; changes to its value do not reach existing workloads.
    PriorityClass,
}

/// How far a workload has come and what it was assigned.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(WORKLOAD_STATUS))]
pub struct WorkloadStatus {
    /// Seconds spent in earlier admissions, counted toward maximumExecutionTimeSeconds. The current admission
    /// is added when it ends.
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Queue, flavors and places reserved for the workload. Present while it holds quota, also before its
    /// checks are Ready.
    pub admission: Option<Admission>,
    /// State of each check the workload must pass. All must be Ready for it to start; eviction returns them
    /// to Pending.
    #[schemars(length(max = 8), transform = map_by(&["name"]))]
    pub admission_checks: Option<Vec<AdmissionCheckState>>,
    /// Worker cluster that runs the workload. Absent until one admits it; eviction clears it, and it never
    /// changes directly to another.
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// `QuotaReserved`, `Admitted`, `PodsReady`, `Evicted` and `Finished` mark the workload's progress. If it
    /// waits, the message of `QuotaReserved` says why.
    #[schemars(length(max = 16), transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Worker clusters asked to admit the workload; the first to do so becomes clusterName, and this list is
    /// emptied.
    #[schemars(length(max = 20), transform = each(at_most(256)))]
    pub nominated_cluster_names: Option<Vec<String>>,
    /// Position of each gate in spec. A gate missing here counts as Closed; eviction closes all of them.
    #[schemars(length(max = 8), transform = map_by(&["name"]))]
    pub preemption_gates: Option<Vec<PreemptionGateState>>,
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
    #[schemars(length(max = 8), transform = map_by(&["name"]))]
    pub unhealthy_nodes: Option<Vec<UnhealthyNode>>,
}

/// What is reserved for a workload.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// ClusterQueue that provides the quota.
    #[schemars(transform = dns_subdomain)]
    pub cluster_queue: Option<String>,
    /// Flavors and quota of each pod set; one entry for each in spec.
    #[schemars(length(max = 18), transform = map_by(&["name"]))]
    pub pod_set_assignments: Option<Vec<PodSetAssignment>>,
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
    #[schemars(transform = at_most(7))]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
    /// Flavor chosen for each resource. Resources that the queue does not cover are left out.
    #[schemars(transform = each(dns_subdomain))]
    pub flavors: Option<BTreeMap<String, String>>,
    /// Pod set in spec to which the assignment belongs. Default `main`.
    #[schemars(transform = dns_label, extend("default" = "main"))]
    pub name: Option<String>,
    /// Quota held by all pods of the set together, not by each. Divided by count, it gives the share of one
    /// pod.
    pub resource_usage: Option<BTreeMap<String, Quantity>>,
    /// Domains in which the pods are to run. Absent if the flavor has no topology or places are not chosen
    /// yet.
    pub topology_assignment: Option<TopologyAssignment>,
}

/// Whether a delayed choice of places has been made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DelayedTopologyRequestState {
    #[default]
    /// Places are chosen once all checks are Ready; until then the workload is not admitted.
    Pending,
    /// Places have been chosen.
    Ready,
}

/// Domains in which pods are to run, and how many in each, in compact form.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(TOPOLOGY_ASSIGNMENT), transform = requires(&["slices"]))]
pub struct TopologyAssignment {
    /// Node labels that identify a domain, widest first. Only `kubernetes.io/hostname` if that is the
    /// topology's last level.
    #[schemars(length(min = 1, max = 16), transform = each(at_most(317)))]
    pub levels: Vec<String>,
    /// Runs of domains. All slices in order give the full list; how it is cut into slices has no meaning.
    #[schemars(length(max = 1000))]
    #[serde(default)]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A run of domains that are described together.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(TOPOLOGY_SLICE))]
pub struct TopologyAssignmentSlice {
    /// Domains in this slice; every list of individual values has as many entries.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// Pods to run in each domain of this slice.
    pub pod_counts: TopologyAssignmentSlicePodCounts,
    /// Label values of the domains, one entry for each of levels and in the same order.
    #[schemars(length(min = 1, max = 16))]
    pub values_per_level: Vec<TopologyAssignmentSliceLevelValues>,
}

/// Pods for each domain of a slice: exactly one of its fields is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(UNIVERSAL_OR_INDIVIDUAL))]
pub struct TopologyAssignmentSlicePodCounts {
    /// Pods for each domain, in order, where they differ.
    #[schemars(length(min = 1, max = 100_000), transform = each(at_least(1)))]
    pub individual: Option<Vec<i32>>,
    /// Pods for every domain, where all have the same number.
    #[schemars(range(min = 1))]
    pub universal: Option<i32>,
}

/// Values of one node label over a slice: exactly one of its fields is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(UNIVERSAL_OR_INDIVIDUAL))]
pub struct TopologyAssignmentSliceLevelValues {
    /// Value of each domain, where they differ.
    pub individual: Option<TopologyAssignmentSliceLevelIndividualValues>,
    /// Value that all domains share.
    #[schemars(length(max = 63))]
    pub universal: Option<String>,
}

/// Differing values, with what they have in common taken out: each is prefix, root and suffix joined.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSliceLevelIndividualValues {
    /// Start of all values. Absent means nothing.
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// Middle part of each value, in the order of the domains.
    #[schemars(length(min = 1, max = 100_000), transform = each(at_most(63)))]
    pub roots: Vec<String>,
    /// End of all values. Absent means nothing.
    #[schemars(length(max = 63))]
    pub suffix: Option<String>,
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
    #[schemars(length(min = 1, max = 316))]
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

/// What a check adds to the pods of one set. A key already set to another value makes the workload fail to
/// start.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// Annotations to add.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels to add.
    pub labels: Option<BTreeMap<String, String>>,
    /// Pod set in spec whose pods are changed.
    #[schemars(transform = dns_label)]
    pub name: String,
    /// Node selectors to add.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations to add.
    #[schemars(length(max = 8), transform = rules(TOLERATIONS))]
    pub tolerations: Option<Vec<Toleration>>,
}

/// The verdict of a check on a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    #[default]
    /// Not decided yet; the workload keeps its quota and waits.
    Pending,
    /// Passed; the workload starts when all its checks are Ready.
    Ready,
    /// Not passed for now; the workload is evicted, gives back its quota and is queued again later.
    Retry,
    /// Not passed for good; the workload is deactivated.
    Rejected,
}

/// Where one gate stands.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// When position last changed.
    pub last_transition_time: Time,
    /// Gate in spec to which the position belongs.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Closed forbids the workload to preempt, Open allows it.
    pub position: GatePosition,
}

/// Whether a gate lets the workload preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GatePosition {
    #[default]
    /// The workload may not preempt others.
    Closed,
    /// The workload may preempt, unless another gate is closed.
    Open,
}

/// Pods of one set that need no quota any more.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// Pods that are done, at most as many as the set has.
    #[schemars(range(min = 0))]
    pub count: i32,
    /// Pod set in spec to which the pods belong.
    #[schemars(transform = dns_label)]
    pub name: String,
}

/// When and how often a workload is tried again.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// Times the workload was requeued because its pods did not become ready in time; the delay grows with
    /// it.
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Earliest time at which the workload is tried again. Absent means at once; never moved to an earlier
    /// time.
    pub requeue_at: Option<Time>,
}

/// What one pod set asks for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// Pod set in spec that asks.
    #[schemars(transform = dns_label)]
    pub name: String,
    /// Quota asked for by all pods of the set together.
    pub resources: Option<BTreeMap<String, Quantity>>,
}

/// Counts of what happened to a workload.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// Evictions so far, by reason and cause.
    #[schemars(length(max = 256), transform = map_by(&["reason", "underlyingCause"]))]
    pub evictions: Option<Vec<WorkloadSchedulingStatsEviction>>,
}

/// Evictions for one reason and cause.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSchedulingStatsEviction {
    /// Evictions for this reason and cause.
    #[schemars(range(min = 0))]
    pub count: i32,
    /// Why the workload was evicted, as in its `Evicted` condition, such as `Preempted` or
    /// `PodsReadyTimeout`.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// What lay behind the reason, such as `WaitForStart` for `PodsReadyTimeout`. Empty if the reason says it
    /// all.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
}

/// A node that can no longer run pods assigned to it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// Name of the node, as in the topology assignment.
    #[schemars(length(max = 63))]
    pub name: String,
}
