//! Informer events to model: API objects become the engine's compact types.
//!
//! Objects are typed (`quintet-api` and `k8s-openapi`), as the operator's caches hold them.
//! [`Engine::apply_json`](crate::Engine::apply_json) decodes JSON into the same types first: there is one way in, and
//! JSON is for tools and tests, where decoding costs nothing that matters. Behind this module nothing knows pod
//! templates or quantities as text.

mod apply;
mod cluster;
mod config;
mod defaults;
mod devices;
mod fingerprint;
mod limits;
mod pod;
mod pod_usage;
mod queues;
mod workload;

pub use cluster::{PodOnNode, namespace, node, pod_on_node};
pub use config::settings;
pub use defaults::PodDefaults;
pub use devices::{DeviceQuota, DeviceSource, Devices, Selector};
pub use limits::{
    FieldError, LimitSummary, adjust_resources, limits_into_requests, validate_limits, validate_resources,
};
pub use pod::{Quantities, ResourceList, pod_requests, pod_shape, quantities, requests};
pub use pod_usage::PodUsage;
pub use queues::{admission_check, cluster_queue, cohort, local_queue, resource_flavor, topology};
pub use workload::{
    Claims, MIN_COUNTS, RequestOptions, Transformation, is_owned_by_pod, time, topology_request, workload,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// An object that cannot be ingested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what}: {text:?}")]
pub struct IngestError {
    what: &'static str,
    text: String,
}

impl IngestError {
    pub(crate) fn new(what: &'static str, text: impl std::fmt::Display) -> Self {
        Self { what, text: text.to_string() }
    }
}

/// Decodes an object from JSON.
pub fn decode<T: DeserializeOwned>(what: &'static str, object: &Value) -> Result<T, IngestError> {
    T::deserialize(object).map_err(|error| IngestError::new(what, error))
}
