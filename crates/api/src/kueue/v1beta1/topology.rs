//! `Topology`: how nodes are grouped into racks, blocks and the like.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kueue::rules::TOPOLOGY_LEVELS_V1BETA1;
use crate::kueue::v1beta2::TopologyLevel;
use crate::resource::resource;
use crate::schema::rules;

resource! {
    /// The hierarchy of a data center, as labels on nodes, used to place pods of a workload close together.
    Topology in "kueue.x-k8s.io" "v1beta1", cluster "topologies" {
        /// The levels of the hierarchy.
        #[serde(default)]
        spec: TopologySpec,
    }
}

/// The levels of a topology.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// Levels from the widest to the narrowest, such as block, rack, host. Can be changed only if
    /// `kubernetes.io/hostname` is the last level before and after.
    #[schemars(length(min = 1, max = 16), transform = rules(TOPOLOGY_LEVELS_V1BETA1))]
    pub levels: Vec<TopologyLevel>,
}
