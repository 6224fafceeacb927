//! `MultiKueueCluster`: another cluster to which workloads can be sent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kueue::rules::CLUSTER_SOURCE;
use crate::resource::resource;
use crate::schema::{map_by, rules};

resource! {
    /// A worker cluster to which this manager cluster can send workloads.
    MultiKueueCluster in "kueue.x-k8s.io" "v1beta2", cluster "multikueueclusters" {
        /// How to reach the worker cluster.
        #[serde(default)]
        spec: MultiKueueClusterSpec,
    }
    maybe {
        /// Whether the worker cluster is reachable.
        status: MultiKueueClusterStatus,
    }
}

/// How to reach a worker cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// Where the address and credentials of the worker cluster come from.
    pub cluster_source: ClusterSource,
}

/// Source of a worker cluster's address and credentials: exactly one of its fields is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(CLUSTER_SOURCE))]
pub struct ClusterSource {
    /// ClusterProfile that describes the worker cluster. Refused unless the feature gate
    /// MultiKueueClusterProfile is on.
    pub cluster_profile_ref: Option<ClusterProfileReference>,
    /// Kubeconfig with which to connect. Insecure TLS, token and CA files, basic auth, exec plugins and auth
    /// providers are refused.
    pub kube_config: Option<KubeConfig>,
}

/// Points at a ClusterProfile.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileReference {
    /// Name of the ClusterProfile, in the namespace of the manager.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// Points at a kubeconfig.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Secret name or file path, as locationType says. Changes to the Secret or file are picked up.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// How location is read: Secret (the default) or Path.
    #[schemars(extend("default" = "Secret"))]
    pub location_type: Option<LocationType>,
}

/// Where a kubeconfig is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LocationType {
    #[default]
    /// A Secret in the namespace of the manager, under the key `kubeconfig`.
    Secret,
    /// A file in the manager's container, which must be under `/etc/multikueue/kubeconfigs`.
    Path,
}

/// The state of the connection to a worker cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// `Active` is True while connected; otherwise its reason tells a bad kubeconfig from a failed
    /// connection.
    #[schemars(length(max = 16), transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
