//! The vectors of the specification, one by one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use common::*;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2;
use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::queue::RequeueReason;
use quintet_queue_engine::names::ResourceId;
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::status;
use quintet_queue_engine::time::Span;
use serde_json::{Value, json};

/// Queues a, b and c of a cohort with 3 cpu each; usage as lists of cpu sizes in milli.
fn three_queues(usage: &[(&str, &[i64])], low: &[&str]) -> Engine {
    let mut objects = vec![flavor("default")];
    for name in ["a", "b", "c"] {
        let policy = json!({ "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any" });
        objects.extend([queue(name, "all", 3, policy), local_queue(name)]);
    }
    for (name, sizes) in usage {
        for (index, size) in sizes.iter().enumerate() {
            let workload = format!("{name}{}", index + 1);
            let priority = if low.contains(&workload.as_str()) { -1 } else { 0 };
            objects.push(admitted(&workload, name, *size, priority));
        }
    }
    engine(fair(), &objects)
}

fn victims(engine: &mut Engine, queue: &str, milli: i64) -> Vec<(String, &'static str)> {
    add(engine, &pending("incoming", queue, milli, 0));
    let report = engine.schedule(NOW);
    let mut found = preempted(engine, &report);
    found.sort();
    found
}

/// Usage, low-priority workloads, the incoming workload, and the expected victims with reasons.
type Row<'r> = (&'r [(&'r str, &'r [i64])], &'r [&'r str], (&'r str, i64), &'r [(&'r str, &'static str)]);

#[test]
fn fair_preemption_table() {
    const RECLAIM: &str = "InCohortReclamation";
    const SHARE: &str = "InCohortFairSharing";
    const OWN: &str = "InClusterQueue";
    let full: &[(&str, &[i64])] = &[("a", &[1000; 3]), ("b", &[1000; 5]), ("c", &[1000])];
    let rows: [Row<'_>; 9] = [
        // Within its nominal quota it reclaims, beyond it shares decide.
        (full, &[], ("c", 1000), &[("b1", RECLAIM)]),
        (full, &[], ("a", 1000), &[("b1", SHARE)]),
        // To take two would only swap the imbalance.
        (&[("a", &[1000; 3]), ("b", &[1000; 5])], &[], ("a", 2000), &[]),
        (&[("a", &[1000; 4]), ("b", &[1000; 5])], &["a1", "a2"], ("a", 2000), &[("a1", OWN), ("a2", OWN)]),
        (&[("b", &[9000])], &[], ("a", 2000), &[("b1", RECLAIM)]),
        (&[("a", &[2000]), ("b", &[7000])], &[], ("a", 5000), &[]),
        // The rule about final shares goes before the one about initial shares.
        (&[("b", &[2000, 1000, 2000]), ("c", &[1000])], &[], ("a", 3500), &[("b2", SHARE)]),
        (&[("b", &[2000, 2500]), ("c", &[2000, 2500])], &[], ("a", 3500), &[("b1", SHARE), ("c1", SHARE)]),
        (&[("b", &[3000, 3000]), ("c", &[3000])], &[], ("a", 4000), &[]),
    ];
    for (number, (usage, low, (queue, milli), expected)) in rows.into_iter().enumerate() {
        let mut engine = three_queues(usage, low);
        let found = victims(&mut engine, queue, milli);
        let expected: Vec<_> = expected.iter().map(|(name, reason)| ((*name).to_owned(), *reason)).collect();
        assert_eq!(found, expected, "row {}", number + 1);
    }
}

#[test]
fn fair_preemption_does_not_flap() {
    let mut engine = three_queues(&[("b", &[2000, 2500]), ("c", &[2000, 2500])], &[]);
    assert_eq!(victims(&mut engine, "a", 3500).len(), 2);
    for victim in ["b1", "c1"] {
        let id = id(&engine, victim);
        engine.return_to_queue(id, NOW);
    }
    engine.process_flushes(NOW, false);
    let report = engine.schedule(NOW);
    assert!(report.decisions.iter().any(|decision| decision.workload == id(&engine, "incoming")));
    engine.process_flushes(NOW, false);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report), [], "b cannot take it back");
}

#[test]
fn dominant_resource_share() {
    let quotas = |cpu: i64, gpu: i64| {
        json!([{ "coveredResources": ["cpu", "gpu"], "flavors": [{ "name": "default", "resources": [
            { "name": "cpu", "nominalQuota": cpu.to_string() }, { "name": "gpu", "nominalQuota": gpu.to_string() }] }] }])
    };
    let mut engine = engine(
        Settings::default(),
        &[
            flavor("default"),
            queue_with("cq", "cohort", &quotas(2, 5)),
            queue_with("lender", "cohort", &quotas(8, 5)),
        ],
    );
    let usage = [(fr(&mut engine, "cpu"), 3000.into()), (fr(&mut engine, "gpu"), 7.into())].to_vec();
    let node = node(&engine, "cq");
    engine.state_mut().tree.add_all(node, &usage);
    let share = engine.state().share(node);
    assert_eq!(
        (share.rounded(), share.dominant),
        (200, Some(engine.state().names.resources.get("gpu").unwrap()))
    );

    // 501 of 500 with a lender of 1000: less than one in a thousand, shown as one.
    let mut engine = common::engine(
        Settings::default(),
        &[
            flavor("default"),
            queue_with("cq", "cohort", &quotas(0, 500)),
            queue_with("lender", "cohort", &quotas(0, 1000)),
        ],
    );
    let usage = [(fr(&mut engine, "gpu"), 501.into())].to_vec();
    let node = common::node(&engine, "cq");
    engine.state_mut().tree.add_all(node, &usage);
    let share = engine.state().share(node);
    assert!((share.weighted() - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(share.rounded(), 1);

    // No other queue to borrow from.
    let mut alone =
        common::engine(Settings::default(), &[flavor("default"), queue_with("cq", "", &quotas(2, 5))]);
    let usage = [(common::fr(&mut alone, "cpu"), 9000.into())].to_vec();
    let node = common::node(&alone, "cq");
    alone.state_mut().tree.add_all(node, &usage);
    assert_eq!(alone.state().share(node).rounded(), 0);

    // No queue lends a gpu, so exceeding it gives no share.
    let mut engine = common::engine(
        Settings::default(),
        &[
            flavor("default"),
            queue_with("cq", "cohort", &quotas(2, 0)),
            queue_with("lender", "cohort", &quotas(8, 0)),
        ],
    );
    let usage = [(common::fr(&mut engine, "cpu"), 5000.into()), (common::fr(&mut engine, "gpu"), 7.into())];
    let node = common::node(&engine, "cq");
    engine.state_mut().tree.add_all(node, &usage.to_vec());
    let share = engine.state().share(node);
    assert_eq!((share.rounded(), share.dominant), (300, Some(ResourceId::CPU)));
}

/// Places `count` one-cpu pods on hosts given as `(path, cpu)`; the path names all levels.
fn place_with(
    settings: Settings,
    levels: &[&str],
    hosts: &[(&str, i64)],
    count: i32,
    request: Value,
) -> Vec<(String, i32)> {
    let mut objects = cluster(levels, hosts);
    objects.push(with_topology(count, request));
    let mut engine = engine(settings, &objects);
    engine.schedule(NOW);
    let mut got = places(&engine).expect("placed");
    got.sort();
    got
}

fn place(levels: &[&str], hosts: &[(&str, i64)], count: i32, request: Value) -> Vec<(String, i32)> {
    place_with(Settings::default(), levels, hosts, count, request)
}

fn on(expected: &[(&str, i32)]) -> Vec<(String, i32)> {
    let mut expected: Vec<_> = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    expected.sort();
    expected
}

#[test]
fn topology_fewest_racks_beats_fewest_nodes() {
    let hosts =
        [("b/r1/x3", 2), ("b/r2/x5", 2), ("b/r3/x1", 1), ("b/r3/x2", 1), ("b/r3/x4", 1), ("b/r3/x6", 1)];
    let got = place(&["block", "rack", HOST], &hosts, 4, json!({ "required": "block" }));
    assert_eq!(got, on(&[("x1", 1), ("x2", 1), ("x4", 1), ("x6", 1)]));
}

#[test]
fn topology_preferred_splits_greedily() {
    let got = place(&["block"], &[("b1", 2), ("b2", 1), ("b3", 4)], 5, json!({ "preferred": "block" }));
    assert_eq!(got, on(&[("b2", 1), ("b3", 4)]));
}

#[test]
fn topology_unconstrained_takes_least_free_first() {
    let hosts = [("x3", 4), ("x5", 1), ("x1", 1), ("x6", 2), ("x2", 1)];
    let got = place(&[HOST], &hosts, 6, json!({ "unconstrained": true }));
    assert_eq!(got, on(&[("x1", 1), ("x5", 1), ("x2", 1), ("x6", 2), ("x3", 1)]));
}

#[test]
fn topology_descends_with_pooled_children() {
    let hosts = [("b1/x1", 3), ("b1/x3", 3), ("b1/x5", 3), ("b2/x6", 6)];
    let request = json!({ "preferred": "block", "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 3 });
    let got = place(&["block", HOST], &hosts, 12, request);
    assert_eq!(got, on(&[("x6", 6), ("x1", 3), ("x3", 3)]));
}

#[test]
fn topology_balanced_spreads_evenly() {
    let mut settings = Settings::default();
    settings.gates.tas_balanced_placement = true;
    let got = place_with(settings, &[HOST], &[("x1", 15), ("x2", 15)], 25, json!({ "preferred": HOST }));
    assert_eq!(got, on(&[("x1", 13), ("x2", 12)]));
}

#[test]
fn two_workloads_may_borrow_in_one_cycle_if_both_fit() {
    let mut engine = engine(
        Settings::default(),
        &[
            flavor("default"),
            queue("a", "all", 1, json!({})),
            queue("b", "all", 1, json!({})),
            queue("c", "all", 4, json!({})),
            local_queue("a"),
            local_queue("b"),
            pending("wa", "a", 2000, 0),
            pending("wb", "b", 2000, 0),
        ],
    );
    assert_eq!(engine.schedule(NOW).admitted(), 2);
}

#[test]
fn a_lower_borrowing_height_goes_first() {
    let cohort = |name: &str, parent: &str| json!({ "kind": "Cohort", "metadata": { "name": name }, "spec": { "parentName": parent } });
    let mut engine = engine(
        Settings::default(),
        &[
            flavor("default"),
            cohort("left", "root"),
            cohort("right", "root"),
            // Both want the two cores of the right side: for `near` they are one level away, for `far` two.
            queue("far", "left", 0, json!({})),
            queue("near", "right", 0, json!({})),
            queue("lender", "right", 2, json!({})),
            local_queue("far"),
            local_queue("near"),
            pending("wf", "far", 2000, 100),
            pending("wn", "near", 2000, 0),
        ],
    );
    let report = engine.schedule(NOW);
    assert_eq!(report.admitted(), 1);
    assert!(
        engine.state().held(id(&engine, "wn")).is_some(),
        "near goes first although its priority is lower"
    );
}

#[test]
fn an_undeclared_resource_of_zero_needs_no_flavor() {
    let mut workload = pending("w", "cq", 1000, 0);
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["gpu"] =
        "0".into();
    let objects = [flavor("default"), queue("cq", "", 2, json!({})), local_queue("cq"), workload];
    let mut engine = engine(Settings::default(), &objects);
    assert_eq!(engine.schedule(NOW).admitted(), 1);
}

/// One core, held by `holder`, and an inadmissible `w`; shapes do not matter.
fn inadmissible() -> Engine {
    let mut waiting = pending("w", "cq", 1000, 0);
    waiting["metadata"]["generation"] = 1.into();
    let objects = [
        flavor("default"),
        queue("cq", "", 1, json!({})),
        local_queue("cq"),
        admitted("holder", "cq", 1000, 0),
        waiting,
    ];
    let mut settings = Settings::default();
    settings.gates.equivalence_hashing = false;
    let mut engine = engine(settings, &objects);
    engine.schedule(NOW);
    assert_eq!(pending_queue(&engine, "cq").counts(), (0, 1));
    engine
}

#[test]
fn an_inadmissible_workload_stays_so_unless_something_relevant_changes() {
    let mut engine = inadmissible();
    let mut same = pending("w", "cq", 1000, 0);
    same["metadata"]["labels"] = json!({ "team": "a" });
    same["metadata"]["generation"] = 1.into();
    add(&mut engine, &same);
    assert_eq!(pending_queue(&engine, "cq").counts(), (0, 1), "a label is not relevant");
    same["metadata"]["generation"] = 2.into();
    add(&mut engine, &same);
    assert_eq!(pending_queue(&engine, "cq").counts(), (1, 0), "a generation not yet evaluated does");
}

#[test]
fn a_workload_that_fits_nowhere_comes_back_at_once_while_flavors_are_left() {
    let mut engine = inadmissible();
    engine.flush(queue_id(&engine, "cq"), NOW);
    for (tried, counts) in [(0, (1, 0)), (-1, (0, 1))] {
        let mut heads = engine.take_heads(NOW, &|_, _| true);
        let mut entry = heads.pop().unwrap();
        let progress = quintet_queue_engine::internals::flavors::Progress {
            tried: vec![vec![(ResourceId::CPU, tried)]],
            ..Default::default()
        };
        (entry.subject.progress, entry.requeue) = (Some(progress), RequeueReason::NoFit);
        engine.requeue_and_update(entry, NOW);
        assert_eq!(pending_queue(&engine, "cq").counts(), counts);
    }
}

#[test]
fn a_preemptor_that_waits_for_its_victims_does_not_block_borrowing_that_fits() {
    let policy = json!({ "withinClusterQueue": "LowerPriority" });
    let objects = [
        flavor("default"),
        queue("a", "all", 2, policy),
        queue("b", "all", 0, json!({})),
        queue("lender", "all", 2, json!({})),
        local_queue("a"),
        local_queue("b"),
        admitted("low", "a", 2000, 0),
        admitted("guest", "b", 1000, 0),
        pending("high", "a", 2000, 10),
        pending("wb", "b", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report), [("low".to_owned(), "InClusterQueue")]);
    assert!(is_admitted(&engine, "wb"), "the victim's quota is for the preemptor, the lender's is free");
}

/// `one` and `two` need their own quota back from the only borrower, or from the only two.
fn reclaimers(borrowed: &[i64]) -> Engine {
    let policy = json!({ "reclaimWithinCohort": "Any" });
    let mut objects = vec![
        flavor("default"),
        queue("one", "all", 2, policy.clone()),
        queue("two", "all", 2, policy),
        queue("borrower", "all", 0, json!({})),
    ];
    objects.extend(["one", "two", "borrower"].map(local_queue));
    for (number, milli) in borrowed.iter().enumerate() {
        objects.push(admitted(&format!("b{number}"), "borrower", *milli, 0));
    }
    objects.extend([pending("w1", "one", 2000, 0), pending("w2", "two", 2000, 0)]);
    engine(Settings::default(), &objects)
}

#[test]
fn overlapping_targets_are_recomputed() {
    let mut engine = reclaimers(&[2000, 2000]);
    let report = engine.schedule(NOW);
    let mut found = preempted(&engine, &report);
    found.sort();
    assert_eq!(
        found,
        ["b0", "b1"].map(|name| (name.to_owned(), "InCohortReclamation")),
        "each takes another"
    );
    assert_eq!(report.recomputations.values().sum::<u32>(), 1);
}

#[test]
fn an_entry_that_fits_after_the_preemptions_of_another_waits_for_them() {
    let mut engine = reclaimers(&[4000]);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report), [("b0".to_owned(), "InCohortReclamation")]);
    let (reason, message) = unadmitted(&engine, &report, "w2").unwrap();
    assert_eq!(reason, "WaitingForPreemptedWorkloads");
    assert!(message.ends_with("will fit after these preemptions complete"), "{message}");
    assert!(pending_queue(&engine, "two").is_sticky(id(&engine, "w2")));
}

#[test]
fn every_recomputation_is_counted_for_its_queue_with_its_result() {
    // `tiny` goes first and preempts; `hero` fits after that. The workload of the borrower itself finds no other target.
    let policy = json!({ "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority" });
    let objects = [
        flavor("default"),
        queue("hero", "all", 3, policy.clone()),
        queue("tiny", "all", 1, policy.clone()),
        queue("rest", "all", 0, policy),
        local_queue("hero"),
        local_queue("tiny"),
        local_queue("rest"),
        admitted("holder", "rest", 4000, 0),
        pending("w-hero", "hero", 3000, 0),
        pending("w-tiny", "tiny", 1000, 5),
        pending("w-rest", "rest", 3000, 10),
    ];
    let mut engine = engine(fair(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report).len(), 1);
    let mut counted: Vec<(String, &str, u32)> = report
        .recomputations
        .iter()
        .map(|((queue, result), count)| (engine.names().queue_name(*queue).to_owned(), *result, *count))
        .collect();
    counted.sort();
    assert_eq!(counted, [("hero".into(), "deferred_fit", 1), ("rest".into(), "skipped", 1)]);
}

#[test]
fn overlapping_targets_without_alternatives_are_skipped_and_counted() {
    let mut engine = reclaimers(&[4000]);
    engine.state_mut().settings.gates.recompute_on_overlap = false;
    let report = engine.schedule(NOW);
    let (reason, message) = unadmitted(&engine, &report, "w2").unwrap();
    assert_eq!(message, "Workload has overlapping preemption targets with another workload");
    assert_eq!(reason, "WaitingForQuota");
    assert_eq!(report.skipped_preemptions.get(&queue_id(&engine, "two")), Some(&1));
}

#[test]
fn a_recomputation_keeps_the_nominated_flavor() {
    // Both would take the borrower of flavor one; the second would fit flavor two if it were to start over.
    let policy = json!({ "reclaimWithinCohort": "Any" });
    let stops = json!({ "whenCanPreempt": "MayStopSearch", "whenCanBorrow": "MayStopSearch" });
    let with = |mut queue: Value| {
        queue["spec"]["preemption"] = policy.clone();
        queue["spec"]["flavorFungibility"] = stops.clone();
        queue
    };
    let mut borrowed = admitted("b", "borrower", 3000, 0);
    borrowed["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = "one".into();
    let objects = [
        flavor("one"),
        flavor("two"),
        with(flavored("first", "all", &[("one", 2)])),
        with(flavored("second", "all", &[("one", 1), ("two", 9)])),
        flavored("borrower", "all", &[("one", 0)]),
        local_queue("first"),
        local_queue("second"),
        local_queue("borrower"),
        borrowed,
        pending("w1", "first", 2000, 10),
        pending("w2", "second", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report).len(), 1);
    assert_eq!(unadmitted(&engine, &report, "w2").unwrap().0, "WaitingForPreemptedWorkloads");
    assert!(!is_admitted(&engine, "w2"));
}

#[test]
fn a_closed_preemption_gate_prevents_preemption_only() {
    let mut settings = Settings::default();
    settings.gates.orchestrated_preemption = true;
    let gated = |holder: i64, holder_priority: i32| {
        let mut workload = pending("w", "cq", 1000, 10);
        workload["spec"]["preemptionGates"] = json!([{ "name": "wait" }]);
        let objects = [
            flavor("default"),
            queue("cq", "", 2, json!({ "withinClusterQueue": "LowerPriority" })),
            local_queue("cq"),
            admitted("holder", "cq", holder, holder_priority),
            workload.clone(),
        ];
        let mut engine = engine(settings.clone(), &objects);
        let report = engine.schedule(NOW);
        assert_eq!(preempted(&engine, &report), []);
        let decision = report.decisions.last().unwrap().clone();
        let mut object: v1beta2::Workload = serde_json::from_value(workload).unwrap();
        for write in status::writes(&decision, &engine) {
            write.apply(&mut object, &engine, NOW);
        }
        (is_admitted(&engine, "w"), object.is_true(WorkloadCondition::BlockedOnPreemptionGates))
    };
    assert_eq!(gated(2000, 0), (false, true), "it would have to preempt");
    assert_eq!(gated(1000, 0), (true, false), "it fits");
    assert_eq!(gated(2000, 100), (false, false), "no candidates");
}

#[test]
fn a_forecast_has_a_start_for_every_pending_workload() {
    let objects = [
        flavor("default"),
        queue("cq", "", 4, json!({})),
        local_queue("cq"),
        admitted("holder", "cq", 3000, 0),
        pending("large", "cq", 2000, 10),
        pending("small", "cq", 1000, 0),
    ];
    let engine = engine(Settings::default(), &objects);
    let starts = engine.forecast(NOW, Span::secs(3600), &|_, _| None).starts;
    assert_eq!(starts[&id(&engine, "small")], Some(NOW), "although the one before it does not fit");
    assert_eq!(starts[&id(&engine, "large")], None);
}

#[test]
fn a_simulation_agrees_with_hand_arithmetic() {
    let plan = "
cohorts:
- {className: cohort, count: 1, queuesSets: [{className: cq, count: 1, nominalQuota: 2, workloadsSets: [
    {count: 4, creationIntervalMs: 0, workloads: [{className: w, runtimeMs: 10000, request: 1}]}]}]}
";
    let report = quintet_queue_engine::simulate::simulate(plan).unwrap();
    // Two run at once; the others start when they end, a second later because of the delayed flush.
    assert_eq!(report.classes["w"].admitted, 4);
    assert!((report.seconds - 21.0).abs() < 0.5, "{}", report.seconds);
}
