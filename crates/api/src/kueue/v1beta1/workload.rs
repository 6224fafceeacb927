//! `Workload`: the unit that waits for quota, is admitted as a whole, and can be evicted.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use crate::kueue::rules::{POD_SET, WORKLOAD_SPEC_V1BETA1, WORKLOAD_STATUS, WORKLOAD_V1BETA1};
use crate::kueue::v1beta2::{
    CheckState, PodSetRequest, PodSetUpdate, ReclaimablePod, RequeueState, WorkloadSchedulingStatsEviction,
};
use crate::resource::resource;
use crate::schema::{dns_label, dns_subdomain, each, map_by, rules};

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
