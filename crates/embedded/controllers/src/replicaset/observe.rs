//! Everything that a decision about one ReplicaSet needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use quintet_controller::cache::Entry;
use serde::{Deserialize, Serialize};

use crate::names::Entropy;
use crate::pod::PodView;

/// Everything that a decision about a ReplicaSet needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    /// The ReplicaSet.
    pub replica_set: Arc<Entry<ReplicaSet>>,
    /// Its pods, and those that it may adopt.
    pub pods: Vec<Arc<Entry<PodView>>>,
    /// Active pods per node of all ReplicaSets of the same Deployment.
    pub siblings: BTreeMap<String, usize>,
    /// Where the names of new pods come from.
    pub entropy: Entropy,
    /// The time.
    pub now: Timestamp,
}
