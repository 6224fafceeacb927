//! What kube-controller-manager and kube-scheduler do, for the embedded Kubernetes API: ordinary controllers on the
//! controller runtime, one folder per kind.
//!
//! ```text
//!   Deployment ──> ReplicaSet ──┐
//!   CronJob ──> Job ────────────┼──> Pod ── scheduler ──> Node
//!   StatefulSet, DaemonSet ─────┘
//! ```
//!
//! They use only the Kubernetes API, through one `kube::Client`. Garbage collection, namespaces, quotas and protection
//! finalizers are part of the embedded API server itself.

mod admission;
mod claim;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod job;
mod names;
mod node;
mod nodes;
mod pod;
mod pod_events;
mod pod_gc;
mod removal;
mod replicaset;
mod revision;
mod scheduler;
mod statefulset;
mod taints;
mod template;
#[cfg(test)]
mod testing;
mod time;
mod volumes;

use std::path::PathBuf;

use quintet_controller::api::Api;
use quintet_controller::cache::Cache;
use quintet_controller::clock::Clock;
use quintet_controller::{Error, Runtime};

pub use admission::{Rejection, admit, fits};

use names::PodNames;
use pod::PodView;

/// How the controllers run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Objects that each controller reconciles at a time.
    pub concurrency: usize,
    /// Where persistent volumes are directories. Without it no volume is provisioned.
    pub volumes: Option<PathBuf>,
    /// Makes names and backoffs repeatable, for simulations.
    pub seed: Option<u64>,
}

impl Default for Settings {
    /// The concurrency of kube-controller-manager's controllers (`--concurrent-*-syncs`).
    fn default() -> Self {
        Self { concurrency: 5, volumes: None, seed: None }
    }
}

/// What all controllers share.
#[derive(Clone)]
pub(crate) struct Context {
    api: Api,
    pods: Cache<PodView>,
    names: PodNames,
    clock: Clock,
    concurrency: usize,
    volumes: Option<PathBuf>,
    seed: Option<u64>,
}

/// Running controllers.
pub struct Controllers {
    runtime: Runtime,
}

/// Starts all controllers on the cluster of `client`. With a directory for volumes it also creates the default storage
/// class, unless there is one of its name.
pub async fn start(client: kube::Client, clock: &Clock, settings: &Settings) -> Result<Controllers, Error> {
    let (runtime, _) = Runtime::alone(client, clock, "quintet-controllers", settings.seed);
    if settings.volumes.is_some() {
        volumes::create_class(runtime.api()).await?;
    }
    add(&runtime, clock, settings)?;
    runtime.start();
    Ok(Controllers { runtime })
}

/// Adds all controllers to a runtime.
pub fn add(runtime: &Runtime, clock: &Clock, settings: &Settings) -> Result<(), Error> {
    let pods = runtime.caches().watch(PodView::watch())?;
    let context = Context {
        api: runtime.api().clone(),
        names: PodNames::follow(&pods, settings.seed),
        pods,
        clock: clock.clone(),
        concurrency: settings.concurrency,
        volumes: settings.volumes.clone(),
        seed: settings.seed,
    };
    job::add(runtime, &context)?;
    replicaset::add(runtime, &context)?;
    deployment::add(runtime, &context)?;
    scheduler::add(runtime, &context)?;
    endpoints::add(runtime, &context)?;
    statefulset::add(runtime, &context)?;
    daemonset::add(runtime, &context)?;
    cronjob::add(runtime, &context)?;
    disruption::add(runtime, &context)?;
    nodes::add(runtime, &context)?;
    pod_gc::add(runtime, &context)?;
    volumes::add(runtime, &context)?;
    Ok(())
}

impl Controllers {
    /// Stops the controllers, and returns when reconciles in progress have ended.
    pub async fn stop(self) {
        let late = self.runtime.shut_down().await;
        if !late.is_empty() {
            tracing::warn!("stopped without waiting for: {}", late.join(", "));
        }
    }
}
