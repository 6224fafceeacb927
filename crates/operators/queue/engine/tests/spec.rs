//! The vectors of the specification, one by one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use common::*;
use quintet_queue_engine::Engine;
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::time::Time;
use serde_json::{Value, json};

/// Queues a, b and c of a cohort with 3 cpu each; usage as lists of cpu sizes in milli.
fn fair(usage: &[(&str, &[i64])], low: &[&str]) -> Engine {
    let settings =
        Settings { fair_sharing: Some(Settings::DEFAULT_STRATEGIES.to_vec()), ..Settings::default() };
    let mut objects = vec![flavor("default")];
    for name in ["a", "b", "c"] {
        objects.push(queue(
            name,
            "all",
            3,
            json!({ "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any" }),
        ));
        objects.push(local_queue(name));
    }
    for (name, sizes) in usage {
        for (index, size) in sizes.iter().enumerate() {
            let workload = format!("{name}{}", index + 1);
            let priority = if low.contains(&workload.as_str()) { -1 } else { 0 };
            objects.push(admitted(&workload, name, *size, priority));
        }
    }
    engine(settings, &objects)
}

fn victims(engine: &mut Engine, queue: &str, milli: i64) -> Vec<(String, &'static str)> {
    add(engine, &pending("incoming", queue, milli, 0));
    let report = engine.schedule(NOW);
    preempted(engine, &report)
}

#[test]
fn fair_preemption_within_nominal_reclaims() {
    let mut engine = fair(&[("a", &[1000; 3]), ("b", &[1000; 5]), ("c", &[1000])], &[]);
    assert_eq!(victims(&mut engine, "c", 1000), [("b1".to_owned(), "InCohortReclamation")]);
}

#[test]
fn fair_preemption_beyond_nominal_is_by_share() {
    let mut engine = fair(&[("a", &[1000; 3]), ("b", &[1000; 5]), ("c", &[1000])], &[]);
    assert_eq!(victims(&mut engine, "a", 1000), [("b1".to_owned(), "InCohortFairSharing")]);
}

#[test]
fn fair_preemption_never_only_swaps_the_imbalance() {
    let mut engine = fair(&[("a", &[1000; 3]), ("b", &[1000; 5])], &[]);
    assert_eq!(victims(&mut engine, "a", 2000), []);
}

#[test]
fn fair_preemption_takes_low_priority_of_the_own_queue() {
    let mut engine = fair(&[("a", &[1000; 4]), ("b", &[1000; 5])], &["a1", "a2"]);
    let mut found = victims(&mut engine, "a", 2000);
    found.sort();
    assert_eq!(found, [("a1".to_owned(), "InClusterQueue"), ("a2".to_owned(), "InClusterQueue")]);
}

#[test]
fn fair_preemption_one_big_victim() {
    let mut engine = fair(&[("b", &[9000])], &[]);
    assert_eq!(victims(&mut engine, "a", 2000), [("b1".to_owned(), "InCohortReclamation")]);
    let mut engine = fair(&[("a", &[2000]), ("b", &[7000])], &[]);
    assert_eq!(victims(&mut engine, "a", 5000), []);
    let mut engine = fair(&[("b", &[3000, 3000]), ("c", &[3000])], &[]);
    assert_eq!(victims(&mut engine, "a", 4000), []);
}

#[test]
fn fair_preemption_final_share_before_initial_share() {
    let mut engine = fair(&[("b", &[2000, 1000, 2000]), ("c", &[1000])], &[]);
    assert_eq!(victims(&mut engine, "a", 3500), [("b2".to_owned(), "InCohortFairSharing")]);
}

#[test]
fn fair_preemption_initial_share_takes_one_per_queue_and_does_not_flap() {
    let mut engine = fair(&[("b", &[2000, 2500]), ("c", &[2000, 2500])], &[]);
    let mut found = victims(&mut engine, "a", 3500);
    found.sort();
    assert_eq!(found, [("b1".to_owned(), "InCohortFairSharing"), ("c1".to_owned(), "InCohortFairSharing")]);
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
    engine.state.tree.add_all(node, &usage);
    let share = engine.state.share(node);
    assert_eq!(
        (share.rounded(), share.dominant),
        (200, Some(engine.state.names.resources.get("gpu").unwrap()))
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
    engine.state.tree.add_all(node, &usage);
    let share = engine.state.share(node);
    assert!((share.weighted() - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(share.rounded(), 1);
}

/// Places `count` one-cpu pods on hosts given as `(path, cpu)`; the path names all levels.
fn place(levels: &[&str], hosts: &[(&str, i64)], count: i32, request: &Value) -> Vec<(String, i32)> {
    let mut objects = vec![
        json!({ "kind": "Topology", "metadata": { "name": "t" },
            "spec": { "levels": levels.iter().map(|level| json!({ "nodeLabel": level })).collect::<Vec<_>>() } }),
        json!({ "kind": "ResourceFlavor", "metadata": { "name": "default" }, "spec": { "topologyName": "t" } }),
        queue("cq", "", 1000, json!({})),
        local_queue("cq"),
    ];
    for (path, cpu) in hosts {
        let values: Vec<&str> = path.split('/').collect();
        let labels: serde_json::Map<String, Value> =
            levels.iter().zip(&values).map(|(level, value)| ((*level).to_owned(), json!(value))).collect();
        objects.push(json!({ "kind": "Node", "metadata": { "name": values.last(), "labels": labels },
            "status": { "allocatable": { "cpu": cpu.to_string(), "pods": "100" },
                "conditions": [{ "type": "Ready", "status": "True" }] } }));
    }
    let mut workload = pending("w", "cq", 1000, 0);
    workload["spec"]["podSets"][0]["count"] = count.into();
    workload["spec"]["podSets"][0]["topologyRequest"] = request.clone();
    objects.push(workload);
    let mut engine = engine(Settings::default(), &objects);
    engine.schedule(NOW);
    let workload = engine.state.workload(id(&engine, "w")).unwrap();
    let admission = workload.admission.as_ref().expect("placed");
    let topology = admission.pod_sets[0].topology.as_ref().expect("placed");
    topology.domains.iter().map(|domain| (domain.values.last().unwrap().to_string(), domain.count)).collect()
}

const HOST: &str = "kubernetes.io/hostname";

fn on(expected: &[(&str, i32)]) -> Vec<(String, i32)> {
    let mut expected: Vec<_> = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    expected.sort();
    expected
}

fn sorted(mut got: Vec<(String, i32)>) -> Vec<(String, i32)> {
    got.sort();
    got
}

#[test]
fn topology_fewest_racks_beats_fewest_nodes() {
    let hosts =
        [("b/r1/x3", 2), ("b/r2/x5", 2), ("b/r3/x1", 1), ("b/r3/x2", 1), ("b/r3/x4", 1), ("b/r3/x6", 1)];
    let got = place(&["block", "rack", HOST], &hosts, 4, &json!({ "required": "block" }));
    assert_eq!(sorted(got), on(&[("x1", 1), ("x2", 1), ("x4", 1), ("x6", 1)]));
}

#[test]
fn topology_preferred_splits_greedily() {
    let got = place(&["block"], &[("b1", 2), ("b2", 1), ("b3", 4)], 5, &json!({ "preferred": "block" }));
    assert_eq!(sorted(got), on(&[("b2", 1), ("b3", 4)]));
}

#[test]
fn topology_unconstrained_takes_least_free_first() {
    let hosts = [("x3", 4), ("x5", 1), ("x1", 1), ("x6", 2), ("x2", 1)];
    let got = place(&[HOST], &hosts, 6, &json!({ "unconstrained": true }));
    assert_eq!(sorted(got), on(&[("x1", 1), ("x5", 1), ("x2", 1), ("x6", 2), ("x3", 1)]));
}

#[test]
fn topology_descends_with_pooled_children() {
    let hosts = [("b1/x1", 3), ("b1/x3", 3), ("b1/x5", 3), ("b2/x6", 6)];
    let request = json!({ "preferred": "block", "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 3 });
    let got = place(&["block", HOST], &hosts, 12, &request);
    assert_eq!(sorted(got), on(&[("x6", 6), ("x1", 3), ("x3", 3)]));
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
    assert!(engine.state.held(id(&engine, "wn")).is_some(), "near goes first although its priority is lower");
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

#[test]
fn a_forecast_and_a_simulation_agree_with_hand_arithmetic() {
    let plan = "
cohorts:
- {className: cohort, count: 1, queuesSets: [{className: cq, count: 1, nominalQuota: 2, workloadsSets: [
    {count: 4, creationIntervalMs: 0, workloads: [{className: w, runtimeMs: 10000, request: 1}]}]}]}
";
    let report = quintet_queue_engine::simulate::simulate(plan).unwrap();
    // Two run at once; the others start when they end, a second later because of the delayed wake-up.
    assert_eq!(report.classes["w"].admitted, 4);
    assert!((report.seconds - 21.0).abs() < 1.1, "{}", report.seconds);
    let _ = Time::ZERO;
}
