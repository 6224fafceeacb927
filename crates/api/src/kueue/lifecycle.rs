//! Where a Workload stands: pending, quota reserved, admitted, evicted or finished.
//!
//! This is the only place that interprets conditions. The engine's compact model and the API
//! object both implement [`WorkloadLifecycle`], so that they cannot disagree.

use super::conditions::WorkloadCondition;
use super::string_enum;
use super::v1beta2::{CheckState, DelayedTopologyRequestState, Workload};
use crate::conditions;

string_enum! {
    /// Where a Workload stands, as `kueuectl list workload` and metrics call it.
    WorkloadPhase {
        /// It waits for quota, or is not to be queued.
        Pending,
        /// It has quota, and waits for its checks or its placement.
        QuotaReserved,
        /// Its job may run.
        Admitted,
        /// It ended.
        Finished,
    }
}

/// The facts about a Workload that decide where it stands, and what follows from them.
pub trait WorkloadLifecycle {
    /// The status of a condition; `None` if it is not set, or `Unknown`.
    fn condition_status(&self, condition: WorkloadCondition) -> Option<bool>;

    /// Whether `spec.active` lets it run.
    fn is_active(&self) -> bool;

    /// Whether every admission check it lists is `Ready`.
    fn has_all_checks_ready(&self) -> bool;

    /// Whether a pod set has quota, and is placed only once the checks are `Ready`.
    fn has_pending_placement(&self) -> bool;

    /// Whether a condition is `True`.
    fn is_true(&self, condition: WorkloadCondition) -> bool {
        self.condition_status(condition) == Some(true)
    }

    /// Whether quota is reserved for it.
    fn has_quota_reservation(&self) -> bool {
        self.is_true(WorkloadCondition::QuotaReserved)
    }

    /// Whether it is admitted: its job may run.
    fn is_admitted(&self) -> bool {
        self.is_true(WorkloadCondition::Admitted)
    }

    /// Whether it has to stop. It keeps its quota until its reservation is taken away.
    fn is_evicted(&self) -> bool {
        self.is_true(WorkloadCondition::Evicted)
    }

    /// Whether it ended.
    fn is_finished(&self) -> bool {
        self.is_true(WorkloadCondition::Finished)
    }

    /// Whether what it was assigned counts as used.
    fn holds_quota(&self) -> bool {
        self.has_quota_reservation() && !self.is_finished() && self.is_active()
    }

    /// Whether it should be admitted. `Admitted` follows this; where they differ, the condition is about to
    /// be written.
    fn meets_admission(&self) -> bool {
        self.has_quota_reservation() && self.has_all_checks_ready() && !self.has_pending_placement()
    }

    /// Where it stands.
    fn phase(&self) -> WorkloadPhase {
        if self.is_finished() {
            WorkloadPhase::Finished
        } else if self.is_admitted() {
            WorkloadPhase::Admitted
        } else if self.has_quota_reservation() {
            WorkloadPhase::QuotaReserved
        } else {
            WorkloadPhase::Pending
        }
    }
}

impl WorkloadLifecycle for Workload {
    fn condition_status(&self, condition: WorkloadCondition) -> Option<bool> {
        let conditions = self.status.as_ref()?.conditions.as_deref()?;
        match conditions::find(conditions, condition.as_str())?.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }

    fn is_active(&self) -> bool {
        self.spec.active.unwrap_or(true)
    }

    fn has_all_checks_ready(&self) -> bool {
        let checks = self.status.as_ref().and_then(|status| status.admission_checks.as_deref());
        checks.into_iter().flatten().all(|check| check.state == CheckState::Ready)
    }

    fn has_pending_placement(&self) -> bool {
        let admission = self.status.as_ref().and_then(|status| status.admission.as_ref());
        let pod_sets = admission.and_then(|admission| admission.pod_set_assignments.as_deref());
        pod_sets.into_iter().flatten().any(|pod_set| {
            pod_set.topology_assignment.is_none()
                && pod_set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Types and statuses.
    type Conditions<'a> = &'a [(&'a str, &'a str)];

    fn workload(conditions: Conditions, active: bool, check: &str, placement: &Value) -> Workload {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| {
                json!({ "type": kind, "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2025-01-01T00:00:00Z" })
            })
            .collect();
        let workload = json!({
            "metadata": { "name": "w" },
            "spec": { "active": active },
            "status": {
                "conditions": conditions,
                "admissionChecks": [{ "name": "c", "state": check, "message": "",
                    "lastTransitionTime": "2025-01-01T00:00:00Z" }],
                "admission": { "clusterQueue": "q", "podSetAssignments": [placement] },
            },
        });
        serde_json::from_value(workload).unwrap()
    }

    #[test]
    fn conditions_decide_the_phase_and_what_holds_quota() {
        let reserved = ("QuotaReserved", "True");
        let table: [(Conditions, bool, WorkloadPhase, bool); 9] = [
            (&[], true, WorkloadPhase::Pending, false),
            (&[("QuotaReserved", "False")], true, WorkloadPhase::Pending, false),
            (&[("QuotaReserved", "Unknown")], true, WorkloadPhase::Pending, false),
            (&[reserved], true, WorkloadPhase::QuotaReserved, true),
            (&[reserved, ("Admitted", "True")], true, WorkloadPhase::Admitted, true),
            (&[reserved, ("Admitted", "True"), ("Evicted", "True")], true, WorkloadPhase::Admitted, true),
            (&[reserved, ("Admitted", "True")], false, WorkloadPhase::Admitted, false),
            (&[reserved, ("Admitted", "True"), ("Finished", "True")], true, WorkloadPhase::Finished, false),
            (&[reserved, ("Finished", "False")], true, WorkloadPhase::QuotaReserved, true),
        ];
        for (conditions, active, phase, holds_quota) in table {
            let workload = workload(conditions, active, "Ready", &json!({}));
            assert_eq!(workload.phase(), phase, "{conditions:?}");
            assert_eq!(workload.holds_quota(), holds_quota, "{conditions:?}");
        }
        assert!(workload(&[("Evicted", "True")], true, "Ready", &json!({})).is_evicted());
        assert_eq!(Workload::default().phase(), WorkloadPhase::Pending);
        assert!(Workload::default().is_active(), "active is the default");
    }

    #[test]
    fn admission_takes_quota_ready_checks_and_a_placement() {
        let placed = json!({ "delayedTopologyRequest": "Ready" });
        let unplaced = json!({ "delayedTopologyRequest": "Pending" });
        let table = [
            ("True", "Ready", &placed, true),
            ("False", "Ready", &placed, false),
            ("True", "Pending", &placed, false),
            ("True", "Retry", &placed, false),
            ("True", "Rejected", &placed, false),
            ("True", "Ready", &unplaced, false),
        ];
        for (reserved, check, placement, expected) in table {
            let workload = workload(&[("QuotaReserved", reserved)], true, check, placement);
            assert_eq!(workload.meets_admission(), expected, "{reserved} {check} {placement}");
        }
    }
}
