use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::{Action, Plan};
use serde_json::{Value, json};

use super::super::ancestors::Ancestor;
use super::super::compose::workload_name;
use super::super::priority::Priority;
use super::plan::plan;
use super::{GROUP, KIND, Observed, pod_sets};
use crate::settings::Settings;
use crate::testing::entry;

fn set(replicas: i32, has_leader: bool) -> Value {
    let template = json!({ "metadata": { "annotations": { "leaderworkerset.sigs.k8s.io/size": "3" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let mut set = json!({ "metadata": { "name": "l", "namespace": "ns", "uid": "l", "labels": { "kueue.x-k8s.io/queue-name": "lq" } },
        "spec": { "replicas": replicas, "leaderWorkerTemplate": { "size": 3, "workerTemplate": template } } });
    if has_leader {
        set["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = template;
    }
    set
}

fn name(group: i32) -> String {
    workload_name(KIND, GROUP, &format!("l-{group}"), "l", &Settings::default())
}

fn workload(group: i32) -> Value {
    json!({ "metadata": { "name": name(group), "namespace": "ns", "uid": format!("w{group}"),
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{ "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": KIND, "name": "l", "uid": "l" }] },
        "spec": { "queueName": "lq", "podSets": [] } })
}

#[expect(clippy::needless_pass_by_value, reason = "calls are easier to read")]
fn pod(name: &str, annotations: Value) -> Value {
    let mut pod = json!({ "metadata": { "name": name, "namespace": "ns", "annotations": annotations,
            "labels": { "leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "1",
                "controller-revision-hash": "old" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "l", "uid": "s", "controller": true }] },
        "spec": { "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }] }, "status": { "phase": "Pending" } });
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] =
        "leaderworkerset.x-k8s.io/leaderworkerset".into();
    pod
}

fn planned(set: &Value, pods: &[Value], workloads: &[Value], outdated: &[(&str, &str)]) -> Plan {
    let outdated: BTreeMap<String, String> =
        outdated.iter().map(|(set, revision)| ((*set).to_owned(), (*revision).to_owned())).collect();
    plan(&Observed {
        set: entry(set),
        pods: pods.iter().map(entry).collect(),
        outdated,
        workloads: workloads.iter().map(entry::<Workload>).collect(),
        settings: Arc::new(Settings::default()),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
        is_namespace_managed: true,
        ancestor: Ancestor::None,
        priority: Ok(Priority::default()),
    })
}

fn created(plan: &Plan) -> Vec<Value> {
    let object = |step: &quintet_controller::Step| match &step.action {
        Action::Create { object, .. } => Some(object.clone()),
        _ => None,
    };
    plan.steps.iter().filter_map(object).collect()
}

fn only_patch(plan: &Plan) -> &Value {
    match &plan.steps[..] {
        [step] => match &step.action {
            Action::Patch { patch, .. } => patch,
            other => panic!("not a patch: {other:?}"),
        },
        other => panic!("not one step: {other:?}"),
    }
}

#[test]
fn every_group_gets_a_workload_and_groups_that_are_gone_lose_theirs() {
    let plan = planned(&set(2, true), &[], &[workload(0)], &[]);
    let created = created(&plan);
    assert_eq!(created.len(), 1);
    assert_eq!(created[0]["metadata"]["name"], name(1));
    assert_eq!(created[0]["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"], "1");
    assert_eq!(created[0]["spec"]["podSets"][1]["count"], 2);
    let shrunk = planned(&set(1, true), &[], &[workload(0), workload(1)], &[]);
    let texts: Vec<String> = shrunk.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[1].starts_with("delete Workload") && texts[1].contains(&name(1)), "{texts:?}");
}

#[test]
fn a_rollout_with_surge_has_more_groups_for_a_time() {
    let mut rolling = set(1, true);
    rolling["spec"]["rolloutStrategy"] = json!({ "rollingUpdateConfiguration": { "maxSurge": 1 } });
    rolling["status"] = json!({ "replicas": 2, "updatedReplicas": 0 });
    assert_eq!(created(&planned(&rolling, &[], &[], &[])).len(), 2);
    rolling["status"]["updatedReplicas"] = json!(1);
    assert_eq!(created(&planned(&rolling, &[], &[], &[])).len(), 1);
}

#[test]
fn a_group_without_a_leader_template_has_one_pod_set() {
    let settings = Settings::default();
    let sets = |has_leader| {
        let sets = pod_sets(&set(1, has_leader)["spec"], &settings).unwrap();
        sets.into_iter().map(|set| (set.name.unwrap(), set.count.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(sets(false), [("main".to_owned(), 3)]);
    assert_eq!(sets(true), [("leader".to_owned(), 1), ("worker".to_owned(), 2)]);
    let set = &pod_sets(&set(1, false)["spec"], &settings).unwrap()[0];
    assert_eq!(set.template.metadata.as_ref().unwrap().annotations, None, "what differs from group to group");
}

#[test]
fn pods_join_their_group_with_their_role() {
    let known = [workload(0), workload(1)];
    let joined = planned(&set(2, true), &[pod("l-1", json!({}))], &known, &[]);
    let metadata = &only_patch(&joined)["metadata"];
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-name"], name(1));
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/role-hash"], "leader");
    assert_eq!(metadata["labels"]["kueue.x-k8s.io/queue-name"], "lq");
    let worker = pod("l-1-1", json!({ "leaderworkerset.sigs.k8s.io/leader-name": "l-1" }));
    let joined = planned(&set(2, true), &[worker], &known, &[]);
    assert_eq!(only_patch(&joined)["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"], "worker");
    let rolling = planned(&set(2, true), &[pod("l-1", json!({}))], &known, &[("s", "old")]);
    assert_eq!(only_patch(&rolling)["spec"]["schedulingGates"], json!([]), "it is replaced");
}

#[test]
fn sets_without_a_queue_are_left_alone() {
    let mut without = set(1, true);
    without["metadata"]["labels"] = json!({});
    assert_eq!(planned(&without, &[], &[], &[]), Plan::nothing());
}
