//! The topology ungater: pods of an admitted Workload get their places, and may be scheduled there.
//!
//! The scheduler assigns domains to pod sets; their pods are created with a scheduling gate. Each pod gets the node
//! selector of a domain, by its index where all pods have one, and its gate is removed. As `topology_ungater.go` of Kueue.

mod plan;
mod pod;

use std::sync::Arc;

use quintet_api::kueue::metadata::POD_SET;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::cache::{Cache, Entry, Selector, WatchSpec};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use crate::{Context, watches};
pub(crate) use pod::PodView;

/// Pods by their Workload.
const BY_WORKLOAD: &str = "workload";

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
    let pods = pods()
        .index(BY_WORKLOAD, |entry| workload_of(entry).map(|key| key.to_string()).into_iter().collect());
    let pods = caches.watch(pods)?;
    let controller = Ungater { workloads: workloads.clone(), pods: pods.clone() };
    context
        .runtime
        .add(controller, &workloads, context.concurrency)
        .watches(&pods, |entry| workload_of(entry).into_iter().collect())
        .done();
    Ok(())
}

/// Pods of pod sets.
pub(crate) fn pods() -> WatchSpec<PodView> {
    let kind = ApiKind::of::<k8s_openapi::api::core::v1::Pod>();
    WatchSpec::projected(kind, |text| serde_json::from_str::<PodView>(text))
        .select(Selector::all().has_label(POD_SET))
}

fn workload_of(entry: &Entry<PodView>) -> Option<ObjectKey> {
    Some(ObjectKey::new(entry.key.namespace()?, entry.object.workload()?))
}

impl Controller for Ungater {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "topology-ungater";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(workload) = self.workloads.get(key) else { return Ok(None) };
        Ok(Some(Observed { workload, pods: self.pods.by_index(BY_WORKLOAD, key.as_str()) }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
