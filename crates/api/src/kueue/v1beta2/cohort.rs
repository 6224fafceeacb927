//! `Cohort`: ClusterQueues, or other cohorts, that share what they do not use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{FairSharing, FairSharingStatus, ResourceGroup};
use crate::resource::resource;
use crate::schema::dns_subdomain;

resource! {
    /// A node in the tree of ClusterQueues that lend quota to each other. ClusterQueues can share a cohort
    /// without an object for it; create one to nest cohorts or give them quota.
    Cohort in "kueue.x-k8s.io" "v1beta2", cluster "cohorts" {
        /// Place in the tree, own quota and weight.
        #[serde(default)]
        spec: CohortSpec,
    }
    maybe {
        /// Standing in fair sharing.
        status: CohortStatus,
    }
}

/// Place of a cohort in the tree, and the quota it adds or limits.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    /// Claim of all members together against the siblings of this cohort. Only matters if the manager has
    /// fair sharing enabled.
    pub fair_sharing: Option<FairSharing>,
    /// Cohort to which this one belongs and with which it lends and borrows. Absent makes it a root; a cycle
    /// stops admission in every queue of the tree until it is broken.
    #[schemars(transform = dns_subdomain)]
    pub parent_name: Option<String>,
    /// Quota that members share on top of their own, and limits for the cohort as a whole. Limits need a
    /// parent; only queues that list a flavor themselves can use it.
    #[schemars(length(max = 16))]
    pub resource_groups: Option<Vec<ResourceGroup>>,
}

/// Where a cohort stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// How much the cohort borrows from its parent for its weight. Absent unless fair sharing is enabled.
    pub fair_sharing: Option<FairSharingStatus>,
}
