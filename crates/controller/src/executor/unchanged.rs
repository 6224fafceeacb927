//! Whether a server-side apply would change the live object.

use serde_json::{Map, Value};

/// Whether applying `desired` in the name of `manager` to `live` would leave it as it is.
///
/// Two things must hold: every field we want has the value we want, and we own no field that we no longer
/// want. The server's record of what we own (`fieldsV1`) also says which lists are keyed, so no schema
/// is needed. In doubt the answer is no: then the apply is sent, and changes nothing.
pub(super) fn is_unchanged(live: &Value, desired: &Value, manager: &str) -> bool {
    let Some(owned) = owned_fields(live, manager) else {
        return false;
    };
    let (Value::Object(live), Value::Object(desired)) = (live, desired) else {
        return false;
    };
    let body = |object: &Map<String, Value>| {
        let mut body = object.clone();
        for name in ["apiVersion", "kind", "status"] {
            body.remove(name);
        }
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            for name in ["name", "namespace", "managedFields", "creationTimestamp"] {
                metadata.remove(name);
            }
        }
        body
    };
    let (live, desired) = (Value::Object(body(live)), Value::Object(body(desired)));
    covers(&live, &desired, Some(owned)) && wants_all(&desired, owned)
}

/// The field set of our apply, if the server recorded one.
fn owned_fields<'a>(live: &'a Value, manager: &str) -> Option<&'a Map<String, Value>> {
    live.pointer("/metadata/managedFields")?
        .as_array()?
        .iter()
        .find(|entry| {
            entry["manager"] == manager && entry["operation"] == "Apply" && entry.get("subresource").is_none()
        })?
        .get("fieldsV1")?
        .as_object()
}

/// Whether `live` has everything that `desired` has.
fn covers(live: &Value, desired: &Value, owned: Option<&Map<String, Value>>) -> bool {
    // Owned, but nothing below: it is owned as a whole.
    if owned.is_some_and(Map::is_empty) {
        return live == desired;
    }
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired.iter().all(|(name, value)| {
            let owned = owned.and_then(|owned| owned.get(&format!("f:{name}"))).and_then(Value::as_object);
            match live.get(name) {
                Some(live) => covers(live, value, owned),
                // Empty is not absent: a selector of `{}` selects everything.
                None => value.is_null(),
            }
        }),
        (Value::Array(live), Value::Array(desired)) => match owned.filter(|owned| is_keyed(owned)) {
            Some(owned) => desired.iter().all(|item| {
                let found = keyed_entries(owned).find(|(key, _)| has_key(item, key));
                found.is_some_and(|(key, owned)| {
                    live.iter().any(|live| has_key(live, &key) && covers(live, item, Some(owned)))
                })
            }),
            None => live == desired,
        },
        _ => live == desired,
    }
}

/// Whether every field that we own is in `desired`.
fn wants_all(desired: &Value, owned: &Map<String, Value>) -> bool {
    owned.iter().all(|(path, below)| {
        let Some(below) = below.as_object() else {
            return false;
        };
        if path == "." {
            return true;
        }
        if let Some(name) = path.strip_prefix("f:") {
            return desired.get(name).is_some_and(|desired| wants_all(desired, below));
        }
        let Some(items) = desired.as_array() else {
            return false;
        };
        if let Some(key) = path.strip_prefix("k:") {
            let Ok(Value::Object(key)) = serde_json::from_str(key) else {
                return false;
            };
            return items.iter().any(|item| has_key(item, &key) && wants_all(item, below));
        }
        if let Some(value) = path.strip_prefix("v:") {
            return serde_json::from_str::<Value>(value).is_ok_and(|value| items.contains(&value));
        }
        false
    })
}

fn is_keyed(owned: &Map<String, Value>) -> bool {
    owned.keys().any(|path| path.starts_with("k:"))
}

fn keyed_entries(
    owned: &Map<String, Value>,
) -> impl Iterator<Item = (Map<String, Value>, &Map<String, Value>)> {
    owned.iter().filter_map(|(path, below)| {
        let key = serde_json::from_str(path.strip_prefix("k:")?).ok()?;
        Some((key, below.as_object()?))
    })
}

/// A key field that an item leaves out may be one that the server defaults (a port's protocol).
fn has_key(item: &Value, key: &Map<String, Value>) -> bool {
    key.iter().all(|(name, value)| item.get(name).is_none_or(|found| found == value))
        && key.iter().any(|(name, value)| item.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"app": "x", "theirs": "y"},
                "managedFields": [{"manager": "us", "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:app": {}}},
                    "f:spec": {
                        "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}},
                        "f:selector": {}
                    }
                }}]
            },
            "spec": {
                "clusterIP": "10.0.0.1", "selector": {"app": "x"},
                "ports": [{"port": 80, "protocol": "TCP", "name": "http", "targetPort": 80}]
            }
        })
    }

    fn desired() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "n", "labels": {"app": "x"}},
            "spec": {"selector": {"app": "x"}, "ports": [{"port": 80, "name": "http"}]}
        })
    }

    #[test]
    fn an_object_as_desired_needs_no_apply() {
        assert!(is_unchanged(&live(), &desired(), "us"));
    }

    #[test]
    fn any_difference_needs_an_apply() {
        type Edit = fn(&mut Value, &mut Value);
        let edits: [(&str, Edit); 8] = [
            ("more in what is owned as a whole", |live, _| {
                live["spec"]["selector"]["b"] = json!("c");
            }),
            ("another value", |_, want| {
                want["spec"]["ports"][0]["name"] = json!("web");
            }),
            ("another label", |_, want| {
                want["metadata"]["labels"]["more"] = json!("1");
            }),
            ("a label that we no longer want", |_, want| {
                want["metadata"]["labels"] = json!({});
            }),
            ("a port more", |_, want| {
                want["spec"]["ports"] = json!([{"port": 80, "name": "http"}, {"port": 81}]);
            }),
            ("a port less", |_, want| want["spec"]["ports"] = json!([])),
            ("an edit of another manager", |live, _| {
                live["spec"]["selector"]["app"] = json!("z");
            }),
            ("no record of ours", |live, _| {
                live["metadata"]["managedFields"][0]["manager"] = json!("them");
            }),
        ];
        for (name, edit) in edits {
            let (mut live, mut desired) = (live(), desired());
            edit(&mut live, &mut desired);
            assert!(!is_unchanged(&live, &desired, "us"), "{name}");
        }
    }
}
