use std::sync::Arc;

use quintet_api::kueue::v1beta2::{PodSet, Workload};
use quintet_controller::Action;
use quintet_controller::cache::Entry;
use serde_json::{Value, json};

use super::ungater::{self, Observed};
use super::{Resize, Slices};
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
    let between = |slice: &Arc<Entry<Workload>>, sets: &[PodSet]| Resize::between(&slice.object, sets);
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
