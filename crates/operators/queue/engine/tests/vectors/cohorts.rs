//! The cache of queues and cohorts, call by call: trees, cycles, quota of subtrees, usage.

use quintet_queue_engine::FlavorReport;
use quintet_queue_engine::internals::quota::{NodeId, NodeKind};
use quintet_queue_engine::names::CohortId;
use serde_json::{Map, Value, json};

use crate::case::{Case, Verdict};
use crate::compare::{differences, set_differences};
use crate::world::{World, amount_json, key};

pub const OPS: [&str; 6] = [
    "clusterQueueAncestors",
    "clusterQueueUsage",
    "cohortAncestors",
    "localQueueUsage",
    "updateClusterQueue",
    "workloadAncestors",
];

/// Tables of scripts about the cache.
pub const TABLES: [&str; 6] = [
    "cache/cluster_queue_operations",
    "cache/cohort_cycles",
    "cache/delete_cohort_subtree_quota",
    "cache/local_queue_operations",
    "cache/workload_operations",
    "hierarchy/cycles",
];

const CYCLE: &str = "cohort has a cycle";

pub fn run(case: &Case<'_>) -> Verdict {
    let want = case.want();
    match case.op() {
        "clusterQueueUsage" => cluster_queue_usage(case),
        "localQueueUsage" => local_queue_usage(case),
        "updateClusterQueue" => {
            let mut world = World::new(case);
            let to = &case.calls()["to"];
            world.add(to);
            let queue = world.queue(to["metadata"]["name"].as_str().unwrap_or(""));
            let state = world.engine.state();
            let node = state.queue(queue).expect("queue").node;
            let got = json!(state.tree.generation(node));
            Verdict::equal("generation", &got, &want["allocatableResourceGeneration"])
        }
        op => {
            let world = World::new(case);
            let (ancestors, error) = match op {
                "cohortAncestors" => {
                    let name = case.calls()["cohortName"].as_str().unwrap_or("");
                    with_ancestors(&world, cohort(&world, name))
                }
                "clusterQueueAncestors" => {
                    let queue = case.objects("clusterQueues").first().copied().unwrap_or(&Value::Null);
                    let (mut path, error) = above(&world, queue);
                    // Without the root.
                    path.pop();
                    (path, error)
                }
                _ => {
                    let workload = case.objects("workloads").first().copied().unwrap_or(&Value::Null);
                    let name = &workload["status"]["admission"]["clusterQueue"];
                    let queues = case.objects("clusterQueues");
                    let queue = queues.into_iter().find(|queue| queue["metadata"]["name"] == *name);
                    queue.map_or_else(Default::default, |queue| above(&world, queue))
                }
            };
            let got = json!({ "ancestors": ancestors, "error": error });
            Verdict::equal("ancestors", &got, want)
        }
    }
}

fn cohort(world: &World, name: &str) -> Option<CohortId> {
    world.engine.names().cohorts.get(name)
}

/// The cohorts above a queue, from its own to the root.
fn above(world: &World, queue: &Value) -> (Vec<String>, Option<&'static str>) {
    with_ancestors(world, cohort(world, queue["spec"]["cohortName"].as_str().unwrap_or("")))
}

fn with_ancestors(world: &World, cohort: Option<CohortId>) -> (Vec<String>, Option<&'static str>) {
    let state = world.engine.state();
    let Some((id, node)) = cohort.and_then(|id| Some((id, state.cohort(id)?))) else {
        return (Vec::new(), None);
    };
    if state.is_in_cycle(id) {
        return (Vec::new(), Some(CYCLE));
    }
    let nodes = std::iter::once(node).chain(state.tree.ancestors(node));
    let name = |node: NodeId| match state.tree.kind(node) {
        NodeKind::Cohort(id) => state.names.cohort_name(id).to_owned(),
        NodeKind::Queue(id) => state.names.queue_name(id).to_owned(),
    };
    (nodes.map(name).collect(), None)
}

fn flavors_json(flavors: &[FlavorReport], with_borrowed: bool) -> Value {
    let flavor = |flavor: &FlavorReport| {
        let resources = flavor.resources.iter().map(|(name, report)| {
            let mut resource = json!({ "name": name, "total": report.total });
            if with_borrowed {
                resource["borrowed"] = report.borrowed.clone().into();
            }
            resource
        });
        json!({ "name": flavor.flavor, "resources": resources.collect::<Vec<_>>() })
    };
    flavors.iter().map(flavor).collect()
}

fn cluster_queue_usage(case: &Case<'_>) -> Verdict {
    let world = World::new(case);
    let queue = case.objects("clusterQueues").first().copied().unwrap_or(&Value::Null);
    let name = queue["metadata"]["name"].as_str().unwrap_or("");
    let report = world.engine.queue_report(name).expect("queue");
    let got = json!({
        "admittedWorkloads": report.admitted, "reservingWorkloads": report.reserving,
        "reservedResources": flavors_json(&report.reservation, true),
        "usedResources": flavors_json(&report.usage, true),
    });
    Verdict::equal("usage", &got, case.want())
}

fn local_queue_usage(case: &Case<'_>) -> Verdict {
    let refused = case.calls()["inAdmissibleWl"].as_array().cloned().unwrap_or_default();
    let mut world = World::without_workloads(case);
    for object in
        case.objects("workloads").into_iter().filter(|own| !refused.contains(&own["metadata"]["name"]))
    {
        world.add_workload(object);
    }
    let queue = case.objects("localQueues").first().copied().unwrap_or(&Value::Null);
    let text = |field: &str| queue["metadata"][field].as_str().unwrap_or("");
    let report = world.engine.local_queue_report(text("namespace"), text("name"));
    Verdict::equal("usage", &flavors_json(&report.reservation, false), &case.want()["usage"])
}

/// A script of calls of the cache.
pub fn script(case: &Case<'_>, steps: &[&Value]) -> Verdict {
    let mut world = World::without_workloads(case);
    let mut found = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let op = step["op"].as_str().unwrap_or("");
        let Some(got) = call(&mut world, op, step) else { return Verdict::Unsupported };
        // Which queues are to be tried again is the engine's own affair.
        if !step["ret"].is_array() {
            found.extend(differences(&format!("step {index} {op}"), &got, &step["ret"]));
        }
    }
    let want = case.want();
    for (name, wanted) in want["cycles"].as_object().into_iter().flatten() {
        let is_in_cycle = cohort(&world, name).is_some_and(|id| world.engine.state().is_in_cycle(id));
        found.extend(differences(name, &json!(is_in_cycle), wanted));
    }
    for (name, wanted) in want["clusterQueues"].as_object().into_iter().flatten() {
        found.extend(queue(&world, name, wanted));
    }
    for (name, wanted) in want["localQueues"].as_object().into_iter().flatten() {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let report = world.engine.local_queue_report(namespace, name);
        for (field, got) in [("reservingWorkloads", report.reserving), ("admittedWorkloads", report.admitted)]
        {
            found.extend(differences(field, &json!(got), &wanted[field]));
        }
    }
    Verdict::from_differences(found)
}

/// What is wanted of a queue.
fn queue(world: &World, name: &str, wanted: &Value) -> Vec<String> {
    let state = world.engine.state();
    let Some(id) = world.engine.queue_id(name) else { return vec![format!("{name}: missing")] };
    let Some(row) = state.queue(id) else { return vec![format!("{name}: missing")] };
    let mut found = Vec::new();
    if let Some(status) = wanted["status"].as_str() {
        let is_active = world.engine.is_queue_active(name).unwrap_or(false);
        found.extend(differences(name, &json!(is_active), &json!(status == "active")));
    }
    if wanted["workloads"].is_array() {
        let held: Vec<String> = state.reserved(id).map(|workload| world.key_of(workload)).collect();
        found.extend(set_differences(&format!("{name}.workloads"), &json!(held), &wanted["workloads"]));
        let usage = node_json(world, row.node)["usage"].clone();
        found.extend(differences(&format!("{name}.usage"), &usage, &wanted["usage"]));
    }
    if wanted["observedResourceNode"].is_object() {
        let got = node_json(world, row.node);
        found.extend(differences(&format!("{name}.node"), &got, &wanted["observedResourceNode"]));
    }
    found
}

/// One call; `None` if it is not known.
fn call(world: &mut World, op: &str, step: &Value) -> Option<Value> {
    let args = &step["args"];
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let now = world.now;
    let parent_of = |world: &World, name: &str| {
        let is_in_cycle = cohort(world, name).is_some_and(|id| world.engine.state().is_in_cycle(id));
        if is_in_cycle { json!({ "error": CYCLE }) } else { Value::Null }
    };
    let cohort_object = |name: &str, parent: Option<&str>| {
        json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": { "name": name },
            "spec": { "parentName": parent } })
    };
    Some(match op {
        "Cache.new" | "client.Create" => Value::Null,
        "client.init" => {
            for object in args["objects"].as_array().into_iter().flatten() {
                if object["kind"] == "Workload" {
                    world.add_workload(object);
                }
            }
            Value::Null
        }
        "Cache.AddClusterQueue" | "Cache.UpdateClusterQueue" => {
            let queue = &args["clusterQueue"];
            world.add(queue);
            parent_of(world, queue["spec"]["cohortName"].as_str().unwrap_or(""))
        }
        "Cache.DeleteClusterQueue" => {
            let id = world.queue(args["clusterQueue"]["metadata"]["name"].as_str().unwrap_or(""));
            world.engine.remove_queue(id);
            Value::Null
        }
        "Cache.AddLocalQueue" => {
            world.add(&args["localQueue"]);
            Value::Null
        }
        "Cache.AddOrUpdateResourceFlavor" => {
            world.add(&args["resourceFlavor"]);
            Value::Null
        }
        "Cache.AddOrUpdateAdmissionCheck" => {
            world.add(&args["admissionCheck"]);
            Value::Null
        }
        "Cache.AddOrUpdateCohort" => {
            world.add(&args["cohort"]);
            parent_of(world, &text(&args["cohort"]["metadata"]["name"]))
        }
        "Cache.DeleteCohort" => {
            let id = cohort(world, &text(&args["cohort"]))?;
            world.engine.set_cohort(id, None, now);
            Value::Null
        }
        "Manager.AddCohort" => {
            world.add(&cohort_object(&text(&args["cohort"]), None));
            Value::Null
        }
        "Manager.UpdateCohortEdge" => {
            world.add(&cohort_object(&text(&args["name"]), args["parentName"].as_str()));
            Value::Null
        }
        "Cache.AddOrUpdateWorkload" => {
            let id = world.add_workload(&args["workload"]);
            json!(world.engine.state().held(id).is_some())
        }
        "Cache.DeleteWorkload" => {
            let known = world.api.iter().find(|(own, object)| {
                args["workload"] == own.as_str() || key(&args["workload"]) == key(object)
            });
            if let Some(object) = known.map(|(_, object)| object.clone()) {
                let workload = world.read_workload(&object);
                world.engine.remove_workload(&workload.key, now);
            }
            step["ret"].clone()
        }
        "cohort.getResourceNode" => {
            let id = cohort(world, step["on"].as_str().unwrap_or(""))?;
            let node = world.engine.state().cohort(id)?;
            node_json(world, node)
        }
        _ => return None,
    })
}

/// Quotas, quota of the subtree, and usage of a node, without what is zero.
fn node_json(world: &World, node: NodeId) -> Value {
    let state = world.engine.state();
    let mut quotas = Value::Object(Map::new());
    let mut subtree = Value::Object(Map::new());
    for (fr, amount, _) in state.tree.quoted(node) {
        let (flavor, resource) = (state.names.flavor_name(fr.flavor), state.names.resource_name(fr.resource));
        let quota = state.tree.quota(node, fr);
        if amount.get() != 0 {
            subtree[flavor][resource] = amount_json(amount);
        }
        let limits = [("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)];
        if quota.nominal.get() != 0 || limits.iter().any(|(_, limit)| limit.is_some()) {
            let mut own = json!({ "nominal": amount_json(quota.nominal) });
            for (name, limit) in limits {
                own[name] = limit.map_or(Value::Null, amount_json);
            }
            quotas[flavor][resource] = own;
        }
    }
    let usage: quintet_queue_engine::model::Usage = state.tree.usages(node).collect();
    json!({ "quotas": quotas, "subtreeQuota": subtree, "usage": world.usage_json(&usage) })
}
