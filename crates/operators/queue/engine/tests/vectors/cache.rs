//! Quotas, usage and shares.

use quintet_api::kueue::reasons::ClusterQueueActiveReason;
use quintet_queue_engine::internals::fair::Share;
use quintet_queue_engine::internals::quota::NodeId;
use quintet_queue_engine::model::Usage;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::compare::{differences, set_differences};
use crate::world::{World, amount_json};

pub const OPS: [&str; 11] = [
    "clusterQueueReadiness",
    "clusterQueueStatusWithAdmissionChecks",
    "clusterQueueStatusWithFlavors",
    "available",
    "dominantResourceShare",
    "isBorrowingOn",
    "lendable",
    "serializeWeightedShare",
    "clusterQueuesUsingFlavor",
    "clusterQueuesUsingAdmissionCheck",
    "clusterQueuesForResources",
];

pub fn run(case: &Case<'_>) -> Verdict {
    match case.op() {
        "available" => available(case),
        "clusterQueueReadiness"
        | "clusterQueueStatusWithAdmissionChecks"
        | "clusterQueueStatusWithFlavors" => readiness(case),
        "dominantResourceShare" => shares(case),
        "isBorrowingOn" => borrowing(case),
        "lendable" => lendable(case),
        "serializeWeightedShare" => {
            let drs = &case.args()["drs"];
            let share = Share {
                weight: drs["fairWeight"].as_f64().unwrap_or(0.0),
                ratio: drs["unweightedRatio"].as_f64().unwrap_or(0.0),
                dominant: None,
                borrowed: Vec::new(),
            };
            let got = share.weighted();
            let text = if got.is_infinite() { "+Inf".to_owned() } else { format!("{got}") };
            Verdict::equal("result", &json!(text), &case.want()["result"])
        }
        _ => using(case),
    }
}

fn nodes(world: &World) -> Vec<(String, NodeId)> {
    let state = world.engine.state();
    state.queues().map(|(id, queue)| (state.names.queue_name(id).to_owned(), queue.node)).collect()
}

fn add(world: &mut World, usage: &Value) -> Vec<(NodeId, Usage)> {
    let mut added = Vec::new();
    for (queue, amounts) in usage.as_object().into_iter().flatten() {
        let usage = world.usage(amounts);
        let queue = world.queue(queue);
        let node = world.engine.state().queue(queue).expect("queue").node;
        world.engine.state_mut().tree.add_all(node, &usage);
        added.push((node, usage));
    }
    added
}

fn table(world: &mut World, want: &Value, potential: bool) -> Value {
    let mut result = json!({});
    for (name, node) in nodes(world) {
        for (flavor, resources) in want[&name].as_object().into_iter().flatten() {
            for (resource, _) in resources.as_object().into_iter().flatten() {
                let fr = world.fr(flavor, resource);
                let state = world.engine.state();
                let amount =
                    if potential { state.tree.potential(node, fr) } else { state.available(node, fr) };
                for key in [name.as_str(), flavor] {
                    let _ = key;
                }
                if result[&name].is_null() {
                    result[&name] = json!({});
                }
                if result[&name][flavor].is_null() {
                    result[&name][flavor] = json!({});
                }
                result[&name][flavor][resource] = amount_json(amount);
            }
        }
    }
    result
}

fn available(case: &Case<'_>) -> Verdict {
    let mut world = World::new(case);
    let want = case.want();
    let mut found = Vec::new();
    let wanted = &want["potentiallyAvailable"];
    found.extend(differences("potential before", &table(&mut world, wanted, true), wanted));
    let added = add(&mut world, &case.calls()["usage"]);
    found.extend(differences("available", &table(&mut world, &want["available"], false), &want["available"]));
    found.extend(differences("potential after", &table(&mut world, wanted, true), wanted));
    for (node, usage) in added {
        world.engine.state_mut().tree.remove_all(node, &usage);
    }
    found.extend(differences("available without usage", &table(&mut world, wanted, false), wanted));
    Verdict::from_differences(found)
}

fn shares(case: &Case<'_>) -> Verdict {
    let mut world = World::new(case);
    add(&mut world, &case.calls()["usage"]);
    let extra = world.usage(&case.calls()["extra"]);
    let mut found = Vec::new();
    for wanted in case.want()["shares"].as_array().into_iter().flatten() {
        let name = wanted["name"].as_str().unwrap_or("");
        let node = if wanted["kind"] == "Cohort" {
            let id = world.engine.state_mut().names.cohorts.intern(name);
            world.engine.state().cohort(id)
        } else {
            let id = world.queue(name);
            world.engine.state().queue(id).map(|queue| queue.node)
        };
        let state = world.engine.state();
        let share = state.tree.share_with(node.expect("node"), &extra, &state.names);
        let got = json!({
            "kind": wanted["kind"],
            "name": name,
            "share": share.rounded(),
            "dominantResource": share.dominant.map_or("", |id| state.names.resource_name(id)),
            "borrowing": share.is_borrowing(),
        });
        found.extend(differences(name, &got, wanted));
    }
    Verdict::from_differences(found)
}

fn borrowing(case: &Case<'_>) -> Verdict {
    let mut world = World::new(case);
    add(&mut world, &case.calls()["usage"]);
    let requested = world.usage(&case.calls()["requested"]);
    let queue = world.queue(case.calls()["clusterQueue"].as_str().unwrap_or(""));
    let state = world.engine.state();
    let share = state.share(state.queue(queue).expect("queue").node);
    let got = json!({ "borrowing": share.is_borrowing(), "borrowingOnRequested": share.is_borrowing_on(&requested) });
    Verdict::equal("borrowing", &got, case.want())
}

fn lendable(case: &Case<'_>) -> Verdict {
    let mut world = World::new(case);
    let id = world.engine.state_mut().names.cohorts.intern(case.calls()["cohort"].as_str().unwrap_or(""));
    let state = world.engine.state();
    let mut got = json!({});
    for (resource, amount) in state.tree.lendable(state.cohort(id).expect("cohort")) {
        got[state.names.resource_name(*resource)] = amount_json(*amount);
    }
    Verdict::equal("lendable", &got, &case.want()["lendable"])
}

fn using(case: &Case<'_>) -> Verdict {
    let world = World::new(case);
    let calls = case.calls();
    let state = world.engine.state();
    let wanted: Vec<&str> =
        calls["resourceNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let got: Vec<&str> = state
        .queues()
        .filter(|(_, queue)| {
            let spec = &queue.spec;
            match case.op() {
                "clusterQueuesUsingFlavor" => spec
                    .flavors()
                    .any(|flavor| Some(state.names.flavor_name(flavor)) == calls["flavor"].as_str()),
                "clusterQueuesUsingAdmissionCheck" => {
                    spec.checks.iter().any(|rule| Some(&*rule.name) == calls["check"].as_str())
                }
                _ => spec
                    .groups
                    .iter()
                    .flat_map(|group| &group.resources)
                    .any(|resource| wanted.contains(&state.names.resource_name(*resource))),
            }
        })
        .map(|(id, _)| state.names.queue_name(id))
        .collect();
    Verdict::from_differences(set_differences("clusterQueues", &json!(got), &case.want()["clusterQueues"]))
}

fn readiness(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let mut world = World::new(case);
    for (name, check) in calls["admissionChecks"].as_object().into_iter().flatten() {
        let info = quintet_queue_engine::internals::state::CheckInfo {
            active: check["active"] == true,
            controller: check["controller"].as_str().unwrap_or("").into(),
        };
        world.engine.state_mut().set_check(name.as_str().into(), Some(info));
    }
    if !calls["thenUpdateClusterQueue"].is_null() {
        world.add(&calls["thenUpdateClusterQueue"]);
    }
    let name = [&calls["clusterQueueName"], &calls["clusterQueue"]]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or("");
    let id = world.queue(name);
    if (calls["terminate"] == true || calls["currentStatus"] == "terminating")
        && let Some(queue) = world.engine.state().queue(id)
    {
        let mut spec = queue.spec.clone();
        spec.terminating = true;
        world.engine.set_queue(spec, world.now);
    }
    let (active, reason, message) = world.engine.state().active_condition(id);
    let terminating = reason == ClusterQueueActiveReason::Terminating;
    let status = if terminating {
        "terminating"
    } else if active {
        "active"
    } else {
        "pending"
    };
    let mut got = json!({ "active": active, "reason": reason.as_str(), "message": message, "terminating": terminating });
    got["status"] = if case.op() == "clusterQueueReadiness" {
        if active { "True".into() } else { "False".into() }
    } else {
        status.into()
    };
    let wanted = case.want().as_object().cloned().unwrap_or_default();
    let found: Vec<String> =
        wanted.iter().flat_map(|(key, want)| differences(key, &got[key], want)).collect();
    Verdict::from_differences(found)
}
