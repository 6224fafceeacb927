//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Applies a merge patch: objects merge, null removes, anything else replaces.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in changes {
        match change {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(_) => merge_patch(fields.entry(name.as_str()).or_insert(Value::Null), change),
            other => {
                fields.insert(name.clone(), other.clone());
            }
        }
    }
}
