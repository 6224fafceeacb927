//! Workloads that run on other clusters: nominated clusters get a copy, the first that admits it gets the job.
//!
//! ```text
//!   quota reserved ──> clusters nominated ──> copies ──> one is admitted ──> job there, check Ready, status synced back
//!        ^                                                      │
//!        └──────── check Retry: evicted there, lost, out of sync ┘
//! ```
//!
//! Everything is decided from this Workload, its job and the copies, as the caches of this and of the other clusters show
//! them. Writes to other clusters are calls: those to different clusters are made at the same time.

mod copies;
mod dispatch;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use futures::future::join_all;
use quintet_api::kueue::v1beta2::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig, Workload};
use quintet_controller::cache::Change;
use quintet_controller::controller::Trigger;
use quintet_controller::{Action, Class, Controller, Error, ObjectKey, OnError, Plan};
use serde::{Deserialize, Serialize};

use super::connections::Connections;
use crate::Context;
use crate::jobs::RemoteKind;
use crate::metrics::Metric;
use observe::{Observed, WorkloadCaches};

/// The controller.
struct RemoteWorkloads {
    context: Context,
    caches: WorkloadCaches,
}

/// Writes to other clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    /// The ClusterQueue of the Workload, for metrics.
    queue: String,
    writes: Vec<Writes>,
}

/// Writes to one cluster, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Writes {
    cluster: String,
    actions: Vec<Action>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Writes { cluster, actions }) in self.writes.iter().enumerate() {
            let actions: Vec<String> = actions.iter().map(ToString::to_string).collect();
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{} on cluster {cluster}", actions.join(", "))?;
        }
        Ok(())
    }
}

/// Adds the controller. The trigger reconciles Workloads by key.
pub(super) fn add(
    context: &Context,
    connections: &Arc<Connections>,
    kinds: Vec<RemoteKind>,
) -> Result<Trigger, Error> {
    let caches = WorkloadCaches::new(context, connections, kinds)?;
    let (workloads, kinds) = (caches.workloads.clone(), Arc::clone(&caches.kinds));
    let (of_cluster, of_config, of_check) = (caches.clone(), caches.clone(), caches.clone());
    let (clusters, configs, checks) =
        (caches.clusters.clone(), caches.configs.clone(), caches.checks.clone());
    let controller = RemoteWorkloads { context: context.clone(), caches };
    let mut added = context
        .runtime
        .add(controller, &workloads, context.concurrency)
        .watches_changes(&clusters, move |change: &Change<MultiKueueCluster>| {
            let Some(entry) = change.states().next() else { return Vec::new() };
            of_cluster.workloads_of_cluster(entry.key.name())
        })
        .watches(&configs, move |_: &quintet_controller::cache::Entry<MultiKueueConfig>| of_config.checked())
        .watches(&checks, move |_: &quintet_controller::cache::Entry<AdmissionCheck>| of_check.checked());
    for kind in &*kinds {
        added = kind.watched(added, &workloads);
    }
    let trigger = added.trigger();
    added.done();
    Ok(trigger)
}

impl RemoteWorkloads {
    /// Writes to one cluster. The error is that of the first write that fails.
    async fn write(&self, queue: &str, writes: &Writes) -> Result<(), Error> {
        let Writes { cluster, actions } = writes;
        let Some(connection) = self.caches.connections.get(cluster) else {
            let attempt = format!("cannot write to MultiKueueCluster {cluster}");
            return Err(Error::new(Class::Transient, attempt, "it is not connected"));
        };
        connection.execute(cluster, actions.clone()).await.map_err(|error| {
            let attempt = format!("cannot write to MultiKueueCluster {cluster}");
            Error::new(error.class(), attempt, error.to_string())
        })?;
        let workload = quintet_controller::ApiKind::of::<Workload>();
        let creates = |action: &&Action| matches!(action, Action::Create { kind, .. } if *kind == workload);
        if actions.iter().any(|action| creates(&action)) {
            let values = [queue.to_owned(), cluster.clone()];
            self.context.metrics.count(Metric::MultiKueueDispatched, &values, 1);
        }
        Ok(())
    }
}

impl Controller for RemoteWorkloads {
    type Observed = Observed;
    type Call = Call;

    const NAME: &'static str = "multikueue-workload";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.caches.observe(key, &self.context.settings, self.context.clock.now()))
    }

    fn plan(observed: &Observed) -> Plan<Call> {
        plan::plan(observed)
    }

    async fn call(&self, call: &Call) -> Result<(), Error> {
        let done = join_all(call.writes.iter().map(|writes| self.write(&call.queue, writes))).await;
        done.into_iter().collect()
    }

    fn on_error(_: &Observed, action: &Action<Call>, error: &Error) -> OnError {
        plan::on_error(action, error)
    }
}
