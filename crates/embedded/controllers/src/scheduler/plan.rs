//! The decisions of the scheduler: bindings, reports, preemptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use quintet_api::names::head;
use quintet_controller::cache::Entry;
use quintet_controller::index::Write;
use quintet_controller::{Action, ApiKind, Event, ObjectKey, StatusPatch};
use serde_json::json;

use super::filters::{ClaimNeeds, Obstacle, Prepared, claim_needs, filter};
use super::preemption::{Preemption, preempt};
use super::state::{Placed, View};
use super::{Assumed, Decision, Scheduler, Victim, score};
use crate::pod::{Condition, DISRUPTION_TARGET, PodView};
use crate::time;

const POD_SCHEDULED: &str = "PodScheduled";
const UNSCHEDULABLE: &str = "Unschedulable";
const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The longest note of an event, as upstream's `NoteLengthLimit`.
const MAX_NOTE: usize = 1024;

/// A chosen node, or why there is none.
enum Choice {
    Node(String, Vec<ClaimNeeds>),
    None(Failure),
}

/// Why a pod cannot be scheduled.
struct Failure {
    message: String,
    /// The pods that would have to go, and from where.
    preemption: Option<super::preemption::Candidate>,
}

/// Decides about all pods that are due, the most important first.
pub(super) fn decide(scheduler: &mut Scheduler, now: Timestamp, room: usize) -> Vec<Write<Decision>> {
    let mut writes = bind_again(scheduler);
    writes.extend(preempt_victims(scheduler, now));
    for key in scheduler.queue.due(now) {
        if writes.len() >= room {
            break;
        }
        let Some(pod) =
            scheduler.pending.get(&key).cloned().filter(|_| !scheduler.assumed.contains_key(&key))
        else {
            continue;
        };
        match choose(scheduler, &pod) {
            Choice::Node(node, claims) => writes.extend(place(scheduler, &pod, node, &claims, now)),
            Choice::None(failure) => {
                if let Some(candidate) = &failure.preemption {
                    nominate(scheduler, &pod, candidate);
                }
                writes.extend(report(&pod, &failure, now));
                scheduler.queue.failed(&pod, now);
            }
        }
    }
    writes.extend(preempt_victims(scheduler, now));
    writes
}

/// Chooses a node for a pod.
fn choose(scheduler: &Scheduler, pod: &Arc<Entry<PodView>>) -> Choice {
    let nothing = std::collections::BTreeSet::new();
    let view = View { state: &scheduler.state, gone: &nothing, nominated: &scheduler.nominated };
    let nodes = view.state.nodes().count();
    if nodes == 0 {
        return Choice::None(Failure {
            message: "no nodes available to schedule pods".to_owned(),
            preemption: None,
        });
    }
    let claims = match claim_needs(view.state, pod) {
        Ok(claims) => claims,
        Err(reason) => {
            let unhelpful =
                format!("0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.");
            let message =
                format!("0/{nodes} nodes are available: {reason}. {}", super::preemption::failed(&unhelpful));
            return Choice::None(Failure { message, preemption: None });
        }
    };
    let prepared = Prepared::new(pod, view, claims.clone());
    let (mut feasible, mut obstacles) = (Vec::new(), BTreeMap::<String, Obstacle>::new());
    for (node, state) in view.state.nodes() {
        match filter(&prepared, view, node, state) {
            None => feasible.push((node, state)),
            Some(obstacle) => drop(obstacles.insert(node.metadata.name.clone(), obstacle)),
        }
    }
    if let Some(node) = score::best(&prepared, view, &feasible) {
        return Choice::Node(node.metadata.name.clone(), claims);
    }
    let mut message = message(nodes, &obstacles);
    let preemption = match preempt(pod, view, &scheduler.budgets, &obstacles, &claims) {
        Preemption::Possible(candidate) => Some(candidate),
        Preemption::Impossible(reason) => {
            message = format!("{message} {reason}");
            None
        }
    };
    Choice::None(Failure { message, preemption })
}

/// How many nodes reject the pod for which reason, as upstream's `FitError.Error`.
fn message(nodes: usize, obstacles: &BTreeMap<String, Obstacle>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for reason in obstacles.values().flat_map(|obstacle| &obstacle.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<_> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

/// Binds a pod, or first selects its node for claims that wait for their first consumer.
fn place(
    scheduler: &mut Scheduler,
    pod: &Arc<Entry<PodView>>,
    node: String,
    claims: &[ClaimNeeds],
    now: Timestamp,
) -> Vec<Write<Decision>> {
    let waiting: Vec<&ObjectKey> = claims
        .iter()
        .filter_map(|claim| match claim {
            ClaimNeeds::Node(key) => Some(key),
            ClaimNeeds::Bound(_) => None,
        })
        .collect();
    if !waiting.is_empty() {
        // Tried again when the claims are bound.
        scheduler.queue.failed(pod, now);
        return waiting.iter().filter_map(|key| select_node(scheduler, key, &node)).collect();
    }
    scheduler.nominated.remove(&pod.key);
    scheduler.state.place(&node, Placed::new(Arc::clone(pod)));
    let write = bind(pod, &node);
    scheduler.assumed.insert(pod.key.clone(), Assumed { uid: pod.uid.clone(), node, is_lost: false });
    vec![write]
}

/// Bindings whose outcome is unknown are written again.
fn bind_again(scheduler: &mut Scheduler) -> Vec<Write<Decision>> {
    let Scheduler { assumed, pending, .. } = scheduler;
    let again = assumed.iter_mut().filter_map(|(key, assumed)| {
        std::mem::take(&mut assumed.is_lost).then(|| pending.get(key).map(|pod| bind(pod, &assumed.node)))?
    });
    again.collect()
}

fn bind(pod: &Entry<PodView>, node: &str) -> Write<Decision> {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": pod.key.name(), "namespace": pod.key.namespace(), "uid": pod.uid },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let action = Action::CreateSubresource {
        kind: ApiKind::of::<Pod>(),
        key: pod.key.clone(),
        subresource: "binding".to_owned(),
        body,
    };
    let note = format!("Successfully assigned {} to {node}", pod.key);
    Write::new(action, Decision::Bind { pod: pod.key.clone(), uid: pod.uid.clone() })
        .with_events(vec![Event::normal("Scheduled", "Binding", note)])
}

/// Sets the selected node of a claim, for its provisioner.
fn select_node(scheduler: &Scheduler, key: &ObjectKey, node: &str) -> Option<Write<Decision>> {
    let claim = scheduler.state.claims.get(key)?;
    let selected = claim.object.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE));
    if selected.is_some_and(|selected| selected == node) {
        return None;
    }
    let patch = json!({ "metadata": { "uid": claim.uid, "annotations": { SELECTED_NODE: node } } });
    let kind = ApiKind::of::<PersistentVolumeClaim>();
    Some(Write::new(Action::merge(kind, key.clone(), patch), Decision::SelectNode))
}

/// Sets condition `PodScheduled` to false, if that changes anything.
fn report(pod: &Entry<PodView>, failure: &Failure, now: Timestamp) -> Option<Write<Decision>> {
    let status = &pod.object.status;
    let mut conditions = status.conditions.clone();
    let condition = |since| Condition {
        type_: POD_SCHEDULED.to_owned(),
        status: "False".to_owned(),
        reason: Some(UNSCHEDULABLE.to_owned()),
        message: Some(failure.message.clone()),
        last_transition_time: since,
        ..Condition::default()
    };
    let now = Some(time::second(now).0);
    match conditions.iter_mut().find(|condition| condition.type_ == POD_SCHEDULED) {
        Some(known) => {
            let since = if known.status == "False" { known.last_transition_time } else { now };
            *known = Condition { observed_generation: known.observed_generation, ..condition(since) };
        }
        None => conditions.push(condition(now)),
    }
    let before = json!({ "conditions": status.conditions, "nominatedNodeName": status.nominated_node_name });
    let nominated = failure.preemption.as_ref().map(|candidate| candidate.node.clone());
    let nominated = nominated.or_else(|| status.nominated_node_name.clone());
    let after = json!({ "conditions": conditions, "nominatedNodeName": nominated });
    let patch = StatusPatch::between(pod, &before, &after)?;
    let event = Event::warning("FailedScheduling", "Scheduling", truncated(&failure.message));
    let write = Write::status(ApiKind::of::<Pod>(), pod.key.clone(), patch, Decision::Report);
    Some(write.with_events(vec![event]))
}

fn truncated(message: &str) -> String {
    if message.len() <= MAX_NOTE {
        return message.to_owned();
    }
    format!("{} ...", head(message, MAX_NOTE - 4))
}

/// Keeps the room that preemption frees for the pod it was done for.
fn nominate(scheduler: &mut Scheduler, pod: &Arc<Entry<PodView>>, candidate: &super::preemption::Candidate) {
    let nomination = (candidate.node.clone(), Placed::new(Arc::clone(pod)));
    scheduler.nominated.insert(pod.key.clone(), nomination);
    for key in &candidate.victims {
        let Some(placed) = scheduler.state.placed(key) else { continue };
        let victim = Victim {
            uid: placed.pod.uid.clone(),
            preemptor: pod.uid.clone(),
            node: candidate.node.clone(),
            is_written: false,
        };
        scheduler.victims.insert(key.clone(), victim);
    }
}

/// Victims get a condition that says why, and are then deleted.
fn preempt_victims(scheduler: &mut Scheduler, now: Timestamp) -> Vec<Write<Decision>> {
    let Scheduler { victims, state, .. } = scheduler;
    let open = victims.iter_mut().filter(|(_, victim)| !victim.is_written);
    open.filter_map(|(key, victim)| {
        let pod = &state.placed(key)?.pod;
        victim.is_written = true;
        Some(preempt_victim(pod, victim, now))
    })
    .collect()
}

fn preempt_victim(pod: &Entry<PodView>, victim: &Victim, now: Timestamp) -> Write<Decision> {
    let decision = Decision::Preempt { victim: pod.key.clone() };
    let is_target = |condition: &Condition| {
        condition.status == "True" && condition.reason.as_deref() == Some(PREEMPTION_BY_SCHEDULER)
    };
    let kind = ApiKind::of::<Pod>();
    if pod.object.condition(DISRUPTION_TARGET).is_some_and(is_target) {
        return Write::new(Action::delete(kind, pod), decision);
    }
    let before = &pod.object.status.conditions;
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    let conditions = pod.object.with_disruption(PREEMPTION_BY_SCHEDULER, message, now);
    let (before, after) = (json!({ "conditions": before }), json!({ "conditions": conditions }));
    let note = format!("Preempted by pod {} on node {}", victim.preemptor, victim.node);
    match StatusPatch::between(pod, &before, &after) {
        Some(patch) => Write::status(kind, pod.key.clone(), patch, decision)
            .with_events(vec![Event::normal("Preempted", "Preempting", note)]),
        None => Write::new(Action::delete(kind, pod), decision),
    }
}
