//! Placement does not depend on what was placed before, except through usage.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use common::*;
use proptest::prelude::*;
use quintet_queue_engine::settings::Settings;
use serde_json::{Value, json};

const HOST: &str = "kubernetes.io/hostname";

#[derive(Clone, Debug)]
enum Step {
    Submit { pods: i32, milli: i64, request: usize },
    Finish(usize),
}

fn request(kind: usize) -> Value {
    match kind {
        0 => json!({ "required": "rack" }),
        1 => json!({ "preferred": "rack" }),
        2 => json!({ "unconstrained": true }),
        3 => json!({ "preferred": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2 }),
        _ => json!({ "required": "block", "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2 }),
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1i32..9, 1i64..4, 0usize..5)
            .prop_map(|(pods, cpu, request)| Step::Submit { pods, milli: cpu * 500, request }),
        1 => (0usize..30).prop_map(Step::Finish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// An engine that remembers counts decides as one that counts anew: a copy remembers nothing.
    #[test]
    fn remembered_counts_are_exact(
        hosts in prop::collection::vec(1i64..6, 4..12),
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let mut objects = vec![
            json!({ "kind": "Topology", "metadata": { "name": "t" }, "spec": { "levels": [
                { "nodeLabel": "block" }, { "nodeLabel": "rack" }, { "nodeLabel": HOST }] } }),
            json!({ "kind": "ResourceFlavor", "metadata": { "name": "default" }, "spec": { "topologyName": "t" } }),
            queue("cq", "", 1000, json!({ "withinClusterQueue": "LowerPriority" })),
            local_queue("cq"),
        ];
        for (number, cpu) in hosts.iter().enumerate() {
            let name = format!("x{number:02}");
            let labels = json!({ "block": format!("b{}", number / 6), "rack": format!("r{}", number / 3), HOST: name });
            objects.push(json!({ "kind": "Node", "metadata": { "name": name, "labels": labels },
                "status": { "allocatable": { "cpu": cpu.to_string(), "pods": "20" },
                    "conditions": [{ "type": "Ready", "status": "True" }] } }));
        }
        let mut engine = engine(Settings::default(), &objects);
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Submit { pods, milli, request: kind } => {
                    let mut workload = pending(&format!("w{number:03}"), "cq", *milli, i32::try_from(number % 3).unwrap());
                    workload["spec"]["podSets"][0]["count"] = (*pods).into();
                    workload["spec"]["podSets"][0]["topologyRequest"] = request(*kind);
                    add(&mut engine, &workload);
                }
                Step::Finish(number) => {
                    let id = id(&engine, &format!("w{number:03}"));
                    if let Some(key) = engine.state.workload(id).map(|workload| workload.key.clone()) {
                        engine.remove_workload(&key, NOW);
                    }
                }
            }
            engine.process_flushes(NOW, false);
            let mut fresh = engine.clone();
            for _ in 0..3 {
                let (remembering, counting) = (engine.schedule(NOW), fresh.schedule(NOW));
                prop_assert_eq!(remembering, counting);
                fresh = engine.clone();
            }
        }
    }
}
