//! Whether an object is as it was recorded.

use regex::Regex;
use serde_json::Value;

/// What stands for a text that differs from run to run, or is not ours to repeat.
const MARKER: &str = concat!(
    r"<(?:time|uid|node|random|pointer|set|last-applied|rsa private key|the value, as Go prints it",
    r"|script: [^<>]*|x509 [^<>]*|\d+ (?:base64 )?characters)>"
);

/// Fields of metadata that say nothing about behaviour, or that the API server of the recordings did not set.
const BOOKKEEPING: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
    "creationTimestamp",
    "selfLink",
    "deletionGracePeriodSeconds",
];

/// Times of conditions.
const TIMES: [&str; 5] =
    ["lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime", "lastProbeTime", "lastScheduleTime"];

/// Removes what recordings do not have. `has_status` says whether its status is compared.
pub fn normalized(mut object: Value, has_status: bool) -> Value {
    if !has_status && let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !BOOKKEEPING.contains(&name.as_str()));
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            remove(owner, &["uid"]);
        }
        if let Some(at) = metadata.get_mut("deletionTimestamp") {
            *at = "<set>".into();
        }
        if let Some(annotations) = metadata.get_mut("annotations") {
            remove(annotations, &["touched"]);
            if annotations.as_object().is_some_and(serde_json::Map::is_empty) {
                metadata.remove("annotations");
            }
        }
    }
    if object["kind"] == "Service"
        && let Some(spec) = object.pointer_mut("/spec")
    {
        remove(spec, &["clusterIP", "clusterIPs"]);
    }
    // Kubernetes always returns the metadata of a job template; recordings have it only where it says something.
    if let Some(template) = object.pointer_mut("/spec/jobTemplate").and_then(Value::as_object_mut)
        && template.get("metadata").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty)
    {
        template.remove("metadata");
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        remove(condition, &TIMES);
    }
    object
}

fn remove(value: &mut Value, names: &[&str]) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
}

/// The differences between what was recorded and what is, each with its path.
pub fn differences(recorded: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", recorded, actual, &mut found);
    found
}

fn compare(path: &str, recorded: &Value, actual: &Value, found: &mut Vec<String>) {
    match (recorded, actual) {
        (Value::Object(recorded), Value::Object(actual)) => {
            for (name, value) in recorded {
                let actual = actual.get(name).unwrap_or(&Value::Null);
                compare(&format!("{path}.{name}"), value, actual, found);
            }
            for (name, value) in actual.iter().filter(|(name, _)| !recorded.contains_key(*name)) {
                compare(&format!("{path}.{name}"), &Value::Null, value, found);
            }
        }
        (Value::Array(recorded), Value::Array(actual)) if recorded.len() == actual.len() => {
            let actual = in_order_of(recorded, actual);
            for (number, (recorded, actual)) in recorded.iter().zip(actual).enumerate() {
                compare(&format!("{path}[{number}]"), recorded, actual, found);
            }
        }
        (Value::String(recorded), Value::String(actual)) if matches_text(recorded, actual) => {}
        _ if recorded == actual => {}
        _ => found.push(format!("{path}: recorded {recorded}, is {actual}")),
    }
}

/// Conditions have no order: each is compared with the one of its type.
fn in_order_of<'a>(recorded: &[Value], actual: &'a [Value]) -> Vec<&'a Value> {
    let are_conditions =
        |list: &[Value]| list.iter().all(|item| item["type"].is_string() && item["status"].is_string());
    if !are_conditions(recorded) || !are_conditions(actual) {
        return actual.iter().collect();
    }
    let mut left: Vec<&Value> = actual.iter().collect();
    let mut ordered = Vec::new();
    for one in recorded {
        let position = left.iter().position(|other| other["type"] == one["type"]).unwrap_or_default();
        ordered.push(left.remove(position));
    }
    ordered
}

/// Whether a text is as recorded; markers stand for any text.
pub fn matches_text(recorded: &str, actual: &str) -> bool {
    if recorded == actual {
        return true;
    }
    let Ok(marker) = Regex::new(MARKER) else { return false };
    if !marker.is_match(recorded) {
        return false;
    }
    let parts: Vec<_> = marker.split(recorded).map(regex::escape).collect();
    let pattern = format!("(?s)^{}$", parts.join(".+"));
    Regex::new(&pattern).is_ok_and(|pattern| pattern.is_match(actual))
}

/// Whether a text matches a pattern in which `*` stands for any text.
pub(crate) fn matches_glob(pattern: &str, text: &str) -> bool {
    let parts: Vec<_> = pattern.split('*').map(regex::escape).collect();
    Regex::new(&format!("(?s)^{}$", parts.join(".*"))).is_ok_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn markers_stand_for_any_text() {
        assert!(matches_text("after <time>. Then", "after 2026-01-01T00:00:00Z. Then"));
        assert!(matches_text("<script: 3 lines, 10 characters>", "a\nb\n"));
        assert!(!matches_text("<time>", ""));
        assert!(!matches_text("a <b>", "a c"), "not every word in brackets is a marker");
        assert!(!matches_text("a", "b"));
    }

    #[test]
    fn every_difference_has_its_path() {
        let recorded = json!({"a": [{"b": 1}], "c": "x", "gone": 1});
        let actual = json!({"a": [{"b": 2}], "c": "x", "new": 2});
        let expected =
            [".a[0].b: recorded 1, is 2", ".gone: recorded 1, is null", ".new: recorded null, is 2"];
        assert_eq!(differences(&recorded, &actual), expected);
    }

    #[test]
    fn conditions_have_no_order() {
        let condition =
            |type_: &str, message: &str| json!({"type": type_, "status": "True", "message": message});
        let recorded = json!([condition("A", "a"), condition("B", "b")]);
        assert!(differences(&recorded, &json!([condition("B", "b"), condition("A", "a")])).is_empty());
        assert_eq!(differences(&recorded, &json!([condition("B", "x"), condition("A", "a")])).len(), 1);
    }

    #[test]
    fn empty_metadata_of_job_templates_is_removed() {
        let job =
            |metadata: Value| json!({ "spec": { "jobTemplate": { "metadata": metadata, "spec": {} } } });
        let bare = json!({ "spec": { "jobTemplate": { "spec": {} } } });
        assert_eq!(normalized(job(json!({})), true), bare);
        let labeled = job(json!({ "labels": { "a": "b" } }));
        assert_eq!(normalized(labeled.clone(), true), labeled);
    }

    #[test]
    fn bookkeeping_is_removed_and_the_rest_is_kept() {
        let object = json!({
            "kind": "Service",
            "metadata": {"name": "a", "uid": "u", "ownerReferences": [{"name": "o", "uid": "u"}], "annotations": {"touched": "1"}},
            "spec": {"clusterIP": "10.0.0.1", "type": "ClusterIP"},
            "status": {"loadBalancer": {}},
        });
        let expected = json!({
            "kind": "Service",
            "metadata": {"name": "a", "ownerReferences": [{"name": "o"}]},
            "spec": {"type": "ClusterIP"},
        });
        assert_eq!(normalized(object, false), expected);
    }
}
