//! Equality up to what others fill in, as `DeepDerivative` of Kubernetes' apimachinery compares.

use serde_json::{Map, Value};

/// Fields of containers that have no "unset" in Go: leaving one out means zero or false.
const WITHOUT_UNSET: [&str; 5] = ["hostPort", "readOnly", "stdin", "stdinOnce", "tty"];

/// Whether `live` has everything that `expected` says. What is empty in `expected` may be anything, and lists of `live` may
/// be longer.
pub(super) fn is_derivative(expected: &Value, live: &Value) -> bool {
    match (expected, live) {
        (Value::Null, _) => true,
        (Value::String(text), _) if text.is_empty() => true,
        (Value::Array(items), _) if items.is_empty() => true,
        (Value::Object(expected), Value::Object(live)) => {
            expected.iter().all(|(name, value)| is_derivative(value, live.get(name).unwrap_or(&Value::Null)))
                && WITHOUT_UNSET.iter().all(|name| is_set(expected, name) || !is_set(live, name))
        }
        (Value::Array(expected), Value::Array(live)) => {
            expected.len() <= live.len()
                && expected.iter().zip(live).all(|(expected, live)| is_derivative(expected, live))
        }
        (expected, live) => expected == live,
    }
}

/// Whether a number is not zero, or a switch is on.
fn is_set(fields: &Map<String, Value>, name: &str) -> bool {
    match fields.get(name) {
        Some(Value::Bool(is_on)) => *is_on,
        Some(Value::Number(number)) => number.as_i64() != Some(0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_empty_may_be_anything() {
        let rows = [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), true),
            (json!({"a": "", "b": [], "c": null}), json!({"a": "x", "b": [1], "c": 3}), true),
            (json!({"a": "x"}), json!({}), false),
            (json!([1]), json!([1, 2]), true),
            (json!([1, 2]), json!([1]), false),
            (json!([1]), json!([2, 1]), false),
            (json!({"emptyDir": {}}), json!({"emptyDir": {"medium": "Memory"}}), true),
            (json!({"emptyDir": {}}), json!({}), false),
            (json!({}), json!({"readOnly": true}), false),
            (json!({}), json!({"readOnly": false}), true),
            (json!({"readOnly": true}), json!({}), false),
            (json!({}), json!({"hostPort": 80}), false),
            (json!({}), json!({"defaultMode": 420}), true),
        ];
        for (expected, live, is) in rows {
            assert_eq!(is_derivative(&expected, &live), is, "{expected} and {live}");
        }
    }
}
