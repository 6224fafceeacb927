//! Everything that a decision about one Job needs.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use quintet_controller::cache::Entry;
use serde::{Deserialize, Serialize};

use crate::names::Entropy;
use crate::pod::PodView;

/// Everything that a decision about a Job needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    /// The Job.
    pub job: Arc<Entry<Job>>,
    /// Its pods, and those that it may adopt.
    pub pods: Vec<Arc<Entry<PodView>>>,
    /// An uncached read has shown that its time to live is what the cache says.
    pub ttl_is_current: bool,
    /// Where the names of new pods come from.
    pub entropy: Entropy,
    /// The time.
    pub now: Timestamp,
}
