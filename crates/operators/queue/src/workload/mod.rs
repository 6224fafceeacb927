//! The Workload controller: admission checks, evictions, deactivation, timeouts and retention.
//!
//! The scheduler gives quota, the controllers of jobs start and stop them and give quota back. Everything between these
//! is here, as in Kueue's `workload_controller.go`.

mod checks;
mod draft;
mod observe;
mod plan;
#[cfg(test)]
mod tests;
mod timeouts;
mod unadmitted;

use quintet_api::kueue::events::WORKLOAD_CONTROLLER;
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan};

use crate::Context;
pub use observe::Observed;
use observe::WorkloadCaches;
pub(crate) use plan::{after, without_finalizer};

/// The controller of Workloads.
pub(crate) struct WorkloadController {
    context: Context,
    caches: WorkloadCaches,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = WorkloadCaches::new(context.runtime.caches())?;
    let (workloads, local_queues, cluster_queues) =
        (caches.workloads.clone(), caches.local_queues.clone(), caches.cluster_queues.clone());
    let namespaces = caches.namespaces.clone();
    let (of_local_queue, of_cluster_queue, of_namespace) = (caches.clone(), caches.clone(), caches.clone());
    let controller = WorkloadController { context: context.clone(), caches };
    context
        .runtime
        .add(controller, &workloads, context.concurrency)
        .watches(&local_queues, move |entry| of_local_queue.workloads_of_local_queue(&entry.key))
        .watches_changes(&cluster_queues, move |change| of_cluster_queue.workloads_of_cluster_queue(change))
        .watches_changes(&namespaces, move |change| of_namespace.workloads_of_namespace(change))
        .done();
    Ok(())
}

impl Controller for WorkloadController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = WORKLOAD_CONTROLLER;

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.workloads.get(key).map(|workload| self.caches.read(workload, settings, clock.now())))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
