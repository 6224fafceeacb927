//! `Cohort`: ClusterQueues, or other cohorts, that share what they do not use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::FairSharingStatus;
use crate::kueue::v1beta2::CohortSpec;
use crate::resource::resource;

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

/// Where a cohort stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// How much the cohort borrows from its parent for its weight. Absent unless fair sharing is enabled.
    pub fair_sharing: Option<FairSharingStatus>,
}
