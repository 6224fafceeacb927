//! Comparing JSON: absent, null and empty are the same.

use serde_json::Value;

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(entries) => entries.values().all(is_empty),
        _ => false,
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

pub fn differences(path: &str, got: &Value, want: &Value) -> Vec<String> {
    if is_empty(got) && is_empty(want) {
        return Vec::new();
    }
    match (got, want) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            let null = Value::Null;
            let of =
                |map: &serde_json::Map<String, Value>, key: &String| map.get(key).unwrap_or(&null).clone();
            keys.into_iter()
                .flat_map(|key| differences(&format!("{path}.{key}"), &of(a, key), &of(b, key)))
                .collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.flat_map(|(index, (a, b))| differences(&format!("{path}[{index}]"), a, b)).collect()
        }
        _ if got == want => Vec::new(),
        _ => match (number(got), number(want)) {
            (Some(a), Some(b)) if (a - b).abs() < 1e-9 => Vec::new(),
            _ => vec![format!("{path}: got {got}, want {want}")],
        },
    }
}

/// As [`differences`], for lists whose order does not matter.
pub fn set_differences(path: &str, got: &Value, want: &Value) -> Vec<String> {
    let sorted = |value: &Value| {
        let mut values = value.as_array().cloned().unwrap_or_default();
        values.sort_by_key(ToString::to_string);
        Value::Array(values)
    };
    differences(path, &sorted(got), &sorted(want))
}

/// Conditions as a map by type; times only where wanted, and not at all with `ignore_times`.
pub fn comparable_status(got: &Value, want: &Value, ignore_times: bool) -> (Value, Value) {
    let (mut got, mut want) = (got.clone(), want.clone());
    let by_type = |value: &Value| {
        let conditions = value["conditions"].as_array().cloned().unwrap_or_default();
        let entries = conditions
            .into_iter()
            .map(|condition| (condition["type"].as_str().unwrap_or("").to_owned(), condition));
        Value::Object(entries.collect())
    };
    let (mut a, mut b) = (by_type(&got), by_type(&want));
    for (kind, condition) in b.as_object_mut().into_iter().flatten() {
        let untimed = ignore_times || condition["lastTransitionTime"].is_null();
        if untimed {
            condition["lastTransitionTime"] = Value::Null;
            if let Some(own) = a.get_mut(kind) {
                own["lastTransitionTime"] = Value::Null;
            }
        }
    }
    for value in [&mut got, &mut want] {
        for check in value["admissionChecks"].as_array_mut().into_iter().flatten() {
            check["lastTransitionTime"] = Value::Null;
        }
        if value["admissionChecks"].is_null() {
            value.as_object_mut().map(|fields| fields.remove("admissionChecks"));
        }
    }
    if !got.is_object() {
        got = serde_json::json!({});
    }
    if !want.is_object() {
        want = serde_json::json!({});
    }
    got["conditions"] = a;
    want["conditions"] = b;
    (got, want)
}
