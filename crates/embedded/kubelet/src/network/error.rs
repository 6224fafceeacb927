//! What can go wrong when the network is set up.

use std::fmt;

/// Why the network cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {why}")]
pub struct NetworkError {
    step: String,
    why: String,
}

impl NetworkError {
    /// A request to the kernel failed.
    pub(super) fn new(step: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let step = step.into();
        move |why| Self::because(step, why)
    }

    /// A step failed for a reason.
    pub(super) fn because(step: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { step: step.into(), why: why.to_string() }
    }
}
