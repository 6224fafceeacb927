//! Why a Workload is not admitted, as far as the scheduler does not say it.

use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::{ACTIVE, WorkloadCondition};
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::metadata::ADMISSION_GATED_BY;
use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_api::kueue::v1beta2::ClusterQueue;
use quintet_controller::Event;
use quintet_queue_engine::status;

use super::draft::Draft;
use super::plan::is_stopped;
use crate::settings::matches;

/// What Workloads say whose obstacle is gone.
const PENDING: &str = "Workload is pending evaluation in the scheduling queue";

/// What Workloads say whose namespace the ClusterQueue does not select.
const FOREIGN: &str = "workload namespace doesn't match ClusterQueue selector";

/// Whether a ClusterQueue can admit. One without a condition is about to get it.
pub(super) fn is_active(queue: &ClusterQueue) -> bool {
    let conditions = queue.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions::find(conditions.unwrap_or_default(), ACTIVE).is_none_or(|own| own.status == "True")
}

/// Says what keeps the Workload from being queued, and whether it is admitted.
pub(super) fn report(draft: &mut Draft<'_>) {
    if !draft.object.has_quota_reservation() {
        // Who ended the reservation by server-side apply could not remove what another field manager wrote.
        if let Some(status) = &mut draft.object.status {
            status.admission = None;
        }
        match blocker(draft) {
            Some((reason, message)) => {
                let gated = QuotaReservedReason::AdmissionGated;
                let known = draft.condition(WorkloadCondition::QuotaReserved);
                if reason == gated && known.is_none_or(|known| known.reason != gated.as_str()) {
                    let event = WorkloadEvent::AdmissionGated.as_str();
                    let note = format!("Workload admission{}", message.trim_start_matches("Admission"));
                    draft.events.push(Event::normal(event, event, note));
                }
                set_pending(draft, reason, &message);
            }
            None => clear_blocker(draft),
        }
    }
    let (now, gates) = (draft.time(), draft.observed.settings.scheduling.clone());
    let was_admitted = draft.object.is_admitted();
    status::sync_admitted(&mut draft.object, now, &gates);
    if draft.object.is_admitted() && !was_admitted {
        let admission = draft.object.status.as_ref().and_then(|status| status.admission.as_ref());
        let queue = admission.and_then(|admission| admission.cluster_queue.clone()).unwrap_or_default();
        let reserved = draft.condition(WorkloadCondition::QuotaReserved);
        let waited = reserved.map_or(0.0, |reserved| {
            draft.now().duration_since(reserved.last_transition_time.0).as_secs_f64()
        });
        let reason = WorkloadEvent::Admitted.as_str();
        let note = format!("Admitted by ClusterQueue {queue}, wait time since reservation was {waited:.0}s");
        draft.events.push(Event::normal(reason, reason, note));
    }
}

/// The first obstacle.
fn blocker(draft: &Draft<'_>) -> Option<(QuotaReservedReason, String)> {
    use QuotaReservedReason as Reason;
    // Without observability, the reason of the eviction stays.
    if !draft.object.is_active() && draft.observed.settings.scheduling.observability {
        return Some((Reason::Deactivated, "The workload is deactivated".to_owned()));
    }
    if is_on_hold(draft) {
        return None;
    }
    let name = draft.object.spec.queue_name.clone().unwrap_or_default();
    let Some(local_queue) = &draft.observed.local_queue else {
        return Some((Reason::Misconfigured, format!("LocalQueue {name} doesn't exist")));
    };
    if is_stopped(local_queue.object.spec.stop_policy) {
        return Some((Reason::Suspended, format!("LocalQueue {name} is inactive")));
    }
    let name = local_queue.object.spec.cluster_queue.clone().unwrap_or_default();
    let Some(queue) = &draft.observed.cluster_queue else {
        return Some((Reason::Misconfigured, format!("ClusterQueue {name} doesn't exist")));
    };
    if !is_active(&queue.object) {
        return Some((Reason::Suspended, format!("ClusterQueue {name} is inactive")));
    }
    if is_foreign(draft, &queue.object) {
        return Some((Reason::Misconfigured, FOREIGN.to_owned()));
    }
    let annotations = draft.object.metadata.annotations.as_ref();
    let gates = annotations.and_then(|annotations| annotations.get(ADMISSION_GATED_BY));
    let gates =
        gates.filter(|gates| draft.observed.settings.scheduling.admission_gated_by && !gates.is_empty())?;
    Some((Reason::AdmissionGated, format!("Admission is gated by: {gates}")))
}

/// Whether the namespace of the Workload is one that the ClusterQueue does not serve. Without observability, only the
/// scheduler says so.
fn is_foreign(draft: &Draft<'_>, queue: &ClusterQueue) -> bool {
    let Some(labels) = &draft.observed.namespace_labels else { return false };
    let is_served = queue.spec.namespace_selector.as_ref().is_some_and(|selector| matches(selector, labels));
    draft.observed.settings.scheduling.observability && !is_served
}

/// Whether the job does not want to run for now. The controller of the job said so and takes it back.
fn is_on_hold(draft: &Draft<'_>) -> bool {
    let reserved = draft.false_condition(WorkloadCondition::QuotaReserved);
    reserved.is_some_and(|reserved| reserved.reason == QuotaReservedReason::OnHold.as_str())
}

/// An obstacle that is no more is not to be read any longer. What the scheduler found stays.
fn clear_blocker(draft: &mut Draft<'_>) {
    use QuotaReservedReason as Reason;
    if !draft.object.is_active() {
        return;
    }
    let settings = &draft.observed.settings.scheduling;
    let Some(known) = draft.false_condition(WorkloadCondition::QuotaReserved) else {
        if settings.explicit_status && draft.condition(WorkloadCondition::QuotaReserved).is_none() {
            set_pending(draft, Reason::PendingEvaluation, PENDING);
        }
        return;
    };
    let is_missing = known.message.ends_with("doesn't exist") || known.message == FOREIGN;
    let is_deactivation = known.message == "The workload is deactivated";
    let is_over = match Reason::from_name(&known.reason) {
        Some(Reason::Deactivated | Reason::Suspended | Reason::AdmissionGated) => true,
        Some(Reason::Misconfigured | Reason::Inadmissible) => is_missing,
        Some(Reason::Pending) => is_deactivation,
        _ => false,
    };
    if !is_over {
        return;
    }
    if known.reason == Reason::AdmissionGated.as_str() {
        let event = WorkloadEvent::AdmissionGateCleared.as_str();
        let note = "Admission gate cleared, workload is now admissible";
        draft.events.push(Event::normal(event, event, note));
        return set_pending(
            draft,
            Reason::PendingEvaluation,
            "AdmissionGatedBy cleared, waiting for quota reservation",
        );
    }
    set_pending(draft, Reason::PendingEvaluation, PENDING);
}

/// Says why there is no quota. Without observability, reasons are coarse.
fn set_pending(draft: &mut Draft<'_>, reason: QuotaReservedReason, message: &str) {
    use QuotaReservedReason as Reason;
    let reason = match reason {
        _ if draft.observed.settings.scheduling.observability => reason,
        Reason::Deactivated | Reason::PendingEvaluation => Reason::Pending,
        Reason::Misconfigured | Reason::Suspended => Reason::Inadmissible,
        other => other,
    };
    draft.set(WorkloadCondition::QuotaReserved, false, reason.as_str(), message);
}

/// Gives up a reservation that was not admitted yet.
pub(super) fn release(draft: &mut Draft<'_>, message: &str) {
    let (now, gates) = (draft.time(), draft.observed.settings.scheduling.clone());
    let reason =
        if gates.observability { QuotaReservedReason::Suspended } else { QuotaReservedReason::Inadmissible };
    status::unset_quota_reservation(&mut draft.object, reason, message, now, &gates);
}
