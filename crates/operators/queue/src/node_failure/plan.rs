//! What follows from the health of the nodes of a Workload. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::events::{OtherEvent, evicted_due_to};
use quintet_api::kueue::reasons::EvictionReason;
use quintet_api::kueue::v1beta2::{PodSetAssignment, UnhealthyNode, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::plan::PatchKind;
use quintet_controller::{Action, ApiKind, Event, Next, Plan, Step};
use quintet_queue_engine::{ingest, status};
use serde_json::json;

use super::Observed;
use super::health::{Tolerance, tolerance};
use crate::field_managers;
use crate::jobs;
use crate::scheduler::engine_time;
use crate::topology::{PodView, assigned_nodes, has_larger_domains, has_node};

/// How long a node may not be ready, where the pods on it do not matter. As `NodeFailureDelay` of Kueue.
const NOT_READY_FOR: SignedDuration = SignedDuration::from_secs(30);
/// Condition of pods that are failed because they could never run.
const TERMINATED: &str = "TerminatedByKueue";
const UNSCHEDULABLE: &str = "UnschedulableOnAssignedNode";
const TERMINATED_MESSAGE: &str = "Pod terminated by Kueue NodeController due to node taint";

/// How a node is for a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Healthy,
    /// It is not ready, which counts from then on.
    FailsAt(Timestamp),
    Failed,
}

/// Records failed nodes, evicts if there is more than one, and fails pods that wait for a node of no use.
pub(super) fn plan(observed: &Observed) -> Plan {
    let workload = &observed.workload.object;
    if workload.is_finished() || workload.is_evicted() {
        return Plan::nothing();
    }
    let assigned = assigned_nodes(workload);
    let health: Vec<(&str, Health)> =
        assigned.iter().map(|node| (node.as_str(), observed.health(node))).collect();
    let mut plan = record(observed, &health);
    let is_evicted = !plan.events.is_empty();
    if !is_evicted {
        let useless = observed.pods.iter().filter(|pod| observed.waits_in_vain(pod, &assigned));
        plan.steps = useless.map(|pod| fail(pod, observed.now)).collect();
    }
    let due = health.iter().filter_map(|(_, health)| match health {
        Health::FailsAt(at) => Some(*at),
        Health::Healthy | Health::Failed => None,
    });
    plan.next = due.min().map_or(Next::AwaitChange, |at| {
        let wait = Duration::try_from(at.duration_since(observed.now)).unwrap_or_default();
        Next::After(wait.max(Duration::from_millis(10)))
    });
    plan
}

/// Writes which nodes have failed, or evicts.
fn record(observed: &Observed, health: &[(&str, Health)]) -> Plan {
    let mut object = observed.workload.object.clone();
    let before = object.status.clone();
    let known = before.as_ref().and_then(|status| status.unhealthy_nodes.as_deref()).unwrap_or_default();
    let is_failed = |name: &str| health.iter().any(|(own, health)| *own == name && *health == Health::Failed);
    let mut failed: Vec<&str> =
        known.iter().map(|node| node.name.as_str()).filter(|name| is_failed(name)).collect();
    let kept = failed.len();
    for (name, health) in health {
        if *health == Health::Failed && !failed.contains(name) {
            failed.push(name);
        }
    }
    let mut events = Vec::new();
    if failed.len() > kept && failed.len() > 1 {
        let message = format!(
            "Workload eviction triggered due to multiple TAS assigned node failures, including: {}",
            failed.join(", ")
        );
        let reason = EvictionReason::NodeFailures.as_str();
        status::evict(&mut object, reason, "", &message, engine_time(observed.now));
        let event = evicted_due_to(reason);
        events.push(Event::normal(&event, &event, message));
    } else if kept != known.len() || failed.len() > kept {
        let nodes: Vec<UnhealthyNode> =
            failed.iter().map(|name| UnhealthyNode { name: (*name).to_owned() }).collect();
        object.status.get_or_insert_default().unhealthy_nodes = (!nodes.is_empty()).then_some(nodes);
    }
    let status = field_managers::status_patch(&observed.workload, object.status.as_ref());
    Plan { status, events, ..Plan::default() }
}

impl Observed {
    fn health(&self, name: &str) -> Health {
        let gates = &self.settings.gates;
        let workload = &self.workload.object;
        // Its only pod cannot be replaced: it ends with its node, and another one gets another Workload.
        if self.settings.scheduling.skip_reassignment_for_pod_owned && ingest::is_owned_by_pod(workload) {
            return Health::Healthy;
        }
        let Some(ready) = self.nodes.get(name).and_then(|node| node.ready.as_ref()) else {
            return Health::Failed;
        };
        if !ready.is_ready {
            let due = ready.since.and_then(|since| since.checked_add(NOT_READY_FOR).ok());
            let is_due = due.is_none_or(|due| due <= self.now);
            return match due {
                _ if is_due && (gates.replace_after_time || !gates.replace_on_pod_termination) => {
                    Health::Failed
                }
                Some(due) if !gates.replace_on_pod_termination => Health::FailsAt(due),
                _ if !self.has_running_pods(name) => Health::Failed,
                Some(due) if gates.replace_after_time => Health::FailsAt(due),
                _ => Health::Healthy,
            };
        }
        let fails = match self.tolerance(name) {
            Tolerance::Lasting => false,
            Tolerance::Limited => !self.has_running_pods(name),
            Tolerance::None => !gates.replace_on_pod_termination || !self.has_running_pods(name),
        };
        if fails { Health::Failed } else { Health::Healthy }
    }

    /// Whether a pod waits for a node that is not, or no longer, its Workload's, or that cannot run it.
    fn waits_in_vain(&self, pod: &Entry<PodView>, assigned: &BTreeSet<String>) -> bool {
        let view = &pod.object;
        let Some(name) = view.awaited_node().filter(|_| view.asks_for_topology() && !pod.deleting) else {
            return false;
        };
        if !assigned.contains(name) {
            // Another slice of its job may have placed it, and a selector of the user may name a host.
            let workload = &self.workload.object;
            return view.workload() == Some(self.workload.key.name())
                && !jobs::is_slice(workload)
                && !has_larger_domains(workload);
        }
        let Some(node) = self.nodes.get(name) else { return true };
        let is_ready = node.ready.as_ref().is_some_and(|ready| ready.is_ready);
        self.settings.gates.replace_on_pod_termination
            && (!is_ready || self.tolerance(name) != Tolerance::Lasting)
    }

    /// What the taints of a node mean for the pod sets that have it.
    fn tolerance(&self, name: &str) -> Tolerance {
        let taints = self.nodes.get(name).map(|node| node.taints.as_slice()).unwrap_or_default();
        if taints.is_empty() || !self.settings.gates.replace_on_taints {
            return Tolerance::Lasting;
        }
        let workload = &self.workload.object;
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let assignments =
            admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten());
        let pod_sets: Vec<Vec<Toleration>> = assignments
            .filter(|assignment| has_node(assignment, name))
            .map(|assignment| self.tolerations(workload, assignment))
            .collect();
        tolerance(taints, &pod_sets)
    }

    /// What the pods of a pod set tolerate: by their template, their flavors, and admission checks.
    fn tolerations(&self, workload: &Workload, assignment: &PodSetAssignment) -> Vec<Toleration> {
        let sets = workload.spec.pod_sets.iter().flatten();
        let template =
            sets.filter(|set| set.name == assignment.name).filter_map(|set| set.template.spec.as_ref());
        let of_template = template.flat_map(|spec| spec.tolerations.iter().flatten());
        let flavors = assignment.flavors.iter().flatten().filter_map(|(_, name)| self.flavors.get(name));
        let of_flavors = flavors.flat_map(|flavor| flavor.spec.tolerations.iter().flatten());
        let checks = workload.status.iter().flat_map(|status| status.admission_checks.iter().flatten());
        let of_checks = checks
            .flat_map(|check| check.pod_set_updates.iter().flatten())
            .filter(|update| Some(&update.name) == assignment.name.as_ref())
            .flat_map(|update| update.tolerations.iter().flatten());
        of_template.chain(of_flavors).chain(of_checks).cloned().collect()
    }

    /// Whether pods of the Workload run on a node, and are not about to end.
    fn has_running_pods(&self, node: &str) -> bool {
        let mut pods = self.pods.iter();
        pods.any(|pod| pod.object.node() == Some(node) && !pod.deleting && !pod.object.has_ended())
    }
}

/// Fails a pod that waits for a node that it will not get, or that it can do nothing with.
fn fail(pod: &Entry<PodView>, now: Timestamp) -> Step {
    let patch = json!({
        "metadata": { "uid": pod.uid.as_str(), "resourceVersion": pod.version.to_string() },
        "status": { "phase": "Failed", "conditions": [{
            "type": TERMINATED, "status": "True", "reason": UNSCHEDULABLE, "message": TERMINATED_MESSAGE,
            "lastTransitionTime": status::api_time(engine_time(now)) }] },
    });
    let kind = ApiKind::of::<Pod>();
    let reason = OtherEvent::PodTerminatedByKueue.as_str();
    let event = Event::normal(reason, "PodTerminated", TERMINATED_MESSAGE).about(kind.clone(), pod);
    let action = Action::Patch {
        kind,
        key: pod.key.clone(),
        subresource: Some("status".to_owned()),
        patch_kind: PatchKind::Strategic,
        patch,
    };
    action.with_event(event)
}
