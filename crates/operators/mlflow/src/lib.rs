//! MLflow on Kubernetes: the MLflow server of the cluster, its databases and its periodic tasks.
//!
//! ```text
//!   MLflow ── mlflow ──────> migration Job, then Deployment, Service, CronJobs, RBAC, NetworkPolicies, HTTPRoute, ...
//!   MLflowOperator ── module ──> settings for `mlflow`, and permission to begin; in module mode
//!   Namespace ── workspaces ───> RoleBindings for the platform's groups; with namespace RBAC
//! ```
//!
//! MLflowConfig has no controller: the MLflow server reads it.

mod component;
pub mod mlflow;
mod module;
mod names;
mod permissions;
pub mod settings;
mod watches;
mod workspaces;

use std::sync::Arc;

use quintet_controller::{Error, Runtime, clock::Clock, metrics::MetricsRegistry};

pub use component::component;
use settings::Settings;

/// What the controllers share.
#[derive(Clone)]
pub struct Context {
    /// Where they are added.
    pub runtime: Runtime,
    /// What changes their behaviour.
    pub settings: Arc<Settings>,
    /// The time of day.
    pub clock: Clock,
    /// Where metrics are registered.
    pub metrics: MetricsRegistry,
    /// Objects of one kind that are reconciled at the same time.
    pub concurrency: usize,
}

/// Adds the controllers that the settings ask for.
pub fn add(context: &Context) -> Result<(), Error> {
    mlflow::add(context)?;
    if context.settings.module_mode {
        module::add(context)?;
    }
    if context.settings.namespace_rbac {
        workspaces::add(context)?;
    }
    Ok(())
}
