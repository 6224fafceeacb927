//! The plan for one node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use quintet_controller::api::PatchKind;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, StatusPatch, Step};
use serde_json::json;

use super::Observed;
use crate::node::NodeView;
use crate::pod::PodView;
use crate::taints::{NO_EXECUTE, NO_SCHEDULE};
use crate::time;

/// A node that reports nothing for this many seconds is not healthy; upstream's `nodeMonitorGracePeriod`.
const GRACE: i64 = 50;
/// The same for a node that has never reported; upstream's `nodeStartupGracePeriod`.
const STARTUP_GRACE: i64 = 60;
const STATUS_UNKNOWN: &str = "NodeStatusUnknown";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NODE_NOT_READY: &str = "NodeNotReady";

/// Conditions that are unknown when a node stops reporting.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// Conditions, their status, and the taint they bring about.
const TAINTS: [(&str, &str, &str); 4] = [
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let node = &observed.node;
    if node.deleting {
        return Plan::nothing();
    }
    let due = deadline(observed);
    let mut conditions = node.object.status.conditions.clone();
    let mut events = Vec::new();
    let was_ready = status_of(&conditions, "Ready") == "True";
    if due <= observed.now {
        mark_unknown(&mut conditions, observed.now);
        if was_ready {
            let note = format!("Node {} status is now: {NODE_NOT_READY}", node.key.name());
            events.push(Event::normal(NODE_NOT_READY, "Monitor", note));
        }
    }
    let mut steps = Vec::new();
    if status_of(&conditions, "Ready") != "True" {
        steps.extend(observed.pods.iter().filter_map(|pod| mark_not_ready(pod, observed.now)));
    }
    steps.extend(taint(observed, &conditions));
    let before = json!({ "conditions": node.object.status.conditions });
    Plan {
        steps,
        status: StatusPatch::between(node, &before, &json!({ "conditions": conditions })),
        events,
        next: time::earliest(observed.now, Some(due).filter(|due| *due > observed.now)),
        ..Plan::default()
    }
}

/// When the node has reported nothing for too long.
fn deadline(observed: &Observed) -> Timestamp {
    let conditions = observed.node.object.status.conditions.iter();
    let ready = conditions.filter(|condition| {
        condition.type_ == "Ready" && condition.reason.as_deref() != Some(STATUS_UNKNOWN)
    });
    let reported = ready.filter_map(|condition| Some(condition.last_heartbeat_time.as_ref()?.0)).max();
    match reported.max(observed.renewed) {
        Some(last) => time::after(last, GRACE),
        None => time::after(
            observed.node.object.metadata.creation_timestamp.unwrap_or(observed.now),
            STARTUP_GRACE,
        ),
    }
}

fn status_of<'a>(conditions: &'a [NodeCondition], type_: &str) -> &'a str {
    conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .map_or("Unknown", |condition| &condition.status)
}

pub(super) fn is_ready(node: &NodeView) -> bool {
    status_of(&node.status.conditions, "Ready") == "True"
}

fn mark_unknown(conditions: &mut Vec<NodeCondition>, now: Timestamp) {
    for type_ in REPORTED {
        let now = time::second(now);
        let unknown = |heartbeat| NodeCondition {
            type_: type_.to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(STATUS_UNKNOWN.to_owned()),
            message: Some("Kubelet stopped posting node status.".to_owned()),
            last_heartbeat_time: heartbeat,
            last_transition_time: Some(now.clone()),
        };
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => *condition = unknown(condition.last_heartbeat_time.clone()),
            None => conditions.push(unknown(None)),
        }
    }
}

/// A pod on a node that is not ready is not ready either.
fn mark_not_ready(pod: &Entry<PodView>, now: Timestamp) -> Option<Step> {
    let mut conditions = pod.object.status.conditions.clone();
    let ready =
        conditions.iter_mut().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    "False".clone_into(&mut ready.status);
    ready.last_transition_time = Some(time::second(now).0);
    let patch = json!({
        "metadata": { "uid": pod.uid, "resourceVersion": pod.version.to_string() },
        "status": { "conditions": conditions },
    });
    let action = Action::Patch {
        kind: ApiKind::of::<Pod>(),
        key: pod.key.clone(),
        subresource: Some("status".to_owned()),
        patch_kind: PatchKind::Merge,
        patch,
    };
    Some(action.into())
}

/// The taints that follow from conditions; those of others are kept.
fn taint(observed: &Observed, conditions: &[NodeCondition]) -> Option<Step> {
    let spec = &observed.node.object.spec;
    let mut wanted = Vec::new();
    let (absent, unreachable) = match status_of(conditions, "Ready") {
        "True" => (false, false),
        "False" => (true, false),
        _ => (false, true),
    };
    for (key, holds) in [(NOT_READY, absent), (UNREACHABLE, unreachable)] {
        if holds {
            wanted.push((key, NO_SCHEDULE));
            // If no node is ready, evicted pods could not run elsewhere.
            wanted.extend(Some((key, NO_EXECUTE)).filter(|_| observed.another_is_ready));
        }
    }
    let pressures = TAINTS.iter().filter(|(type_, status, _)| status_of(conditions, type_) == *status);
    wanted.extend(pressures.map(|(_, _, key)| (*key, NO_SCHEDULE)));
    wanted.extend(Some((UNSCHEDULABLE, NO_SCHEDULE)).filter(|_| spec.unschedulable));
    let is_ours = |taint: &Taint| {
        let keys = TAINTS.iter().map(|(_, _, key)| *key);
        keys.chain([NOT_READY, UNREACHABLE, UNSCHEDULABLE]).any(|key| key == taint.key)
    };
    let is_wanted =
        |taint: &Taint| wanted.iter().any(|(key, effect)| *key == taint.key && *effect == taint.effect);
    let mut taints: Vec<_> =
        spec.taints.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|taint| taint.key == *key && taint.effect == *effect) {
            taints.push(Taint {
                key: (*key).to_owned(),
                effect: (*effect).to_owned(),
                time_added: Some(time::second(observed.now)),
                value: None,
            });
        }
    }
    if taints == spec.taints {
        return None;
    }
    let node = &observed.node;
    let patch = json!({
        "metadata": { "uid": node.uid, "resourceVersion": node.version.to_string() },
        "spec": { "taints": taints },
    });
    Some(Action::merge(ApiKind::of::<Node>(), node.key.clone(), patch).into())
}
