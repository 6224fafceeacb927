//! What is written to other clusters: copies of Workloads and jobs, and their end. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::conditions;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::metadata::{ELASTIC_JOB, JOB_UID, MULTIKUEUE_ORIGIN, PREBUILT_WORKLOAD_NAME};
use quintet_api::kueue::reasons::DeactivationReason;
use quintet_api::kueue::v1beta2::{GatePosition, PodSet, PreemptionGate, PreemptionGateState, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind};
use quintet_queue_engine::status;
use serde_json::{Value, json};

use super::observe::{Copies, LocalJob};
use crate::field_managers;
use crate::jobs::{are_equivalent, spec_elsewhere};
use crate::scheduler::engine_time;

/// The longest value of a label.
const MAX_LABEL: usize = 63;

/// The preemption gate of copies, which is opened on one cluster at a time.
const GATE: &str = "kueue.x-k8s.io/multikueue";

/// Creates the copy of a Workload. A gated one may not preempt before its gate is opened.
pub(super) fn create_workload(workload: &Workload, origin: &str, is_gated: bool) -> Action {
    let mut labels = workload.metadata.labels.clone().unwrap_or_default();
    // With it, the other cluster would take the copy for one whose job is gone.
    labels.remove(JOB_UID);
    labels.insert(MULTIKUEUE_ORIGIN.to_owned(), origin.to_owned());
    let mut copy = Workload {
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
    if is_gated {
        let gates = copy.spec.preemption_gates.get_or_insert_default();
        if !gates.iter().any(|gate| gate.name == GATE) {
            gates.push(PreemptionGate { name: GATE.to_owned() });
        }
    }
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

/// The fields that hold the size of elastic jobs.
const SIZES: [&str; 4] = [
    "/spec/parallelism",
    "/spec/workerGroupSpecs",
    "/spec/rayClusterSpec/workerGroupSpecs",
    "/spec/rayClusterConfig/workerGroupSpecs",
];

/// Lets the copy of an elastic job have the size of the job, and run for the slice of that size.
pub(super) fn resize_job(job: &LocalJob, copy: &Entry<Value>, workload: &str) -> Option<Action> {
    let mut desired = copy.object.clone();
    for field in SIZES {
        let own = job.entry.object.pointer(field);
        match (own, desired.pointer_mut(field)) {
            (Some(Value::Array(own)), Some(Value::Array(groups))) => {
                for (group, own) in groups.iter_mut().zip(own) {
                    group["replicas"] = own["replicas"].clone();
                }
            }
            (Some(own), Some(size)) => *size = own.clone(),
            _ => {}
        }
    }
    desired["metadata"]["annotations"][PREBUILT_WORKLOAD_NAME] = workload.into();
    if workload.len() <= MAX_LABEL {
        desired["metadata"]["labels"][PREBUILT_WORKLOAD_NAME] = workload.into();
    }
    Action::update(job.kind.clone(), copy, &desired)
}

/// Deletes what a cluster has of a Workload: the job, then the copy.
pub(super) fn remove(copies: &Copies) -> Vec<Action> {
    let jobs = copies.jobs.iter().filter(|job| !job.entry.deleting);
    let jobs = jobs.map(|job| Action::delete(job.kind.clone(), &job.entry));
    let workload = copies.workload.iter().filter(|entry| !entry.deleting);
    jobs.chain(workload.map(|entry| Action::delete(ApiKind::of::<Workload>(), entry))).collect()
}

/// Stops a copy, whose job then stops as it would have on this cluster.
pub(super) fn deactivate(copy: &Entry<Workload>, now: Timestamp) -> Option<Action> {
    let mut changed = copy.object.clone();
    let reason = DeactivationReason::EvictedOnManagerCluster.as_str();
    let message = "The workload was evicted on the manager cluster";
    let kind = WorkloadCondition::DeactivationTarget;
    status::set_condition(&mut changed, kind, true, reason, message, engine_time(now));
    field_managers::write_status(copy, changed.status.as_ref())
}

/// Since when a copy waits for its gate to be opened.
pub(super) fn blocked_since(copy: &Workload) -> Option<Timestamp> {
    let has_gate = copy.spec.preemption_gates.iter().flatten().any(|gate| gate.name == GATE);
    let conditions = copy.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let blocked = conditions::find(conditions, WorkloadCondition::BlockedOnPreemptionGates.as_str());
    let blocked = blocked.filter(|own| has_gate && own.status == "True" && opened_at(copy).is_none());
    blocked.map(|own| own.last_transition_time.0)
}

/// When the gate of a copy was opened; `None` while it is closed.
pub(super) fn opened_at(copy: &Workload) -> Option<Timestamp> {
    let mut gates = copy.status.iter().flat_map(|status| status.preemption_gates.iter().flatten());
    let gate = gates.find(|gate| gate.name == GATE && gate.position == GatePosition::Open)?;
    Some(gate.last_transition_time.0)
}

/// Lets a copy preempt.
pub(super) fn open_gate(copy: &Entry<Workload>, now: Timestamp) -> Option<Action> {
    let mut changed = copy.object.status.clone().unwrap_or_default();
    let gates = changed.preemption_gates.get_or_insert_default();
    gates.retain(|gate| gate.name != GATE);
    gates.push(PreemptionGateState {
        name: GATE.to_owned(),
        position: GatePosition::Open,
        last_transition_time: status::api_time(engine_time(now)),
    });
    field_managers::write_status(copy, Some(&changed))
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

/// Whether a Workload is a slice of a job that grows and shrinks.
pub(super) fn is_elastic(workload: &Workload) -> bool {
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
