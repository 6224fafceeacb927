use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::config::kueue::{RequeuingStrategy, WaitForPodsReady, WorkloadRetention};
use quintet_api::duration::GoDuration;
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use quintet_controller::{Action, Next, Plan};
use serde_json::{Value, json};

use super::Observed;
use super::plan::plan;
use crate::settings::Settings;
use crate::testing::entry;

const NOW: &str = "2026-01-01T01:00:00Z";

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn workload(conditions: &[Value]) -> Value {
    json!({ "metadata": { "name": "w", "namespace": "ns", "generation": 1,
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true }],
            "finalizers": ["kueue.x-k8s.io/resource-in-use"] },
        "spec": { "queueName": "lq", "active": true },
        "status": { "conditions": conditions } })
}

/// One that has quota of `cq`.
fn admitted(more: &[Value]) -> Value {
    let mut conditions = vec![
        condition("QuotaReserved", "True", "QuotaReserved", ""),
        condition("Admitted", "True", "Admitted", ""),
    ];
    conditions.extend_from_slice(more);
    let mut workload = workload(&conditions);
    workload["status"]["admission"] = json!({ "clusterQueue": "cq", "podSetAssignments": [
        { "name": "main", "flavors": { "cpu": "a" }, "count": 1 }] });
    workload
}

struct Case {
    workload: Value,
    local_queue: Option<Value>,
    cluster_queue: Option<Value>,
    namespace_labels: Option<BTreeMap<String, String>>,
    settings: Settings,
}

impl Case {
    fn of(workload: Value) -> Self {
        let mut settings = Settings::default();
        settings.configuration.wait_for_pods_ready = None;
        Self {
            workload,
            local_queue: Some(
                json!({ "metadata": { "name": "lq", "namespace": "ns" }, "spec": { "clusterQueue": "cq" } }),
            ),
            cluster_queue: Some(json!({ "metadata": { "name": "cq" }, "spec": { "resourceGroups": [
                { "coveredResources": ["cpu"], "flavors": [{ "name": "a", "resources": [] }, { "name": "b", "resources": [] }] }] } })),
            namespace_labels: None,
            settings,
        }
    }

    fn plan(&self) -> Plan {
        self.plan_at(NOW)
    }

    fn plan_at(&self, now: &str) -> Plan {
        let observed = Observed {
            workload: entry::<Workload>(&self.workload),
            local_queue: self.local_queue.as_ref().map(entry::<LocalQueue>),
            cluster_queue: self.cluster_queue.as_ref().map(entry::<ClusterQueue>),
            namespace_labels: self.namespace_labels.clone(),
            settings: Arc::new(self.settings.clone()),
            now: now.parse::<Timestamp>().unwrap(),
        };
        plan(&observed)
    }

    /// A condition after the plan, as `True Reason: message`; empty if it is not set.
    fn after(&self, kind: &str) -> String {
        let status = self.plan().status.map(|patch| patch.status).unwrap_or_default();
        let conditions = if status["conditions"].is_null() {
            &self.workload["status"]["conditions"]
        } else {
            &status["conditions"]
        };
        let found =
            conditions.as_array().unwrap().iter().find(|condition| condition["type"] == kind).cloned();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        found.map_or_else(String::new, |own| {
            format!("{} {}: {}", text(&own, "status"), text(&own, "reason"), text(&own, "message"))
        })
    }
}

fn events(plan: &Plan) -> Vec<&str> {
    plan.events.iter().map(|event| event.reason.as_str()).collect()
}

fn patches(plan: &Plan) -> Vec<Value> {
    let patch = |action: &Action| match action {
        Action::Patch { patch, .. } => patch.clone(),
        other => json!(other.to_string()),
    };
    plan.steps.iter().map(|step| patch(&step.action)).collect()
}

#[test]
fn obstacles_are_reported_in_their_order_and_forgotten_when_they_are_gone() {
    let pending = || Case::of(workload(&[]));
    let mut inactive = pending();
    inactive.workload["spec"]["active"] = json!(false);
    assert_eq!(inactive.after("QuotaReserved"), "False Deactivated: The workload is deactivated");
    let no_local_queue = Case { local_queue: None, cluster_queue: None, ..pending() };
    assert_eq!(no_local_queue.after("QuotaReserved"), "False Misconfigured: LocalQueue lq doesn't exist");
    let mut stopped = pending();
    stopped.local_queue.as_mut().unwrap()["spec"]["stopPolicy"] = json!("Hold");
    assert_eq!(stopped.after("QuotaReserved"), "False Suspended: LocalQueue lq is inactive");
    let no_queue = Case { cluster_queue: None, ..pending() };
    assert_eq!(no_queue.after("QuotaReserved"), "False Misconfigured: ClusterQueue cq doesn't exist");
    let mut inactive_queue = pending();
    let active = json!({ "conditions": [condition("Active", "False", "Stopped", "")] });
    inactive_queue.cluster_queue.as_mut().unwrap()["status"] = active;
    assert_eq!(inactive_queue.after("QuotaReserved"), "False Suspended: ClusterQueue cq is inactive");
    assert_eq!(pending().after("QuotaReserved"), "", "nothing is known yet");

    let over =
        Case::of(workload(&[condition("QuotaReserved", "False", "Suspended", "LocalQueue lq is inactive")]));
    let pending = "False PendingEvaluation: Workload is pending evaluation in the scheduling queue";
    assert_eq!(over.after("QuotaReserved"), pending);
    let of_scheduler =
        Case::of(workload(&[condition("QuotaReserved", "False", "WaitingForQuota", "1 more needed")]));
    assert_eq!(of_scheduler.after("QuotaReserved"), "False WaitingForQuota: 1 more needed");
}

#[test]
fn a_namespace_that_the_cluster_queue_does_not_select_is_reported_until_it_does() {
    const FOREIGN: &str = "workload namespace doesn't match ClusterQueue selector";
    let labels = |value: &str| Some(BTreeMap::from([("team".to_owned(), value.to_owned())]));
    let mut case = Case { namespace_labels: labels("b"), ..Case::of(workload(&[])) };
    let selector = json!({ "matchLabels": { "team": "a" } });
    case.cluster_queue.as_mut().unwrap()["spec"]["namespaceSelector"] = selector;
    assert_eq!(case.after("QuotaReserved"), format!("False Misconfigured: {FOREIGN}"));
    let mut coarse = Case { settings: case.settings.clone(), ..case };
    coarse.settings.scheduling.observability = false;
    assert_eq!(coarse.after("QuotaReserved"), "", "only the scheduler says so");

    let selected = workload(&[condition("QuotaReserved", "False", "Misconfigured", FOREIGN)]);
    let mut case = Case { workload: selected, namespace_labels: labels("a"), ..coarse };
    case.settings.scheduling.observability = true;
    let pending = "False PendingEvaluation: Workload is pending evaluation in the scheduling queue";
    assert_eq!(case.after("QuotaReserved"), pending);
}

#[test]
fn admission_gates_are_reported_and_cleared_with_an_event() {
    let mut gated = Case::of(workload(&[]));
    gated.workload["metadata"]["annotations"] =
        json!({ "kueue.x-k8s.io/admission-gated-by": "example.com/a" });
    assert_eq!(gated.after("QuotaReserved"), "False AdmissionGated: Admission is gated by: example.com/a");
    let events = gated.plan().events;
    assert_eq!(
        (&*events[0].reason, &*events[0].note),
        ("AdmissionGated", "Workload admission is gated by: example.com/a")
    );

    let conditions =
        [condition("QuotaReserved", "False", "AdmissionGated", "Admission is gated by: example.com/a")];
    let open = Case::of(workload(&conditions));
    let cleared = "False PendingEvaluation: AdmissionGatedBy cleared, waiting for quota reservation";
    assert_eq!(open.after("QuotaReserved"), cleared);
    assert_eq!(open.plan().events[0].reason, "AdmissionGateCleared");
}

#[test]
fn a_workload_of_a_queue_that_tries_several_flavors_becomes_a_parent_without_checks() {
    let mut case = Case::of(workload(&[]));
    let spec = &mut case.cluster_queue.as_mut().unwrap()["spec"];
    spec["concurrentAdmissionPolicy"] = json!({ "migration": { "mode": "TryPreferredFlavors" } });
    spec["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": "check" }] });
    let label = "kueue.x-k8s.io/concurrent-admission-parent";
    let has_checks =
        |case: &Case| case.plan().status.is_some_and(|patch| !patch.status["admissionChecks"].is_null());
    assert!(patches(&case.plan()).is_empty() && has_checks(&case), "the gate is off");
    case.settings.scheduling.concurrent_admission = true;
    assert_eq!(patches(&case.plan())[0]["metadata"]["labels"], json!({ label: "true" }));
    let mut variant = Case { settings: case.settings.clone(), ..case };
    variant.workload["metadata"]["ownerReferences"] = json!([{ "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload", "name": "parent", "uid": "p", "controller": true }]);
    assert!(patches(&variant.plan()).is_empty() && has_checks(&variant));
    let mut parent = variant;
    parent.workload = workload(&[]);
    parent.workload["metadata"]["labels"] = json!({ label: "true" });
    assert!(patches(&parent.plan()).is_empty() && !has_checks(&parent));
}

#[test]
fn an_admission_that_outlived_its_reservation_is_removed() {
    let mut released = Case::of(admitted(&[]));
    released.workload["status"]["conditions"] =
        json!([condition("QuotaReserved", "False", "Pending", "by others")]);
    let status = released.plan().status.expect("it changes").status;
    assert_eq!(status["admission"], Value::Null);
}

#[test]
fn a_retry_keeps_its_time_until_the_quota_is_given_back() {
    let past = "2026-01-01T00:59:00Z";
    let mut holding = Case::of(admitted(&[]));
    holding.workload["status"]["requeueState"] = json!({ "count": 1, "requeueAt": past });
    let after = |case: &Case| case.plan().status.map(|patch| patch.status["requeueState"].clone());
    assert_eq!(after(&holding).unwrap_or_default(), Value::Null, "it is not written");
    let mut pending = Case::of(workload(&[condition("QuotaReserved", "False", "Pending", "")]));
    pending.workload["status"]["requeueState"] = json!({ "count": 1, "requeueAt": past });
    assert_eq!(after(&pending), Some(json!({ "requeueAt": null })));
}

#[test]
fn without_observability_the_message_of_a_deactivation_stays() {
    for message in ["The workload is deactivated", "The workload is deactivated due to x"] {
        let released = condition("QuotaReserved", "False", "Pending", message);
        let mut case = Case::of(workload(&[released, condition("Evicted", "True", "Deactivated", "")]));
        case.workload["spec"]["active"] = json!(false);
        case.settings.scheduling.observability = false;
        assert_eq!(case.after("QuotaReserved"), format!("False Pending: {message}"));
    }
}

#[test]
fn without_observability_reasons_are_coarse() {
    let mut case = Case { cluster_queue: None, ..Case::of(workload(&[])) };
    case.settings.scheduling.observability = false;
    assert_eq!(case.after("QuotaReserved"), "False Inadmissible: ClusterQueue cq doesn't exist");
}

#[test]
fn checks_follow_the_queue_and_the_assigned_flavors() {
    let rules = json!({ "admissionChecks": [{ "name": "z" }, { "name": "a-only", "onFlavors": ["a"] },
        { "name": "b-only", "onFlavors": ["b"] }] });
    let names = |case: &Case| -> Vec<String> {
        let status = case.plan().status.map(|patch| patch.status).unwrap_or_default();
        let checks = status["admissionChecks"].as_array().cloned().unwrap_or_default();
        checks.iter().map(|check| check["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut pending = Case::of(workload(&[]));
    pending.cluster_queue.as_mut().unwrap()["spec"]["admissionChecksStrategy"] = rules.clone();
    assert_eq!(names(&pending), ["z"], "without quota only those of all flavors");
    let mut with_quota = Case::of(admitted(&[]));
    with_quota.cluster_queue.as_mut().unwrap()["spec"]["admissionChecksStrategy"] = rules;
    assert_eq!(names(&with_quota), ["a-only", "z"]);
}

#[test]
fn a_workload_is_admitted_when_its_checks_are_ready() {
    let mut case = Case::of(admitted(&[]));
    let conditions = [
        condition("QuotaReserved", "True", "QuotaReserved", ""),
        condition("Admitted", "False", "UnsatisfiedAdmissionChecks", ""),
    ];
    case.workload["status"]["conditions"] = json!(conditions);
    case.cluster_queue.as_mut().unwrap()["spec"]["admissionChecksStrategy"] =
        json!({ "admissionChecks": [{ "name": "c" }] });
    let check = |state: &str| json!([{ "name": "c", "state": state, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    case.workload["status"]["admissionChecks"] = check("Ready");
    assert_eq!(case.after("Admitted"), "True Admitted: The workload is admitted");
    assert_eq!(events(&case.plan()), ["Admitted"]);
    case.workload["status"]["admissionChecks"] = check("Rejected");
    let target = "True AdmissionCheck: AdmissionCheck in Rejected state: \"c\" (m)";
    assert_eq!(case.after("DeactivationTarget"), target);
    assert_eq!(events(&case.plan()), ["AdmissionCheckRejected"]);
    case.workload["status"]["admissionChecks"] = check("Retry");
    let evicted = "True AdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"c\" (m)";
    assert_eq!(case.after("Evicted"), evicted);
    let second =
        json!({ "name": "a", "state": "Retry", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    case.workload["status"]["admissionChecks"].as_array_mut().unwrap().push(second);
    case.cluster_queue.as_mut().unwrap()["spec"]["admissionChecksStrategy"] =
        json!({ "admissionChecks": [{ "name": "a" }, { "name": "c" }] });
    let both = "True AdmissionCheck: Evicted due to AdmissionChecks in Retry state: \"a\"; \"c\" (m)";
    assert_eq!(case.after("Evicted"), both);
    case.workload["status"]["admissionChecks"][0]["requeueAfterSeconds"] = json!(7200);
    assert_eq!(case.after("Evicted"), "", "not before its time");
    assert_eq!(case.plan().next, Next::After(std::time::Duration::from_hours(1)));
}

#[test]
fn a_marked_workload_is_deactivated_then_evicted_with_the_cause() {
    let target = condition("DeactivationTarget", "True", "RequeuingLimitExceeded", "too many retries");
    let mut case = Case::of(admitted(&[target]));
    let patch = &patches(&case.plan())[0];
    assert_eq!(
        (&patch["spec"]["active"], &patch["metadata"]["resourceVersion"]),
        (&json!(false), &json!("7"))
    );
    case.workload["spec"]["active"] = json!(false);
    let evicted =
        "True DeactivatedDueToRequeuingLimitExceeded: The workload is deactivated due to too many retries";
    assert_eq!(case.after("Evicted"), evicted);
    assert_eq!(case.after("DeactivationTarget"), "");
    assert_eq!(events(&case.plan()), ["EvictedDueToDeactivatedDueToRequeuingLimitExceeded"]);
    let stats = &case.plan().status.unwrap().status["schedulingStats"]["evictions"][0];
    assert_eq!(
        (&stats["reason"], &stats["underlyingCause"]),
        (&json!("Deactivated"), &json!("RequeuingLimitExceeded"))
    );
}

#[test]
fn a_workload_is_requeued_after_its_backoff_and_after_reactivation() {
    let requeued = |reason: &str| Case::of(workload(&[condition("Requeued", "False", reason, "")]));
    let table = [
        ("Deactivated", "True Reactivated: The workload was reactivated"),
        ("DeactivatedDueToAdmissionCheck", "True Reactivated: The workload was reactivated"),
        ("PodsReadyTimeout", "True BackoffFinished: The workload backoff was finished"),
        ("AdmissionCheck", "True BackoffFinished: The workload backoff was finished"),
        ("LocalQueueStopped", "True LocalQueueRestarted: The LocalQueue was restarted after being stopped"),
        (
            "ClusterQueueStopped",
            "True ClusterQueueRestarted: The ClusterQueue was restarted after being stopped",
        ),
        ("Other", "False Other: "),
    ];
    for (reason, expected) in table {
        assert_eq!(requeued(reason).after("Requeued"), expected, "{reason}");
    }
    let mut waiting = requeued("PodsReadyTimeout");
    waiting.workload["status"]["requeueState"] = json!({ "count": 1, "requeueAt": "2026-01-01T01:01:00Z" });
    assert_eq!(waiting.after("Requeued"), "False PodsReadyTimeout: ");
    assert_eq!(waiting.plan().next, Next::After(std::time::Duration::from_mins(1)));
    // The time is over, while its job still holds the quota.
    let conditions = [
        condition("Evicted", "True", "PodsReadyTimeout", ""),
        condition("Requeued", "False", "PodsReadyTimeout", ""),
    ];
    let mut over = Case::of(admitted(&conditions));
    over.workload["status"]["requeueState"] = json!({ "count": 1, "requeueAt": "2026-01-01T00:01:00Z" });
    assert_eq!(over.after("Requeued"), "True BackoffFinished: The workload backoff was finished");
    assert!(over.plan().status.unwrap().status["requeueState"]["requeueAt"].is_null());
}

#[test]
fn a_draining_queue_evicts_and_a_holding_one_releases_what_is_not_admitted() {
    let with = |workload: Value, policy: &str| {
        let mut case = Case::of(workload);
        case.local_queue.as_mut().unwrap()["spec"]["stopPolicy"] = json!(policy);
        case
    };
    let evicted = "True LocalQueueStopped: The LocalQueue is stopped";
    assert_eq!(with(admitted(&[]), "HoldAndDrain").after("Evicted"), evicted);
    assert_eq!(with(admitted(&[]), "Hold").plan(), Plan::default());
    let mut reserved = admitted(&[]);
    reserved["status"]["conditions"] = json!([
        condition("QuotaReserved", "True", "QuotaReserved", ""),
        condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "")
    ]);
    reserved["status"]["admissionChecks"] = json!([{ "name": "c", "state": "Pending", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    let mut case = with(reserved, "Hold");
    case.cluster_queue.as_mut().unwrap()["spec"]["admissionChecksStrategy"] =
        json!({ "admissionChecks": [{ "name": "c" }] });
    assert_eq!(case.after("QuotaReserved"), "False Suspended: LocalQueue lq is stopped");
    assert_eq!(case.after("Evicted"), "", "a release is no eviction");
    assert!(case.plan().status.unwrap().status["admission"].is_null());
}

#[test]
fn pods_that_are_not_ready_in_time_evict_and_finally_deactivate() {
    let waits = condition("PodsReady", "False", "WaitForStart", "");
    let mut case = Case::of(admitted(&[waits]));
    let requeuing_strategy =
        RequeuingStrategy { backoff_limit_count: Some(1), ..RequeuingStrategy::default() };
    let timeout = GoDuration::from_secs(600);
    let wait = WaitForPodsReady { timeout, requeuing_strategy, ..WaitForPodsReady::default() };
    case.settings.configuration.wait_for_pods_ready = Some(wait);
    assert_eq!(case.after("Evicted"), "True PodsReadyTimeout: Exceeded the PodsReady timeout ns/w");
    let status = case.plan().status.unwrap().status;
    assert_eq!(status["requeueState"], json!({ "count": 1, "requeueAt": "2026-01-01T01:01:00Z" }));
    assert_eq!(status["schedulingStats"]["evictions"][0]["underlyingCause"], "WaitForStart");
    case.workload["status"]["requeueState"] = json!({ "count": 1 });
    let target = "True RequeuingLimitExceeded: exceeding the maximum number of re-queuing retries";
    assert_eq!(case.after("DeactivationTarget"), target);
    case.settings.configuration.wait_for_pods_ready.as_mut().unwrap().timeout = GoDuration::from_secs(5400);
    assert_eq!(case.plan().next, Next::After(std::time::Duration::from_mins(30)));
    case.settings.gates.disable_wait_for_pods_ready = true;
    assert_eq!(case.plan(), Plan::default());
}

#[test]
fn what_is_admitted_now_is_not_late_by_the_fraction_that_its_condition_lacks() {
    let mut reserved = admitted(&[condition("PodsReady", "False", "WaitForStart", "")]);
    reserved["status"]["conditions"].as_array_mut().unwrap().retain(|own| own["type"] != "Admitted");
    let mut case = Case::of(reserved);
    let timeout = GoDuration(std::time::Duration::from_millis(100));
    case.settings.configuration.wait_for_pods_ready =
        Some(WaitForPodsReady { timeout, ..WaitForPodsReady::default() });
    let plan = case.plan_at("2026-01-01T01:00:00.9Z");
    let status = plan.status.unwrap().status.to_string();
    assert!(status.contains("Admitted") && !status.contains("Evicted"), "{status}");
    assert_eq!(plan.next, Next::After(std::time::Duration::from_millis(100)));
}

#[test]
fn a_workload_that_ran_for_as_long_as_it_may_is_deactivated() {
    let mut case = Case::of(admitted(&[]));
    case.workload["spec"]["maximumExecutionTimeSeconds"] = json!(7200);
    assert_eq!(case.plan().next, Next::After(std::time::Duration::from_hours(1)));
    case.workload["status"]["accumulatedPastExecutionTimeSeconds"] = json!(3600);
    let target = "True MaximumExecutionTimeExceeded: exceeding the maximum execution time";
    assert_eq!(case.after("DeactivationTarget"), target);
    assert_eq!(case.plan().events[0].note, "The maximum execution time (7200s) exceeded");
}

#[test]
fn finished_workloads_are_kept_for_their_retention() {
    let mut case = Case::of(workload(&[condition("Finished", "True", "Succeeded", "")]));
    assert_eq!(case.plan(), Plan::default(), "without limit");
    let retention = |seconds| WorkloadRetention {
        after_finished: Some(GoDuration::from_secs(seconds)),
        ..WorkloadRetention::default()
    };
    case.settings.configuration.object_retention_policies.get_or_insert_default().workloads = retention(7200);
    assert_eq!(case.plan().next, Next::After(std::time::Duration::from_hours(1)));
    case.settings.configuration.object_retention_policies.get_or_insert_default().workloads = retention(60);
    let plan = case.plan();
    assert_eq!(patches(&plan)[0]["metadata"]["finalizers"], json!([]));
    assert!(matches!(plan.steps[1].action, Action::Delete { .. }), "{plan:?}");
}

#[test]
fn a_workload_whose_job_is_gone_is_finished_and_let_go() {
    let mut case = Case::of(workload(&[]));
    case.workload["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(case.plan(), Plan::default(), "one that users made");
    case.workload["metadata"]["labels"] = json!({ "kueue.x-k8s.io/job-uid": "j" });
    assert_eq!(case.after("Finished"), "True OwnerNotFound: The workload's owner no longer exists");
    case.workload["status"]["conditions"] = json!([condition("Finished", "True", "OwnerNotFound", "")]);
    assert_eq!(patches(&case.plan())[0]["metadata"]["finalizers"], json!([]));
}
