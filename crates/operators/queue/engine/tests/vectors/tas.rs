//! Topology aware scheduling.

use std::sync::Arc;

use quintet_api::kueue::v1beta2;
use quintet_queue_engine::ingest;
use quintet_queue_engine::internals::tas::{
    Assumed, DomainAssignment, PlaceOptions, PlacementRequest, TasUse, TopologyAssignment,
};
use quintet_queue_engine::model::{Flavor, PodSet, PodShape};
use quintet_queue_engine::names::FlavorId;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::objects::decode;
use crate::world::World;

pub const OPS: [&str; 5] = [
    "truncateAssignment",
    "findTopologyAssignments",
    "encodeTopologyAssignment",
    "decodeTopologyAssignment",
    "encodeWithHostnamePrefixRuns",
];

pub fn run(case: &Case<'_>) -> Verdict {
    match case.op() {
        "findTopologyAssignments" => find(case),
        "decodeTopologyAssignment" => {
            let input = first_of(case, &["encoded"]);
            let encoded: v1beta2::TopologyAssignment = serde_json::from_value(input).expect("encoded");
            let got = internal_json(TopologyAssignment::decoded(&encoded).as_ref());
            Verdict::equal("assignment", &got, &want_of(case))
        }
        "truncateAssignment" => {
            let count = i32::try_from(case.args()["newCount"].as_i64().unwrap_or(0)).expect("count");
            let got = internal(&case.args()["assignment"]).map(|assignment| assignment.truncated(count));
            Verdict::equal("assignment", &internal_json(got.as_ref()), &want_of(case))
        }
        op => {
            let input = internal(&first_of(case, &["assignment", "topologyAssignment"])).unwrap_or_default();
            let got = if op == "encodeTopologyAssignment" {
                let on = crate::world::settings(case, &mut quintet_queue_engine::names::Names::default());
                input.encoded(on.gates.tas_prefix_encoding)
            } else {
                {
                    let (levels, domains) = input.plain();
                    v1beta2::TopologyAssignment::in_runs(levels, &domains)
                }
            };
            Verdict::equal("encoded", &serde_json::to_value(got).expect("json"), &want_of(case))
        }
    }
}

fn first_of(case: &Case<'_>, keys: &[&str]) -> Value {
    let places = [case.args(), case.calls()];
    let mut found = places.iter().flat_map(|place| keys.iter().map(move |key| &place[*key]));
    found.find(|value| !value.is_null()).cloned().unwrap_or_default()
}

fn want_of(case: &Case<'_>) -> Value {
    for key in ["assignment", "result", "topologyAssignment", "encoded"] {
        if !case.want()[key].is_null() {
            return case.want()[key].clone();
        }
    }
    Value::Null
}

/// An internal assignment of a vector.
pub fn internal(value: &Value) -> Option<TopologyAssignment> {
    if value.is_null() {
        return None;
    }
    let texts = |value: &Value| -> Vec<Arc<str>> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
    };
    let domains = value["domains"].as_array().into_iter().flatten().map(|domain| DomainAssignment {
        values: texts(&domain["values"]),
        count: i32::try_from(domain["count"].as_i64().unwrap_or(0)).expect("count"),
    });
    Some(TopologyAssignment { levels: texts(&value["levels"]), domains: domains.collect() })
}

pub fn internal_json(assignment: Option<&TopologyAssignment>) -> Value {
    let Some(assignment) = assignment else {
        return Value::Null;
    };
    let texts = |values: &[Arc<str>]| -> Vec<String> { values.iter().map(ToString::to_string).collect() };
    let domains: Vec<Value> = assignment
        .domains
        .iter()
        .map(|domain| json!({ "values": texts(&domain.values), "count": domain.count }))
        .collect();
    json!({ "levels": texts(&assignment.levels), "domains": domains })
}

/// A flavor with a topology of its own.
pub fn add_flavor(world: &mut World, name: &str, levels: &[&str], node_labels: &Value) -> FlavorId {
    let state = world.engine.state_mut();
    let topology = state.names.topologies.intern(name);
    let id = state.names.flavors.intern(name);
    state.set_topology(topology, levels.iter().map(|level| Arc::from(*level)).collect());
    let labels = node_labels.as_object().into_iter().flatten();
    let node_labels =
        labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or("").into())).collect();
    state.set_flavor(id, Flavor { node_labels, topology: Some(topology), ..Flavor::default() });
    id
}

fn find(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let mut world = World::without_workloads(case);
    let levels: Vec<&str> =
        calls["levels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let flavor = add_flavor(&mut world, "default", &levels, &calls["nodeLabels"]);
    if let Some(tolerations) = calls.get("tolerations") {
        let spec = json!({ "tolerations": tolerations });
        let shape =
            ingest::pod_shape(&decode(&spec), &mut world.engine.state_mut().names).expect("tolerations");
        let mut with = world.engine.state().flavor(flavor).expect("flavor").clone();
        with.tolerations = shape.tolerations;
        world.engine.state_mut().set_flavor(flavor, with);
    }
    let by_host = levels.last() == Some(&"kubernetes.io/hostname");
    if by_host && world.engine.state().settings.gates.tas_overlapping_flavors {
        shared_usage(&mut world, flavor, calls);
    } else {
        for usage in uses(&mut world, flavor, &calls["priorOwnUsage"]) {
            world.engine.state_mut().tas.change_usage(&[usage], 1);
        }
    }
    let pod_sets: Vec<PodSet> =
        calls["podSets"].as_array().into_iter().flatten().map(|value| pod_set(&mut world, value)).collect();
    let previous: Vec<Option<TopologyAssignment>> = calls["podSets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|value| {
            let encoded = &value["previousAssignment"];
            if encoded.is_null() {
                return None;
            }
            TopologyAssignment::decoded(&decode(encoded))
        })
        .collect();
    let workload =
        if calls["workload"].is_null() { None } else { Some(world.read_workload(&calls["workload"])) };
    let requests: Vec<PlacementRequest<'_>> = pod_sets
        .iter()
        .zip(previous)
        .enumerate()
        .map(|(index, (pod_set, previous))| PlacementRequest {
            index,
            pod_set,
            count: pod_set.count,
            per_pod: pod_set.requests.clone(),
            implied: calls["podSets"][index]["topologyRequest"].is_null(),
            updates: Vec::new(),
            previous,
        })
        .collect();
    let state = world.engine.state();
    let options = PlaceOptions { simulate_empty: false, workload: workload.as_ref(), explain: true };
    let context = (&state.names, &state.settings.gates);
    let placements = state.tas.place(flavor, &requests, options, &mut Assumed::default(), context);
    let mut got = json!({});
    for placement in placements {
        let name = pod_sets[placement.index].name.to_string();
        got[name] = match placement.result {
            Ok(assignment) => json!({ "assignment": internal_json(Some(&assignment)) }),
            Err(failure) => json!({ "failure": failure }),
        };
    }
    Verdict::equal("podSets", &got, &case.want()["podSets"])
}

fn uses(world: &mut World, flavor: FlavorId, value: &Value) -> Vec<TasUse> {
    let entries = value.as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|entry| TasUse {
            flavor,
            domain: crate::flavors::domain_id(&entry["values"]).into(),
            per_pod: crate::flavors::requests(world, &entry["singlePodRequests"]),
            count: i32::try_from(entry["count"].as_i64().unwrap_or(0)).expect("count"),
        })
        .collect()
}

/// Totals per host, those of a sibling flavor replacing what is given for the same host.
fn shared_usage(world: &mut World, flavor: FlavorId, calls: &Value) {
    let mut totals = std::collections::BTreeMap::new();
    for (domain, usage) in calls["aggregatedDomainUsages"].as_object().into_iter().flatten() {
        totals.insert(domain.clone(), crate::flavors::requests(world, usage));
    }
    for usage in uses(world, flavor, &calls["priorFlavorUsage"]) {
        totals.insert(usage.domain.to_string(), usage.total());
    }
    for (domain, mut per_pod) in totals {
        let pods = quintet_queue_engine::names::ResourceId::PODS;
        // One pod that uses everything, less the one that is added for it.
        per_pod.set(pods, per_pod.get(pods) - 1);
        let usage = TasUse { flavor, domain: domain.as_str().into(), per_pod, count: 1 };
        world.engine.state_mut().tas.change_usage(&[usage], 1);
    }
}

fn pod_set(world: &mut World, value: &Value) -> PodSet {
    let spec = json!({
        "nodeSelector": value["nodeSelector"],
        "tolerations": value["tolerations"],
        "affinity": { "nodeAffinity": value["nodeAffinity"] },
    });
    let shape = ingest::pod_shape(&decode(&spec), &mut world.engine.state_mut().names).expect("pod");
    let requests = crate::flavors::requests(world, &value["requests"]);
    let request = Some(&value["topologyRequest"]).filter(|request| !request.is_null());
    let mut topology = request.map(|request| ingest::topology_request(&decode(request)));
    if let Some(group) = value["podSetGroupName"].as_str() {
        topology.get_or_insert_default().group = Some(group.into());
    }
    let count = i32::try_from(value["count"].as_i64().unwrap_or(0)).expect("count");
    let name = value["name"].as_str().unwrap_or("");
    let pod = Arc::new(PodShape { requests, ..shape });
    PodSet { topology: topology.map(Box::new), ..PodSet::new(name, count, pod) }
}
