//! From API objects to the engine's model.
//!
//! Objects are read as JSON here, so that the engine depends on no generated types and every caller can
//! feed it. Nothing behind this module knows about JSON, pod templates or quantities as text.

mod json;
mod limits;
mod objects;
mod pod;
mod workload;

pub use limits::{FieldError, LimitSummary, adjust_resources, validate_resources};
pub use objects::{
    check, cohort, flavor, local_queue, namespace, node, pod_usage, queue, settings, topology,
};
pub use pod::{Quantities, pod_requests, pod_shape, quantities, requests};
pub use workload::{IntakeOptions, Transformation, demand_quantities, time, topology_request, workload};

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what}: {text:?}")]
pub struct Unreadable {
    what: &'static str,
    text: String,
}

impl Unreadable {
    pub(crate) fn new(what: &'static str, text: impl std::fmt::Display) -> Self {
        Self { what, text: text.to_string() }
    }
}
