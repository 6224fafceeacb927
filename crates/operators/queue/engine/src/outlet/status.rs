//! The status of a Workload: conditions, admission, checks.

use serde_json::{Map, Value, json};

use crate::model::{Admission, Delayed, Workload};
use crate::names::Names;
use crate::settings::Gates;
use crate::time::Time;

/// Kubernetes refuses longer condition messages.
const MAX_CONDITION_MESSAGE: usize = 32 * 1024;

pub(super) fn truncated(mut text: String, limit: usize) -> String {
    const MARK: &str = " ...";
    if text.len() > limit {
        let mut end = limit - MARK.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

/// A time as the API writes it.
pub fn time_text(time: Time) -> String {
    let timestamp = jiff::Timestamp::from_nanosecond(i128::from(time.as_nanos())).unwrap_or_default();
    timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn status(object: &mut Value) -> &mut Map<String, Value> {
    let empty = || Value::Object(Map::new());
    if !object.is_object() {
        *object = empty();
    }
    let Value::Object(fields) = object else {
        unreachable!("made an object just above");
    };
    let status = fields.entry("status").or_insert_with(empty);
    if !status.is_object() {
        *status = empty();
    }
    let Value::Object(fields) = status else {
        unreachable!("made an object just above");
    };
    fields
}

pub(super) fn generation(object: &Value) -> Value {
    object.pointer("/metadata/generation").cloned().unwrap_or(Value::Null)
}

/// The condition of a type.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Whether a condition is true.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition; the time changes only with the status. True if anything changed.
pub fn set_condition(
    object: &mut Value,
    kind: &str,
    value: bool,
    reason: &str,
    message: &str,
    now: Time,
) -> bool {
    let generation = generation(object);
    set_condition_for(object, kind, value, reason, message, (now, generation))
}

pub(super) fn set_condition_for(
    object: &mut Value,
    kind: &str,
    value: bool,
    reason: &str,
    message: &str,
    (now, generation): (Time, Value),
) -> bool {
    let text = if value { "True" } else { "False" };
    let mut new = json!({
        "type": kind,
        "status": text,
        "reason": reason,
        "message": truncated(message.to_owned(), MAX_CONDITION_MESSAGE),
        "lastTransitionTime": time_text(now),
    });
    if generation.as_i64().is_some_and(|generation| generation != 0) {
        new["observedGeneration"] = generation;
    }
    let conditions = status(object).entry("conditions").or_insert_with(|| Value::Array(Vec::new()));
    let Some(conditions) = conditions.as_array_mut() else {
        return false;
    };
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        None => conditions.push(new),
        Some(old) => {
            if old["status"] == text && !old["lastTransitionTime"].is_null() {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            if *old == new {
                return false;
            }
            *old = new;
        }
    }
    true
}

/// The API form of an admission.
pub fn admission(admission: &Admission, names: &Names, gates: &Gates) -> Value {
    let pod_sets: Vec<Value> = admission
        .pod_sets
        .iter()
        .map(|pod_set| {
            let flavors: Map<_, _> = pod_set
                .flavors
                .iter()
                .map(|(id, flavor)| (names.resource_name(*id).to_owned(), names.flavor_name(*flavor).into()))
                .collect();
            let mut value = json!({
                "name": &*pod_set.name,
                "flavors": flavors,
                "resourceUsage": resource_list(&pod_set.usage, names),
                "count": pod_set.count,
            });
            if let Some(topology) = &pod_set.topology {
                let encoded = topology.encoded(gates.tas_prefix_encoding);
                value["topologyAssignment"] = serde_json::to_value(encoded).unwrap_or_default();
            }
            if let Some(delayed) = pod_set.delayed {
                value["delayedTopologyRequest"] =
                    if delayed == Delayed::Pending { "Pending".into() } else { "Ready".into() };
            }
            value
        })
        .collect();
    json!({ "clusterQueue": names.queue_name(admission.queue), "podSetAssignments": pod_sets })
}

/// Integers as quantities.
pub fn resource_list(requests: &crate::requests::Requests, names: &Names) -> Value {
    let entries = requests
        .iter()
        .map(|(id, value)| (names.resource_name(id).to_owned(), names.format(id, value).into()));
    Value::Object(entries.collect())
}

/// Writes a reservation: conditions that were true because of an earlier eviction become false.
pub fn set_quota_reservation(object: &mut Value, admission: Value, now: Time) -> bool {
    let queue = admission["clusterQueue"].as_str().unwrap_or("").to_owned();
    status(object).insert("admission".to_owned(), admission);
    let message = format!("Quota reserved in ClusterQueue {queue}");
    let mut changed = set_condition(object, "QuotaReserved", true, "QuotaReserved", &message, now);
    for kind in ["Evicted", "Preempted", "BlockedOnPreemptionGates"] {
        if is_true(object, kind) {
            let before =
                condition(object, kind).and_then(|condition| condition["message"].as_str()).unwrap_or("");
            let message = format!("Previously: {before}");
            changed |= set_condition(object, kind, false, "QuotaReserved", &message, now);
        }
    }
    changed
}

/// Takes a reservation away, with the reason clients see.
pub fn unset_quota_reservation(
    object: &mut Value,
    reason: &str,
    message: &str,
    now: Time,
    gates: &Gates,
) -> bool {
    let mut changed = set_condition(object, "QuotaReserved", false, reason, message, now);
    changed |= status(object).remove("admission").is_some_and(|admission| !admission.is_null());
    changed |= sync_admitted(object, now, gates);
    changed
}

pub(super) fn checks(object: &Value) -> &[Value] {
    object.pointer("/status/admissionChecks").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Makes the Admitted condition follow reservation, checks and placement.
pub fn sync_admitted(object: &mut Value, now: Time, gates: &Gates) -> bool {
    let reserved = is_true(object, "QuotaReserved");
    let ready = checks(object).iter().all(|check| check["state"] == "Ready");
    let placed = !has_pending_placement(object);
    let admitted = is_true(object, "Admitted");
    if gates.observability {
        let unknown = condition(object, "QuotaReserved").is_none() && condition(object, "Admitted").is_none();
        if unknown && !gates.explicit_status {
            return false;
        }
    } else if admitted == (reserved && ready && placed) {
        return false;
    }
    let (value, reason, message) = match (reserved, ready, placed) {
        (false, false, _) if !gates.observability => (
            false,
            "NoReservationUnsatisfiedChecks",
            "The workload has no reservation and not all checks ready",
        ),
        (false, _, _) => (false, "NoReservation", "The workload has no reservation"),
        (true, false, _) => {
            let reason = if gates.observability { "UnsatisfiedAdmissionChecks" } else { "UnsatisfiedChecks" };
            (false, reason, "The workload has not all checks ready")
        }
        (true, true, false) => {
            (false, "PendingDelayedTopologyRequests", "There are pending delayed topology requests")
        }
        (true, true, true) => (true, "Admitted", "The workload is admitted"),
    };
    if admitted && !value {
        let since = condition(object, "Admitted").map(|condition| condition["lastTransitionTime"].clone());
        let since = since.and_then(|since| crate::intake::time(&since).ok()).unwrap_or(now);
        #[expect(clippy::cast_possible_truncation, reason = "whole seconds of one run")]
        let ran = now.seconds_since(since) as i64;
        let total = status(object).entry("accumulatedPastExecutionTimeSeconds").or_insert_with(|| 0.into());
        *total = (total.as_i64().unwrap_or(0) + ran).into();
    }
    set_condition(object, "Admitted", value, reason, message, now)
}

pub(super) fn has_pending_placement(object: &Value) -> bool {
    let pod_sets = object.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    pod_sets.into_iter().flatten().any(|pod_set| {
        pod_set["topologyAssignment"].is_null() && pod_set["delayedTopologyRequest"] == "Pending"
    })
}

/// Writes an eviction.
pub fn evict(object: &mut Value, reason: &str, message: &str, now: Time) {
    set_condition(object, "Evicted", true, reason, message, now);
    let blocked = is_true(object, "BlockedOnPreemptionGates");
    let fields = status(object);
    for field in ["clusterName", "nominatedClusterNames", "unhealthyNodes"] {
        fields.remove(field);
    }
    for check in fields.get_mut("admissionChecks").and_then(Value::as_array_mut).into_iter().flatten() {
        reset_check(check, now);
    }
    for gate in fields.get_mut("preemptionGates").and_then(Value::as_array_mut).into_iter().flatten() {
        gate["position"] = "Closed".into();
        gate["lastTransitionTime"] = time_text(now).into();
    }
    let evictions = fields.entry("schedulingStats").or_insert_with(|| json!({}));
    if evictions["evictions"].is_null() {
        evictions["evictions"] = json!([]);
    }
    let known = evictions["evictions"].as_array_mut().into_iter().flatten().find(|entry| {
        entry["reason"] == reason && entry["underlyingCause"].as_str().unwrap_or("").is_empty()
    });
    match known {
        Some(entry) => entry["count"] = (entry["count"].as_i64().unwrap_or(0) + 1).into(),
        None => {
            if let Some(list) = evictions["evictions"].as_array_mut() {
                list.push(json!({ "reason": reason, "underlyingCause": "", "count": 1 }));
            }
        }
    }
    if blocked {
        set_condition(object, "BlockedOnPreemptionGates", false, reason, message, now);
    }
}

pub(super) fn reset_check(check: &mut Value, now: Time) {
    let state = check["state"].as_str().unwrap_or("").to_owned();
    if state == "Pending" {
        return;
    }
    let mut new = json!({
        "name": check["name"],
        "state": "Pending",
        "message": format!("Reset to Pending after eviction. Previously: {state}"),
        "lastTransitionTime": time_text(now),
    });
    if !check["requeueAfterSeconds"].is_null() {
        new["requeueAfterSeconds"] = check["requeueAfterSeconds"].clone();
    }
    if state == "Retry" {
        new["retryCount"] = (check["retryCount"].as_i64().unwrap_or(0) + 1).into();
    }
    *check = new;
}

/// Writes what the workload asks for into its status. True if that changed.
pub fn propagate_requests(object: &mut Value, workload: &Workload, names: &Names) -> bool {
    let pod_sets = workload.pod_sets.iter();
    let requests: Vec<Value> = pod_sets
        .map(|pod_set| {
            let total = pod_set.demand().requests;
            let mut entry = json!({ "name": &*pod_set.name });
            if !total.is_empty() {
                entry["resources"] = resource_list(&total, names);
            }
            entry
        })
        .collect();
    let new = Value::Array(requests);
    let old = status(object).insert("resourceRequests".to_owned(), new.clone());
    old.as_ref() != Some(&new)
}
