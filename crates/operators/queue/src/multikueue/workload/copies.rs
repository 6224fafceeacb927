//! What is written to other clusters: copies of Workloads and jobs, and their end. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::metadata::{ELASTIC_JOB, JOB_UID, MULTIKUEUE_ORIGIN, PREBUILT_WORKLOAD_NAME};
use quintet_api::kueue::reasons::DeactivationReason;
use quintet_api::kueue::v1beta2::{PodSet, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, StatusPatch};
use quintet_queue_engine::status;
use serde_json::{Value, json};

use super::observe::{Copies, LocalJob};
use crate::jobs::{are_equivalent, spec_elsewhere};
use crate::scheduler::engine_time;

/// The longest value of a label.
const MAX_LABEL: usize = 63;

/// Creates the copy of a Workload.
pub(super) fn create_workload(workload: &Workload, origin: &str) -> Action {
    let mut labels = workload.metadata.labels.clone().unwrap_or_default();
    // With it, the other cluster would take the copy for one whose job is gone.
    labels.remove(JOB_UID);
    labels.insert(MULTIKUEUE_ORIGIN.to_owned(), origin.to_owned());
    let copy = Workload {
        metadata: ObjectMeta {
            name: workload.metadata.name.clone(),
            namespace: workload.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: workload.metadata.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: workload.spec.clone(),
        status: None,
    };
    Action::create(ApiKind::of::<Workload>(), &copy)
}

/// Creates the copy of a job, which runs for the copy of its Workload.
pub(super) fn create_job(job: &LocalJob, workload: &str, origin: &str) -> Action {
    let metadata = &job.entry.object["metadata"];
    let mut copy = json!({
        "metadata": { "name": metadata["name"], "namespace": metadata["namespace"] },
        "spec": spec_elsewhere(&job.entry.object, &job.managed_by),
    });
    for field in ["labels", "annotations"] {
        let own = metadata[field].as_object().cloned().unwrap_or_default();
        copy["metadata"][field] = Value::Object(own);
    }
    copy["metadata"]["labels"][MULTIKUEUE_ORIGIN] = origin.into();
    // Names may be longer than labels.
    copy["metadata"]["annotations"][PREBUILT_WORKLOAD_NAME] = workload.into();
    if workload.len() <= MAX_LABEL {
        copy["metadata"]["labels"][PREBUILT_WORKLOAD_NAME] = workload.into();
    }
    Action::create(job.kind.clone(), &copy)
}

/// Deletes what a cluster has of a Workload: the job, then the copy.
pub(super) fn remove(copies: &Copies) -> Vec<Action> {
    let jobs = copies.jobs.iter().filter(|job| !job.entry.deleting);
    let jobs = jobs.map(|job| Action::delete(job.kind.clone(), &job.entry));
    let workload = copies.workload.iter().filter(|entry| !entry.deleting);
    jobs.chain(workload.map(|entry| Action::delete(ApiKind::of::<Workload>(), entry))).collect()
}

/// Stops a copy, whose job then stops as it would have on this cluster.
pub(super) fn deactivate(copy: &Entry<Workload>, now: jiff::Timestamp) -> Option<Action> {
    let mut changed = copy.object.clone();
    let reason = DeactivationReason::EvictedOnManagerCluster.as_str();
    let message = "The workload was evicted on the manager cluster";
    let kind = WorkloadCondition::DeactivationTarget;
    status::set_condition(&mut changed, kind, true, reason, message, engine_time(now));
    let patch = StatusPatch::between(copy, &copy.object.status, &changed.status)?;
    Some(Action::status(ApiKind::of::<Workload>(), copy.key.clone(), patch))
}

/// How a copy compares with its Workload.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Comparison {
    /// It is what was asked for.
    Same,
    /// This write makes it so.
    Updated(Box<Action>),
    /// It stands for something else.
    Different,
}

/// Compares a copy with its Workload. Priorities follow, and elastic jobs may have become smaller.
pub(super) fn compare(workload: &Workload, copy: &Entry<Workload>) -> Comparison {
    let (wanted, found) = (&workload.spec, &copy.object.spec);
    let sets = |sets: &Option<Vec<PodSet>>| sets.clone().unwrap_or_default();
    let (own, other) = (sets(&wanted.pod_sets), sets(&found.pod_sets));
    let stands_for = are_equivalent(&own, &other, true) || (is_elastic(workload) && has_shrunk(&own, &other));
    if !stands_for {
        return Comparison::Different;
    }
    let mut desired = copy.object.clone();
    desired.spec.priority = wanted.priority;
    desired.spec.priority_class_ref.clone_from(&wanted.priority_class_ref);
    for (set, own) in desired.spec.pod_sets.iter_mut().flatten().zip(&own) {
        set.count = own.count;
    }
    match Action::update(ApiKind::of::<Workload>(), copy, &desired) {
        Some(action) => Comparison::Updated(Box::new(action)),
        None => Comparison::Same,
    }
}

fn is_elastic(workload: &Workload) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations.is_some_and(|own| own.get(ELASTIC_JOB).is_some_and(|value| value == "true"))
}

/// Whether pod sets are the same but for lower counts.
fn has_shrunk(own: &[PodSet], other: &[PodSet]) -> bool {
    let mut resized = other.to_vec();
    for (set, own) in resized.iter_mut().zip(own) {
        if own.count > set.count {
            return false;
        }
        set.count = own.count;
    }
    are_equivalent(own, &resized, true)
}
