//! From decisions back to API objects: what is written into the status of Workloads, and which events
//! are recorded. The mirror of [`crate::intake`]; everything here works on the JSON of the object.

mod status;

use std::fmt::Write as _;

use serde_json::Value;

use crate::cycle::{Decision, Outcome};
use crate::engine::Engine;
use crate::model::Workload;
use crate::names::WorkloadId;
use crate::preemption::PreemptionReason;
use crate::time::Time;
pub use status::{
    admission, condition, evict, is_true, propagate_requests, resource_list, set_condition,
    set_quota_reservation, sync_admitted, time_text, unset_quota_reservation,
};
use status::{set_condition_for, status, truncated};

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
