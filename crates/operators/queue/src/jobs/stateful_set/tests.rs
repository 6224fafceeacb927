use std::sync::Arc;

use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::{Action, Plan};
use serde_json::{Value, json};

use super::super::ancestors::Ancestor;
use super::super::priority::Priority;
use super::plan::plan;
use super::{Observed, is_on_hold, workload_names};
use crate::settings::Settings;
use crate::testing::{entry, patch_of};

fn stateful_set(replicas: i32) -> Value {
    json!({ "metadata": { "name": "d", "namespace": "ns", "labels": { "kueue.x-k8s.io/queue-name": "lq" } },
        "spec": { "replicas": replicas, "selector": {}, "serviceName": "d", "template": {
            "metadata": { "annotations": { "kueue.x-k8s.io/pod-suspending-parent": "statefulset" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } } },
        "status": { "replicas": 0, "currentRevision": "d-1", "updateRevision": "d-1" } })
}

fn pod(revision: &str) -> Value {
    json!({ "metadata": { "name": "d-0", "namespace": "ns", "finalizers": [],
            "labels": { "controller-revision-hash": revision },
            "annotations": { "kueue.x-k8s.io/pod-suspending-parent": "statefulset" } },
        "spec": { "schedulingGates": [{ "name": "own" }, { "name": "kueue.x-k8s.io/admission" }, { "name": "kueue.x-k8s.io/topology" }] },
        "status": { "phase": "Pending" } })
}

/// The Workload, with this status of `QuotaReserved`.
fn workload(status: &str, reason: &str) -> Value {
    json!({ "metadata": { "name": "w", "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "d", "uid": "d" }] },
        "spec": { "queueName": "lq", "podSets": [] },
        "status": { "admission": { "clusterQueue": "cq" }, "conditions": [{ "type": "QuotaReserved", "status": status,
            "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } })
}

fn planned(stateful_set: &Value, pods: &[Value], workload: Option<&Value>) -> Plan {
    plan(&Observed {
        stateful_set: entry(stateful_set),
        pods: pods.iter().map(entry).collect(),
        name: "w".to_owned(),
        workload: workload.map(entry::<Workload>),
        settings: Arc::new(Settings::default()),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
        is_namespace_managed: true,
        ancestor: Ancestor::None,
        priority: Ok(Priority::default()),
    })
}

fn only_patch(plan: &Plan) -> Value {
    match &plan.steps[..] {
        [step] => patch_of(&step.action),
        other => panic!("not one step: {other:?}"),
    }
}

#[test]
fn a_stateful_set_gets_one_workload_for_all_pods() {
    let plan = planned(&stateful_set(3), &[], None);
    let [step] = &plan.steps[..] else { panic!("{plan:?}") };
    let Action::Create { object, .. } = &step.action else { panic!("{step:?}") };
    assert_eq!(object["spec"]["podSets"][0]["count"], 3);
    assert_eq!(object["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], "true");
    assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    assert!(planned(&stateful_set(0), &[], None).steps.is_empty(), "nothing runs");
}

#[test]
fn pods_join_the_group_of_the_workload() {
    let plan = planned(&stateful_set(2), &[pod("d-1")], Some(&workload("True", "QuotaReserved")));
    let metadata = &only_patch(&plan)["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({ "kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "lq" })
    );
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-name"], "w");
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"], "2");
    let mut joined = pod("d-1");
    joined["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq".into();
    joined["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"] = "w".into();
    assert!(planned(&stateful_set(2), &[joined], Some(&workload("True", "QuotaReserved"))).steps.is_empty());
}

#[test]
fn pods_of_an_outdated_revision_do_not_hold_a_rollout_up() {
    let mut rolling = stateful_set(1);
    rolling["status"]["updateRevision"] = "d-2".into();
    let known = workload("True", "QuotaReserved");
    let old = planned(&rolling, &[pod("d-1")], Some(&known));
    assert_eq!(only_patch(&old)["spec"]["schedulingGates"], json!([{ "name": "own" }]));
    let new = planned(&rolling, &[pod("d-2")], Some(&known));
    assert_eq!(only_patch(&new)["spec"], Value::Null);
}

#[test]
fn a_stateful_set_without_pods_gives_its_quota_back_and_waits() {
    let held = planned(&stateful_set(0), &[], Some(&workload("True", "QuotaReserved")));
    assert_eq!(only_patch(&held)["status"]["conditions"][0]["reason"], "OnHold");
    let on_hold = workload("False", "OnHold");
    assert!(is_on_hold(&serde_json::from_value(on_hold.clone()).unwrap()));
    assert!(planned(&stateful_set(0), &[], Some(&on_hold)).steps.is_empty());
    let resumed = planned(&stateful_set(2), &[], Some(&on_hold));
    assert_eq!(only_patch(&resumed)["status"]["conditions"][0]["reason"], "PendingEvaluation");
}

#[test]
fn a_stateful_set_of_another_kind_or_without_queue_is_left_alone() {
    let mut other = stateful_set(1);
    other["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] =
        "leaderworkerset.x-k8s.io/leaderworkerset".into();
    assert_eq!(planned(&other, &[], None), Plan::nothing());
    let mut without = stateful_set(1);
    without["metadata"]["labels"] = json!({});
    assert_eq!(planned(&without, &[], None), Plan::nothing());
}

#[test]
fn workloads_of_older_versions_are_found_by_a_name_without_uid() {
    let [current, legacy] = workload_names("d", "uid", &Settings::default());
    assert_ne!(current, legacy);
    assert_eq!(workload_names("d", "other", &Settings::default())[1], legacy);
}
