//! Kinds that are served in several groups or versions but stored once: events and autoscalers.

use serde_json::{Map, Value, json};

/// Fields of an event in the core group and in events.k8s.io.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Where metrics that `autoscaling/v1` has no field for are kept.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Moves an object of a built-in kind to another of its versions. Objects that are already there, or of which
/// only one version exists, only get their `apiVersion` set.
pub fn convert(object: &mut Value, to_api_version: &str) {
    let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Value::Object(fields) = object else { return };
    match (kind.as_str(), from.as_str(), to_api_version) {
        ("Event", "v1", "events.k8s.io/v1") => {
            for (core, events) in EVENT_FIELDS {
                rename(fields, core, events);
            }
        }
        ("Event", "events.k8s.io/v1", "v1") => {
            for (core, events) in EVENT_FIELDS {
                rename(fields, events, core);
            }
        }
        ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2") => to_v2(fields),
        ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1") => to_v1(fields),
        _ => {}
    }
    fields.insert("apiVersion".into(), json!(to_api_version));
}

fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.into(), value);
    }
}

fn is_cpu_utilization(metric: &Value) -> bool {
    metric.pointer("/resource/name") == Some(&json!("cpu"))
        && metric.pointer("/resource/target/type") == Some(&json!("Utilization"))
}

fn to_v1(fields: &mut Map<String, Value>) {
    let mut kept: Vec<(&str, Value)> = Vec::new();
    if let Some(Value::Object(spec)) = fields.get_mut("spec") {
        if let Some(Value::Array(mut metrics)) = spec.remove("metrics") {
            if let Some(at) = metrics.iter().position(is_cpu_utilization) {
                let metric = metrics.remove(at);
                if let Some(value) = metric.pointer("/resource/target/averageUtilization") {
                    spec.insert("targetCPUUtilizationPercentage".into(), value.clone());
                }
            }
            if !metrics.is_empty() {
                kept.push((METRICS, Value::Array(metrics)));
            }
        }
        if let Some(behavior) = spec.remove("behavior") {
            kept.push((BEHAVIOR, behavior));
        }
    }
    if let Some(Value::Object(status)) = fields.get_mut("status") {
        if let Some(Value::Array(metrics)) = status.remove("currentMetrics") {
            let current =
                metrics.iter().find(|metric| metric.pointer("/resource/name") == Some(&json!("cpu")));
            if let Some(value) =
                current.and_then(|metric| metric.pointer("/resource/current/averageUtilization"))
            {
                status.insert("currentCPUUtilizationPercentage".into(), value.clone());
            }
        }
        status.remove("conditions");
    }
    for (annotation, value) in kept {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(annotation.into(), Value::String(value.to_string()));
            }
        }
    }
}

fn to_v2(fields: &mut Map<String, Value>) {
    let mut metrics = Vec::new();
    let mut behavior = None;
    if let Some(annotations) =
        fields.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")).and_then(Value::as_object_mut)
    {
        // Annotations that are not JSON are dropped, as in Kubernetes' conversion.
        let mut take =
            |name: &str| -> Option<Value> { serde_json::from_str(annotations.remove(name)?.as_str()?).ok() };
        if let Some(Value::Array(kept)) = take(METRICS) {
            metrics = kept;
        }
        behavior = take(BEHAVIOR);
    }
    if let Some(Value::Object(spec)) = fields.get_mut("spec") {
        if let Some(percentage) = spec.remove("targetCPUUtilizationPercentage") {
            metrics.insert(
                0,
                json!({ "type": "Resource", "resource": { "name": "cpu",
                    "target": { "type": "Utilization", "averageUtilization": percentage } } }),
            );
        }
        if !metrics.is_empty() {
            spec.insert("metrics".into(), Value::Array(metrics));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(Value::Object(status)) = fields.get_mut("status")
        && let Some(value) = status.remove("currentCPUUtilizationPercentage")
    {
        status.insert(
            "currentMetrics".into(),
            json!([{ "type": "Resource", "resource": { "name": "cpu", "current": { "averageUtilization": value } } }]),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_autoscalers_survive_the_round_trip() {
        let event = json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e" },
            "involvedObject": { "kind": "Pod" }, "message": "m", "count": 2, "reason": "R" });
        let mut there = event.clone();
        convert(&mut there, "events.k8s.io/v1");
        assert_eq!(there["regarding"]["kind"], "Pod");
        assert_eq!(there["note"], "m");
        convert(&mut there, "v1");
        assert_eq!(there, event);

        let scaler = json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": { "annotations": {} }, "spec": { "maxReplicas": 3, "metrics": [
                { "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 70 } } },
                { "type": "Pods", "pods": { "metric": { "name": "q" } } }
            ] } });
        let mut there = scaler.clone();
        convert(&mut there, "autoscaling/v1");
        assert_eq!(there["spec"]["targetCPUUtilizationPercentage"], 70);
        assert!(there["spec"].get("metrics").is_none());
        convert(&mut there, "autoscaling/v2");
        assert_eq!(there, scaler);
    }
}
