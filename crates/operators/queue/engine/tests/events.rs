//! Which events flush which inadmissible workloads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use std::sync::Arc;

use common::*;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::state::CheckInfo;
use quintet_queue_engine::model::Flavor;
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::time::Span;
use serde_json::{Value, json};

/// An engine in which nothing is due and the given workloads are inadmissible.
fn inadmissible(objects: &[Value]) -> Engine {
    let mut engine = engine(Settings::default(), objects);
    engine.process_flushes(NOW, false);
    for _ in 0..10 {
        engine.schedule(NOW);
    }
    assert_eq!(engine.next_due(), None);
    engine
}

fn counts(engine: &Engine, queue: &str) -> (usize, usize) {
    pending_queue(engine, queue).counts()
}

fn woken(engine: &mut Engine) -> usize {
    engine.process_flushes(NOW + Span::secs(1), true)
}

fn full() -> Vec<Value> {
    vec![
        flavor("default"),
        queue("cq", "all", 1, json!({})),
        queue("other", "all", 0, json!({})),
        queue("alone", "", 1, json!({})),
        local_queue("cq"),
        local_queue("other"),
        local_queue("alone"),
        admitted("holder", "cq", 1000, 0),
        pending("a", "cq", 1000, 0),
        pending("b", "other", 1000, 0),
        pending("c", "alone", 2000, 0),
    ]
}

#[test]
fn the_end_of_a_holder_flushes_its_tree_and_no_other() {
    let mut engine = inadmissible(&full());
    remove(&mut engine, "holder");
    assert_eq!(woken(&mut engine), 2);
    assert_eq!((counts(&engine, "other"), counts(&engine, "alone")), ((1, 0), (0, 1)));
}

#[test]
fn an_eviction_that_has_happened_flushes_the_tree() {
    let mut engine = inadmissible(&full());
    let holder = id(&engine, "holder");
    engine.return_to_queue(holder, NOW);
    // The holder too: it came back to a queue where its shape was known not to fit.
    assert_eq!(woken(&mut engine), 3);
}

#[test]
fn reclaimable_pods_and_a_changed_priority_of_a_holder_flush_its_tree() {
    for change in [
        json!({ "status": { "reclaimablePods": [{ "name": "main", "count": 1 }] } }),
        json!({ "spec": { "priority": 5 } }),
    ] {
        let mut engine = inadmissible(&full());
        let mut holder = admitted("holder", "cq", 1000, 0);
        for part in ["status", "spec"] {
            for (key, value) in change[part].as_object().into_iter().flatten() {
                holder[part][key] = value.clone();
            }
        }
        add(&mut engine, &holder);
        assert!(woken(&mut engine) > 0, "{change}");
    }
}

#[test]
fn more_quota_flushes_the_tree() {
    let mut engine = inadmissible(&full());
    add(&mut engine, &queue("other", "all", 1, json!({})));
    engine.process_flushes(NOW, false);
    assert_eq!(engine.schedule(NOW).admitted(), 1);
}

#[test]
fn a_created_flavor_flushes_the_queues_that_miss_it() {
    let mut objects = full();
    objects.push(queue_with(
        "late",
        "",
        &json!([{ "coveredResources": ["cpu"], "flavors": [
            { "name": "missing", "resources": [{ "name": "cpu", "nominalQuota": "1" }] }] }]),
    ));
    objects.push(local_queue("late"));
    objects.push(pending("d", "late", 1000, 0));
    let mut engine = inadmissible(&objects);
    assert!(!is_admitted(&engine, "d"));
    let missing = engine.state_mut().names.flavors.intern("missing");
    engine.set_flavor(missing, Some(Flavor::default()), NOW);
    woken(&mut engine);
    engine.schedule(NOW);
    assert!(is_admitted(&engine, "d"));
}

#[test]
fn a_check_that_becomes_active_flushes_the_queues_that_use_it() {
    let mut objects = full();
    let mut checked = queue("checked", "", 1, json!({}));
    checked["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": "check" }] });
    objects.extend([checked, local_queue("checked"), pending("d", "checked", 1000, 0)]);
    let mut engine = inadmissible(&objects);
    let check = |active| Some(CheckInfo { active, controller: Arc::from("someone") });
    engine.set_check("check".into(), check(false), NOW);
    woken(&mut engine);
    engine.schedule(NOW);
    assert!(!is_admitted(&engine, "d"));
    engine.set_check("check".into(), check(true), NOW);
    woken(&mut engine);
    engine.schedule(NOW);
    assert!(is_admitted(&engine, "d"));
    let workload = engine.state().workload(id(&engine, "d")).unwrap();
    assert!(workload.has_quota_reservation() && !workload.is_admitted(), "the check is not listed yet");
}

#[test]
fn a_namespace_that_matches_now_flushes_the_queues_that_select_it() {
    let mut served = queue("served", "", 1, json!({}));
    served["spec"]["namespaceSelector"] = json!({ "matchLabels": { "team": "a" } });
    let mut engine =
        inadmissible(&[flavor("default"), served, local_queue("served"), pending("w", "served", 1000, 0)]);
    assert_eq!(counts(&engine, "served"), (0, 1));
    let namespace = engine.state_mut().names.namespaces.intern("ns");
    let labels = [(Arc::from("team"), Arc::from("a"))].into_iter().collect();
    engine.set_namespace(namespace, Some(labels), NOW);
    assert_eq!(woken(&mut engine), 1);
    assert_eq!(engine.schedule(NOW).admitted(), 1);
}

#[test]
fn a_stopped_local_queue_takes_its_workloads_out_and_brings_them_back() {
    let mut engine = inadmissible(&full());
    let mut stopped = local_queue("cq");
    stopped["spec"]["stopPolicy"] = "Hold".into();
    add(&mut engine, &stopped);
    assert_eq!(counts(&engine, "cq"), (0, 0));
    add(&mut engine, &local_queue("cq"));
    assert_eq!(counts(&engine, "cq"), (1, 0));
}

#[test]
fn a_backoff_keeps_a_workload_inadmissible_through_a_flush() {
    let mut engine = inadmissible(&full());
    let mut waiting = pending("later", "alone", 500, 0);
    waiting["status"]["requeueState"] = json!({ "requeueAt": "2025-01-01T00:10:00Z", "count": 1 });
    add(&mut engine, &waiting);
    let queue = queue_id(&engine, "alone");
    engine.flush(queue, NOW);
    assert!(engine.pending(queue).unwrap().is_inadmissible(id(&engine, "later")));
    engine.flush(queue, NOW + Span::secs(600));
    assert!(engine.pending(queue).unwrap().is_active(id(&engine, "later")));
}

#[test]
fn an_unchanged_queue_flushes_nothing() {
    let mut engine = inadmissible(&full());
    add(&mut engine, &queue("cq", "all", 1, json!({})));
    assert_eq!(engine.next_due(), None);
    add(&mut engine, &queue("cq", "all", 1, json!({ "withinClusterQueue": "LowerPriority" })));
    assert_eq!(woken(&mut engine), 2);
}

#[test]
fn nothing_below_a_cycle_of_cohorts_is_flushed_until_it_is_broken() {
    let cohort = |name: &str, parent: &str| json!({ "kind": "Cohort", "metadata": { "name": name }, "spec": { "parentName": parent } });
    let mut engine = inadmissible(&full());
    let cq = queue_id(&engine, "cq");
    engine.request_flush(cq, NOW);
    add(&mut engine, &cohort("all", "top"));
    add(&mut engine, &cohort("top", "all"));
    assert_eq!(engine.process_flushes(NOW, false), 0, "asked for before the cycle was closed");
    engine.request_flush(cq, NOW);
    assert_eq!(engine.next_due(), None);
    add(&mut engine, &cohort("top", ""));
    assert_eq!(engine.process_flushes(NOW, false), 2);
}

#[test]
fn a_workload_in_backoff_stays_inadmissible_when_its_shape_is_flushed() {
    let mut engine = inadmissible(&[flavor("default"), queue("cq", "", 1, json!({})), local_queue("cq")]);
    for name in ["a", "b", "c"] {
        add(&mut engine, &pending(name, "cq", 2000, 0));
    }
    // Its backoff begins while it is active already.
    let mut delayed = pending("c", "cq", 2000, 0);
    delayed["status"] = json!({ "requeueState": { "count": 1, "requeueAt": "2030-01-01T00:00:00Z" } });
    add(&mut engine, &delayed);
    assert_eq!(counts(&engine, "cq"), (3, 0));
    engine.schedule(NOW);
    assert_eq!(counts(&engine, "cq"), (0, 3));
    let cq = queue_id(&engine, "cq");
    assert_eq!(engine.flush(cq, NOW), 2);
    assert_eq!(counts(&engine, "cq"), (2, 1));
    assert_eq!(engine.flush(cq, quintet_queue_engine::time::Time::from_secs(1_900_000_000)), 1);
}

#[test]
fn a_newer_inadmissible_copy_is_requeued_instead_of_the_evaluated_one() {
    use quintet_queue_engine::internals::queue::{Pending, RequeueReason};
    use quintet_queue_engine::model::ShapeHash;
    let mut engine = inadmissible(&[flavor("default"), queue("cq", "", 1, json!({})), local_queue("cq")]);
    add(&mut engine, &pending("w", "cq", 2000, 0));
    let (w, cq) = (id(&engine, "w"), queue_id(&engine, "cq"));
    let of_shape = |shape: u128| {
        let mut pending = Pending::new(Arc::clone(engine.state().workload(w).unwrap()));
        pending.shape = Some(ShapeHash::new(shape));
        pending
    };
    let (stored, decided, settings) = (of_shape(1), of_shape(2), engine.state().settings.clone());
    let queue = engine.pending_mut(cq).unwrap();
    queue.insert_inadmissible(w, stored, &settings);
    let added = queue.requeue_with(w, decided, true, RequeueReason::Generic, None, (&settings, NOW));
    assert!(added && queue.is_active(w));
    assert_eq!(queue.shapes().0.into_keys().collect::<Vec<_>>(), [ShapeHash::new(1)]);
    assert!(queue.pop(&|_| 0.0).is_some() && queue.is_in_flight(w));
    assert_eq!(queue.shape_in_flight(), Some(ShapeHash::new(1)));
    assert!(
        queue.pop(&|_| 0.0).is_none() && !queue.is_in_flight(w),
        "nothing is taken, so nothing is in flight"
    );
}

#[test]
fn a_new_message_of_an_eviction_is_a_change() {
    let mut engine = inadmissible(&[flavor("default"), queue("cq", "", 1, json!({})), local_queue("cq")]);
    let evicted = |message: &str| {
        let mut workload = pending("w", "cq", 2000, 0);
        workload["status"] = json!({ "conditions": [{ "type": "Evicted", "status": "True", "reason": "Preempted",
            "message": message, "lastTransitionTime": "2024-12-31T23:00:00Z" }] });
        workload
    };
    add(&mut engine, &evicted("for another"));
    let (w, cq) = (id(&engine, "w"), queue_id(&engine, "cq"));
    let settings = engine.state().settings.clone();
    let stored =
        quintet_queue_engine::internals::queue::Pending::new(Arc::clone(engine.state().workload(w).unwrap()));
    engine.pending_mut(cq).unwrap().insert_inadmissible(w, stored, &settings);
    add(&mut engine, &evicted("for another"));
    assert_eq!(counts(&engine, "cq"), (0, 1), "nothing changed");
    add(&mut engine, &evicted("for a third"));
    assert_eq!(counts(&engine, "cq"), (1, 0));
}

#[test]
fn queues_that_come_and_go_leave_nothing_behind() {
    let mut engine = inadmissible(&full());
    let nodes = engine.state().tree.len();
    for round in 0..10 {
        let name = format!("guest-{round}");
        add(&mut engine, &queue(&name, "all", 3, json!({})));
        let guest = queue_id(&engine, &name);
        let fr = fr(&mut engine, "cpu");
        let cq = node(&engine, "cq");
        assert_eq!(engine.state().available(cq, fr), 3000, "it lends");
        engine.remove_queue(guest);
        assert_eq!(engine.state().available(cq, fr), 0);
    }
    assert!(engine.state().tree.len() <= nodes + 1);
}

#[test]
fn the_usage_of_a_local_queue_follows_its_workloads() {
    let mut engine = inadmissible(&full());
    let local_queue = engine.state().names.local_queues.get("ns/cq").unwrap();
    let cpu = quintet_queue_engine::names::ResourceId::CPU;
    let holder = id(&engine, "holder");
    assert_eq!(engine.state().running_in(local_queue, None).get(cpu), 1000);
    assert!(engine.state().running_in(local_queue, Some(holder)).is_empty());
    add(&mut engine, &admitted("second", "cq", 500, 0));
    let mut reserved = admitted("third", "cq", 500, 0);
    reserved["status"]["conditions"].as_array_mut().unwrap().pop();
    add(&mut engine, &reserved);
    assert_eq!(engine.state().running_in(local_queue, None).get(cpu), 1500, "only what is admitted runs");
    assert_eq!(engine.state().running_in(local_queue, Some(holder)).get(cpu), 500);
    add(&mut engine, &pending("second", "cq", 500, 0));
    remove(&mut engine, "holder");
    assert!(engine.state().running_in(local_queue, None).is_empty());
}

#[test]
fn workloads_of_a_local_queue_are_counted_where_they_are() {
    let mut engine = inadmissible(&full());
    let (local_queue, cq) =
        (engine.state().names.local_queues.get("ns/cq").unwrap(), queue_id(&engine, "cq"));
    let both = |engine: &Engine| {
        let counts = engine.counts_in(local_queue);
        assert_eq!(counts, engine.pending(cq).unwrap().counts_of(local_queue));
        counts
    };
    assert_eq!(both(&engine), (0, 1));
    add(&mut engine, &pending("b2", "cq", 500, 0));
    assert_eq!(both(&engine), (1, 1));
    let heads = engine.take_heads(NOW, &|_, _| true);
    assert_eq!((heads.len(), both(&engine)), (1, (1, 1)), "in flight is active");
    assert!(engine.take_heads(NOW, &|_, _| true).is_empty());
    assert_eq!(both(&engine), (0, 1));
    engine.flush(cq, NOW);
    assert_eq!(engine.take_heads(NOW, &|_, _| true).len(), 1, "a queue that was empty is visited again");
}
