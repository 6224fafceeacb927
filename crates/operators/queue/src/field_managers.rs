//! In whose name the status of Workloads is written.
//!
//! Kueue applies it as several field managers. Quintet applies the same fields as the same ones, so that each can change and
//! remove what the other has written: a field that another manager owns stays when Kueue's apply leaves it out.

use quintet_api::conditions;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2::{Workload, WorkloadStatus};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, StatusPatch};
use serde_json::json;

/// Owns everything but what the others own.
pub const ADMISSION: &str = "kueue-admission";
/// Owns `reclaimablePods`.
const RECLAIMABLE_PODS: &str = "kueue-reclaimable-pods";
/// Owns the condition that pod groups add.
const POD: &str = "kueue-pod-controller";
const OF_POD_GROUPS: WorkloadCondition = WorkloadCondition::WaitingForReplacementPods;

/// The change of a Workload's status to `desired`; `None` if it is like that.
pub(crate) fn status_patch(
    workload: &Entry<Workload>,
    desired: Option<&WorkloadStatus>,
) -> Option<StatusPatch> {
    let current = workload.object.status.as_ref();
    let patch = StatusPatch::between(workload, &current, &desired)?;
    let of_pod_groups = |status: Option<&WorkloadStatus>| {
        let own = status.and_then(|status| status.conditions.as_deref());
        own.and_then(|own| conditions::find(own, OF_POD_GROUPS.as_str())).cloned()
    };
    let desired_of_pod_groups = of_pod_groups(desired);
    if patch.status.get("reclaimablePods").is_some() {
        let pods = desired.and_then(|status| status.reclaimable_pods.as_deref());
        return Some(
            patch.applied_as(RECLAIMABLE_PODS, &json!({ "reclaimablePods": pods.unwrap_or_default() })),
        );
    }
    if of_pod_groups(current) != desired_of_pod_groups {
        let own = json!({ "conditions": Vec::from_iter(desired_of_pod_groups) });
        return Some(patch.applied_as(POD, &own));
    }
    let mut own = desired.cloned().unwrap_or_default();
    own.reclaimable_pods = None;
    if let Some(conditions) = &mut own.conditions {
        conditions.retain(|own| own.type_ != OF_POD_GROUPS.as_str());
    }
    Some(patch.applied_as(ADMISSION, &own))
}

/// Writes what changes of a Workload's status.
pub(crate) fn write_status<C>(
    workload: &Entry<Workload>,
    desired: Option<&WorkloadStatus>,
) -> Option<Action<C>> {
    let patch = status_patch(workload, desired)?;
    Some(Action::Status { kind: ApiKind::of::<Workload>(), key: workload.key.clone(), patch })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::entry;

    fn condition(kind: &str, status: &str) -> Value {
        json!({ "type": kind, "status": status, "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    /// The manager of the change and its fields.
    fn applied(current: &Value, desired: &Value) -> Option<(String, Value)> {
        let object = |status: &Value| json!({ "metadata": { "name": "w", "namespace": "ns" }, "spec": { "podSets": [] }, "status": status });
        let desired = entry::<Workload>(&object(desired));
        let patch = status_patch(&entry::<Workload>(&object(current)), desired.object.status.as_ref())?;
        patch.applied.map(|applied| (applied.manager, applied.status))
    }

    #[test]
    fn each_change_is_applied_with_all_fields_of_its_manager() {
        let reserved = condition("QuotaReserved", "True");
        let waiting = condition("WaitingForReplacementPods", "True");
        let pods = json!([{ "name": "main", "count": 1 }]);
        let status = json!({ "admission": { "clusterQueue": "cq" }, "clusterName": "c",
            "conditions": [reserved, waiting], "reclaimablePods": pods });
        let with = |name: &str, value: Value| {
            let mut status = status.clone();
            status[name] = value;
            status
        };
        let admission = json!({ "clusterQueue": "cq" });
        let cases = [
            ("nothing", status.clone(), None),
            (
                "a field that goes",
                with("clusterName", Value::Null),
                Some((ADMISSION, json!({ "admission": admission, "conditions": [reserved] }))),
            ),
            (
                "another condition",
                with("conditions", json!([reserved, waiting, condition("Admitted", "True")])),
                Some((
                    ADMISSION,
                    json!({ "admission": admission, "clusterName": "c",
                        "conditions": [reserved, condition("Admitted", "True")] }),
                )),
            ),
            (
                "fewer pods",
                with("reclaimablePods", Value::Null),
                Some((RECLAIMABLE_PODS, json!({ "reclaimablePods": [] }))),
            ),
            (
                "the condition of pod groups",
                with("conditions", json!([reserved, condition("WaitingForReplacementPods", "False")])),
                Some((POD, json!({ "conditions": [condition("WaitingForReplacementPods", "False")] }))),
            ),
        ];
        for (name, desired, expected) in cases {
            let expected = expected.map(|(manager, fields)| (manager.to_owned(), fields));
            assert_eq!(applied(&status, &desired), expected, "{name}");
        }
    }
}
