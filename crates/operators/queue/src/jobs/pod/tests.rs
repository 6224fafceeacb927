use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::{Action, Next, ObjectKey, Plan, Step};
use serde_json::{Value, json};

use super::super::ancestors::Ancestor;
use super::super::compose;
use super::super::observe::{ObservedJob, PresentJob};
use super::super::plan::plan as plan_of_job;
use super::super::priority::Priority;
use super::group::{ObservedGroup, plan};
use crate::custom_labels::CustomLabel;
use crate::settings::{POD, Settings};
use crate::testing::{entry, patch_of};

/// A pod of a group, as the webhook and the cluster have left it.
#[derive(Clone, Copy)]
enum State {
    Gated,
    GatedAndDeleted,
    Running,
    Ready,
    Succeeded,
    Failed,
}

fn pod(name: &str, total: &str, state: State) -> Value {
    let is_gated = matches!(state, State::Gated | State::GatedAndDeleted);
    let gates = if is_gated {
        json!([{ "name": "kueue.x-k8s.io/admission" }, { "name": "kueue.x-k8s.io/topology" }])
    } else {
        json!([])
    };
    let phase = match state {
        State::Gated | State::GatedAndDeleted => "Pending",
        State::Running | State::Ready => "Running",
        State::Succeeded => "Succeeded",
        State::Failed => "Failed",
    };
    let ready = if matches!(state, State::Ready) { "True" } else { "False" };
    let mut pod = json!({ "metadata": { "name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "g" },
            "annotations": { "kueue.x-k8s.io/pod-group-total-count": total, "kueue.x-k8s.io/role-hash": "role" },
            "finalizers": ["kueue.x-k8s.io/managed"] },
        "spec": { "containers": [{ "name": "c", "image": "i" }], "schedulingGates": gates },
        "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] } });
    if !is_gated {
        pod["spec"]["nodeName"] = "n".into();
    }
    if matches!(state, State::GatedAndDeleted) {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
    }
    pod
}

fn pods(states: &[State]) -> Vec<Value> {
    let total = states.len().to_string();
    states.iter().enumerate().map(|(index, state)| pod(&format!("p{index}"), &total, *state)).collect()
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

/// The Workload of the pods, owned by all of them.
fn workload(pods: &[Value], count: i32, conditions: &[Value]) -> Value {
    let owners: Vec<Value> = pods
        .iter()
        .map(|pod| json!({ "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["name"] }))
        .collect();
    let mut conditions = conditions.to_vec();
    conditions.push(condition("PodsReady", "False", "WaitForStart"));
    json!({ "metadata": { "name": "g", "namespace": "ns", "ownerReferences": owners, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "annotations": { "kueue.x-k8s.io/is-group-workload": "true" } },
        "spec": { "queueName": "lq", "podSets": [{ "name": "role", "count": count,
            "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } }] },
        "status": { "conditions": conditions, "admission": { "clusterQueue": "cq", "podSetAssignments": [
            { "name": "role", "flavors": { "cpu": "default" }, "count": count }] } } })
}

fn admitted() -> Vec<Value> {
    vec![condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")]
}

fn planned(pods: &[Value], workload: Option<&Value>) -> Plan {
    planned_with(Settings::default(), pods, workload)
}

fn planned_with(mut settings: Settings, pods: &[Value], workload: Option<&Value>) -> Plan {
    settings.configuration.integrations.frameworks.push(POD.to_owned());
    let flavor = json!({ "metadata": { "name": "default" }, "spec": { "nodeLabels": { "disk": "ssd" } } });
    plan(&ObservedGroup {
        key: ObjectKey::new("ns", "g"),
        pods: pods.iter().map(entry::<Pod>).collect(),
        workload: workload.map(entry::<Workload>),
        settings: Arc::new(settings),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
        is_namespace_managed: true,
        priority: Ok(Priority::default()),
        flavors: BTreeMap::from([("default".to_owned(), serde_json::from_value(flavor).unwrap())]),
    })
}

/// What a plan does, a line per step.
fn steps(plan: &Plan) -> Vec<String> {
    let text = |step: &Step| {
        let event = step.event.as_ref().map(|event| {
            let about = event.regarding.as_ref().map_or("", |regarding| regarding.key.name());
            format!(" ({} {about})", event.reason)
        });
        let what = match &step.action {
            Action::Patch { subresource: Some(sub), kind, key, .. } => {
                format!("patch {} {key} {sub}", kind.kind)
            }
            Action::Status { kind, key, .. } => format!("patch {} {key} status", kind.kind),
            action => action.to_string(),
        };
        format!("{what}{}", event.unwrap_or_default())
    };
    plan.steps.iter().map(text).collect()
}

fn patch(plan: &Plan, step: usize) -> Value {
    patch_of(&plan.steps[step].action)
}

use State::{Failed, Gated, GatedAndDeleted, Ready, Running, Succeeded};

#[test]
fn a_group_gets_a_workload_when_all_of_its_pods_exist() {
    let incomplete = planned(&[pod("p0", "2", Gated)], None);
    assert!(incomplete.steps.is_empty());
    assert_eq!(incomplete.events[0].note, "'g' group has fewer runnable pods than expected");
    let complete = planned(&pods(&[Gated, Gated]), None);
    assert_eq!(steps(&complete), ["create Workload.kueue.x-k8s.io ns/g (CreatedWorkload p0)"]);
    let Action::Create { object, .. } = &complete.steps[0].action else { panic!() };
    assert_eq!(object["spec"]["podSets"][0]["count"], 2);
    assert_eq!(object["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    assert_eq!(object["metadata"]["ownerReferences"][0]["controller"], Value::Null);
}

#[test]
fn a_group_has_the_labels_and_annotations_that_its_pods_agree_on() {
    let mut settings = Settings::default();
    settings.configuration.integrations.label_keys_to_copy = vec!["team".to_owned()];
    let label = json!({ "name": "cost", "sourceAnnotationKey": "cost", "sourceKind": "Workload", "trackedValues": ["low"] });
    settings.custom_labels = vec![serde_json::from_value::<CustomLabel>(label).unwrap()];
    let mut members = pods(&[Gated, Gated]);
    members[0]["metadata"]["labels"]["team"] = "a".into();
    members[1]["metadata"]["annotations"]["cost"] = "low".into();
    let plan = planned_with(settings.clone(), &members, None);
    let Action::Create { object, .. } = &plan.steps[0].action else { panic!() };
    assert_eq!(
        (&object["metadata"]["labels"]["team"], &object["metadata"]["annotations"]["cost"]),
        (&"a".into(), &"low".into())
    );
    members[0]["metadata"]["annotations"]["cost"] = "high".into();
    let plan = planned_with(settings, &members, None);
    assert!(plan.steps.is_empty());
    assert_eq!(plan.events[0].note, "pods have different values of the annotation cost");
}

/// What is done about a preempted pod, and whether its Workload is requeued.
fn preempted_single_pod(state: State) -> (Vec<String>, Value) {
    let mut single = pod("p0", "1", state);
    single["metadata"]["labels"].as_object_mut().unwrap().remove("kueue.x-k8s.io/pod-group-name");
    let mut settings = Settings::default();
    settings.configuration.integrations.frameworks.push(POD.to_owned());
    let job = entry::<Pod>(&single);
    let sets = compose::pod_sets(&job.object, &[], &settings).unwrap();
    let mut workload = serde_json::to_value(compose::workload(
        &job.object,
        job.uid.as_str(),
        sets.clone(),
        &Priority::default(),
        &settings,
    ))
    .unwrap();
    let mut conditions = admitted();
    conditions
        .extend([condition("Evicted", "True", "Preempted"), condition("PodsReady", "False", "WaitForStart")]);
    workload["status"] = json!({ "conditions": conditions, "admission": { "clusterQueue": "cq", "podSetAssignments": [
        { "name": "main", "flavors": { "cpu": "default" }, "count": 1 }] } });
    let plan = plan_of_job(&ObservedJob::Present(Box::new(PresentJob {
        pod_sets: Ok(sets),
        reclaimable_pods: Vec::new(),
        job,
        settings: Arc::new(settings),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
        is_namespace_managed: true,
        ancestor: Ancestor::None,
        is_ancestor_admitted: false,
        workloads: vec![entry::<Workload>(&workload)],
        leftovers: Vec::new(),
        prebuilt: None,
        priority: Ok(Priority::default()),
        annotations: BTreeMap::new(),
        flavors: BTreeMap::new(),
    })));
    let last = patch(&plan, plan.steps.len() - 1);
    let conditions = last["status"]["conditions"].as_array().unwrap();
    let requeued = conditions.iter().find(|own| own["type"] == "Requeued").unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let steps = steps(&plan).iter().map(|step| step.replace(name, "NAME")).collect();
    (steps, json!([requeued["status"], requeued["reason"]]))
}

#[test]
fn an_evicted_single_pod_is_deleted_and_its_quota_given_back_at_once() {
    let done = ["patch Pod ns/p0 status (Stopped )", "delete Pod ns/p0", "patch Workload ns/NAME status"];
    let done = done.map(str::to_owned).to_vec();
    assert_eq!(preempted_single_pod(Running), (done, json!(["False", "Preempted"])));
}

#[test]
fn an_evicted_single_pod_that_was_not_let_through_waits_on() {
    let done = vec!["patch Workload ns/NAME status".to_owned()];
    assert_eq!(preempted_single_pod(Gated), (done, json!(["True", "Preempted"])));
}

#[test]
fn a_group_with_fast_admission_does_not_wait_for_its_pods() {
    let mut first = pod("p0", "3", Gated);
    first["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true".into();
    let plan = planned(&[first], None);
    let Action::Create { object, .. } = &plan.steps[0].action else { panic!() };
    assert_eq!(object["spec"]["podSets"][0]["count"], 3);
}

#[test]
fn pods_of_different_queues_or_sizes_are_no_group() {
    let mut other = pods(&[Gated, Gated]);
    other[1]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "other".into();
    assert!(planned(&other, None).events[0].note.contains("different queue names: lq!=other"));
    let mut larger = pods(&[Gated, Gated]);
    larger[1]["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "3".into();
    assert!(planned(&larger, None).events[0].note.contains("2!=3"));
}

#[test]
fn the_newest_pods_beyond_the_size_are_deleted() {
    let mut all = pods(&[Gated, Gated, Gated]);
    for one in &mut all {
        one["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2".into();
    }
    all[0]["metadata"]["creationTimestamp"] = "2026-01-01T00:30:00Z".into();
    let expected = ["patch Pod ns/p0", "delete Pod ns/p0 (ExcessPodDeleted p0)"];
    assert_eq!(steps(&planned(&all, None)), expected, "before there is a Workload");
    let known = workload(&all[1..], 2, &[]);
    assert_eq!(steps(&planned(&all, Some(&known))), expected, "and after");
}

#[test]
fn admitted_pods_lose_their_gates_and_get_what_their_flavor_says() {
    let all = pods(&[Gated, Running]);
    let plan = planned(&all, Some(&workload(&all, 2, &admitted())));
    assert_eq!(steps(&plan), ["patch Pod ns/p0 (Started p0)"]);
    let patch = patch(&plan, 0);
    assert_eq!(patch["spec"]["schedulingGates"], json!([]));
    assert_eq!(patch["spec"]["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(patch["metadata"]["labels"]["kueue.x-k8s.io/podset"], "role");
    assert_eq!(patch["metadata"]["annotations"]["kueue.x-k8s.io/workload"], "g");
}

#[test]
fn a_pod_that_failed_is_replaced_by_one_of_its_role() {
    let all = pods(&[Running, Failed]);
    let mut known = workload(&all, 2, &admitted());
    let plan_without = planned(&all, Some(&known));
    assert_eq!(steps(&plan_without), ["patch Workload ns/g status"]);
    let condition = &patch(&plan_without, 0)["status"]["conditions"];
    let waits =
        condition.as_array().unwrap().iter().find(|own| own["type"] == "WaitingForReplacementPods").unwrap();
    assert_eq!((&waits["status"], &waits["reason"]), (&json!("True"), &json!("PodsFailed")));
    let mut with = all.clone();
    with.push(pod("p2", "2", Gated));
    let owned: Vec<Value> = vec![with[0].clone(), with[2].clone()];
    known = workload(&owned, 2, &admitted());
    assert_eq!(steps(&planned(&with, Some(&known))), ["patch Pod ns/p1"], "the failed one is let go");
}

#[test]
fn deleted_pods_keep_their_finalizer_until_they_are_replaced() {
    let all = pods(&[Gated, GatedAndDeleted]);
    let known = workload(&all, 2, &[]);
    assert_eq!(steps(&planned(&all, Some(&known))), ["patch Workload ns/g status"]);
}

#[test]
fn a_group_succeeds_with_enough_pods_or_when_none_may_be_replaced() {
    let ended = |pods: &[Value]| {
        let plan = planned(pods, Some(&workload(pods, i32::try_from(pods.len()).unwrap(), &admitted())));
        let conditions = patch(&plan, 0)["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .find(|own| own["type"] == "Finished")
            .map(|own| own["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(ended(&pods(&[Succeeded, Succeeded])).unwrap(), "Pods succeeded: 2/2.");
    assert_eq!(ended(&pods(&[Succeeded, Failed])), None, "a failed pod can be replaced");
    let mut last = pods(&[Succeeded, Failed]);
    last[1]["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = "false".into();
    let sets = workload(
        &last,
        2,
        &[admitted(), vec![condition("WaitingForReplacementPods", "True", "PodsFailed")]].concat(),
    );
    let plan = planned(&last, Some(&sets));
    assert!(patch(&plan, 0).to_string().contains("Pods succeeded: 1/2."));
}

#[test]
fn succeeded_pods_are_reclaimable_and_count_as_ready() {
    let all = pods(&[Succeeded, Ready]);
    let mut admitted = workload(&all, 2, &admitted());
    let reclaimed = patch(&planned(&all, Some(&admitted)), 0)["status"].clone();
    assert_eq!(reclaimed, json!({ "reclaimablePods": [{ "name": "role", "count": 1 }] }));
    admitted["status"]["reclaimablePods"] = reclaimed["reclaimablePods"].clone();
    let status = &patch(&planned(&all, Some(&admitted)), 0)["status"];
    let ready =
        status["conditions"].as_array().unwrap().iter().find(|own| own["type"] == "PodsReady").unwrap();
    assert_eq!(ready["status"], "True");
}

#[test]
fn evicted_pods_are_deleted_and_their_quota_is_given_back_when_they_have_stopped() {
    let all = pods(&[Running, Gated]);
    let evicted = [admitted(), vec![condition("Evicted", "True", "Preempted")]].concat();
    let plan = planned(&all, Some(&workload(&all, 2, &evicted)));
    assert_eq!(steps(&plan), ["patch Pod ns/p0 status (Stopped p0)", "delete Pod ns/p0"]);
    let target = &patch(&plan, 0)["status"]["conditions"][0];
    assert_eq!(
        (&target["type"], &target["reason"]),
        (&json!("TerminationTarget"), &json!("WorkloadEvictedDueToPreempted"))
    );

    let mut ending = all.clone();
    ending[0]["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:10Z".into();
    ending[0]["metadata"]["deletionGracePeriodSeconds"] = 10.into();
    let waits = planned(&ending, Some(&workload(&ending, 2, &evicted)));
    assert!(waits.steps.is_empty(), "{:?}", steps(&waits));
    assert_eq!(waits.next, Next::After(std::time::Duration::from_secs(20)), "a lost node keeps no quota");

    ending[0]["status"]["phase"] = "Failed".into();
    let reason = [evicted, vec![condition("WaitingForReplacementPods", "True", "Preempted")]].concat();
    let released = planned(&ending, Some(&workload(&ending, 2, &reason)));
    assert_eq!(steps(&released), ["patch Workload ns/g status"]);
    assert_eq!(patch(&released, 0)["status"]["admission"], Value::Null);
    assert!(patch(&released, 0)["status"].as_object().unwrap().contains_key("admission"));
}

#[test]
fn a_deleted_workload_takes_its_pods_with_it() {
    let all = pods(&[Running, Succeeded]);
    let mut known = workload(&all, 2, &admitted());
    known["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
    let expected = [
        "patch Pod ns/p0",
        "patch Pod ns/p1",
        "patch Pod ns/p0 status (Stopped p0)",
        "delete Pod ns/p0",
        "patch Pod ns/p1 status (Stopped p1)",
        "delete Pod ns/p1",
    ];
    let settled = [condition("WaitingForReplacementPods", "False", "PodsReady")];
    known["status"]["conditions"].as_array_mut().unwrap().extend(settled);
    assert_eq!(steps(&planned(&all, Some(&known))), expected);
    assert_eq!(
        steps(&planned(&[], Some(&known))),
        ["patch Workload.kueue.x-k8s.io ns/g"],
        "the finalizer goes last"
    );
}

#[test]
fn the_workload_of_another_job_is_left_alone() {
    let all = pods(&[Gated, GatedAndDeleted]);
    let mut foreign = workload(&all, 2, &[]);
    foreign["metadata"]["annotations"] = json!({});
    let plan = planned(&all, Some(&foreign));
    assert_eq!(steps(&plan), ["patch Pod ns/p1"], "a deleted pod does not wait for it");
    assert_eq!(plan.events[0].reason, "WorkloadNameConflict");
}

#[test]
fn a_pod_of_an_unknown_role_replaces_none() {
    let mut all = pods(&[Gated, Gated]);
    all[1]["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = "other".into();
    let known = workload(&all, 2, &[]);
    let plan = planned(&all, Some(&known));
    assert_eq!(steps(&plan), ["patch Workload ns/g status"]);
    assert!(patch(&plan, 0).to_string().contains("WaitingForReplacementPods"));
}
