//! From decisions back to API objects: what is written into the status of Workloads, and which events
//! are recorded. The mirror of [`crate::intake`]; everything here works on the JSON of the object.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::cycle::{Decision, Outcome};
use crate::engine::Engine;
use crate::model::{Admission, Delayed, Workload};
use crate::names::{Names, WorkloadId};
use crate::preemption::PreemptionReason;
use crate::settings::Gates;
use crate::time::Time;

/// Kubernetes refuses longer condition messages.
const MAX_CONDITION_MESSAGE: usize = 32 * 1024;
/// Kubernetes refuses longer event notes.
const MAX_EVENT_MESSAGE: usize = 1024;

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The workload it is about.
    pub workload: WorkloadId,
    /// Whether it warns.
    pub is_warning: bool,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl Event {
    fn normal(workload: WorkloadId, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            workload,
            is_warning: false,
            reason: reason.into(),
            message: truncated(message.into(), MAX_EVENT_MESSAGE),
        }
    }

    fn warning(workload: WorkloadId, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::normal(workload, reason, message) }
    }
}

fn truncated(mut text: String, limit: usize) -> String {
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

fn status(object: &mut Value) -> &mut Map<String, Value> {
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

fn generation(object: &Value) -> Value {
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

fn set_condition_for(
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

fn checks(object: &Value) -> &[Value] {
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

fn has_pending_placement(object: &Value) -> bool {
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

fn reset_check(check: &mut Value, now: Time) {
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

/// The message of a preemption, which both sides see.
pub fn preemption_message(
    preemptor_uid: &str,
    job_uid: &str,
    reason: Option<PreemptionReason>,
    preemptor_path: &str,
    preemptee_path: &str,
) -> String {
    let or_unknown = |text: &str| {
        if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() }
    };
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
        or_unknown(preemptor_uid),
        or_unknown(job_uid),
        reason.map_or("UNKNOWN", PreemptionReason::words),
        or_unknown(preemptor_path),
        or_unknown(preemptee_path)
    )
}

/// A write to one workload.
pub enum Write<'d> {
    /// Give it what was decided.
    Admit(WorkloadId, &'d crate::cycle::Admitted),
    /// Say why it waits.
    Unadmit(WorkloadId, &'d crate::cycle::Unadmitted),
    /// Evict it for another.
    Preempt {
        /// The victim.
        victim: WorkloadId,
        /// Why.
        reason: PreemptionReason,
        /// The message.
        message: String,
    },
    /// Evict it.
    Evict {
        /// The workload.
        workload: WorkloadId,
        /// Why.
        reason: &'static str,
        /// The message.
        message: String,
    },
    /// Finish it, because another slice replaces it.
    FinishSlice {
        /// The slice.
        workload: WorkloadId,
        /// The message.
        message: String,
    },
    /// Say that it waits for the pods of others.
    WaitForPodsReady(WorkloadId),
}

impl Write<'_> {
    /// The workload written to.
    pub fn workload(&self) -> WorkloadId {
        match self {
            Self::Admit(id, _) | Self::Unadmit(id, _) | Self::WaitForPodsReady(id) => *id,
            Self::Preempt { victim, .. } => *victim,
            Self::Evict { workload, .. } | Self::FinishSlice { workload, .. } => *workload,
        }
    }

    /// Applies the write to the object. True if it changed.
    pub fn apply(&self, object: &mut Value, engine: &Engine, now: Time) -> bool {
        let (names, gates) = (&engine.state.names, &engine.state.settings.gates);
        match self {
            Self::Admit(_, admitted) => {
                let before = object.clone();
                set_quota_reservation(object, admission(&admitted.admission, names, gates), now);
                if admitted.is_listed {
                    sync_admitted(object, now, gates);
                }
                if admitted.recovered {
                    status(object).remove("unhealthyNodes");
                }
                *object != before
            }
            Self::Unadmit(id, unadmitted) => {
                let reason = if gates.observability { unadmitted.reason.as_str() } else { "Pending" };
                let mut changed = unset_quota_reservation(object, reason, &unadmitted.message, now, gates);
                if let Some(workload) = engine.state.workload(*id) {
                    changed |= propagate_requests(object, workload, names);
                }
                if unadmitted.is_gated {
                    let message = &unadmitted.message;
                    changed |= set_condition(
                        object,
                        "BlockedOnPreemptionGates",
                        true,
                        "PreemptionGated",
                        message,
                        now,
                    );
                }
                changed
            }
            Self::Preempt { reason, message, .. } => {
                set_condition_for(object, "Preempted", true, reason.name(), message, (now, Value::Null));
                evict(object, "Preempted", message, now);
                true
            }
            Self::Evict { reason, message, .. } => {
                evict(object, reason, message, now);
                true
            }
            Self::FinishSlice { message, .. } => {
                set_condition(object, "Finished", true, "WorkloadSliceReplaced", message, now)
            }
            Self::WaitForPodsReady(_) => {
                let reason = if gates.observability { "WaitingForPodsReady" } else { "Waiting" };
                let message = "waiting for all admitted workloads to be in PodsReady condition";
                unset_quota_reservation(object, reason, message, now, gates)
            }
        }
    }
}

/// The writes of a decision, in order. Evictions for it come first.
pub fn writes<'d>(decision: &'d Decision, engine: &Engine) -> Vec<Write<'d>> {
    let id = decision.workload;
    match &decision.outcome {
        Outcome::Admitted(admitted) => {
            let mut writes = vec![Write::Admit(id, admitted)];
            if let Some(slice) = admitted.replaces {
                let (uid, job) = uids(engine, id);
                let message = format!(
                    "Replaced to accommodate a workload (UID: {uid}, JobUID: {job}) due to workload slice aggregation"
                );
                writes.push(Write::FinishSlice { workload: slice, message });
            }
            writes
        }
        Outcome::Unadmitted(unadmitted) => {
            let (uid, job) = uids(engine, id);
            let path = engine.state.path(decision.queue);
            let mut writes = Vec::new();
            for target in &unadmitted.evict {
                let victim_path = engine
                    .state
                    .held(target.workload)
                    .map_or_else(String::new, |held| engine.state.path(held.queue));
                if let Some(reason) = target.reason {
                    let message = preemption_message(&uid, &job, target.reason, &path, &victim_path);
                    writes.push(Write::Preempt { victim: target.workload, reason, message });
                }
            }
            if let Some(sibling) = unadmitted.migrate {
                let message = format!(
                    "Evicted to accommodate a workload (UID: {uid}) due to migration to more favorable resource flavor"
                );
                writes.push(Write::Evict { workload: sibling, reason: "FlavorMigration", message });
            }
            if unadmitted.write_status {
                writes.push(Write::Unadmit(id, unadmitted));
            }
            writes
        }
        Outcome::Evicted { message, .. } => {
            vec![Write::Evict { workload: id, reason: "NodeFailures", message: message.clone() }]
        }
        Outcome::WaitingForPodsReady => vec![Write::WaitForPodsReady(id)],
    }
}

fn uids(engine: &Engine, id: WorkloadId) -> (String, String) {
    let workload = engine.state.workload(id);
    let uid = workload.map_or_else(String::new, |workload| workload.uid.to_string());
    let job =
        workload.and_then(|workload| workload.links.as_ref()?.job_uid.as_ref().map(ToString::to_string));
    (uid, job.unwrap_or_default())
}

/// The events of a write that succeeded.
pub fn events(
    decision: &Decision,
    write: &Write<'_>,
    object: &Value,
    engine: &Engine,
    now: Time,
) -> Vec<Event> {
    let names = &engine.state.names;
    let id = decision.workload;
    let queue = names.queue_name(decision.queue);
    match write {
        Write::Admit(_, admitted) => {
            let mut events = Vec::new();
            if !admitted.had_reservation {
                let waited = now.seconds_since(queued_since(object));
                let mut message = format!(
                    "Quota reserved in ClusterQueue {queue}, wait time since queued was {waited:.0}s"
                );
                if !admitted.considered.is_empty() {
                    let _ = write!(message, "; Flavors considered: {}", admitted.considered);
                }
                events.push(Event::normal(id, "QuotaReserved", message));
            }
            if is_true(object, "Admitted") && !admitted.recovered {
                let message = format!("Admitted by ClusterQueue {queue}, wait time since reservation was 0s");
                events.push(Event::normal(id, "Admitted", message));
            }
            events
        }
        Write::Unadmit(_, unadmitted) => {
            let gates = &engine.state.settings.gates;
            let reason = if gates.observability { unadmitted.reason.as_str() } else { "Pending" };
            vec![Event::warning(id, reason, unadmitted.message.clone())]
        }
        Write::Preempt { victim, message, .. } => preemption_events(id, *victim, message, engine),
        Write::Evict { workload, reason, message } => {
            vec![Event::normal(*workload, format!("EvictedDueTo{reason}"), message.clone())]
        }
        Write::FinishSlice { workload, message } => {
            vec![Event::normal(*workload, "WorkloadSliceReplaced", message.clone())]
        }
        Write::WaitForPodsReady(_) => Vec::new(),
    }
}

/// The event of a second pass that failed, or whose eviction could not be written.
pub fn second_pass_event(decision: &Decision, eviction_failed: bool) -> Option<Event> {
    match &decision.outcome {
        Outcome::Evicted { cause, .. } if eviction_failed => {
            Some(Event::warning(decision.workload, "SecondPassFailed", cause.clone()))
        }
        Outcome::Unadmitted(unadmitted) if unadmitted.second_pass_failed => {
            Some(Event::warning(decision.workload, "SecondPassFailed", unadmitted.message.clone()))
        }
        _ => None,
    }
}

fn preemption_events(
    preemptor: WorkloadId,
    victim: WorkloadId,
    message: &str,
    engine: &Engine,
) -> Vec<Event> {
    let (Some(by), Some(of)) = (engine.state.workload(preemptor), engine.state.workload(victim)) else {
        return Vec::new();
    };
    let gates = &engine.state.settings.gates;
    let priority = |workload: &Workload| {
        let effective = workload.effective_priority(gates);
        format!(
            "{effective} (base: {}, boost: {})",
            workload.priority,
            effective - i64::from(workload.priority)
        )
    };
    let priorities = format!(
        "; preemptor effective priority: {}; preemptee effective priority: {}",
        priority(by),
        priority(of)
    );
    let queue = engine.state.held(victim).map_or("", |held| engine.state.names.queue_name(held.queue));
    let seen = format!(
        "Preempted workload {} (UID: {}) in ClusterQueue {queue}{priorities}",
        engine.state.key_text(&of.key),
        of.uid
    );
    vec![
        Event::normal(victim, "EvictedDueToPreempted", message),
        Event::normal(victim, "Preempted", format!("{message}{priorities}")),
        Event::normal(preemptor, "PreemptedWorkload", seen),
    ]
}

/// When the workload began to wait.
fn queued_since(object: &Value) -> Time {
    let since = condition(object, "Requeued").map_or_else(
        || object.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default(),
        |requeued| requeued["lastTransitionTime"].clone(),
    );
    crate::intake::time(&since).unwrap_or(Time::ZERO)
}
