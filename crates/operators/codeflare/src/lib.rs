//! CodeFlare: AppWrappers, and the hardening of Ray clusters.
//!
//! ```text
//!   AppWrapper ── appwrapper ──> any objects: created, watched, retried, deleted together
//!   RayCluster ── raycluster ──> CA, NetworkPolicies, Routes or Ingresses, OAuth proxy; its webhook changes the pods
//! ```

mod appwrapper;
mod component;
mod field_errors;
mod fields;
mod permissions;
mod raycluster;
mod settings;

use quintet_controller::{Error, Runtime, clock::Clock, metrics::MetricsRegistry};

pub use component::component;
use settings::Settings;

/// What the controllers share.
#[derive(Clone)]
struct Context {
    /// Where they are added.
    runtime: Runtime,
    /// The time of day.
    clock: Clock,
    /// Where metrics are registered.
    metrics: MetricsRegistry,
    /// Objects of one kind that are reconciled at the same time.
    concurrency: usize,
}

/// Adds the controllers that the settings ask for.
fn add(context: &Context, settings: &Settings) -> Result<(), Error> {
    if let Some(config) = &settings.appwrapper {
        appwrapper::add(context, (**config).clone())?;
    }
    if let Some(hardening) = &settings.hardening {
        raycluster::add(context, hardening)?;
    }
    Ok(())
}
