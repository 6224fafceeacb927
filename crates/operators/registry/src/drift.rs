//! What has to change in a live object so that it is as desired.
//!
//! Upstream compares with the last state that it applied, which it keeps in an annotation, and replaces the object. Here,
//! desired objects say explicitly what must be absent: a field by `null`, an item of a list by [`absent`]. So objects that
//! the Go operator made are compared as they are, and everything that others have added stays.

use serde_json::{Map, Value, json};

/// Marks an item of a keyed list that must not exist, as strategic merge patches do.
const DIRECTIVE: &str = "$patch";

/// Maps of which nothing belongs to others.
const WHOLE: &[&str] = &["data", "limits", "matchLabels", "requests", "selector"];

/// An item of a keyed list that must not exist.
pub(crate) fn absent(key: &str, value: &str) -> Value {
    json!({ key: value, DIRECTIVE: "delete" })
}

/// The object to create: without what says that something must be absent.
pub(crate) fn to_create(desired: &Value) -> Value {
    match desired {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null() && !has_only_absent(value))
            .map(|(name, value)| (name.clone(), to_create(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().filter(|item| !is_absent(item)).map(to_create).collect(),
        _ => desired.clone(),
    }
}

/// The live object with everything that `desired` says, and all else as it is.
pub(crate) fn repaired(live: &Value, desired: &Value) -> Value {
    merge("", live, desired)
}

fn merge(field: &str, live: &Value, desired: &Value) -> Value {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) if !WHOLE.contains(&field) => {
            let mut merged = live.clone();
            for (name, value) in desired {
                if value.is_null() {
                    merged.remove(name);
                } else {
                    let value = merge(name, live.get(name).unwrap_or(&Value::Null), value);
                    if !value.is_null() {
                        merged.insert(name.clone(), value);
                    }
                }
            }
            // The API server chooses it by the image.
            let is_other_image = desired.contains_key("image") && live.get("image") != desired.get("image");
            if is_other_image && !desired.contains_key("imagePullPolicy") {
                merged.remove("imagePullPolicy");
            }
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(desired)) => match key_of(field) {
            Some(key) => merge_keyed(key, live, desired),
            None if live.len() == desired.len() => {
                live.iter().zip(desired).map(|(live, desired)| merge("", live, desired)).collect()
            }
            None => to_create(&Value::Array(desired.clone())),
        },
        (Value::Null, _) if has_only_absent(desired) => Value::Null,
        _ => to_create(desired),
    }
}

/// The field that tells the items of a list apart.
fn key_of(field: &str) -> Option<&'static str> {
    match field {
        "containers" | "initContainers" | "volumes" | "env" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        _ => None,
    }
}

/// The desired items in their order, then those of others. A list that has all that is desired stays as it is: its order
/// has no meaning.
fn merge_keyed(key: &str, live: &[Value], desired: &[Value]) -> Value {
    let find = |items: &[Value], item: &Value| items.iter().find(|other| other[key] == item[key]).cloned();
    let wanted: Vec<_> = desired
        .iter()
        .filter(|item| !is_absent(item))
        .map(|item| merge("", &find(live, item).unwrap_or_default(), item))
        .collect();
    let foreign: Vec<_> = live.iter().filter(|item| find(desired, item).is_none()).cloned().collect();
    let is_satisfied =
        wanted.len() + foreign.len() == live.len() && wanted.iter().all(|item| live.contains(item));
    if is_satisfied {
        return Value::Array(live.to_vec());
    }
    wanted.into_iter().chain(foreign).collect()
}

/// Whether a value only says what must not exist. Something empty in its place would be a difference: the API server
/// leaves it out.
fn has_only_absent(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty() && items.iter().all(is_absent),
        Value::Object(fields) => !fields.is_empty() && fields.values().all(Value::is_null),
        _ => false,
    }
}

fn is_absent(item: &Value) -> bool {
    item[DIRECTIVE] == "delete"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container as the API server returns it.
    fn container(name: &str, arguments: &[&str]) -> Value {
        json!({ "name": name, "args": arguments, "terminationMessagePath": "/dev/termination-log" })
    }

    #[test]
    fn what_is_as_desired_stays_whatever_others_have_added() {
        let live = json!({
            "metadata": { "labels": { "app": "a", "theirs": "x" }, "annotations": { "theirs": "y" } },
            "spec": {
                "replicas": 1,
                "containers": [container("sidecar", &[]), container("rest", &["--a"])],
                "ports": [{ "port": 80, "protocol": "TCP" }],
            },
        });
        let desired = json!({
            "metadata": { "labels": { "app": "a" }, "annotations": { "gone": null } },
            "other": { "gone": null },
            "spec": {
                "replicas": 1,
                "containers": [{ "name": "rest", "args": ["--a"] }, absent("name", "proxy")],
                "volumes": [absent("name", "old")],
                "ports": [{ "port": 80 }],
            },
        });
        assert_eq!(repaired(&live, &desired), live);
    }

    #[test]
    fn what_differs_is_repaired() {
        let cases = [
            ("a value", json!({"replicas": 3}), json!({"replicas": 1}), json!({"replicas": 1})),
            ("a field that must go", json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2})),
            ("a shorter list", json!({"args": ["a", "b"]}), json!({"args": ["a"]}), json!({"args": ["a"]})),
            (
                "a map that is ours as a whole",
                json!({"data": {"a": "1", "b": "2"}}),
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "1"}}),
            ),
            (
                "an item that must go",
                json!({"containers": [{"name": "rest"}, {"name": "proxy"}, {"name": "theirs"}]}),
                json!({"containers": [{"name": "rest"}, absent("name", "proxy")]}),
                json!({"containers": [{"name": "rest"}, {"name": "theirs"}]}),
            ),
            (
                "another image",
                json!({"image": "a:latest", "imagePullPolicy": "Always"}),
                json!({"image": "a:1"}),
                json!({"image": "a:1"}),
            ),
            (
                "an item in between",
                json!({"volumes": [{"name": "a"}, {"name": "c"}]}),
                json!({"volumes": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
                json!({"volumes": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
            ),
        ];
        for (name, live, desired, expected) in cases {
            assert_eq!(repaired(&live, &desired), expected, "{name}");
            assert_eq!(repaired(&expected, &desired), expected, "{name}: repaired once");
        }
    }

    #[test]
    fn what_is_created_has_no_directives() {
        let desired = json!({"a": null, "b": {"c": null}, "env": [{"name": "x"}, absent("name", "y")]});
        assert_eq!(to_create(&desired), json!({"env": [{"name": "x"}]}));
    }
}
