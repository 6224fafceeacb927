//! Rules of the specification that are pinned outside its list of vectors.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use common::*;
use quintet_queue_engine::Engine;
use quintet_queue_engine::ingest;
use quintet_queue_engine::settings::Settings;
use serde_json::{Value, json};

/// Schedules once; returns what that preempts.
fn victims(settings: Settings, objects: &[Value]) -> Vec<(String, &'static str)> {
    let mut engine = engine(settings, objects);
    let report = engine.schedule(NOW);
    preempted(&engine, &report)
}

#[test]
fn requests_beyond_every_number_exceed_the_quota_and_do_not_wrap() {
    let mut workload = pending("w", "cq", 1000, 0);
    let mut second = workload["spec"]["podSets"][0].clone();
    second["name"] = "second".into();
    workload["spec"]["podSets"].as_array_mut().unwrap().push(second);
    for pod_set in workload["spec"]["podSets"].as_array_mut().unwrap() {
        pod_set["template"]["spec"]["containers"][0]["resources"]["requests"] =
            json!({ "memory": (i64::MAX - 1).to_string() });
    }
    let groups = json!([{ "coveredResources": ["memory"], "flavors": [
        { "name": "default", "resources": [{ "name": "memory", "nominalQuota": (i64::MAX - 1).to_string() }] }] }]);
    let objects = [flavor("default"), queue_with("cq", "", &groups), local_queue("cq"), workload];
    let mut engine = engine(Settings::default(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(unadmitted(&engine, &report, "w").unwrap().0, "ExceedsMaxQuota");
}

#[test]
fn a_multiplied_transformation_leaves_the_retained_input_alone() {
    let config = json!({ "resources": { "transformations": [{ "input": "gpu", "strategy": "Retain",
        "outputs": { "credits": "10" }, "multiplyBy": "memory" }] } });
    let options = ingest::settings(
        &serde_json::from_value(config).unwrap(),
        &mut quintet_queue_engine::names::Names::default(),
    )
    .requests;
    let mut object = pending("w", "cq", 1000, 0);
    object["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] =
        json!({ "gpu": "2", "memory": "3" });
    let mut engine = Engine::new(Settings::default());
    let gates = engine.state().settings.gates.clone();
    let workload = ingest::workload(
        &serde_json::from_value(object).unwrap(),
        &options,
        &gates,
        &mut engine.state_mut().names,
    )
    .unwrap();
    let requests = &workload.pod_sets[0].requests;
    let mut value = |name: &str| requests.get(engine.state_mut().names.resource(name));
    assert_eq!((value("gpu"), value("memory"), value("credits")), (2, 3, 60));
}

#[test]
fn only_a_queue_that_cannot_always_reclaim_reserves_quota_while_it_waits() {
    for (policy, blocks) in [("Any", false), ("LowerPriority", true), ("Never", true)] {
        let objects = [
            flavor("default"),
            queue("a", "all", 2, json!({ "reclaimWithinCohort": policy })),
            queue("b", "all", 0, json!({})),
            queue("c", "all", 0, json!({})),
            local_queue("a"),
            local_queue("b"),
            local_queue("c"),
            // No other queue may take it: one that can always reclaim would, so it has two cores of its own.
            admitted("holder", "a", 1000, 100),
            pending("wa", "a", 2000, 10),
            pending("wb", "b", 1000, 0),
        ];
        let mut engine = engine(Settings::default(), &objects);
        engine.schedule(NOW);
        assert!(!is_admitted(&engine, "wa"));
        assert_eq!(is_admitted(&engine, "wb"), !blocks, "{policy}");
    }
}

#[test]
fn all_pods_with_preemption_are_better_than_fewer_without() {
    let mut workload = pending("w", "cq", 1000, 10);
    workload["spec"]["podSets"][0]["count"] = 3.into();
    workload["spec"]["podSets"][0]["minCount"] = 1.into();
    let objects = |policy: Value| {
        [
            flavor("default"),
            queue("cq", "", 3, policy),
            local_queue("cq"),
            admitted("low", "cq", 1000, 0),
            workload.clone(),
        ]
    };
    let found = victims(Settings::default(), &objects(json!({ "withinClusterQueue": "LowerPriority" })));
    assert_eq!(found, [("low".to_owned(), "InClusterQueue")]);
    let mut engine = engine(Settings::default(), &objects(json!({})));
    engine.schedule(NOW);
    let admission = engine.state().workload(id(&engine, "w")).unwrap().admission.clone().unwrap();
    assert_eq!(admission.pod_sets[0].count, 2, "without preemption, as many as fit");
}

/// `a` with 3 cpu may reclaim from the borrower `b`; a third queue lends.
fn reclaiming(usage: &[(&str, &str, i64)], milli: i64) -> Vec<Value> {
    let mut objects = vec![
        flavor("default"),
        queue("a", "all", 3, json!({ "reclaimWithinCohort": "Any" })),
        queue("b", "all", 3, json!({})),
        local_queue("a"),
        local_queue("b"),
        pending("w", "a", milli, 10),
    ];
    objects.extend(usage.iter().map(|(name, queue, milli)| admitted(name, queue, *milli, 0)));
    objects
}

#[test]
fn a_queue_that_would_borrow_may_not_reclaim() {
    let borrowed = [("a1", "a", 1000), ("b1", "b", 5000)];
    let reclaimed = victims(Settings::default(), &reclaiming(&borrowed, 2000));
    assert_eq!(reclaimed, [("b1".to_owned(), "InCohortReclamation")]);
    assert_eq!(victims(Settings::default(), &reclaiming(&borrowed, 3000)), [], "one core would be borrowed");
}

#[test]
fn a_queue_that_does_not_borrow_loses_nothing_but_one_victim_may_be_large() {
    let within = [("a1", "a", 3000), ("b1", "b", 3000)];
    assert_eq!(victims(Settings::default(), &reclaiming(&within, 1000)), []);
    let large = [("b1", "b", 6000)];
    let found = victims(Settings::default(), &reclaiming(&large, 1000));
    assert_eq!(found, [("b1".to_owned(), "InCohortReclamation")], "although b is below its quota then");
}

#[test]
fn workloads_being_evicted_are_the_first_candidates() {
    let mut objects = reclaiming(&[("b1", "b", 3000), ("b2", "b", 3000)], 3000);
    let evicted = objects.last_mut().unwrap();
    evicted["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "type": "Evicted", "status": "True", "reason": "Preempted",
            "lastTransitionTime": "2024-12-31T23:30:00Z" }));
    let mut engine = engine(Settings::default(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report), [], "no other workload is evicted");
    let (_, message) = unadmitted(&engine, &report, "w").unwrap();
    assert!(message.ends_with("Pending the preemption of 1 workload(s)"), "{message}");
}

/// Fair queues a and b with 3 cpu each; `a` has a weight.
fn weighted(weight: &str, usage: &[(&str, &str, i64)], milli: i64) -> Vec<Value> {
    let mut objects = reclaiming(usage, milli);
    objects[1]["spec"]["fairSharing"] = json!({ "weight": weight });
    objects
}

#[test]
fn a_queue_of_no_weight_can_still_reclaim_what_it_owns() {
    let found = victims(fair(), &weighted("0", &[("b1", "b", 3000), ("b2", "b", 3000)], 3000));
    assert_eq!(found, [("b1".to_owned(), "InCohortReclamation")]);
}

#[test]
fn a_queue_within_its_nominal_quota_preempts_whatever_its_share() {
    // `a` is far over its cpu of one flavor, and requests what it owns of another.
    let two = |cpu: i64, spot: i64| {
        json!([{ "coveredResources": ["cpu"], "flavors": [
        { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": cpu.to_string() }] },
        { "name": "spot", "resources": [{ "name": "cpu", "nominalQuota": spot.to_string() }] }] }])
    };
    let on = |name: &str, queue: &str, milli: i64, flavor: &str| {
        let mut workload = admitted(name, queue, milli, 0);
        workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = flavor.into();
        workload
    };
    let mut a = queue_with("a", "all", &two(0, 2));
    a["spec"]["preemption"] = json!({ "reclaimWithinCohort": "Any" });
    let objects = [
        flavor("default"),
        flavor("spot"),
        a,
        queue_with("b", "all", &two(9, 0)),
        local_queue("a"),
        local_queue("b"),
        on("a1", "a", 9000, "default"),
        on("b1", "b", 2000, "spot"),
        pending("w", "a", 2000, 0),
    ];
    assert_eq!(victims(fair(), &objects), [("b1".to_owned(), "InCohortReclamation")]);
}

/// In a cycle every admission counts for the shares of those that come after it, also of other queues of its cohort.
#[test]
fn an_admission_counts_for_the_shares_of_later_entries_of_its_cohort() {
    let cohort = |name: &str, parent: &str, cpu: i64| {
        let groups = queue(name, "", cpu, json!({}))["spec"]["resourceGroups"].clone();
        json!({ "kind": "Cohort", "metadata": { "name": name }, "spec": { "parentName": parent, "resourceGroups": groups } })
    };
    let mut objects =
        vec![flavor("default"), cohort("root", "", 2), cohort("left", "root", 0), cohort("right", "root", 0)];
    for (number, (name, side)) in
        [("l1", "left"), ("l2", "left"), ("r1", "right"), ("r2", "right")].into_iter().enumerate()
    {
        let mut workload = pending(&format!("of-{name}"), name, 1000, 0);
        workload["metadata"]["creationTimestamp"] = format!("2024-12-01T00:00:{number:02}Z").into();
        objects.extend([queue(name, side, 0, json!({})), local_queue(name), workload]);
    }
    let mut engine = engine(fair(), &objects);
    assert_eq!(engine.schedule(NOW).admitted(), 2);
    let admitted = |name: &str| is_admitted(&engine, name);
    assert!(admitted("of-l1") && admitted("of-r1"), "the other side goes before the older one of the same");
}
