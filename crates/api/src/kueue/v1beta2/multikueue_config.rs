//! `MultiKueueConfig`: the worker clusters behind a MultiKueue check.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kueue::rules::CLUSTERS;
use crate::resource::resource;
use crate::schema::{at_most, each, rules};

resource! {
    /// Parameters of an AdmissionCheck that sends workloads to worker clusters.
    MultiKueueConfig in "kueue.x-k8s.io" "v1beta2", cluster "multikueueconfigs" {
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
    /// MultiKueueClusters to which workloads may go. The incremental dispatcher tries them in this order;
    /// otherwise order does not matter.
    #[schemars(length(min = 1, max = 20), transform = rules(CLUSTERS), transform = each(at_most(256)))]
    pub clusters: Vec<String>,
    /// Who sets the quota of ClusterQueues in the manager cluster. Absent means Manual.
    pub quota_management: Option<QuotaManagement>,
}

/// Who sets the quota of ClusterQueues that send workloads to other clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QuotaManagement {
    #[default]
    /// Quota is what their specs say.
    Manual,
    /// Nominal quota follows the sum of the worker clusters' quota. Needs the feature gate
    /// MultiKueueManagerQuotaAutomation.
    Automated,
}
