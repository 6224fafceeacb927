//! Kueue on the engine: queues, quota, Workloads and the jobs they stand for.
//!
//! ```text
//!   Job, Pod ── jobs ──> Workload ── scheduler ──> quota ── workload ──> admitted, evicted, deactivated
//!       ^                                                                            │
//!       └─────────────────────────── jobs: start, stop, give quota back <────────────┘
//! ```
//!
//! - [`scheduler`] is one index over all objects: it decides who gets quota, and reports what queues hold.
//! - [`workload`] is the controller of Workloads.
//! - [`jobs`] has the job framework, and one module per kind of job.
//! - `topology` lets placed pods be scheduled, `node_failure` finds Workloads whose nodes have failed.
//! - `failure_recovery` deletes pods that cannot end, `multikueue` lets Workloads run on other clusters.
//! - `concurrent_admission` tries several flavors for a Workload at once.
//! - `provisioning` asks the cluster autoscaler for nodes: the admission check of ProvisioningRequests.
//! - [`field_managers`] says in whose name the status of a Workload is written.
//! - `protection` keeps objects that others use, `priority_class` lets Workloads follow their class.
//! - [`visibility`] is the API that lists pending Workloads.
//! - [`validation`] and [`defaulting`] are the webhooks of Kueue's own kinds.

mod component;
mod concurrent_admission;
mod configuration;
pub mod custom_labels;
pub mod defaulting;
mod failure_recovery;
pub mod field_managers;
pub mod jobs;
mod metrics;
mod multikueue;
mod node_failure;
mod permissions;
mod priority_class;
mod protection;
mod provisioning;
pub mod scheduler;
pub mod settings;
#[cfg(test)]
mod testing;
mod topology;
pub mod validation;
pub mod visibility;
mod watches;
pub mod webhook;
pub mod workload;

use std::sync::Arc;

use quintet_api::config::Controllers;
use quintet_api::config::kueue as names;
use quintet_controller::clock::Clock;
use quintet_controller::{Error, Runtime};

pub use component::component;
use metrics::QueueMetrics;
use scheduler::{Scheduler, SchedulerCaches};
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
    /// Objects of one kind that are reconciled at the same time.
    pub concurrency: usize,
    /// What is counted.
    pub(crate) metrics: Arc<QueueMetrics>,
    /// Which of them run.
    pub controllers: Controllers,
    /// Where the visibility API finds the scheduler; `None` if it is switched off.
    pub(crate) visibility: Option<visibility::Source>,
}

/// Adds the scheduler and all controllers that are enabled.
pub fn add(context: &Context) -> Result<(), Error> {
    let enables = |name: &str| context.controllers.enables(name);
    let tasks =
        scheduler::Tasks { schedule: enables(names::SCHEDULER), report: enables(names::QUEUE_STATUS) };
    if tasks.schedule || tasks.report || context.visibility.is_some() {
        let caches = SchedulerCaches::watch(context.runtime.caches(), &context.settings.scheduling)?;
        let configuration = Arc::new(context.settings.configuration.clone());
        let scheduler = Scheduler::new(configuration, context.settings.scheduling.clone())
            .counted_by(Arc::clone(&context.metrics))
            .with_tasks(tasks);
        let handle = scheduler::start(&context.runtime, &context.clock, scheduler, &caches);
        if let Some(source) = &context.visibility {
            // The first one counts: an operator is started once.
            let _ = source.set(handle);
        }
    }
    if enables(names::WORKLOAD) {
        workload::add(context)?;
        if context.settings.scheduling.concurrent_admission {
            concurrent_admission::add(context)?;
        }
    }
    if enables(names::PROTECTION) {
        protection::add(context)?;
    }
    if enables(names::PRIORITY_CLASS) {
        priority_class::add(context)?;
    }
    if enables(names::TOPOLOGY) && context.settings.scheduling.tas {
        topology::add(context)?;
    }
    if enables(names::MULTIKUEUE) && context.settings.gates.multikueue {
        multikueue::add(context)?;
    }
    if enables(names::NODE_FAILURE)
        && context.settings.scheduling.tas
        && context.settings.scheduling.tas_failed_node_replacement
    {
        node_failure::add(context)?;
    }
    if enables(names::FAILURE_RECOVERY) && context.settings.gates.failure_recovery {
        failure_recovery::add(context)?;
    }
    if enables(names::PROVISIONING) {
        provisioning::add(context)?;
    }
    if enables(names::JOBS) {
        jobs::add(context)?;
    }
    Ok(())
}
