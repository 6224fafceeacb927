//! When a pod is failed and deleted. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use quintet_api::duration::GoDuration;
use quintet_api::kueue::events::OtherEvent;
use quintet_api::kueue::metadata::SAFE_TO_FORCEFULLY_DELETE;
use quintet_controller::plan::{PatchKind, Propagation};
use quintet_controller::{Action, ApiKind, Event, Next, Plan, Step};
use quintet_queue_engine::status;
use serde_json::{Value, json};

use super::Observed;
use crate::scheduler::engine_time;
use crate::topology::FAILURE_RECOVERY;
use crate::workload::after;

/// Fails and deletes a pod that should have ended, when its time is over.
pub(super) fn plan(observed: &Observed) -> Plan {
    let pod = &observed.pod.object;
    let Some((since, seconds)) = pod.forceful_deletion() else { return Plan::nothing() };
    let due = after(since, observed.grace);
    if due > observed.now {
        let wait = Duration::try_from(due.duration_since(observed.now)).unwrap_or_default();
        return Plan { next: Next::After(wait.max(Duration::from_millis(1))), ..Plan::default() };
    }
    // Finalizers may keep a pod that was deleted already.
    if !observed.is_node_unreachable || (pod.is_recovered() && seconds == 0) {
        return Plan::nothing();
    }
    let fail = (!pod.is_recovered()).then(|| fail(observed, seconds));
    let delete = Action::Delete {
        kind: ApiKind::of::<Pod>(),
        key: observed.pod.key.clone(),
        uid: observed.pod.uid.clone(),
        propagation: Propagation::Background,
        grace_seconds: Some(0),
    };
    Plan { steps: fail.into_iter().chain([delete.into()]).collect(), ..Plan::default() }
}

/// Says that the pod has failed, and why. Others may follow only when that is known.
fn fail(observed: &Observed, seconds: i64) -> Step {
    let pod = &observed.pod;
    let given = Duration::from_secs(u64::try_from(seconds).unwrap_or_default()) + observed.grace;
    let node = pod.object.node().unwrap_or_default();
    let message = format!(
        "Pod forcefully terminated after {} grace period due to unreachable node `{node}` (triggered by `{SAFE_TO_FORCEFULLY_DELETE}` annotation)",
        GoDuration(given)
    );
    let reason = OtherEvent::KueueForcefullyDeleted.as_str();
    let phase = if pod.object.has_ended() { Value::Null } else { "Failed".into() };
    let mut patch = json!({
        "metadata": { "uid": pod.uid.as_str() },
        "status": { "conditions": [{ "type": FAILURE_RECOVERY, "status": "True", "reason": reason,
            "message": message, "lastTransitionTime": status::api_time(engine_time(observed.now)) }] },
    });
    if !phase.is_null() {
        patch["status"]["phase"] = phase;
    }
    let action = Action::Patch {
        kind: ApiKind::of::<Pod>(),
        key: pod.key.clone(),
        subresource: Some("status".to_owned()),
        patch_kind: PatchKind::Strategic,
        patch,
    };
    action.with_event(Event::warning(reason, "ForcefulTermination", message)).sequential()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::entry;

    const NOW: &str = "2026-01-01T00:02:00Z";

    fn observed(pod: &Value, is_node_unreachable: bool) -> Observed {
        let grace = Duration::from_mins(1);
        Observed { pod: entry(pod), is_node_unreachable, grace, now: NOW.parse().unwrap() }
    }

    /// A pod that should have ended at some time.
    fn pod(since: &str, phase: &str) -> Value {
        json!({ "metadata": { "name": "p", "namespace": "ns", "deletionTimestamp": since,
                "deletionGracePeriodSeconds": 30, "annotations": { SAFE_TO_FORCEFULLY_DELETE: "true" } },
            "spec": { "nodeName": "n" }, "status": { "phase": phase } })
    }

    fn patched(plan: &Plan) -> Option<&Value> {
        plan.steps.iter().find_map(|step| match &step.action {
            Action::Patch { patch, .. } => Some(&patch["status"]),
            _ => None,
        })
    }

    fn is_deleted(plan: &Plan) -> bool {
        plan.steps
            .last()
            .is_some_and(|step| matches!(step.action, Action::Delete { grace_seconds: Some(0), .. }))
    }

    #[test]
    fn a_pod_on_an_unreachable_node_is_failed_and_deleted_a_minute_after_it_should_have_ended() {
        let late = pod("2026-01-01T00:01:00Z", "Running");
        let plan = plan(&observed(&late, true));
        let status = patched(&plan).unwrap();
        assert_eq!(status["phase"], "Failed");
        assert_eq!(status["conditions"][0]["type"], "KueueFailureRecovery");
        let message = "Pod forcefully terminated after 1m30s grace period due to unreachable node `n` (triggered by \
            `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)";
        assert_eq!(status["conditions"][0]["message"], message);
        assert_eq!(plan.steps[0].event.as_ref().unwrap().reason, "KueueForcefullyDeleted");
        assert!(is_deleted(&plan));
    }

    #[test]
    fn pods_wait_for_their_time_and_stay_on_nodes_that_can_be_reached() {
        let soon = plan(&observed(&pod("2026-01-01T00:01:30Z", "Running"), true));
        assert_eq!((soon.steps.len(), soon.next), (0, Next::After(Duration::from_secs(30))));
        assert_eq!(plan(&observed(&pod("2026-01-01T00:01:00Z", "Running"), false)), Plan::nothing());
        let mut kept = pod("2026-01-01T00:01:00Z", "Running");
        kept["metadata"]["annotations"][SAFE_TO_FORCEFULLY_DELETE] = "false".into();
        assert_eq!(plan(&observed(&kept, true)), Plan::nothing());
    }

    #[test]
    fn a_pod_that_has_ended_keeps_its_phase() {
        let plan = plan(&observed(&pod("2026-01-01T00:00:00Z", "Succeeded"), true));
        assert!(patched(&plan).unwrap()["phase"].is_null() && is_deleted(&plan));
    }

    #[test]
    fn a_pod_that_is_kept_by_finalizers_is_deleted_once() {
        let mut failed = pod("2026-01-01T00:00:00Z", "Failed");
        failed["status"]["isRecovered"] = true.into();
        let again = plan(&observed(&failed, true));
        assert!(patched(&again).is_none() && is_deleted(&again), "the deletion had failed");
        failed["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        assert_eq!(plan(&observed(&failed, true)), Plan::nothing());
    }
}
