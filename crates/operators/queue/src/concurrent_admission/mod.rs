//! Concurrent admission: a Workload of a ClusterQueue with a `concurrentAdmissionPolicy` tries all flavors at once.
//!
//! The Workload of the job is a parent, which is never queued. For every flavor it has a variant, a Workload that may use
//! this flavor only. The first variant that is admitted gives its admission to the parent, which starts the job. Better
//! variants may go on trying; one that fits takes the place of the admitted one. As `controller.go` of Kueue's
//! `pkg/controller/concurrentadmission`.

mod observe;
mod plan;
#[cfg(test)]
mod tests;
mod variant;

use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan};

use crate::Context;
pub(crate) use observe::Observed;
use observe::VariantCaches;
pub(crate) use variant::{is_parent, parent_reference};

/// The preemption gate of variants, which is opened for one of them at a time.
const GATE: &str = "kueue.x-k8s.io/concurrent-admission";

/// The controller of parents and their variants.
struct ConcurrentAdmission {
    context: Context,
    caches: VariantCaches,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = VariantCaches::watch(context.runtime.caches())?;
    let (workloads, local_queues, cluster_queues) =
        (caches.workloads.clone(), caches.local_queues.clone(), caches.cluster_queues.clone());
    let (of_local_queue, of_cluster_queue) = (caches.clone(), caches.clone());
    context
        .runtime
        .add(ConcurrentAdmission { context: context.clone(), caches }, &workloads, context.concurrency)
        .watches(&workloads, |entry| observe::parent_of(entry).into_iter().collect())
        .watches(&local_queues, move |entry| of_local_queue.parents_of_local_queue(&entry.key))
        .watches_changes(&cluster_queues, move |change| of_cluster_queue.parents_of_cluster_queue(change))
        .done();
    Ok(())
}

impl Controller for ConcurrentAdmission {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "concurrent-admission-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.observe(key, settings, clock.now()))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
