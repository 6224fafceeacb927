//! Compares specs of clusters by meaning, where hashes cannot be compared: those of another operator.
//!
//! A Go operator reads a spec and writes it again, so that a cluster does not repeat the spec of its RayService to the
//! letter: Go omits zero values, and writes quantities in their canonical form.

use quintet_api::{quantity::Quantity, ray::v1::RayClusterSpec};
use serde_json::Value;

use crate::spec_hash::upgrade_relevant;

/// Maps whose values are quantities, and single fields that are.
const QUANTITY_MAPS: [&str; 3] = ["limits", "requests", "overhead"];
const QUANTITIES: [&str; 3] = ["sizeLimit", "divisor", "size"];

/// Whether a RayService with the one spec would not replace a cluster with the other.
pub(crate) fn is_same(one: &RayClusterSpec, other: &RayClusterSpec) -> bool {
    meaning(one) == meaning(other)
}

fn meaning(spec: &RayClusterSpec) -> Option<Value> {
    serde_json::to_value(upgrade_relevant(spec)).ok().map(normalized)
}

/// A value without what Go would omit, quantities in one form.
fn normalized(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let value = normalized(match value {
                    Value::Object(entries) if QUANTITY_MAPS.contains(&name.as_str()) => {
                        entries.into_iter().map(|(name, value)| (name, quantity(value))).collect()
                    }
                    value if QUANTITIES.contains(&name.as_str()) => quantity(value),
                    value => value,
                });
                (name, value)
            });
            fields.filter(|(_, value)| !is_zero(value)).collect()
        }
        Value::Array(items) => items.into_iter().map(normalized).collect(),
        scalar => scalar,
    }
}

fn quantity(value: Value) -> Value {
    match value.as_str().map(str::parse::<Quantity>) {
        Some(Ok(amount)) => Value::String(amount.to_string()),
        _ => value,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(holds) => !holds,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(container: &Value, replicas: i32) -> RayClusterSpec {
        serde_json::from_value(json!({
            "headGroupSpec": {"template": {"spec": {"containers": [container]}}},
            "workerGroupSpecs": [{"groupName": "small", "replicas": replicas, "template": {"spec": {"containers": []}}}],
        }))
        .unwrap()
    }

    #[test]
    fn what_go_writes_again_means_the_same() {
        let written = json!({"name": "ray", "tty": false, "args": [], "resources": {
            "limits": {"cpu": "0.5", "memory": "1024Mi"}, "requests": {"cpu": "500m"}}});
        let again = json!({"name": "ray", "resources": {
            "limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "500m"}}});
        assert!(is_same(&spec(&written, 1), &spec(&again, 3)), "replicas are the autoscaler's");
        for other in [
            json!({"name": "ray", "tty": true, "resources": again["resources"]}),
            json!({"name": "ray", "resources": {"limits": {"cpu": "501m", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}),
            json!({"name": "ray", "resources": again["resources"], "env": [{"name": "A", "value": "1"}]}),
        ] {
            assert!(!is_same(&spec(&other, 1), &spec(&again, 1)), "{other}");
        }
        let numbers = |value: &str| spec(&json!({"name": "ray", "env": [{"name": "A", "value": value}]}), 1);
        assert!(!is_same(&numbers("1"), &numbers("1000m")), "only quantities are numbers");
    }
}
