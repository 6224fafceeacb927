//! How a pod is doing, in one word.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::builtin::{items, name, none_if_empty, number, text};

/// The cells of a pod.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let statuses = items(pod, "/status/containerStatuses");
    let init = items(pod, "/status/initContainerStatuses");
    let is_sidecar = |container: &Value| text(container, "/restartPolicy") == "Always";
    let sidecars: Vec<&str> = items(pod, "/spec/initContainers")
        .iter()
        .filter(|one| is_sidecar(one))
        .map(|one| text(one, "/name"))
        .collect();
    let total = items(pod, "/spec/containers").len() + sidecars.len();
    let is_ready = |status: &&Value| {
        status.get("ready") == Some(&json!(true)) && status.pointer("/state/running").is_some()
    };
    let ready = statuses.iter().filter(is_ready).count()
        + init.iter().filter(|one| sidecars.contains(&text(one, "/name"))).filter(is_ready).count();
    let restarts: i64 = statuses
        .iter()
        .chain(init.iter().filter(|one| sidecars.contains(&text(one, "/name"))))
        .filter_map(|one| number(one, "/restartCount"))
        .sum();
    let last = statuses
        .iter()
        .filter_map(|one| one.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str))
        .max();
    let restarts = match last {
        Some(last) if restarts > 0 => format!("{restarts} ({} ago)", age::since(Some(last), now)),
        _ => restarts.to_string(),
    };
    let gates = items(pod, "/spec/readinessGates");
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        let passed = gates
            .iter()
            .filter(|gate| {
                items(pod, "/status/conditions").iter().any(|condition| {
                    condition.get("type") == gate.get("conditionType") && text(condition, "/status") == "True"
                })
            })
            .count();
        format!("{passed}/{}", gates.len())
    };
    vec![
        name(pod),
        json!(format!("{ready}/{total}")),
        json!(status(pod, &sidecars)),
        json!(restarts),
        json!(age::since(pod.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now)),
        none_if_empty(text(pod, "/status/podIP")),
        none_if_empty(text(pod, "/spec/nodeName")),
        none_if_empty(text(pod, "/status/nominatedNodeName")),
        json!(gates),
    ]
}

fn status(pod: &Value, sidecars: &[&str]) -> String {
    let phase = text(pod, "/status/phase");
    let mut reason = match text(pod, "/status/reason") {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    let is_gated = items(pod, "/status/conditions").iter().any(|condition| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    });
    if is_gated {
        reason = "SchedulingGated".into();
    }
    if let Some(word) = initializing(pod, sidecars) {
        reason = word;
    } else {
        let mut has_running = false;
        for container in items(pod, "/status/containerStatuses").iter().rev() {
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                reason = waiting.into();
            } else if container.pointer("/state/terminated").is_some() {
                reason = terminated(container);
            } else if container.get("ready") == Some(&json!(true))
                && container.pointer("/state/running").is_some()
            {
                has_running = true;
            }
        }
        if reason == "Completed" && has_running {
            let is_ready = items(pod, "/status/conditions")
                .iter()
                .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True");
            reason = if is_ready { "Running" } else { "NotReady" }.into();
        }
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if text(pod, "/status/reason") == "NodeLost" {
            return "Unknown".into();
        }
        if !matches!(phase, "Succeeded" | "Failed") {
            return "Terminating".into();
        }
    }
    reason
}

fn terminated(container: &Value) -> String {
    let reason = text(container, "/state/terminated/reason");
    if !reason.is_empty() {
        return reason.into();
    }
    match number(container, "/state/terminated/signal") {
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", number(container, "/state/terminated/exitCode").unwrap_or(0)),
    }
}

/// What the first unfinished init container is at.
fn initializing(pod: &Value, sidecars: &[&str]) -> Option<String> {
    let total = items(pod, "/spec/initContainers").len();
    for (index, container) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
        let is_sidecar = sidecars.contains(&text(container, "/name"));
        if number(container, "/state/terminated/exitCode") == Some(0) {
            continue;
        }
        if is_sidecar && container.get("started") == Some(&json!(true)) {
            continue;
        }
        if container.pointer("/state/terminated").is_some() {
            return Some(format!("Init:{}", terminated(container)));
        }
        let waiting = text(container, "/state/waiting/reason");
        if !waiting.is_empty() && waiting != "PodInitializing" {
            return Some(format!("Init:{waiting}"));
        }
        return Some(format!("Init:{index}/{total}"));
    }
    None
}
