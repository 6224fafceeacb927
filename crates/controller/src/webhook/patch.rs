//! JSON patches that contain what a handler changed and nothing else.

use json_patch::Patch;
use serde_json::Value;

/// The patch of `original`, the object as it was sent, for a change from `before` to `after`, both as the
/// handler's type writes them.
pub(super) fn changes(original: &Value, before: &Value, after: &Value) -> Patch {
    json_patch::diff(original, &graft(original, before, after))
}

/// Puts what changed from `before` to `after` into `original`, and nothing else: fields that the type does not
/// know, or writes differently, stay as they were sent.
fn graft(original: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return original.clone();
    }
    match (original, before, after) {
        (Value::Object(original), Value::Object(before), Value::Object(after)) => {
            let mut result = original.clone();
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                result.remove(name);
            }
            for (name, after) in after {
                let was = before.get(name).unwrap_or(&Value::Null);
                if was != after {
                    let original = original.get(name).unwrap_or(&Value::Null);
                    result.insert(name.clone(), graft(original, was, after));
                }
            }
            Value::Object(result)
        }
        (Value::Array(original), Value::Array(before), Value::Array(after))
            if original.len() == before.len() && before.len() <= after.len() =>
        {
            let kept =
                original.iter().zip(before).zip(after).map(|((original, was), is)| graft(original, was, is));
            Value::Array(kept.chain(after[before.len()..].iter().cloned()).collect())
        }
        _ => after.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_graft_changes_what_changed_and_nothing_else() {
        let cases = [
            (
                "unknown fields and other spellings stay",
                json!({"a": "1000m", "unknown": 1, "list": [{"x": 1, "unknown": 2}]}),
                json!({"a": "1", "b": null, "list": [{"x": 1}]}),
                json!({"a": "1", "b": 7, "list": [{"x": 2}, {"x": 3}]}),
                json!({"a": "1000m", "b": 7, "unknown": 1, "list": [{"x": 2, "unknown": 2}, {"x": 3}]}),
            ),
            ("removed", json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"a": 1})),
            (
                "a parent that was missing",
                json!({}),
                json!({"m": {}}),
                json!({"m": {"k": 1}}),
                json!({"m": {"k": 1}}),
            ),
            ("a shorter list as a whole", json!([1, 2]), json!([1, 2]), json!([2]), json!([2])),
        ];
        for (name, original, before, after, expected) in cases {
            assert_eq!(graft(&original, &before, &after), expected, "{name}");
        }
    }
}
