//! Ray on Kubernetes: RayCluster, RayJob, RayService and RayCronJob.

pub mod cluster;
mod component;
pub mod cron;
pub mod dashboard;
mod finalizers;
mod gauges;
pub mod job;
pub mod labels;
pub mod mtls;
pub mod names;
pub mod network_policy;
pub mod permissions;
pub mod pod;
pub mod pod_view;
pub mod schedulers;
pub mod service;
mod service_update;
pub mod services;
pub mod settings;
pub mod spec_hash;
pub mod submitter;
#[cfg(test)]
mod testing;
pub mod validation;
pub mod version;
pub mod watches;

use std::sync::Arc;

use quintet_controller::{Error, Runtime, clock::Clock, metrics::MetricsRegistry};

pub use component::component;
use dashboard::Pollers;
use settings::Settings;

/// What all Ray controllers share.
#[derive(Clone)]
pub struct Context {
    /// What changes their behaviour.
    pub settings: Arc<Settings>,
    /// The time of day.
    pub clock: Clock,
    /// Makes names repeatable, for simulations.
    pub seed: Option<u64>,
    /// Objects of one kind that are worked on at the same time.
    pub concurrency: usize,
}

/// Adds the controllers of RayClusters and of what belongs to them.
pub fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    cluster::add(runtime, context)?;
    network_policy::add(runtime, context)?;
    mtls::add(runtime, context)
}

/// Adds the controllers of RayJobs, RayServices and RayCronJobs, which talk to Ray through `pollers`.
pub fn add_workloads(
    runtime: &Runtime,
    context: &Context,
    pollers: &Pollers,
    metrics: Option<&MetricsRegistry>,
) -> Result<(), Error> {
    if let Some(metrics) = metrics {
        cluster::metrics::register(metrics, &runtime.caches().watch(watches::clusters())?);
    }
    job::add(runtime, context, pollers, metrics)?;
    service::add(runtime, context, pollers, metrics)?;
    cron::add(runtime, context)
}
