//! Decision output: what a decision writes into the status of Workloads, and which events are recorded.
//!
//! A [`Write`] changes the API object that the caller has, so that it can be sent as a server-side apply, a
//! patch or an update.

mod admission;
mod conditions;
mod events;

pub use admission::{
    admission, evict, propagate_requests, resource_list, set_quota_reservation, sync_admitted,
    unset_quota_reservation,
};
pub use conditions::{api_time, condition_message, set_condition};
pub use events::{Event, events, preemption_message, second_pass_event};

use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::{
    BlockedOnPreemptionGatesReason, EvictionReason, FinishedReason, PreemptionReason, QuotaReservedReason,
};
use quintet_api::kueue::v1beta2;

use crate::cycle::{Admitted, Decision, Outcome, Unadmitted};
use crate::engine::Engine;
use crate::names::WorkloadId;
use crate::settings::Gates;
use crate::time::Time;
use conditions::{ConditionUpdate, set};

/// A write to one workload.
pub enum Write<'d> {
    /// Give it what was decided.
    Admit(WorkloadId, &'d Admitted),
    /// Say why it is pending.
    Unadmit(WorkloadId, &'d Unadmitted),
    /// Evict it in favor of another.
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
        reason: EvictionReason,
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
    pub fn apply(&self, object: &mut v1beta2::Workload, engine: &Engine, now: Time) -> bool {
        let (names, gates) = (&engine.state.names, &engine.state.settings.gates);
        match self {
            Self::Admit(_, admitted) => {
                let before = object.status.clone();
                set_quota_reservation(object, admission(&admitted.admission, names, gates), now);
                // They say why a workload waits. What it gets is part of its admission.
                object.status.get_or_insert_default().resource_requests = None;
                if admitted.is_listed {
                    sync_admitted(object, now, gates);
                }
                if admitted.recovered {
                    object.status.get_or_insert_default().unhealthy_nodes = None;
                }
                object.status != before
            }
            Self::Unadmit(id, unadmitted) => {
                let reason = unadmitted_reason(unadmitted, gates);
                let mut changed = unset_quota_reservation(object, reason, &unadmitted.message, now, gates);
                if let Some(workload) = engine.state.workload(*id) {
                    changed |= propagate_requests(object, workload, names);
                    if workload.links.as_ref().is_some_and(|links| links.has_invalid_devices) {
                        let reason = QuotaReservedReason::Inadmissible.as_str();
                        let requeued = WorkloadCondition::Requeued;
                        changed |= set_condition(object, requeued, false, reason, &unadmitted.message, now);
                    }
                }
                if unadmitted.is_gated {
                    let reason = BlockedOnPreemptionGatesReason::PreemptionGated.as_str();
                    let blocked = WorkloadCondition::BlockedOnPreemptionGates;
                    changed |= set_condition(object, blocked, true, reason, &unadmitted.message, now);
                }
                changed
            }
            Self::Preempt { reason, message, .. } => {
                // Upstream writes this condition without a generation (`SetPreemptedCondition` in
                // `pkg/workload/workload.go`).
                let (kind, generation) = (WorkloadCondition::Preempted, None);
                set(
                    object,
                    &ConditionUpdate { kind, status: true, reason: reason.as_str(), message, generation },
                    now,
                );
                evict(object, EvictionReason::Preempted.as_str(), "", message, now);
                true
            }
            Self::Evict { reason, message, .. } => {
                evict(object, reason.as_str(), "", message, now);
                true
            }
            Self::FinishSlice { message, .. } => {
                let reason = FinishedReason::WorkloadSliceReplaced.as_str();
                set_condition(object, WorkloadCondition::Finished, true, reason, message, now)
            }
            Self::WaitForPodsReady(_) => {
                let reason = if gates.observability {
                    QuotaReservedReason::WaitingForPodsReady
                } else {
                    QuotaReservedReason::Waiting
                };
                let message = "waiting for all admitted workloads to be in PodsReady condition";
                unset_quota_reservation(object, reason, message, now, gates)
            }
        }
    }
}

/// The reason clients see of a workload that was not admitted.
fn unadmitted_reason(unadmitted: &Unadmitted, gates: &Gates) -> QuotaReservedReason {
    let is_told = |reason: &_| gates.observability || *reason == QuotaReservedReason::Inadmissible;
    let reason = unadmitted.reason.filter(is_told);
    reason.unwrap_or(QuotaReservedReason::Pending)
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
        Outcome::Unadmitted(unadmitted) => unadmitted_writes(decision, unadmitted, engine),
        Outcome::Evicted { message, .. } => {
            let reason = EvictionReason::NodeFailures;
            vec![Write::Evict { workload: id, reason, message: message.clone() }]
        }
        Outcome::WaitingForPodsReady => vec![Write::WaitForPodsReady(id)],
    }
}

fn unadmitted_writes<'d>(decision: &Decision, unadmitted: &'d Unadmitted, engine: &Engine) -> Vec<Write<'d>> {
    let id = decision.workload;
    let (uid, job) = uids(engine, id);
    let path = engine.state.path(decision.queue);
    let mut writes = Vec::new();
    for target in &unadmitted.evict {
        let held = engine.state.held(target.workload);
        let victim_path = held.map_or_else(String::new, |held| engine.state.path(held.queue));
        if let Some(reason) = target.reason {
            let message = preemption_message(&uid, &job, target.reason, &path, &victim_path);
            writes.push(Write::Preempt { victim: target.workload, reason, message });
        }
    }
    if let Some(sibling) = unadmitted.migrate {
        let message = format!(
            "Evicted to accommodate a workload (UID: {uid}) due to migration to more favorable resource flavor"
        );
        let reason = EvictionReason::FlavorMigration;
        writes.push(Write::Evict { workload: sibling, reason, message });
    }
    if unadmitted.write_status {
        writes.push(Write::Unadmit(id, unadmitted));
    }
    writes
}

fn uids(engine: &Engine, id: WorkloadId) -> (String, String) {
    let workload = engine.state.workload(id);
    let uid = workload.map_or_else(String::new, |workload| workload.uid.to_string());
    let job =
        workload.and_then(|workload| workload.links.as_ref()?.job_uid.as_ref().map(ToString::to_string));
    (uid, job.unwrap_or_default())
}
