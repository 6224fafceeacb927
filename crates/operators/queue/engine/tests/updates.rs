//! Updates and failures that reach a workload while it is in flight, inadmissible or gone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use std::sync::Arc;

use common::*;
use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::flavors::Progress;
use quintet_queue_engine::internals::queue::{Pending, RequeueReason};
use quintet_queue_engine::names::ResourceId;
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::status;
use serde_json::{Value, json};

fn one_queue(settings: Settings) -> Engine {
    let objects =
        [flavor("default"), queue("cq", "", 4, json!({})), local_queue("cq"), pending("w", "cq", 1000, 0)];
    engine(settings, &objects)
}

/// Pops the only workload and requeues it as one that does not fit.
fn make_inadmissible(engine: &mut Engine) {
    let head = engine.take_heads(NOW, &|_, _| true).remove(0);
    let workload = Arc::clone(engine.state().workload(head.id).unwrap());
    let settings = engine.state().settings.clone();
    let queue = queue_id(engine, "cq");
    let reason = Some(QuotaReservedReason::ExceedsMaxQuota);
    let queue = engine.pending_mut(queue).unwrap();
    queue.requeue(head.id, Pending::new(workload), RequeueReason::NoFit, reason, (&settings, NOW));
}

#[test]
fn the_reason_of_a_shape_is_not_reported_for_a_workload_that_left_the_queue() {
    let mut engine = one_queue(Settings::default());
    make_inadmissible(&mut engine);
    let id = id(&engine, "w");
    assert_eq!(pending_queue(&engine, "cq").unfit_reason(id), Some(QuotaReservedReason::ExceedsMaxQuota));

    let queue = queue_id(&engine, "cq");
    engine.pending_mut(queue).unwrap().remove(id);
    assert!(!pending_queue(&engine, "cq").is_inadmissible(id));
    assert_eq!(pending_queue(&engine, "cq").unfit_reason(id), None, "it is not inadmissible anymore");
}

#[test]
fn the_reason_of_a_shape_is_not_reported_for_an_active_or_in_flight_workload() {
    let mut engine = one_queue(Settings::default());
    make_inadmissible(&mut engine);
    let (id, queue) = (id(&engine, "w"), queue_id(&engine, "cq"));
    engine.flush(queue, NOW);
    assert_eq!(pending_queue(&engine, "cq").unfit_reason(id), None, "active");
    engine.take_heads(NOW, &|_, _| true);
    assert_eq!(pending_queue(&engine, "cq").unfit_reason(id), None, "in flight");
}

#[test]
fn pending_workloads_are_listed_while_their_local_queue_feeds_the_queue() {
    let mut first = pending("first", "cq", 1000, 1);
    first["spec"]["queueName"] = "late".into();
    let mut engine = engine(Settings::default(), &[flavor("default"), queue("cq", "", 4, json!({})), first]);
    let cq = queue_id(&engine, "cq");
    assert_eq!(engine.pending_in_order(cq), [], "its LocalQueue does not exist yet");

    let late = json!({ "kind": "LocalQueue", "metadata": { "namespace": "ns", "name": "late" },
        "spec": { "clusterQueue": "cq" } });
    add(&mut engine, &late);
    add(&mut engine, &local_queue("cq"));
    add(&mut engine, &pending("second", "cq", 1000, 0));
    assert_eq!(engine.pending_in_order(cq), [id(&engine, "first"), id(&engine, "second")]);

    engine.take_heads(NOW, &|_, _| true);
    assert_eq!(engine.pending_in_order(cq).len(), 2, "the one in flight is pending");
}

/// The progress that the queue holds for the workload after an update of its labels.
fn progress_after_update(preserve: bool, in_flight: bool, changed: &dyn Fn(&mut Value)) -> Option<Progress> {
    let mut settings = Settings::default();
    settings.gates.preserve_scan_progress = preserve;
    let mut engine = one_queue(settings);
    let (id, queue) = (id(&engine, "w"), queue_id(&engine, "cq"));
    let shape = engine.state().workload(id).unwrap().shape;
    let progress = Progress { tried: vec![vec![(ResourceId::CPU, 1)]], generation: 3, cycle: 7, shape };
    engine.pending_mut(queue).unwrap().set_progress(id, progress);
    if in_flight {
        engine.take_heads(NOW, &|_, _| true);
        assert!(pending_queue(&engine, "cq").is_in_flight(id));
    }
    let mut updated = pending("w", "cq", 1000, 0);
    updated["metadata"]["labels"] = json!({ "updated": "true" });
    changed(&mut updated);
    add(&mut engine, &updated);
    let pending = pending_queue(&engine, "cq").get(id).unwrap();
    pending.progress.as_deref().cloned()
}

#[test]
fn an_update_carries_flavor_progress_over_only_with_its_gate_and_the_same_shape() {
    let same = |_: &mut Value| {};
    let larger = |workload: &mut Value| workload["spec"]["podSets"][0]["count"] = 4.into();
    for in_flight in [false, true] {
        let kept = progress_after_update(true, in_flight, &same).map(|progress| progress.tried);
        assert_eq!(kept, Some(vec![vec![(ResourceId::CPU, 1)]]), "in flight: {in_flight}");
        assert!(progress_after_update(false, in_flight, &same).is_none(), "gate off, in flight: {in_flight}");
        assert!(
            progress_after_update(true, in_flight, &larger).is_none(),
            "new shape, in flight: {in_flight}"
        );
    }
}

/// An admitted workload whose node failed and whose rack has no other: it is to be evicted.
fn without_replacement() -> Engine {
    let node = json!({ "kind": "Node", "metadata": { "name": "n1", "labels": {
            "tas": "yes", "kubernetes.io/hostname": "n1" } },
        "status": { "allocatable": { "cpu": "4", "pods": "10" },
            "conditions": [{ "type": "Ready", "status": "True" }] } });
    let mut failed = admitted("w", "cq", 1000, 0);
    failed["spec"]["podSets"][0]["topologyRequest"] = json!({ "required": "kubernetes.io/hostname" });
    failed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = json!({
        "levels": ["kubernetes.io/hostname"],
        "slices": [{ "domainCount": 1, "valuesPerLevel": [{ "universal": "n2" }], "podCounts": { "universal": 1 } }],
    });
    failed["status"]["unhealthyNodes"] = json!([{ "name": "n2" }]);
    // Another workload takes all of the only node that is left.
    let mut other = admitted("other", "cq", 4000, 0);
    other["spec"]["podSets"][0]["topologyRequest"] = json!({ "required": "kubernetes.io/hostname" });
    other["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = json!({
        "levels": ["kubernetes.io/hostname"],
        "slices": [{ "domainCount": 1, "valuesPerLevel": [{ "universal": "n1" }], "podCounts": { "universal": 1 } }],
    });
    let mut tas_flavor = flavor("default");
    tas_flavor["spec"] = json!({ "nodeLabels": { "tas": "yes" }, "topologyName": "hosts" });
    let objects = [
        json!({ "kind": "Topology", "metadata": { "name": "hosts" },
            "spec": { "levels": [{ "nodeLabel": "kubernetes.io/hostname" }] } }),
        tas_flavor,
        queue("cq", "", 9, json!({})),
        local_queue("cq"),
        node,
        failed,
        other,
    ];
    let mut engine = engine(Settings::default(), &objects);
    let id = id(&engine, "w");
    assert!(engine.queue_second_pass(id, 0, NOW), "it waits for a replacement");
    engine.make_second_passes_due();
    engine
}

#[test]
fn an_eviction_for_a_failed_node_is_retried_unless_the_workload_is_gone() {
    for (is_gone, retried) in [(false, true), (true, false)] {
        let mut engine = without_replacement();
        let report = engine.schedule(NOW);
        let decision = report.decisions.first().expect("a decision");
        assert_eq!(name_of(&engine, decision.workload), "w");
        let workload = id(&engine, "w");
        let failed = engine.eviction_failed(workload, is_gone, NOW);
        assert_eq!(failed, retried);
        let event = status::second_pass_event(decision, failed);
        assert_eq!(event.is_some(), retried, "an event of a deleted workload says nothing: {event:?}");
        engine.make_second_passes_due();
        assert_eq!(engine.take_second_passes(NOW).len(), usize::from(retried));
    }
}
