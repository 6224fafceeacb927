//! `ResourceFlavor`: one kind of node that quota can be given for.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use crate::kueue::rules::{RESOURCE_FLAVOR_SPEC, TAINTS, TOLERATIONS};
use crate::resource::resource;
use crate::schema::{atomic, dns_subdomain, rules};

resource! {
    /// A kind of capacity, such as a GPU model, a zone or spot nodes, for which ClusterQueues set quota. One
    /// without labels or taints stands for any node.
    ResourceFlavor in "kueue.x-k8s.io" "v1beta2", cluster "resourceflavors" {
        /// Which nodes the flavor stands for.
        #[serde(default)]
        spec: ResourceFlavorSpec,
    }
}

/// The nodes behind a flavor, and what pods need to run on them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RESOURCE_FLAVOR_SPEC))]
pub struct ResourceFlavorSpec {
    /// Labels of the flavor's nodes, added to the node selector of admitted pods. Workloads whose selector or
    /// affinity contradicts them cannot use the flavor.
    #[schemars(extend("maxProperties" = 8), transform = atomic)]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Taints of the flavor's nodes. Workloads must tolerate those with effect NoSchedule or NoExecute, by
    /// themselves or through tolerations here, to use the flavor.
    #[schemars(length(max = 8), transform = rules(TAINTS))]
    pub node_taints: Option<Vec<Taint>>,
    /// Added to pods admitted to this flavor, so that users need not know the taints of its nodes.
    #[schemars(length(max = 8), transform = rules(TOLERATIONS))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Topology by which pods are placed on the flavor's nodes. Absent means the flavor counts quota only;
    /// needs a node label, and cannot be changed once set.
    #[schemars(transform = dns_subdomain)]
    pub topology_name: Option<String>,
}
