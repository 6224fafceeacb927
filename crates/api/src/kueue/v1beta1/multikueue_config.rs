//! `MultiKueueConfig`: the worker clusters behind a MultiKueue check.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::resource;
use crate::schema::set;

resource! {
    /// Parameters of an AdmissionCheck that sends workloads to worker clusters.
    MultiKueueConfig in "kueue.x-k8s.io" "v1beta1", cluster "multikueueconfigs" {
        /// The worker clusters and where quota comes from.
        #[serde(default)]
        spec: MultiKueueConfigSpec,
    }
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
