//! `LocalQueue`: where users of a namespace submit to a ClusterQueue.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::{FairSharing, StopPolicy};
use crate::resource::resource;
use crate::schema::{dns_subdomain, immutable, map_by};

resource! {
    /// The entrance to a ClusterQueue for one namespace. Jobs name it in the label
    /// `kueue.x-k8s.io/queue-name`; the queue called `default` takes jobs without that label.
    LocalQueue in "kueue.x-k8s.io" "v1beta2", namespaced "localqueues" {
        /// Where workloads go from here.
        #[serde(default)]
        spec: LocalQueueSpec,
    }
    maybe {
        /// What is pending and in use, and whether the queue can admit.
        status: LocalQueueStatus,
    }
}

/// Where the workloads of a LocalQueue go.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    /// ClusterQueue whose quota the workloads use. Cannot be changed: create another LocalQueue instead.
    #[schemars(transform = dns_subdomain, transform = immutable)]
    pub cluster_queue: Option<String>,
    /// Weight against other LocalQueues of the same ClusterQueue. Only matters if that one uses
    /// UsageBasedAdmissionFairSharing.
    pub fair_sharing: Option<FairSharing>,
    /// Pauses this queue with Hold, or also evicts what runs with HoldAndDrain; other queues of the
    /// ClusterQueue go on. Default None.
    #[schemars(extend("default" = "None"))]
    pub stop_policy: Option<StopPolicy>,
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
    #[schemars(length(max = 16), transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Past usage by which this queue is compared to others. Absent unless admission fair sharing is in use.
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
    /// Quota held by workloads from this queue that have reserved it, whether or not they are admitted yet.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub flavors_reservation: Option<Vec<LocalQueueFlavorUsage>>,
    /// Quota held by admitted workloads from this queue only.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub flavors_usage: Option<Vec<LocalQueueFlavorUsage>>,
    /// Workloads from this queue waiting for quota. Reads 0 while the queue is stopped.
    pub pending_workloads: Option<i32>,
    /// Workloads from this queue holding quota, admitted or still waiting for their checks.
    pub reserving_workloads: Option<i32>,
}

/// Where a LocalQueue stands in fair sharing.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// Usage that counts against this queue when the next workload is chosen.
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
    /// Always 0: LocalQueues do not borrow, and are compared by admissionFairSharingStatus instead.
    pub weighted_share: i64,
}

/// Usage of a LocalQueue, with the past fading out.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Usage averaged over time, by resource; older usage loses half its effect per configured half-life.
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// When consumedResources was last brought up to date.
    pub last_update: Time,
}

/// Usage of one flavor by a LocalQueue.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorUsage {
    /// ResourceFlavor that is used.
    #[schemars(transform = dns_subdomain)]
    pub name: String,
    /// Usage of each resource in this flavor.
    #[schemars(length(max = 64), transform = map_by(&["name"]))]
    pub resources: Vec<LocalQueueResourceUsage>,
}

/// Usage of one resource in one flavor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueResourceUsage {
    /// Resource that is used.
    pub name: String,
    /// Everything in use through this queue.
    pub total: Option<Quantity>,
}
