//! Model registries and the model catalog on Kubernetes.
//!
//! ```text
//!   ModelRegistry ── modelregistry ──> Deployment, Service, roles, proxy, Routes, HTTPRoute, PostgreSQL
//!   Catalog ── catalog ─────────────> the catalog server with its sources and its database
//!   AIHub ── aihub ─────────────────> settings for both, a namespace and the Catalog
//! ```

mod aihub;
mod availability;
pub mod catalog;
mod component;
mod credentials;
mod domain;
mod drift;
mod field_errors;
mod kinds;
mod managed;
mod migration;
pub mod modelregistry;
mod names;
mod objects;
mod permissions;
mod pods;
pub mod settings;

use std::sync::Arc;

use quintet_controller::{Error, Runtime, clock::Clock};

pub use component::component;
pub use managed::OptionalApis;
use settings::Settings;

/// What the controllers share.
#[derive(Clone)]
pub struct Context {
    /// Where they are added.
    pub runtime: Runtime,
    /// The connection to the cluster, for logs.
    pub client: kube::Client,
    /// What changes their behaviour.
    pub settings: Arc<Settings>,
    /// The time of day.
    pub clock: Clock,
    /// Objects of one kind that are reconciled at the same time.
    pub concurrency: usize,
}

/// Adds the controllers.
pub fn add(context: &Context) -> Result<(), Error> {
    modelregistry::add(context)?;
    catalog::add(context)?;
    aihub::add(context)?;
    migration::start(context)
}
