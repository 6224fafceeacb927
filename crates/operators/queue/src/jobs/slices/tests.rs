use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::kueue::v1beta2::{PodSet, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, Plan};
use serde_json::{Value, json};

use super::ungater::{self, Observed};
use super::{Resize, Slices};
use crate::jobs::JobKind;
use crate::jobs::ancestors::Ancestor;
use crate::jobs::json::{JsonJob, RayCluster};
use crate::jobs::observe::{ObservedJob, PresentJob};
use crate::jobs::priority::Priority;
use crate::jobs::{compose, plan};
use crate::settings::Settings;
use crate::testing::entry;
use crate::topology::PodView;

/// A slice: its name, which is also the order of creation, what it replaces, and its true conditions.
fn slice(name: &str, replaces: Option<&str>, conditions: &[&str]) -> Arc<Entry<Workload>> {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|kind| {
            json!({ "type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        })
        .collect();
    let mut annotations =
        json!({ "kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-name": "a" });
    if let Some(replaced) = replaces {
        annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = format!("ns/{replaced}").into();
    }
    entry(&json!({
        "metadata": { "name": name, "namespace": "ns", "annotations": annotations,
            "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "podSets": [{ "name": "main", "count": 2, "template": {} }] },
        "status": { "conditions": conditions } }))
}

const RESERVED: &[&str] = &["QuotaReserved"];
const EVICTED: &[&str] = &["QuotaReserved", "Evicted"];

#[test]
fn one_slice_follows_the_job_and_at_most_one_keeps_its_quota() {
    // The slices, the selected one, the one that keeps its quota, and those that end with their reasons.
    type Row<'r> = (&'r str, Vec<Arc<Entry<Workload>>>, Option<&'r str>, Option<&'r str>, Vec<&'r str>);
    let table: [Row<'_>; 8] = [
        ("none", vec![], None, None, vec![]),
        ("one, even if it was evicted", vec![slice("a", None, EVICTED)], Some("a"), None, vec![]),
        ("finished ones do not count", vec![slice("a", None, &["Finished"])], None, None, vec![]),
        (
            "one that waits to replace another",
            vec![slice("a", None, RESERVED), slice("b", Some("a"), &[])],
            Some("b"),
            Some("a"),
            vec![],
        ),
        (
            "one that has replaced another",
            vec![slice("a", None, RESERVED), slice("b", Some("a"), RESERVED)],
            Some("b"),
            None,
            vec!["a WorkloadSliceReplaced"],
        ),
        (
            "the replaced one was evicted",
            vec![slice("a", None, EVICTED), slice("b", Some("a"), &[])],
            Some("b"),
            None,
            vec!["a WorkloadSliceReplaced"],
        ),
        (
            "two that wait for the same one",
            vec![slice("a", None, RESERVED), slice("b", Some("a"), &[]), slice("c", Some("a"), &[])],
            Some("b"),
            Some("a"),
            vec!["c OutOfSync"],
        ),
        (
            "all were evicted",
            vec![slice("a", None, EVICTED), slice("b", None, EVICTED)],
            None,
            None,
            vec!["a OutOfSync", "b OutOfSync"],
        ),
    ];
    for (what, workloads, selected, retained, obsolete) in table {
        let found = Slices::of(&workloads);
        assert_eq!(found.selected.map(|entry| entry.key.name()), selected, "{what}");
        assert_eq!(found.retained.map(|entry| entry.key.name()), retained, "{what}");
        let ended: Vec<String> = found
            .obsolete
            .iter()
            .map(|(entry, reason, _)| format!("{} {}", entry.key.name(), reason.as_str()))
            .collect();
        assert_eq!(ended, obsolete, "{what}");
    }
}

#[test]
fn only_a_slice_with_quota_that_has_to_grow_is_replaced() {
    let of_job = |name: &str, count: i32| -> Vec<PodSet> {
        serde_json::from_value(json!([{ "name": name, "count": count, "template": {} }])).unwrap()
    };
    let (waiting, reserved) = (slice("a", None, &[]), slice("a", None, RESERVED));
    let between = |slice: &Arc<Entry<Workload>>, sets: &[PodSet]| Resize::between(&slice.object, sets, false);
    assert_eq!(between(&reserved, &of_job("main", 2)), Resize::None);
    assert_eq!(between(&waiting, &of_job("main", 3)), Resize::InPlace);
    assert_eq!(between(&reserved, &of_job("main", 1)), Resize::InPlace);
    assert_eq!(between(&reserved, &of_job("main", 3)), Resize::Replace);
    assert_eq!(between(&reserved, &of_job("other", 2)), Resize::Incompatible);
}

fn pod(name: &str, is_gated: bool, phase: &str) -> Arc<Entry<PodView>> {
    let gates =
        if is_gated { json!([{ "name": "kueue.x-k8s.io/elastic-job" }, { "name": "x" }]) } else { json!([]) };
    entry(&json!({
        "metadata": { "name": name, "namespace": "ns", "labels": { "kueue.x-k8s.io/podset": "main" } },
        "spec": { "schedulingGates": gates }, "status": { "phase": phase } }))
}

fn ungated(slice: Arc<Entry<Workload>>, pods: Vec<Arc<Entry<PodView>>>) -> Vec<String> {
    let plan = ungater::plan(&Observed { slice, pods });
    let name = |step: &quintet_controller::Step| match &step.action {
        Action::Patch { key, patch, .. } => {
            assert_eq!(patch["spec"]["schedulingGates"], json!([{ "name": "x" }]), "other gates stay");
            key.name().to_owned()
        }
        other => panic!("not a patch: {other:?}"),
    };
    plan.steps.iter().map(name).collect()
}

#[test]
fn as_many_pods_are_ungated_as_were_admitted_the_lowest_names_first() {
    let admitted = || slice("a", None, &["QuotaReserved", "Admitted"]);
    let gated = |name: &str| pod(name, true, "Pending");
    let three = || vec![gated("p2"), gated("p0"), gated("p1")];
    assert_eq!(ungated(admitted(), three()), ["p0", "p1"]);
    assert!(ungated(slice("a", None, RESERVED), three()).is_empty(), "checks may be missing");
    let running = vec![pod("p1", false, "Running"), gated("p0"), gated("p2")];
    assert_eq!(ungated(admitted(), running), ["p0"]);
    let ended = vec![pod("p0", false, "Succeeded"), pod("p1", false, "Running"), gated("p2")];
    assert_eq!(ungated(admitted(), ended), ["p2"], "a pod that has ended leaves its place to another");
}

/// A cluster that grows partially: how many workers it wants.
fn cluster(workers: i32, is_suspended: bool) -> Value {
    json!({ "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": { "name": "r", "namespace": "ns", "uid": "job", "generation": workers,
            "labels": { "kueue.x-k8s.io/queue-name": "lq" },
            "annotations": { "kueue.x-k8s.io/elastic-job": "true", "queue.quintet.dev/partial-scale-up": "true" } },
        "spec": { "suspend": is_suspended, "headGroupSpec": { "template": {} }, "workerGroupSpecs": [
            { "groupName": "small", "replicas": workers, "minReplicas": 1, "template": {} }] } })
}

/// A slice that asks for workers; if it is admitted, with some of them.
fn of_cluster(name: &str, replaces: Option<&str>, asks: i32, granted: Option<i32>) -> Arc<Entry<Workload>> {
    let conditions = if granted.is_some() { &["QuotaReserved", "Admitted"][..] } else { &[] };
    let mut object = serde_json::to_value(&slice(name, replaces, conditions).object).unwrap();
    object["spec"] = json!({ "queueName": "lq", "priority": 0, "podSets": [
        { "name": "head", "count": 1, "template": {} }, { "name": "small", "count": asks, "template": {} }] });
    if let Some(count) = granted {
        object["status"]["admission"] = json!({ "clusterQueue": "cq", "podSetAssignments": [
            { "name": "head", "count": 1 }, { "name": "small", "count": count }] });
    }
    entry(&object)
}

fn plan_of(cluster: &Value, workloads: Vec<Arc<Entry<Workload>>>) -> Plan {
    let job: Arc<Entry<JsonJob<RayCluster>>> = entry(cluster);
    let mut settings = Settings::default();
    settings.configuration.wait_for_pods_ready = None;
    plan::plan(&ObservedJob::Present(Box::new(PresentJob {
        pod_sets: compose::pod_sets(&job.object, &[], &settings),
        reclaimable_pods: job.object.reclaimable_pods(&[]),
        annotations: BTreeMap::new(),
        job,
        settings: Arc::new(settings),
        now: Timestamp::UNIX_EPOCH,
        is_namespace_managed: true,
        ancestor: Ancestor::None,
        is_ancestor_admitted: false,
        workloads,
        leftovers: Vec::new(),
        prebuilt: None,
        priority: Ok(Priority::default()),
        flavors: BTreeMap::new(),
    })))
}

#[test]
fn a_cluster_that_grows_partially_asks_for_the_rest_and_gives_back_at_once() {
    let created = "create";
    let runs = |workers| cluster(workers, false);
    // What it is, its slices, and the kind and the target of the step.
    let table = [
        ("it has all", runs(3), vec![of_cluster("a", None, 3, Some(3))], ""),
        ("it asks for the rest", runs(5), vec![of_cluster("a", None, 5, Some(3))], created),
        (
            "it has asked for the rest",
            runs(5),
            vec![of_cluster("a", None, 5, Some(3)), of_cluster("b", Some("a"), 5, None)],
            "",
        ),
        (
            "it asks for less, but more than it has",
            runs(4),
            vec![of_cluster("a", None, 5, Some(3)), of_cluster("b", Some("a"), 5, None)],
            "b spec",
        ),
        (
            "it asks for what it has",
            runs(3),
            vec![of_cluster("a", None, 5, Some(3)), of_cluster("b", Some("a"), 5, None)],
            "b status",
        ),
        ("it asks for less than it has", runs(2), vec![of_cluster("a", None, 5, Some(3))], "a spec"),
        ("it starts with what it has", cluster(5, true), vec![of_cluster("a", None, 5, Some(3))], "r spec"),
        (
            "it starts with what it has while the rest waits",
            cluster(5, true),
            vec![of_cluster("a", None, 5, Some(3)), of_cluster("b", Some("a"), 5, None)],
            "r spec",
        ),
    ];
    for (what, cluster, workloads, expected) in table {
        let plan = plan_of(&cluster, workloads);
        let step = plan.steps.first().map(|step| match &step.action {
            Action::Create { .. } => created.to_owned(),
            Action::Patch { key, .. } => format!("{} spec", key.name()),
            Action::Status { key, .. } => format!("{} status", key.name()),
            other => panic!("{what}: {other:?}"),
        });
        assert_eq!(step.unwrap_or_default(), expected, "{what}: {plan:?}");
    }
}

#[test]
fn the_slice_for_the_rest_has_a_name_of_its_own_and_says_how_few_workers_are_enough() {
    let created = |workloads| match &plan_of(&cluster(5, false), workloads).steps[0].action {
        Action::Create { object, .. } => object.clone(),
        other => panic!("not a creation: {other:?}"),
    };
    let first = created(vec![]);
    let name = first["metadata"]["name"].as_str().unwrap();
    let rest = created(vec![of_cluster(name, None, 5, Some(3))]);
    let annotations = &rest["metadata"]["annotations"];
    assert_ne!(rest["metadata"]["name"], name, "both are of the same generation");
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], format!("ns/{name}"));
    assert_eq!(annotations["queue.quintet.dev/min-counts"], "small=1");
    assert_eq!(rest["spec"]["podSets"][1]["count"], 5);
}

#[test]
fn no_more_pods_are_ungated_than_were_admitted_of_what_was_asked_for() {
    let mut partial = slice("a", None, &["QuotaReserved", "Admitted"]).object.clone();
    let admission = json!({ "podSetAssignments": [{ "name": "main", "count": 1 }] });
    partial.status.as_mut().unwrap().admission = serde_json::from_value(admission).unwrap();
    let pods = vec![pod("p0", true, "Pending"), pod("p1", true, "Pending")];
    assert_eq!(ungated(entry(&serde_json::to_value(partial).unwrap()), pods), ["p0"]);
}
