//! Admission and eviction of a Workload.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::{AdmittedReason, DEACTIVATED_DUE_TO, EvictionReason, QuotaReservedReason};
use quintet_api::kueue::v1beta2::{
    self, AdmissionCheckState, CheckState, DelayedTopologyRequestState, GatePosition, PodSetAssignment,
    PodSetRequest, WorkloadSchedulingStatsEviction,
};

use super::conditions::{api_time, find, set_condition};
use crate::ingest::ResourceList;
use crate::model::{Admission, Delayed, PodSetAdmission, Workload};
use crate::names::Names;
use crate::requests::Requests;
use crate::settings::Gates;
use crate::time::Time;

/// The API form of an admission.
pub fn admission(admission: &Admission, names: &Names, gates: &Gates) -> v1beta2::Admission {
    let assignment = |pod_set: &PodSetAdmission| PodSetAssignment {
        name: Some(pod_set.name.to_string()),
        flavors: Some(
            pod_set
                .flavors
                .iter()
                .map(|(id, flavor)| {
                    (names.resource_name(*id).to_owned(), names.flavor_name(*flavor).to_owned())
                })
                .collect(),
        ),
        resource_usage: Some(resource_list(&pod_set.usage, names)),
        count: Some(pod_set.count),
        topology_assignment: pod_set
            .topology
            .as_ref()
            .map(|topology| topology.encoded(gates.tas_prefix_encoding)),
        delayed_topology_request: pod_set.delayed.map(|delayed| match delayed {
            Delayed::Pending => DelayedTopologyRequestState::Pending,
            Delayed::Ready => DelayedTopologyRequestState::Ready,
        }),
    };
    v1beta2::Admission {
        cluster_queue: Some(names.queue_name(admission.queue).to_owned()),
        pod_set_assignments: Some(admission.pod_sets.iter().map(assignment).collect()),
    }
}

/// Integers as quantities.
pub fn resource_list(requests: &Requests, names: &Names) -> ResourceList {
    requests
        .iter()
        .map(|(id, value)| (names.resource_name(id).to_owned(), ApiQuantity(names.format(id, value))))
        .collect()
}

/// Writes a reservation: conditions that are true because of an earlier eviction become false. As
/// `SetQuotaReservation` in Kueue's `pkg/workload/workload.go`.
pub fn set_quota_reservation(
    object: &mut v1beta2::Workload,
    admission: v1beta2::Admission,
    now: Time,
) -> bool {
    let queue = admission.cluster_queue.as_deref().unwrap_or("");
    let message = format!("Quota reserved in ClusterQueue {queue}");
    object.status.get_or_insert_default().admission = Some(admission);
    let reason = QuotaReservedReason::QuotaReserved.as_str();
    let mut changed = set_condition(object, WorkloadCondition::QuotaReserved, true, reason, &message, now);
    for kind in [
        WorkloadCondition::Evicted,
        WorkloadCondition::Preempted,
        WorkloadCondition::BlockedOnPreemptionGates,
    ] {
        if object.is_true(kind) {
            let before = find(object, kind).map_or("", |condition| condition.message.as_str());
            let message = format!("Previously: {before}");
            changed |= set_condition(object, kind, false, reason, &message, now);
        }
    }
    changed
}

/// Takes a reservation away, with the reason clients see. As `UnsetQuotaReservationWithCondition` in
/// Kueue's `pkg/workload/workload.go`.
pub fn unset_quota_reservation(
    object: &mut v1beta2::Workload,
    reason: QuotaReservedReason,
    message: &str,
    now: Time,
    gates: &Gates,
) -> bool {
    let kind = WorkloadCondition::QuotaReserved;
    let mut changed = set_condition(object, kind, false, reason.as_str(), message, now);
    changed |= object.status.get_or_insert_default().admission.take().is_some();
    changed |= sync_admitted(object, now, gates);
    changed
}

/// Makes the Admitted condition follow [`WorkloadLifecycle::meets_admission`]. As `SyncAdmittedCondition` in
/// Kueue's `pkg/workload/admissionchecks.go`.
pub fn sync_admitted(object: &mut v1beta2::Workload, now: Time, gates: &Gates) -> bool {
    let (admitted, meets) = (object.is_admitted(), object.meets_admission());
    if gates.observability {
        let unknown = find(object, WorkloadCondition::QuotaReserved).is_none()
            && find(object, WorkloadCondition::Admitted).is_none();
        if unknown && !gates.explicit_status {
            return false;
        }
    } else if admitted == meets {
        return false;
    }
    if admitted && !meets {
        accumulate_execution_time(object, now);
    }
    let (reason, message) = admitted_reason(object, gates);
    set_condition(object, WorkloadCondition::Admitted, meets, reason.as_str(), message, now)
}

fn admitted_reason(object: &v1beta2::Workload, gates: &Gates) -> (AdmittedReason, &'static str) {
    let ready = object.has_all_checks_ready();
    if !object.has_quota_reservation() {
        if !ready && !gates.observability {
            let message = "The workload has no reservation and not all checks ready";
            return (AdmittedReason::NoReservationUnsatisfiedChecks, message);
        }
        return (AdmittedReason::NoReservation, "The workload has no reservation");
    }
    if !ready {
        let reason = if gates.observability {
            AdmittedReason::UnsatisfiedAdmissionChecks
        } else {
            AdmittedReason::UnsatisfiedChecks
        };
        return (reason, "The workload has not all checks ready");
    }
    if object.has_pending_placement() {
        let reason = AdmittedReason::PendingDelayedTopologyRequests;
        return (reason, "There are pending delayed topology requests");
    }
    (AdmittedReason::Admitted, "The workload is admitted")
}

/// Adds the time since the admission to that of earlier ones.
fn accumulate_execution_time(object: &mut v1beta2::Workload, now: Time) {
    let admitted = find(object, WorkloadCondition::Admitted);
    let since = admitted.map_or(now, |condition| crate::ingest::time(&condition.last_transition_time));
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds, saturated at 68 years")]
    let ran = now.seconds_since(since) as i32;
    let total = &mut object.status.get_or_insert_default().accumulated_past_execution_time_seconds;
    *total = Some(total.unwrap_or(0).saturating_add(ran));
}

/// Writes an eviction, whose reason may have a cause of its own. As `Evict` in Kueue's `pkg/workload/evict/evict.go`.
pub fn evict(object: &mut v1beta2::Workload, reason: &str, cause: &str, message: &str, now: Time) {
    set_condition(object, WorkloadCondition::Evicted, true, reason, message, now);
    let status = object.status.get_or_insert_default();
    status.cluster_name = None;
    status.nominated_cluster_names = None;
    status.unhealthy_nodes = None;
    for check in status.admission_checks.iter_mut().flatten() {
        reset_check(check, now);
    }
    for gate in status.preemption_gates.iter_mut().flatten() {
        gate.position = GatePosition::Closed;
        gate.last_transition_time = api_time(now);
    }
    let evictions = status.scheduling_stats.get_or_insert_default().evictions.get_or_insert_default();
    match reason.strip_prefix(DEACTIVATED_DUE_TO) {
        Some(cause) => count_eviction(evictions, EvictionReason::Deactivated.as_str(), cause),
        None => count_eviction(evictions, reason, cause),
    }
    if object.is_true(WorkloadCondition::BlockedOnPreemptionGates) {
        set_condition(object, WorkloadCondition::BlockedOnPreemptionGates, false, reason, message, now);
    }
}

fn count_eviction(evictions: &mut Vec<WorkloadSchedulingStatsEviction>, reason: &str, cause: &str) {
    let known = evictions.iter_mut().find(|own| own.reason == reason && own.underlying_cause == cause);
    if let Some(known) = known {
        known.count += 1;
        return;
    }
    evictions.push(WorkloadSchedulingStatsEviction {
        reason: reason.to_owned(),
        underlying_cause: cause.to_owned(),
        count: 1,
    });
}

fn reset_check(check: &mut AdmissionCheckState, now: Time) {
    if check.state == CheckState::Pending {
        return;
    }
    let retried = check.state == CheckState::Retry;
    *check = AdmissionCheckState {
        name: std::mem::take(&mut check.name),
        message: format!("Reset to Pending after eviction. Previously: {:?}", check.state),
        state: CheckState::Pending,
        last_transition_time: api_time(now),
        requeue_after_seconds: check.requeue_after_seconds,
        // What its controller has written into it stays.
        retry_count: if retried { Some(check.retry_count.unwrap_or(0) + 1) } else { check.retry_count },
        // Only the controller of the check replaces them, when it is ready again.
        pod_set_updates: check.pod_set_updates.take(),
    };
}

/// Writes what the workload requests into its status. True if that changed. As
/// `PropagateResourceRequests` in Kueue's `pkg/workload/workload.go`.
pub fn propagate_requests(object: &mut v1beta2::Workload, workload: &Workload, names: &Names) -> bool {
    let requests: Vec<PodSetRequest> = workload
        .pod_sets
        .iter()
        .map(|pod_set| {
            let total = pod_set.demand().requests;
            let resources = (!total.is_empty()).then(|| resource_list(&total, names));
            PodSetRequest { name: pod_set.name.to_string(), resources }
        })
        .collect();
    let status = object.status.get_or_insert_default();
    let changed = status.resource_requests.as_ref() != Some(&requests);
    status.resource_requests = Some(requests);
    changed
}
