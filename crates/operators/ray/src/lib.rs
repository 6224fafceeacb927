//! Ray on Kubernetes: RayCluster, RayJob, RayService and RayCronJob.

mod component;
pub mod dashboard;
mod gauges;
pub mod k8s_service;
pub mod labels;
pub mod mtls;
pub mod names;
pub mod network_policy;
pub mod permissions;
pub mod pod;
pub mod pod_view;
pub mod raycluster;
pub mod raycronjob;
pub mod rayjob;
pub mod rayservice;
pub mod schedulers;
pub mod settings;
pub mod spec_hash;
mod spec_meaning;
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
    raycluster::add(runtime, context)?;
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
        raycluster::metrics::register(metrics, &runtime.caches().watch(watches::clusters())?);
    }
    rayjob::add(runtime, context, pollers, metrics)?;
    rayservice::add(runtime, context, pollers, metrics)?;
    raycronjob::add(runtime, context)
}
