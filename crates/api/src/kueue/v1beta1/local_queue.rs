//! `LocalQueue`: where users of a namespace submit to a ClusterQueue.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::FairSharingStatus;
use crate::kueue::v1beta2::{LocalQueueFlavorUsage, LocalQueueSpec};
use crate::resource::resource;
use crate::schema::{atomic, dns_subdomain, map_by, set};

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
