//! Preemption targets.

use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_queue_engine::ingest;
use quintet_queue_engine::internals::flavors::{Assignment, FlavorChoice, Mode, PodSetAssignment, Subject};
use quintet_queue_engine::internals::preemption::{self, FairOrder, PreemptionReason, Simulation, Target};
use quintet_queue_engine::model::PreemptionPolicy;
use quintet_queue_engine::names::WorkloadId;
use quintet_queue_engine::status;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::compare::{comparable_status, differences, set_differences};
use crate::objects::change_status;
use crate::world::World;

pub const OPS: [&str; 8] = [
    "getTargets",
    "preempt",
    "preemptTwiceWithSameTargets",
    "sortCandidates",
    "fairPreemptionClusterQueueOrdering",
    "preemptionMessage",
    "priorityInfo",
    "satisfiesPreemptionPolicy",
];

pub fn run(case: &Case<'_>) -> Verdict {
    match case.op() {
        "getTargets" | "preempt" => targets(case),
        "preemptTwiceWithSameTargets" => twice(case),
        "sortCandidates" => sort(case),
        "fairPreemptionClusterQueueOrdering" => fair_order(case),
        "preemptionMessage" => message(case),
        "priorityInfo" => priority(case),
        _ => policy(case),
    }
}

pub fn mode(text: &Value) -> Mode {
    match text.as_str().unwrap_or("") {
        "Fit" => Mode::Fit,
        "Preempt" => Mode::Preempt,
        _ => Mode::NoFit,
    }
}

/// An assignment as given in a vector.
pub fn assignment(world: &mut World, value: &Value, subject: &Subject) -> Assignment {
    let names = &mut world.engine.state_mut().names;
    let mut assignment = Assignment::default();
    for (position, pod_set) in value["podSets"].as_array().into_iter().flatten().enumerate() {
        let name: Arc<str> = pod_set["name"].as_str().unwrap_or("").into();
        let index = subject.workload.pod_sets.iter().position(|own| own.name == name).unwrap_or(position);
        let flavors = pod_set["flavors"].as_object().into_iter().flatten();
        let quantities = crate::objects::quantities(&pod_set["requests"]);
        assignment.pod_sets.push(PodSetAssignment {
            index,
            name,
            flavors: flavors
                .map(|(resource, choice)| {
                    let choice = FlavorChoice {
                        flavor: names.flavors.intern(choice["name"].as_str().unwrap_or("")),
                        mode: mode(&choice["mode"]),
                        tried: 0,
                        height: 0,
                    };
                    (names.resource(resource), choice)
                })
                .collect(),
            reasons: Vec::new(),
            error: None,
            requests: ingest::requests(&quantities, names),
            count: i32::try_from(pod_set["count"].as_i64().unwrap_or(0)).expect("count"),
            topology: crate::tas::internal(&pod_set["topologyAssignment"]),
            delayed: None,
            attempts: Arc::default(),
        });
    }
    assignment
}

fn found_targets(case: &Case<'_>) -> (World, Vec<Target>, WorkloadId) {
    let mut world = World::new(case);
    let incoming = world.read_workload(&case.calls()["incoming"]);
    let queue = world.queue(case.calls()["clusterQueue"].as_str().unwrap_or(""));
    let subject = Subject::new(Arc::new(incoming.clone()), queue, 1);
    let assignment = assignment(&mut world, &case.calls()["assignment"], &subject);
    let targets =
        preemption::targets(world.engine.state_mut(), &subject, &assignment, &Simulation::default());
    let id = world.engine.state_mut().set_workload(incoming).0;
    (world, targets, id)
}

fn target_json(world: &World, targets: &[Target]) -> Value {
    let entries = targets.iter().map(|target| {
        json!({
            "workload": world.key_of(target.workload),
            "reason": target.reason.map_or("", PreemptionReason::as_str),
        })
    });
    Value::Array(entries.collect())
}

fn targets(case: &Case<'_>) -> Verdict {
    let (mut world, targets, incoming) = found_targets(case);
    let mut found = Vec::new();
    if !case.want()["targets"].is_null() || case.op() == "getTargets" {
        found.extend(set_differences("targets", &target_json(&world, &targets), &case.want()["targets"]));
    }
    if case.op() == "preempt" {
        if case.want()["preempted"].as_u64().is_some_and(|count| count != targets.len() as u64) {
            found.push(format!("preempted: got {}, want {}", targets.len(), case.want()["preempted"]));
        }
        let workload = Arc::clone(world.engine.state().workload(incoming).expect("incoming"));
        let job = workload.links.as_ref().and_then(|links| links.job_uid.clone()).unwrap_or_default();
        let queue = world.queue(case.calls()["clusterQueue"].as_str().unwrap_or(""));
        let path = world.engine.state().path(queue);
        let now = world.now;
        for target in &targets {
            let victim = Arc::clone(world.engine.state().workload(target.workload).expect("victim"));
            if victim.is_evicted() {
                continue;
            }
            let held = world.engine.state().held(target.workload).expect("held");
            let victim_path = world.engine.state().path(held.queue);
            let message = status::preemption_message(&workload.uid, &job, target.reason, &path, &victim_path);
            let key = world.key_of(target.workload);
            let write = status::Write::Preempt {
                victim: target.workload,
                reason: target.reason.expect("reason"),
                message,
            };
            let mut object = world.api[&key].clone();
            change_status(&mut object, |object| write.apply(object, &world.engine, now));
            world.api.insert(key, object);
        }
        for (key, wanted) in case.want()["workloads"].as_object().into_iter().flatten() {
            let got = world.api.get(key).map_or(Value::Null, |object| object["status"].clone());
            let (got, wanted) = comparable_status(&got, &wanted["status"], false);
            found.extend(differences(key, &got, &wanted));
        }
    }
    Verdict::from_differences(found)
}

fn twice(case: &Case<'_>) -> Verdict {
    // The second call finds the evictions expected already: it counts them and writes nothing.
    let (world, targets, _) = found_targets(case);
    let mut found = set_differences("targets", &target_json(&world, &targets), &case.want()["targets"]);
    let count = targets.len();
    found.extend(differences("preempted", &json!([count, count]), &case.want()["preempted"]));
    found.extend(differences("statusPatches", &json!([count, 0]), &case.want()["statusPatches"]));
    Verdict::from_differences(found)
}

fn sort(case: &Case<'_>) -> Verdict {
    let mut world = World::without_workloads(case);
    let mut ids = Vec::new();
    for candidate in case.calls()["candidates"].as_array().into_iter().flatten() {
        let mut object = candidate["workload"].clone();
        let queue = candidate["clusterQueue"]
            .as_str()
            .or_else(|| object.pointer("/status/admission/clusterQueue").and_then(Value::as_str))
            .unwrap_or("")
            .to_owned();
        let queue_id = world.queue(&queue);
        if world.engine.state().queue(queue_id).is_none() {
            let mut spec = quintet_queue_engine::model::QueueSpec::new(queue_id);
            spec.usage_based_admission = true;
            world.engine.set_queue(spec, world.now);
        }
        if !candidate["localQueueFSUsage"].is_null() {
            return Verdict::Unsupported;
        }
        if object.pointer("/status/admission").is_none() {
            // Candidates are always held by a queue; without one it counts as another queue's.
            object["status"]["admission"] = json!({ "clusterQueue": queue, "podSetAssignments": [] });
        }
        let workload = world.read_workload(&object);
        let id = world.engine.state_mut().set_workload_held(workload, queue_id);
        ids.push(id);
    }
    let preemptor = world.queue(case.calls()["preemptorClusterQueue"].as_str().unwrap_or(""));
    let afs = case.calls()["afsEnabled"] == true;
    let state = world.engine.state();
    ids.sort_by(|a, b| preemption::compare_candidates(state, *a, *b, preemptor, afs));
    let order: Vec<String> = ids
        .iter()
        .map(|id| state.workload(*id).map_or_else(String::new, |workload| workload.key.name.to_string()))
        .collect();
    Verdict::equal("order", &json!(order), &case.want()["order"])
}

fn fair_order(case: &Case<'_>) -> Verdict {
    let mut world = World::new(case);
    let calls = case.calls();
    let preemptor = world.queue(calls["preemptorClusterQueue"].as_str().unwrap_or(""));
    let mut candidates = Vec::new();
    for name in calls["candidateClusterQueues"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let queue = world.queue(name);
        candidates.extend(world.engine.state().candidates(queue));
    }
    let state = world.engine.state();
    let node = state.queue(preemptor).expect("preemptor").node;
    let mut order = FairOrder::new(state, node, preemptor, candidates);
    let mut got = Vec::new();
    let mut step = 0;
    while let Some(target) = order.next(state) {
        got.push(state.names.queue_name(target.queue).to_owned());
        if calls["actions"][step] == "drop" {
            order.drop_queue(target);
        } else {
            order.pop(target);
        }
        step += 1;
        if step > 100 {
            break;
        }
    }
    Verdict::equal("order", &json!(got), &case.want()["order"])
}

fn message(case: &Case<'_>) -> Verdict {
    let args = case.args();
    let reason = match args["reason"].as_str().unwrap_or("") {
        "InClusterQueue" => Some(PreemptionReason::InClusterQueue),
        "InCohortReclamation" => Some(PreemptionReason::InCohortReclamation),
        "InCohortFairSharing" => Some(PreemptionReason::InCohortFairSharing),
        "InCohortReclaimWhileBorrowing" => Some(PreemptionReason::InCohortReclaimWhileBorrowing),
        _ => None,
    };
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let metadata = &args["preemptor"]["metadata"];
    let got = status::preemption_message(
        &text(&metadata["uid"]),
        &text(&metadata["labels"]["kueue.x-k8s.io/job-uid"]),
        reason,
        &text(&args["preemptorPath"]),
        &text(&args["preempteePath"]),
    );
    Verdict::equal("result", &json!(got), &case.want()["result"])
}

fn priority(case: &Case<'_>) -> Verdict {
    let mut world = World::without_workloads(case);
    let workload = world.read_workload(&case.args()["workload"]);
    let effective = workload.effective_priority(&world.engine.state().settings.gates);
    let base = workload.priority;
    let got = json!({ "base": base, "effective": effective, "boost": effective - i64::from(base) });
    Verdict::equal("priority", &got, case.want())
}

fn policy(case: &Case<'_>) -> Verdict {
    let mut world = World::without_workloads(case);
    let preemptor = world.read_workload(&case.args()["preemptor"]);
    let candidate = world.read_workload(&case.args()["candidate"]);
    let policy = match case.args()["policy"].as_str().unwrap_or("") {
        "Any" => PreemptionPolicy::Any,
        "LowerPriority" => PreemptionPolicy::LowerPriority,
        "LowerOrNewerEqualPriority" => PreemptionPolicy::LowerOrNewerEqualPriority,
        _ => PreemptionPolicy::Never,
    };
    let got = preemption::satisfies_policy(&world.engine.state().settings, &preemptor, &candidate, policy);
    Verdict::equal("result", &json!(got), &case.want()["result"])
}
