//! Informer events: what objects become in the engine, and what follows when they change or go.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use common::*;
use k8s_openapi::api::core::v1::{LimitRange, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2;
use quintet_queue_engine::Engine;
use quintet_queue_engine::ingest::{self, RequestOptions};
use quintet_queue_engine::names::{Names, ResourceId};
use quintet_queue_engine::settings::{Gates, Settings};
use quintet_queue_engine::time::Span;
use serde_json::{Value, json};

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// All statuses a condition can have, also that of none.
const STATUSES: [Option<&str>; 4] = [None, Some("True"), Some("False"), Some("Unknown")];

fn workload_with(conditions: &[(&str, Option<&str>)], active: bool, check: &str, delayed: &str) -> Value {
    let mut workload = admitted("w", "cq", 1000, 0);
    workload["spec"]["active"] = active.into();
    let conditions = conditions.iter().filter_map(|(kind, status)| {
        Some(json!({ "type": kind, "status": (*status)?, "reason": "R", "message": "",
            "lastTransitionTime": "2024-12-31T23:00:00Z" }))
    });
    workload["status"]["conditions"] = conditions.collect();
    workload["status"]["admissionChecks"] = json!([{ "name": "c", "state": check, "message": "",
        "lastTransitionTime": "2024-12-31T23:00:00Z" }]);
    workload["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = delayed.into();
    workload
}

#[test]
fn the_model_and_the_api_object_agree_on_the_lifecycle() {
    let (options, gates) = (RequestOptions::default(), Gates::default());
    let mut names = Names::default();
    let kinds = ["QuotaReserved", "Admitted", "Evicted", "Finished"];
    for number in 0..4_usize.pow(4) * 8 {
        let status = |at: u32| STATUSES[number / 4_usize.pow(at) % 4];
        let rest = number / 4_usize.pow(4);
        let conditions: Vec<_> = kinds.iter().zip(0..).map(|(kind, at)| (*kind, status(at))).collect();
        let check = if rest & 2 == 0 { "Ready" } else { "Pending" };
        let delayed = if rest & 4 == 0 { "Ready" } else { "Pending" };
        let api: v1beta2::Workload = object(workload_with(&conditions, rest & 1 == 0, check, delayed));
        let model = ingest::workload(&api, &options, &gates, &mut names).unwrap();
        let facts = |own: &dyn WorkloadLifecycle| {
            (own.phase(), own.holds_quota(), own.meets_admission(), own.is_evicted(), own.is_active())
        };
        assert_eq!(facts(&model), facts(&api), "{conditions:?} {check} {delayed}");
    }
}

#[test]
fn json_becomes_what_the_typed_object_becomes() {
    let objects = [flavor("default"), queue("cq", "", 2, json!({})), local_queue("cq")];
    let (mut from_json, mut typed) =
        (engine(Settings::default(), &objects), engine(Settings::default(), &objects));
    let value = admitted("w", "cq", 1000, 3);
    from_json.apply_json(&value, NOW).unwrap();
    let id = typed.apply_workload(&object(value), NOW).unwrap();
    assert_eq!(from_json.workload(id), typed.workload(id));
    assert!(typed.workload(id).unwrap().is_true(WorkloadCondition::QuotaReserved));
}

#[test]
fn objects_that_cannot_be_read_are_rejected_with_what_is_wrong() {
    let mut engine = Engine::new(Settings::default());
    let mut error = |value: Value| engine.apply_json(&value, NOW).unwrap_err().to_string();
    assert_eq!(error(json!({ "kind": "Job" })), "cannot read an object of kind: \"Job\"");
    assert_eq!(error(queue_of("4x")), "cannot read quantity: \"4x\"");
    let broken = error(json!({ "kind": "Topology", "spec": { "levels": 3 } }));
    assert!(broken.starts_with("cannot read Topology: ") && broken.contains("sequence"), "{broken}");
}

fn queue_of(quota: &str) -> Value {
    let mut own = queue("cq", "", 1, json!({}));
    own["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = quota.into();
    own
}

#[test]
fn limit_ranges_and_runtime_classes_fill_in_requests_of_pending_workloads() {
    let mut engine =
        engine(Settings::default(), &[flavor("default"), queue("cq", "", 9, json!({})), local_queue("cq")]);
    let range: LimitRange = object(json!({ "metadata": { "namespace": "ns", "name": "range" },
        "spec": { "limits": [{ "type": "Container", "defaultRequest": { "cpu": "2" }, "max": { "cpu": "3" } }] } }));
    let class: RuntimeClass = object(json!({ "metadata": { "name": "sandbox" }, "handler": "h",
        "overhead": { "podFixed": { "cpu": "500m" } } }));
    engine.apply_limit_range(&range).unwrap();
    engine.apply_runtime_class(&class);
    let mut value = pending("w", "cq", 1000, 0);
    let spec = &mut value["spec"]["podSets"][0]["template"]["spec"];
    spec["runtimeClassName"] = "sandbox".into();
    spec["containers"][0]["resources"] = json!({});

    let id = engine.apply_workload(&object(value.clone()), NOW).unwrap();
    let cpu = |engine: &Engine| engine.workload(id).unwrap().pod_sets[0].requests.get(ResourceId::CPU);
    assert_eq!(cpu(&engine), 2500);

    engine.delete_limit_range("ns", "range").unwrap();
    engine.delete_runtime_class("sandbox");
    engine.apply_workload(&object(value), NOW).unwrap();
    assert_eq!(cpu(&engine), 0, "applied again without them");

    engine.apply_limit_range(&range).unwrap();
    engine.apply_workload(&object(pending("w", "cq", 4000, 0)), NOW).unwrap();
    let report = engine.schedule(NOW);
    let (reason, message) = unadmitted(&engine, &report, "w").unwrap();
    assert_eq!(reason, "Misconfigured");
    assert!(message.starts_with("resources didn't satisfy LimitRange constraints: "), "{message}");
}

#[test]
fn an_admission_without_a_reservation_neither_holds_quota_nor_replaces_requests() {
    let mut engine =
        engine(Settings::default(), &[flavor("default"), queue("cq", "", 1, json!({})), local_queue("cq")]);
    let mut left_behind = admitted("w", "cq", 1000, 0);
    left_behind["status"]["conditions"] = json!([{ "type": "QuotaReserved", "status": "False", "reason": "Pending",
        "message": "", "lastTransitionTime": "2024-12-31T23:00:00Z" }]);
    let id = engine.apply_workload(&object(left_behind), NOW).unwrap();
    assert!(engine.workload(id).unwrap().admission.is_none());
    engine.schedule(NOW);
    let admission = engine.workload(id).unwrap().admission.clone().expect("it fits");
    assert_eq!(admission.pod_sets[0].usage.get(ResourceId::CPU), 1000);
    engine.apply_workload(&object(pending("other", "cq", 1000, 0)), NOW).unwrap();
    let report = engine.schedule(NOW);
    assert!(unadmitted(&engine, &report, "other").is_some(), "the quota is used");
}

#[test]
fn pods_outside_topology_aware_scheduling_use_room_once_they_are_synced() {
    let mut engine = engine(Settings::default(), &cluster(&[HOST], &[("host", 2)]));
    let pod: Pod = object(json!({ "metadata": { "namespace": "ns", "name": "other" },
        "spec": { "nodeName": "host", "containers": [
            { "name": "c", "resources": { "requests": { "cpu": "1500m" } } }] },
        "status": { "phase": "Running" } }));
    engine.apply_pod(&pod).unwrap();
    assert!(!engine.sync_pod_usage(), "nothing became free");
    add(&mut engine, &with_topology(1, json!({ "required": HOST })));
    engine.schedule(NOW);
    assert_eq!(places(&engine), None, "a core and a half of two are used");

    // The node changes; what its pods use is remembered.
    let node: Node = object(json!({ "metadata": { "name": "host", "labels": { HOST: "host" } },
        "status": { "allocatable": { "cpu": "2", "pods": "100" },
            "conditions": [{ "type": "Ready", "status": "True" }] } }));
    engine.apply_nodes([&node], NOW).unwrap();
    let later = NOW + Span::secs(2);
    engine.process_flushes(later, true);
    engine.schedule(later);
    assert_eq!(places(&engine), None);

    engine.delete_pod("ns", "other");
    assert!(engine.sync_pod_usage());
    engine.flush_freed(later);
    let end = later + Span::secs(2);
    engine.process_flushes(end, true);
    engine.schedule(end);
    assert_eq!(places(&engine), Some(vec![("host".to_owned(), 1)]));
}

#[test]
fn a_deleted_queue_admits_nothing_and_a_deleted_workload_frees_its_quota() {
    let mut engine = engine(
        Settings::default(),
        &[
            flavor("default"),
            queue("cq", "", 1, json!({})),
            local_queue("cq"),
            admitted("first", "cq", 1000, 0),
            pending("second", "cq", 1000, 0),
        ],
    );
    engine.schedule(NOW);
    assert!(!is_admitted(&engine, "second"));
    engine.delete_workload("ns", "first", NOW);
    assert_eq!(engine.workload_id("ns", "first"), None);
    let later = NOW + Span::secs(2);
    engine.process_flushes(later, true);
    engine.schedule(later);
    assert!(is_admitted(&engine, "second"));

    engine.delete_cluster_queue("cq");
    add(&mut engine, &pending("third", "cq", 1, 0));
    assert_eq!(engine.schedule(later).heads, 0);
}
