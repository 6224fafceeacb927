//! Events about Workloads.

use std::fmt::Write as _;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::{WorkloadEvent, evicted_due_to};
use quintet_api::kueue::reasons::{EvictionReason, PreemptionReason};
use quintet_api::kueue::v1beta2;

use super::conditions::{find, truncated};
use super::{Write, unadmitted_reason};
use crate::cycle::{Decision, Outcome};
use crate::engine::Engine;
use crate::model::Workload;
use crate::names::WorkloadId;
use crate::time::Time;

/// Kubernetes rejects longer event notes.
const MAX_EVENT_MESSAGE: usize = 1024;

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The workload it is about.
    pub workload: WorkloadId,
    /// Whether its type is Warning.
    pub is_warning: bool,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl Event {
    fn normal(workload: WorkloadId, reason: &str, message: impl Into<String>) -> Self {
        Self {
            workload,
            is_warning: false,
            reason: reason.to_owned(),
            message: truncated(message.into(), MAX_EVENT_MESSAGE),
        }
    }

    fn warning(workload: WorkloadId, reason: &str, message: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::normal(workload, reason, message) }
    }
}

/// The message of a preemption, for the victim and in the events of both. As `preemptionMessage` in Kueue's
/// `pkg/scheduler/preemption/preemption.go`.
pub fn preemption_message(
    preemptor_uid: &str,
    job_uid: &str,
    reason: Option<PreemptionReason>,
    preemptor_path: &str,
    preemptee_path: &str,
) -> String {
    const UNKNOWN: &str = "UNKNOWN";
    fn or_unknown(text: &str) -> &str {
        if text.is_empty() { UNKNOWN } else { text }
    }
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
        or_unknown(preemptor_uid),
        or_unknown(job_uid),
        reason.map_or(UNKNOWN, preemption_cause),
        or_unknown(preemptor_path),
        or_unknown(preemptee_path)
    )
}

/// How messages describe the reason of a preemption.
const fn preemption_cause(reason: PreemptionReason) -> &'static str {
    match reason {
        PreemptionReason::InClusterQueue => "prioritization in the ClusterQueue",
        PreemptionReason::InCohortReclamation => "reclamation within the cohort",
        PreemptionReason::InCohortFairSharing => "Fair Sharing within the cohort",
        PreemptionReason::InCohortReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
    }
}

/// The events of a write that succeeded.
pub fn events(
    decision: &Decision,
    write: &Write<'_>,
    object: &v1beta2::Workload,
    engine: &Engine,
    now: Time,
) -> Vec<Event> {
    let id = decision.workload;
    match write {
        Write::Admit(_, admitted) => {
            let queue = engine.state.names.queue_name(decision.queue);
            let mut events = Vec::new();
            if !admitted.had_reservation {
                let waited = now.seconds_since(queued_since(object));
                let mut message = format!(
                    "Quota reserved in ClusterQueue {queue}, wait time since queued was {waited:.0}s"
                );
                if !admitted.considered.is_empty() {
                    let _ = write!(message, "; Flavors considered: {}", admitted.considered);
                }
                events.push(Event::normal(id, WorkloadEvent::QuotaReserved.as_str(), message));
            }
            if object.is_admitted() && !admitted.recovered {
                let message = format!("Admitted by ClusterQueue {queue}, wait time since reservation was 0s");
                events.push(Event::normal(id, WorkloadEvent::Admitted.as_str(), message));
            }
            events
        }
        Write::Unadmit(_, unadmitted) => {
            let reason = unadmitted_reason(unadmitted, &engine.state.settings.gates);
            vec![Event::warning(id, reason.as_str(), unadmitted.message.clone())]
        }
        Write::Preempt { victim, message, .. } => preemption_events(id, *victim, message, engine),
        Write::Evict { workload, reason, message } => {
            vec![Event::normal(*workload, &evicted_due_to(reason.as_str()), message.clone())]
        }
        Write::FinishSlice { workload, message } => {
            let reason = WorkloadEvent::WorkloadSliceReplaced.as_str();
            vec![Event::normal(*workload, reason, message.clone())]
        }
        Write::WaitForPodsReady(_) => Vec::new(),
    }
}

/// The event of a second pass that failed, or whose eviction could not be written.
pub fn second_pass_event(decision: &Decision, eviction_failed: bool) -> Option<Event> {
    let message = match &decision.outcome {
        Outcome::Evicted { cause, .. } if eviction_failed => cause,
        Outcome::Unadmitted(unadmitted) if unadmitted.second_pass_failed => &unadmitted.message,
        _ => return None,
    };
    Some(Event::warning(decision.workload, WorkloadEvent::SecondPassFailed.as_str(), message.clone()))
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
    let preempted = format!(
        "Preempted workload {} (UID: {}) in ClusterQueue {queue}{priorities}",
        engine.state.key_text(&of.key),
        of.uid
    );
    vec![
        Event::normal(victim, &evicted_due_to(EvictionReason::Preempted.as_str()), message),
        Event::normal(victim, WorkloadEvent::Preempted.as_str(), format!("{message}{priorities}")),
        Event::normal(preemptor, WorkloadEvent::PreemptedWorkload.as_str(), preempted),
    ]
}

/// When the workload began to wait.
fn queued_since(object: &v1beta2::Workload) -> Time {
    let requeued = find(object, WorkloadCondition::Requeued).map(|condition| &condition.last_transition_time);
    requeued.or(object.metadata.creation_timestamp.as_ref()).map_or(Time::ZERO, crate::ingest::time)
}
