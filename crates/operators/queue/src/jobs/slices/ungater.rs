//! The ungater of elastic jobs: as many pods may be scheduled as the admitted slice has. As `elastic_job_ungater.go` of
//! Kueue.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan, Step};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ELASTIC_GATE, SLICE_NAME, granted};
use crate::Context;
use crate::jobs::compose::annotation;
use crate::topology::{self, PODS_BY_SLICE, PodView, slice_of};
use crate::watches::{self, BY_SLICE};

struct Ungater {
    workloads: Cache<Workload>,
    pods: Cache<PodView>,
}

/// The slice of a chain that has quota, and all pods of the chain.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Observed {
    pub(super) slice: Arc<Entry<Workload>>,
    pub(super) pods: Vec<Arc<Entry<PodView>>>,
}

/// Adds the controller.
pub(in super::super) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let workloads = caches.watch(watches::workloads())?;
    let pods = caches.watch(topology::pods())?;
    let controller = Ungater { workloads: workloads.clone(), pods: pods.clone() };
    let (of_pod, of_slice) = (workloads.clone(), workloads.clone());
    context
        .runtime
        .add(controller, &workloads, context.concurrency)
        // The end of a slice makes another one that which has quota.
        .watches(&workloads, move |entry| {
            first_of_slice(entry).map(|first| chain(&of_slice, &first)).unwrap_or_default()
        })
        .watches(&pods, move |entry| slice_of(entry).map(|first| chain(&of_pod, &first)).unwrap_or_default())
        .done();
    Ok(())
}

fn first_of_slice(entry: &Entry<Workload>) -> Option<ObjectKey> {
    let first = annotation(&entry.object.metadata, SLICE_NAME)?;
    Some(ObjectKey::new(entry.key.namespace()?, first))
}

fn chain(workloads: &Cache<Workload>, first: &ObjectKey) -> Vec<ObjectKey> {
    workloads.by_index(BY_SLICE, first.as_str()).iter().map(|entry| entry.key.clone()).collect()
}

impl Controller for Ungater {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "elastic-job-ungater";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(first) = self.workloads.get(key).and_then(|entry| first_of_slice(&entry)) else {
            return Ok(None);
        };
        let slice = with_quota(self.workloads.by_index(BY_SLICE, first.as_str()));
        // Only its own reconcile acts, so that no two do at the same time.
        Ok(slice
            .filter(|slice| slice.key == *key)
            .map(|slice| Observed { slice, pods: self.pods.by_index(PODS_BY_SLICE, first.as_str()) }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

/// The latest slice of a chain that has quota and keeps it.
fn with_quota(mut slices: Vec<Arc<Entry<Workload>>>) -> Option<Arc<Entry<Workload>>> {
    slices.retain(|entry| {
        let workload = &entry.object;
        !workload.is_finished() && !workload.is_evicted() && workload.has_quota_reservation()
    });
    slices
        .into_iter()
        .max_by_key(|entry| (entry.object.metadata.creation_timestamp.clone(), entry.uid.as_str().to_owned()))
}

/// Ungates pods, those with the lowest names first, until as many as were admitted are.
pub(super) fn plan(observed: &Observed) -> Plan {
    let slice = &observed.slice.object;
    if !slice.is_admitted() {
        return Plan::nothing();
    }
    let mut gated: BTreeMap<&str, Vec<&Entry<PodView>>> = BTreeMap::new();
    let mut running: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in observed.pods.iter().filter(|pod| !pod.object.has_ended()) {
        let set = pod.object.pod_set().unwrap_or_default();
        if pod.object.is_gated_by(ELASTIC_GATE) {
            gated.entry(set).or_default().push(pod);
        } else {
            *running.entry(set).or_default() += 1;
        }
    }
    let steps = granted(slice).into_iter().flat_map(|(name, count)| {
        let granted = usize::try_from(count).unwrap_or_default();
        let room = granted.saturating_sub(running.get(name.as_str()).copied().unwrap_or_default());
        let mut pods = gated.remove(name.as_str()).unwrap_or_default();
        pods.sort_by(|one, other| one.key.name().cmp(other.key.name()));
        pods.into_iter().take(room).map(ungate)
    });
    Plan { steps: steps.collect(), ..Plan::default() }
}

fn ungate(pod: &Entry<PodView>) -> Step {
    let gates = pod.object.gates_but(ELASTIC_GATE);
    let gates = (!gates.is_empty()).then_some(gates);
    Action::merge_exactly(ApiKind::of::<Pod>(), pod, json!({ "spec": { "schedulingGates": gates } })).into()
}
