//! Everything that a decision about one Deployment needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use quintet_controller::cache::Entry;
use serde::{Deserialize, Serialize};

/// Everything that a decision about a Deployment needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    /// The Deployment.
    pub deployment: Arc<Entry<Deployment>>,
    /// Its ReplicaSets, and those that it may adopt.
    pub replica_sets: Vec<Arc<Entry<ReplicaSet>>>,
    /// Pods that have not ended, by the uid of their ReplicaSet; terminating ones are among them.
    pub pods: BTreeMap<String, usize>,
    /// The time.
    pub now: Timestamp,
}
