//! Pods: each a job of its own, or together with others of its group.
//!
//! A pod cannot be suspended. It is created with a scheduling gate, which is removed when it is admitted; stopping it is
//! deleting it. As `pkg/controller/jobs/pod` of Kueue.

mod group;
mod members;
mod role;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::metadata::{
    ADMISSION_GATE, MANAGED, MANAGED_FINALIZER, POD_GROUP_NAME, POD_GROUP_POD_INDEX, POD_SUSPENDING_PARENT,
    TOPOLOGY_GATE,
};
use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod};
use quintet_controller::cache::{Entry, Selector};
use quintet_controller::plan::PatchKind;
use quintet_controller::{Action, ApiKind, Step, finalizers};
use quintet_queue_engine::settings::Gates;
use serde_json::{Value, json};

use super::compose::{annotation, label};
use super::{JobEnd, JobKind, PodSetInfo, Stop, StopReason, topology_request};
use crate::settings::{POD, Settings};
pub(super) use group::add_groups;
pub(super) use role::{hash_of, shape_of};

const MAIN: &str = "main";
/// Field manager of the conditions of stopped pods.
const MANAGER: &str = "kueue";
/// Condition of a pod that is stopped.
const TERMINATION_TARGET: &str = "TerminationTarget";

/// The group of a pod: by annotation, or by the label of older clients.
pub(super) fn group_of<'p>(metadata: &'p ObjectMeta, settings: &Settings) -> Option<&'p str> {
    let by_annotation = || annotation(metadata, POD_GROUP_NAME).filter(|name| !name.is_empty());
    let by_label = || label(metadata, POD_GROUP_NAME).filter(|name| !name.is_empty());
    if settings.gates.identifier_annotations { by_annotation().or_else(by_label) } else { by_label() }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
    gates.iter().any(|gate| gate.name == ADMISSION_GATE)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether there is nothing of it to stop. The Workload that is deleted takes even pods that have ended with it.
fn is_stopped(pod: &Pod, reason: &StopReason) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        || *reason != StopReason::WorkloadDeleted && (has_ended(pod) || is_gated(pod))
}

/// Whether the integration manages a pod: one of its own, or one whose parent is managed.
fn is_managed(pod: &Pod, settings: &Settings) -> bool {
    label(&pod.metadata, MANAGED) == Some("true")
        && (settings.is_enabled(POD) || annotation(&pod.metadata, POD_SUSPENDING_PARENT).is_some())
}

/// What a pod runs, as a pod set of this name and size.
fn pod_set(pod: &Pod, name: &str, count: i32, gates: &Gates) -> PodSet {
    let mut template = PodTemplateSpec { metadata: Some(pod.metadata.clone()), spec: pod.spec.clone() };
    let topology_request = topology_request::of(&template, Some(POD_GROUP_POD_INDEX), gates);
    template.metadata = None;
    PodSet { name: Some(name.to_owned()), count: Some(count), min_count: None, template, topology_request }
}

/// Lets a pod be scheduled with what its pod set was assigned. The ungater places it if it has a topology.
fn ungate(pod: &mut Pod, info: &PodSetInfo) -> Result<(), String> {
    let mut template = PodTemplateSpec { metadata: Some(pod.metadata.clone()), spec: pod.spec.clone() };
    info.inject(&mut template)?;
    let mut spec = template.spec.unwrap_or_default();
    if let Some(gates) = &mut spec.scheduling_gates {
        gates.retain(|gate| gate.name != ADMISSION_GATE && (info.is_placed || gate.name != TOPOLOGY_GATE));
    }
    pod.metadata = template.metadata.unwrap_or_default();
    pod.spec = Some(spec);
    Ok(())
}

/// The writes that end a pod. The condition lets those who made it know that it did not fail.
fn terminate(entry: &Entry<Pod>, stop: &Stop<'_>) -> [Step; 2] {
    let kind = ApiKind::of::<Pod>();
    let condition = json!({ "type": TERMINATION_TARGET, "status": "True", "reason": stop.reason.text(),
        "message": stop.note, "lastTransitionTime": stop.now });
    let applied = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": entry.key.name(), "namespace": entry.key.namespace(), "uid": entry.uid },
        "status": { "conditions": [condition] } });
    let mark = Action::Patch {
        kind: kind.clone(),
        key: entry.key.clone(),
        subresource: Some("status".to_owned()),
        patch_kind: PatchKind::Apply { manager: MANAGER.to_owned(), force: true },
        patch: applied,
    };
    [mark.into(), Action::delete(kind, entry).into()]
}

/// Removes the finalizer that keeps a pod while its Workload needs to know of it.
fn without_finalizer(entry: &Entry<Pod>) -> Option<Action> {
    finalizers::remove(entry, &entry.object.metadata, MANAGED_FINALIZER)
}

impl JobKind for Pod {
    const FRAMEWORK: &'static str = POD;
    const CONTROLLER: &'static str = "pod-kueue-controller";
    const IS_TOP_LEVEL: bool = true;
    const ENDS_WHEN_STOPPED: bool = true;
    const WAITS_WHILE_ELSEWHERE: bool = true;

    fn is_suspended(&self) -> bool {
        has_ended(self) || is_gated(self)
    }

    /// Never: the quota of a single pod is given back as soon as it is stopped.
    fn is_active(&self) -> bool {
        false
    }

    fn end(&self) -> Option<JobEnd> {
        let message = self.status.as_ref().and_then(|status| status.message.clone()).unwrap_or_default();
        has_ended(self).then(|| JobEnd { succeeded: phase(self) == "Succeeded", message })
    }

    fn has_all_pods_ready(&self) -> bool {
        is_ready(self)
    }

    fn pod_sets(&self, gates: &Gates, _: &[Value]) -> Result<Vec<PodSet>, String> {
        Ok(vec![pod_set(self, MAIN, 1, gates)])
    }

    fn reclaimable_pods(&self, _: &[Value]) -> Vec<ReclaimablePod> {
        Vec::new()
    }

    fn start(&mut self, infos: &[PodSetInfo]) -> Result<(), String> {
        match infos {
            [info] if is_gated(self) => ungate(self, info),
            [_] => Ok(()),
            _ => Err(format!("invalid podset infos: expecting 1 pod set got {}", infos.len())),
        }
    }

    fn stop(entry: &Entry<Self>, _: &[PodSet], stop: &Stop<'_>) -> Vec<Step> {
        terminate(entry, stop).into()
    }

    fn is_stopped(&self, reason: &StopReason) -> bool {
        is_stopped(self, reason)
    }

    fn is_job(&self, settings: &Settings) -> bool {
        group_of(&self.metadata, settings).is_none()
    }

    fn is_managed(&self, settings: &Settings) -> bool {
        is_managed(self, settings)
    }

    fn finalize(entry: &Entry<Self>) -> Option<Action> {
        without_finalizer(entry)
    }

    fn selector() -> Selector {
        Selector::all().label(MANAGED, "true")
    }
}
