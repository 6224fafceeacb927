//! API objects of a vector.
//!
//! Vectors were written from Go structs, which leave out what the API requires and write quantities as numbers;
//! both is completed here, so that objects decode as those of an API server.

use std::collections::BTreeMap;

use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_api::kueue::v1beta2::Workload;
use quintet_queue_engine::ingest::{self, Quantities, ResourceList};
use quintet_queue_engine::time::Time;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Go's zero time.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Fields that hold a quantity, or a map of them.
const QUANTITIES: [&str; 11] = [
    "requests",
    "limits",
    "overhead",
    "podFixed",
    "allocatable",
    "resourceUsage",
    "nominalQuota",
    "borrowingLimit",
    "lendingLimit",
    "outputs",
    "resources",
];

pub fn decode<T: DeserializeOwned>(value: &Value) -> T {
    let mut value = value.clone();
    complete(&mut value);
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn complete(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(complete),
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for (key, value) in fields.iter_mut() {
                complete(value);
                match key.as_str() {
                    "conditions" | "preemptionGates" => {
                        require(value, &[("lastTransitionTime", json!(NO_TIME))]);
                    }
                    "admissionChecks" => {
                        require(value, &[("lastTransitionTime", json!(NO_TIME)), ("message", json!(""))]);
                    }
                    "podSets" => require(value, &[("template", json!({}))]),
                    "resourceGroups" => {
                        require(value, &[("coveredResources", json!([])), ("flavors", json!([]))]);
                    }
                    "flavors" => require(value, &[("resources", json!([]))]),
                    "fairSharing" => value.get_mut("weight").into_iter().for_each(as_text),
                    key if QUANTITIES.contains(&key) => as_text(value),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn require(values: &mut Value, defaults: &[(&str, Value)]) {
    for entry in values.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        for (key, default) in defaults {
            entry.entry(*key).or_insert_with(|| default.clone());
        }
    }
}

fn as_text(value: &mut Value) {
    match value {
        Value::Number(number) => *value = number.to_string().into(),
        Value::Object(entries) => {
            entries.values_mut().filter(|value| value.is_number()).for_each(as_text);
        }
        _ => {}
    }
}

/// A resource list.
pub fn quantities(value: &Value) -> Quantities {
    let mut list = if value.is_null() { json!({}) } else { value.clone() };
    as_text(&mut list);
    let list: ResourceList = decode(&list);
    ingest::quantities(Some(&list)).expect("quantities")
}

/// A time; none is [`Time::ZERO`].
pub fn time(value: &Value) -> Time {
    if value.is_null() { Time::ZERO } else { ingest::time(&decode(value)) }
}

/// A time as the API writes it.
pub fn time_text(time: Time) -> String {
    json!(quintet_queue_engine::status::api_time(time)).as_str().expect("a time").to_owned()
}

/// Changes the status of a workload in place; everything else stays as it was written.
pub fn change_status<R>(object: &mut Value, change: impl FnOnce(&mut Workload) -> R) -> R {
    let mut workload: Workload = if object.is_null() { Workload::default() } else { decode(object) };
    let result = change(&mut workload);
    let conditions_before: BTreeMap<String, Value> = conditions(object);
    object["status"] = json!(workload.status);
    // Conditions that did not change are left as they were, with or without a time.
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        let before = condition["type"].as_str().and_then(|kind| conditions_before.get(kind));
        if condition["lastTransitionTime"] == NO_TIME {
            condition["lastTransitionTime"] =
                before.map_or(Value::Null, |before| before["lastTransitionTime"].clone());
        }
    }
    result
}

fn conditions(object: &Value) -> BTreeMap<String, Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions
        .filter_map(|condition| Some((condition["type"].as_str()?.to_owned(), condition.clone())))
        .collect()
}

/// The reason of a workload that was not admitted; one that Kueue does not have is none.
pub fn unfit_reason(value: &Value) -> Option<QuotaReservedReason> {
    value.as_str().and_then(QuotaReservedReason::from_name)
}
