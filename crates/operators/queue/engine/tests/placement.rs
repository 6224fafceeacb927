//! Cached counts and bisected victims, against the plain algorithms.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use std::sync::Arc;

use common::*;
use proptest::prelude::*;
use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::cycle::evaluate;
use quintet_queue_engine::internals::flavors::{Mode, Subject};
use quintet_queue_engine::internals::preemption::compare_candidates;
use quintet_queue_engine::internals::tas::{Assumed, PlaceOptions, PlacementRequest};
use quintet_queue_engine::model::Workload;
use quintet_queue_engine::names::WorkloadId;
use quintet_queue_engine::settings::Settings;
use serde_json::{Value, json};

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

/// Decisions by all rules there are: fair shares, and gates that change where pods go.
fn settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), any::<[bool; 3]>()).prop_map(|(is_fair, [balanced, affinity, mixed])| {
        let mut settings = if is_fair { fair() } else { Settings::default() };
        settings.gates.tas_balanced_placement = balanced;
        settings.gates.tas_preferred_affinity = affinity;
        settings.gates.tas_profile_mixed = mixed;
        settings
    })
}

/// A queue on hosts with so many cores, three to a rack and six to a block; every fifth is tainted.
fn racks(settings: Settings, hosts: &[i64]) -> Engine {
    let queues = [queue("cq", "", 1000, json!({ "withinClusterQueue": "LowerPriority" })), local_queue("cq")];
    on_racks(settings, hosts, &queues)
}

/// Two queues that borrow from each other, with a flavor for all hosts and one for half of them.
fn shared_racks(settings: Settings, hosts: &[i64]) -> Engine {
    let mut objects = vec![json!({ "kind": "ResourceFlavor", "metadata": { "name": "half" },
        "spec": { "topologyName": "t", "nodeLabels": { "half": "1" } } })];
    for name in ["cq", "other"] {
        let mut queue = flavored(name, "cohort", &[("default", 6), ("half", 4)]);
        queue["spec"]["preemption"] =
            json!({ "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any" });
        objects.extend([queue, local_queue(name)]);
    }
    on_racks(settings, hosts, &objects)
}

fn on_racks(settings: Settings, hosts: &[i64], more: &[Value]) -> Engine {
    let mut objects = vec![
        json!({ "kind": "Topology", "metadata": { "name": "t" }, "spec": { "levels": [
            { "nodeLabel": "block" }, { "nodeLabel": "rack" }, { "nodeLabel": HOST }] } }),
        json!({ "kind": "ResourceFlavor", "metadata": { "name": "default" }, "spec": { "topologyName": "t" } }),
    ];
    objects.extend_from_slice(more);
    for (number, cpu) in hosts.iter().enumerate() {
        let name = format!("x{number:02}");
        let labels = json!({ "block": format!("b{}", number / 6), "rack": format!("r{}", number / 3), HOST: name, "half": (number % 2).to_string() });
        let taints =
            if number % 5 == 4 { json!([{ "key": "gpu", "effect": "NoSchedule" }]) } else { json!([]) };
        objects.push(json!({ "kind": "Node", "metadata": { "name": name, "labels": labels },
            "spec": { "taints": taints },
            "status": { "allocatable": { "cpu": cpu.to_string(), "pods": "20" },
                "conditions": [{ "type": "Ready", "status": "True" }] } }));
    }
    engine(settings, &objects)
}

/// A workload of one pod set; or with a leader if it is a fifth one, or with another pod set if it is a
/// third one. Every other one bears the taint, and every other would rather be on one half of the hosts.
fn workload(queue: &str, number: usize, pods: i32, milli: i64, kind: usize) -> Value {
    let mut workload =
        pending(&format!("w{number:03}"), queue, milli, i32::try_from(number % 3).expect("small"));
    let main = &mut workload["spec"]["podSets"][0];
    main["count"] = pods.into();
    main["topologyRequest"] = request(kind);
    if number % 2 == 1 {
        main["template"]["spec"]["tolerations"] = json!([{ "key": "gpu", "operator": "Exists" }]);
    }
    if number % 4 < 2 {
        main["template"]["spec"]["affinity"] = json!({ "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 5, "preference": {
                "matchExpressions": [{ "key": "half", "operator": "In", "values": ["1"] }] } }] } });
    }
    if number % 5 == 4 && kind < 2 {
        main["topologyRequest"]["podSetGroupName"] = "group".into();
        let mut leader = main.clone();
        leader["name"] = "leader".into();
        leader["count"] = 1.into();
        leader["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "700m".into();
        workload["spec"]["podSets"].as_array_mut().expect("a list").push(leader);
    } else if number % 3 == 2 {
        let mut second = main.clone();
        second["name"] = "second".into();
        second["topologyRequest"] = request(kind + 1);
        workload["spec"]["podSets"].as_array_mut().expect("a list").push(second);
    }
    workload
}

fn requests_of(workload: &Workload) -> Vec<PlacementRequest<'_>> {
    let pod_sets = workload.pod_sets.iter().enumerate();
    pod_sets
        .map(|(index, pod_set)| PlacementRequest {
            index,
            pod_set,
            count: pod_set.count,
            per_pod: pod_set.pod.requests.clone(),
            implied: false,
            updates: Vec::new(),
            previous: None,
        })
        .collect()
}

/// Whether all pods find places, by placing them on a copy that remembers nothing.
fn is_placed(engine: &Engine, workload: &Workload) -> bool {
    let engine = engine.clone();
    let state = engine.state();
    let flavor = state.names.flavors.get("default").expect("flavor");
    let context = (&state.names, &state.settings.gates);
    let options = PlaceOptions { workload: Some(workload), ..PlaceOptions::default() };
    let requests = requests_of(workload);
    let placed = state.tas.place(flavor, &requests, options, &mut Assumed::default(), context);
    placed.iter().all(|placement| placement.result.is_ok())
}

/// The victims of the plain algorithm: remove one after another until everything is placed, then give back from
/// the last but one to the first.
fn victims_by_the_book(engine: &mut Engine, workload: &Workload) -> Vec<WorkloadId> {
    let queue = engine.state().names.queues.get("cq").expect("queue");
    let lower =
        |id: &WorkloadId| engine.state().workload(*id).is_some_and(|own| own.priority < workload.priority);
    let mut candidates: Vec<_> = engine.state().candidates(queue).filter(lower).collect();
    candidates.sort_by(|a, b| compare_candidates(engine.state(), *a, *b, queue, false));
    let mark = engine.state_mut().mark();
    let mut removed = Vec::new();
    let mut fits = false;
    for id in candidates {
        engine.state_mut().try_without(id, true);
        removed.push(id);
        fits = is_placed(engine, workload);
        if fits {
            break;
        }
    }
    for at in (0..removed.len().saturating_sub(1)).rev() {
        engine.state_mut().try_with(removed[at]);
        if is_placed(engine, workload) {
            removed.swap_remove(at);
        } else {
            engine.state_mut().try_without(removed[at], true);
        }
    }
    engine.state_mut().rollback(mark);
    if fits { removed } else { Vec::new() }
}

#[test]
fn pod_sets_of_one_workload_do_not_share_room() {
    let workload = |pod_sets: usize| {
        let mut workload = pending("w", "cq", 2000, 0);
        let main = workload["spec"]["podSets"][0].clone();
        let named = |number: usize| {
            let mut pod_set = main.clone();
            pod_set["name"] = format!("set-{number}").into();
            pod_set["topologyRequest"] = json!({ "required": HOST });
            pod_set
        };
        workload["spec"]["podSets"] = (0..pod_sets).map(named).collect();
        workload
    };
    let admitted = |engine: &mut Engine, pod_sets: usize| {
        add(engine, &workload(pod_sets));
        let admitted = engine.schedule(NOW).admitted();
        remove(engine, "w");
        admitted
    };
    let mut engine = racks(Settings::default(), &[2, 2]);
    for (pod_sets, expected) in [(2, 1), (3, 0), (2, 1)] {
        assert_eq!(admitted(&mut engine, pod_sets), expected, "{pod_sets} pod sets on two hosts");
    }
}

/// Where pod sets are placed one after another, more room can be worse: once both are gone that run on the first host, it
/// is no longer the tightest for the first pod set, which then takes what only the second can use.
#[test]
fn several_pod_sets_are_placed_after_every_victim() {
    let on = |name: &str, host: &str, cpu: i64, priority: i32| {
        let mut workload = pending(name, "cq", cpu * 1000, priority);
        let main = &mut workload["spec"]["podSets"][0];
        main["topologyRequest"] = json!({ "required": HOST });
        main["template"]["spec"]["nodeSelector"] = json!({ HOST: host });
        workload
    };
    let mut engine = racks(Settings::default(), &[4, 6]);
    for (name, host, cpu, priority) in
        [("stays", "x01", 3, 9), ("first", "x01", 3, 0), ("second", "x00", 2, 1), ("third", "x00", 2, 2)]
    {
        add(&mut engine, &on(name, host, cpu, priority));
        assert_eq!(engine.schedule(NOW).admitted(), 1, "{name}");
    }
    let mut urgent = on("urgent", "x01", 3, 5);
    let mut anywhere = urgent["spec"]["podSets"][0].clone();
    anywhere["name"] = "anywhere".into();
    anywhere["count"] = 2.into();
    anywhere["template"]["spec"]["nodeSelector"] = json!({});
    anywhere["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1".into();
    urgent["spec"]["podSets"].as_array_mut().expect("a list").insert(0, anywhere);
    add(&mut engine, &urgent);
    let report = engine.schedule(NOW);
    let victims: Vec<String> = preempted(&engine, &report).into_iter().map(|(name, _)| name).collect();
    assert_eq!(victims, ["first", "second"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// An engine with cached counts decides as one without: a copy has an empty cache.
    #[test]
    fn cached_counts_are_exact(
        settings in settings(),
        is_shared in any::<bool>(),
        hosts in prop::collection::vec(1i64..6, 4..12),
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let mut engine = if is_shared { shared_racks(settings, &hosts) } else { racks(settings, &hosts) };
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Submit { pods, milli, request } => {
                    let queue = if is_shared && number % 2 == 1 { "other" } else { "cq" };
                    add(&mut engine, &workload(queue, number, *pods, *milli, *request));
                }
                Step::Finish(number) => {
                    let id = id(&engine, &format!("w{number:03}"));
                    if let Some(key) = engine.state().workload(id).map(|workload| workload.key.clone()) {
                        engine.remove_workload(&key, NOW);
                    }
                }
            }
            engine.process_flushes(NOW, false);
            let mut fresh = engine.clone();
            for _ in 0..3 {
                let (remembering, counting) = (engine.schedule(NOW), fresh.schedule(NOW));
                evict(&mut engine, &remembering, NOW);
                prop_assert_eq!(remembering, counting);
                fresh = engine.clone();
            }
        }
    }

    /// Whether pods fit is known without placing them, and victims are those found step by step.
    #[test]
    fn room_and_victims_equal_those_of_the_plain_algorithm(
        settings in settings(),
        hosts in prop::collection::vec(1i64..6, 4..12),
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let mut engine = racks(settings, &hosts);
        let queue = engine.state().names.queues.get("cq").unwrap();
        let flavor = engine.state().names.flavors.get("default").unwrap();
        for (number, step) in steps.iter().enumerate() {
            let Step::Submit { pods, milli, request } = step else { continue };
            add(&mut engine, &workload("cq", number, *pods, *milli, *request));
            let waiting = Arc::clone(engine.state().workload(id(&engine, &format!("w{number:03}"))).unwrap());
            if let [request] = requests_of(&waiting).as_slice() {
                let context = (&engine.state().names, &engine.state().settings.gates);
                let options = PlaceOptions { workload: Some(&waiting), ..PlaceOptions::default() };
                let has_room = engine.state().tas.has_room(flavor, request, options, context);
                prop_assert_eq!(has_room, is_placed(&engine, &waiting));
            }
            let by_the_book = victims_by_the_book(&mut engine, &waiting);
            let mut subject = Subject::new(Arc::clone(&waiting), queue, 1);
            let (assignment, targets) = evaluate(engine.state_mut(), &mut subject);
            if assignment.mode() == Mode::Preempt {
                let targets: Vec<_> = targets.iter().map(|target| target.workload).collect();
                prop_assert_eq!(targets, by_the_book);
            }
            engine.schedule(NOW);
        }
    }
}
