//! What is unwell, and why: pods that cannot start or keep failing, nodes that are not ready, recent warnings.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod};
use serde::Serialize;

use super::observe::Observed;

/// Warnings older than this are history.
const RECENT: SignedDuration = SignedDuration::from_mins(15);

/// Something that is unwell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Problem {
    /// The object, as `kind/name`, with its namespace.
    pub(super) object: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// All problems. What a pod or node says of itself comes before warnings, and a warning is not repeated for it.
pub(super) fn problems(observed: &Observed, now: Timestamp) -> Vec<Problem> {
    let mut problems: Vec<Problem> = observed.nodes.iter().filter_map(of_node).collect();
    problems.extend(observed.pods.iter().filter_map(of_pod));
    let mut newest: BTreeMap<(String, String), &Event> = BTreeMap::new();
    for event in observed.warnings.iter().filter(|event| is_recent(event, now)) {
        let key = (involved(event), event.reason.clone().unwrap_or_default());
        let entry = newest.entry(key).or_insert(event);
        if seen(event) > seen(entry) {
            *entry = event;
        }
    }
    for ((object, reason), event) in newest {
        if is_alive(observed, event) && !problems.iter().any(|problem| problem.object == object) {
            problems.push(Problem { object, reason, message: event.message.clone().unwrap_or_default() });
        }
    }
    problems
}

fn of_node(node: &Node) -> Option<Problem> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    (ready.status != "True").then(|| Problem {
        object: format!("node/{}", node.metadata.name.as_deref().unwrap_or_default()),
        reason: ready.reason.clone().unwrap_or_else(|| "NotReady".into()),
        message: ready.message.clone().unwrap_or_default(),
    })
}

fn of_pod(pod: &Pod) -> Option<Problem> {
    let status = pod.status.as_ref()?;
    let of = |reason: &str, message: &str| Problem {
        object: format!(
            "{}/pod/{}",
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            pod.metadata.name.as_deref().unwrap_or_default()
        ),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let phase = status.phase.as_deref().unwrap_or_default();
    if phase == "Failed" {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        let message = status.message.clone().or_else(|| last_exit(status.container_statuses.as_deref()?));
        return Some(of(reason, &message.unwrap_or_default()));
    }
    let unschedulable = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unschedulable {
        return Some(of("Unschedulable", condition.message.as_deref().unwrap_or_default()));
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    let stuck = waiting.find(|waiting| {
        !matches!(waiting.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
    })?;
    Some(of(stuck.reason.as_deref().unwrap_or_default(), stuck.message.as_deref().unwrap_or_default()))
}

fn last_exit(containers: &[ContainerStatus]) -> Option<String> {
    let mut ended = containers
        .iter()
        .filter_map(|container| Some((&container.name, container.state.as_ref()?.terminated.as_ref()?)));
    let (name, terminated) = ended.find(|(_, terminated)| terminated.exit_code != 0)?;
    let reason = terminated.reason.as_deref().unwrap_or("Error");
    Some(format!("container {name} ended with exit code {} ({reason})", terminated.exit_code))
}

fn seen(event: &Event) -> Option<Timestamp> {
    let times = [
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
    ];
    times.into_iter().flatten().max()
}

fn is_recent(event: &Event, now: Timestamp) -> bool {
    seen(event).is_some_and(|seen| now.duration_since(seen) <= RECENT)
}

/// Warnings of pods that are gone or well again are history, too.
fn is_alive(observed: &Observed, event: &Event) -> bool {
    let object = &event.involved_object;
    if object.kind.as_deref() != Some("Pod") {
        return true;
    }
    observed.pods.iter().any(|pod| {
        let is_it = pod.metadata.uid == object.uid;
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        let is_ready = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        is_it && !is_ready && phase != Some("Succeeded")
    })
}

fn involved(event: &Event) -> String {
    let object = &event.involved_object;
    let kind = object.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
    let name = object.name.as_deref().unwrap_or_default();
    match object.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}/{kind}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn pod(status: &Value) -> Pod {
        let metadata = json!({ "name": "p", "namespace": "team", "uid": "u" });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    fn warning(kind: &str, name: &str, reason: &str, at: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": { "name": "e", "namespace": "team" }, "type": "Warning", "reason": reason,
            "message": format!("{reason} at {at}"), "lastTimestamp": format!("2026-01-01T{at}:00Z"),
            "involvedObject": { "kind": kind, "name": name, "namespace": "team", "uid": "u" },
        }))
        .unwrap()
    }

    fn lines(observed: &Observed) -> Vec<String> {
        let line = |problem: Problem| format!("{} {}: {}", problem.object, problem.reason, problem.message);
        problems(observed, now()).into_iter().map(line).collect()
    }

    #[test]
    fn pods_that_cannot_start_say_why() {
        let waiting = json!({ "name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no local runtime" } } });
        let unschedulable = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu." });
        let failed = json!({ "name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": { "terminated": { "exitCode": 3, "reason": "Error" } } });
        for (status, expected) in [
            (json!({ "phase": "Running" }), None),
            (
                json!({ "phase": "Pending", "containerStatuses": [waiting] }),
                Some("ImagePullBackOff: no local runtime"),
            ),
            (
                json!({ "phase": "Pending", "conditions": [unschedulable] }),
                Some("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."),
            ),
            (
                json!({ "phase": "Failed", "containerStatuses": [failed] }),
                Some("Failed: container c ended with exit code 3 (Error)"),
            ),
            (
                json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" }),
                Some("Evicted: low on memory"),
            ),
        ] {
            let observed = Observed { pods: vec![pod(&status)], ..Observed::default() };
            let expected: Vec<String> =
                expected.map(|text| format!("team/pod/p {text}")).into_iter().collect();
            assert_eq!(lines(&observed), expected);
        }
    }

    #[test]
    fn warnings_are_recent_newest_and_of_what_is_still_unwell() {
        let warnings = vec![
            warning("RayJob", "train", "JobFailed", "11:50"),
            warning("RayJob", "train", "JobFailed", "11:58"),
            warning("RayJob", "old", "JobFailed", "09:00"),
            warning("Pod", "p", "BackOff", "11:59"),
        ];
        let ready = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        let observed = Observed { warnings, pods: vec![pod(&ready)], ..Observed::default() };
        assert_eq!(lines(&observed), ["team/rayjob/train JobFailed: JobFailed at 11:58"]);
    }
}
