//! Workloads.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::age;
use super::{born, items, name, none_if_empty, number, pairs, plain, selector, template, text, zero};

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = template(object, "/spec/template/spec");
    vec![
        name(object),
        json!(format!("{}/{}", zero(object, "/status/readyReplicas"), zero(object, "/spec/replicas"))),
        json!(zero(object, "/status/updatedReplicas")),
        json!(zero(object, "/status/availableReplicas")),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/selector"))),
    ]
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = template(object, "/spec/template/spec");
    let found = object.pointer("/spec/selector");
    let is_plain = found
        .is_some_and(|found| found.get("matchLabels").is_none() && found.get("matchExpressions").is_none());
    vec![
        name(object),
        json!(zero(object, "/spec/replicas")),
        json!(zero(object, "/status/replicas")),
        json!(zero(object, "/status/readyReplicas")),
        born(object, now),
        containers,
        images,
        if is_plain { none_if_empty(&pairs(found)) } else { json!(selector(found)) },
    ]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = template(object, "/spec/template/spec");
    vec![
        name(object),
        json!(zero(object, "/status/desiredNumberScheduled")),
        json!(zero(object, "/status/currentNumberScheduled")),
        json!(zero(object, "/status/numberReady")),
        json!(zero(object, "/status/updatedNumberScheduled")),
        json!(zero(object, "/status/numberAvailable")),
        none_if_empty(&pairs(object.pointer("/spec/template/spec/nodeSelector"))),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/selector"))),
    ]
}

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |kind: &str| {
        items(object, "/status/conditions")
            .iter()
            .any(|one| text(one, "/type") == kind && text(one, "/status") == "True")
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if object.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let succeeded = zero(object, "/status/succeeded");
    let completions = match (number(object, "/spec/completions"), number(object, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        _ => format!("{succeeded}/1"),
    };
    let time = |path: &str| text(object, path).parse::<Timestamp>().ok();
    let duration = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), Some(end)) => age::age(end.as_second() - start.as_second()),
        (Some(start), None) => age::age(now.as_second() - start.as_second()),
    };
    let [containers, images] = template(object, "/spec/template/spec");
    vec![
        name(object),
        json!(status),
        json!(completions),
        json!(duration),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/selector"))),
    ]
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let last = match object.pointer("/status/lastScheduleTime").and_then(Value::as_str) {
        Some(last) => age::since(Some(last), now),
        None => "<none>".into(),
    };
    let suspended = object.pointer("/spec/suspend") == Some(&json!(true));
    let [containers, images] = template(object, "/spec/jobTemplate/spec/template/spec");
    vec![
        name(object),
        json!(text(object, "/spec/schedule")),
        none_if_empty(text(object, "/spec/timeZone")),
        json!(if suspended { "True" } else { "False" }),
        json!(items(object, "/status/active").len()),
        json!(last),
        born(object, now),
        containers,
        images,
        json!(selector(object.pointer("/spec/jobTemplate/spec/selector"))),
    ]
}

pub(super) fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = object.pointer("/spec/scaleTargetRef").unwrap_or(&Value::Null);
    let targets: Vec<String> = items(object, "/spec/metrics")
        .iter()
        .enumerate()
        .map(|(index, metric)| {
            let wanted = number(metric, "/resource/target/averageUtilization");
            let current = number(
                object,
                &format!("/status/currentMetrics/{index}/resource/current/averageUtilization"),
            );
            let current = current.map_or_else(|| "<unknown>".into(), |current| format!("{current}%"));
            if let Some(wanted) = wanted {
                format!("{}: {current}/{wanted}%", text(metric, "/resource/name"))
            } else {
                let target =
                    metric.pointer("/resource/target/averageValue").map_or_else(|| "<auto>".into(), plain);
                format!("<unknown>/{target}")
            }
        })
        .collect();
    let least =
        number(object, "/spec/minReplicas").map_or_else(|| "<unset>".into(), |least| least.to_string());
    vec![
        name(object),
        json!(format!("{}/{}", text(target, "/kind"), text(target, "/name"))),
        none_if_empty(&targets.join(", ")),
        json!(least),
        json!(zero(object, "/spec/maxReplicas")),
        json!(zero(object, "/status/currentReplicas")),
        born(object, now),
    ]
}
