//! The topology ungater: pods of an admitted Workload get their places, and may be scheduled there.
//!
//! The scheduler assigns domains to pod sets; their pods are created with a scheduling gate. Each pod gets the node
//! selector of a domain, by its index where all pods have one, and its gate is removed. As `topology_ungater.go` of Kueue.

mod nodes;
mod plan;
mod pod;

use std::sync::Arc;

use quintet_api::kueue::metadata::TOPOLOGY_GATE;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use crate::jobs::first_slice_of;
use crate::watches::BY_SLICE;
use crate::{Context, watches};
pub(crate) use nodes::{assigned_nodes, has_larger_domains, has_node};
pub(crate) use pod::FAILURE_RECOVERY;
pub(crate) use pod::PodView;

/// Pods by the Workload, or by the first slice of the elastic job, that they belong to.
pub(crate) const PODS_BY_SLICE: &str = "slice";
/// Pods by the node that they wait for.
pub(crate) const PODS_BY_AWAITED_NODE: &str = "awaitedNode";

/// Pods that may be deleted forcefully, by node.
pub(crate) const PODS_BY_NODE_TO_LEAVE: &str = "nodeToLeave";

/// The controller.
struct Ungater {
    workloads: Cache<Workload>,
    pods: Cache<PodView>,
}

/// A Workload, and its pods.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Observed {
    workload: Arc<Entry<Workload>>,
    pods: Vec<Arc<Entry<PodView>>>,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let workloads = caches.watch(watches::workloads())?;
    let pods = caches.watch(pods())?;
    count_ungated(context, &workloads, &pods);
    let controller = Ungater { workloads: workloads.clone(), pods: pods.clone() };
    let of_pod = workloads.clone();
    context
        .runtime
        .add(controller, &workloads, context.concurrency)
        .watches(&pods, move |entry| workloads_of(entry, &of_pod))
        .done();
    Ok(())
}

/// All pods: those that topology aware scheduling has not placed use nodes, too.
pub(crate) fn pods() -> WatchSpec<PodView> {
    let kind = ApiKind::of::<k8s_openapi::api::core::v1::Pod>();
    WatchSpec::projected(kind, PodView::project)
        .index(PODS_BY_SLICE, |entry| slice_of(entry).map(|key| key.to_string()).into_iter().collect())
        .index(PODS_BY_AWAITED_NODE, |entry| {
            entry.object.awaited_node().map(str::to_owned).into_iter().collect()
        })
        .index(PODS_BY_NODE_TO_LEAVE, |entry| {
            let is_leaving = entry.object.forceful_deletion().is_some();
            entry.object.node().filter(|_| is_leaving).map(str::to_owned).into_iter().collect()
        })
}

/// The Workload, or the first slice of the elastic job, that a pod belongs to.
pub(crate) fn slice_of(entry: &Entry<PodView>) -> Option<ObjectKey> {
    Some(ObjectKey::new(entry.key.namespace()?, entry.object.slice()?))
}

/// The Workload that a pod names, and all slices of the same job.
pub(crate) fn workloads_of(entry: &Entry<PodView>, workloads: &Cache<Workload>) -> Vec<ObjectKey> {
    let namespace = entry.key.namespace().unwrap_or_default();
    let named = entry.object.workload().map(|name| ObjectKey::new(namespace, name));
    let slices =
        slice_of(entry).map(|first| workloads.by_index(BY_SLICE, first.as_str())).unwrap_or_default();
    named.into_iter().chain(slices.iter().map(|slice| slice.key.clone())).collect()
}

/// The pods of a Workload, with those of the other slices of its job.
pub(crate) fn pods_of(workload: &Entry<Workload>, pods: &Cache<PodView>) -> Vec<Arc<Entry<PodView>>> {
    let namespace = workload.key.namespace().unwrap_or_default();
    let first = ObjectKey::new(namespace, first_slice_of(&workload.object));
    pods.by_index(PODS_BY_SLICE, first.as_str())
}

/// Counts how long pods wait for their gate to be removed.
fn count_ungated(context: &Context, workloads: &Cache<Workload>, pods: &Cache<PodView>) {
    let Context { metrics, clock, .. } = context.clone();
    let workloads = workloads.clone();
    pods.subscribe(move |change| {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return };
        if old.uid != new.uid || !old.object.is_gated() || new.object.is_gated() {
            return;
        }
        let namespace = new.key.namespace().unwrap_or_default();
        let name = new.object.workload();
        if let Some(workload) = name.and_then(|name| workloads.get(&ObjectKey::new(namespace, name))) {
            metrics.ungated(TOPOLOGY_GATE, &workload.object, new.object.is_in_group(), clock.now());
        }
    });
}

impl Controller for Ungater {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "topology-ungater";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(workload) = self.workloads.get(key) else { return Ok(None) };
        let pods = pods_of(&workload, &self.pods);
        Ok(Some(Observed { workload, pods }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
