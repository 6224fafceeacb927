//! `MultiKueueCluster`: another cluster to which workloads can be sent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kueue::v1beta2::{ClusterProfileReference, LocationType};
use crate::resource::resource;
use crate::schema::map_by;

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
