//! Flavor assignment.

use std::sync::Arc;

use quintet_queue_engine::internals::amount::Amount;
use quintet_queue_engine::internals::flavors::{
    Assignment, Attempt, FlavorMode, Granular, Mode, Oracle, PodSetAssignment, Possibility, Progress,
    Replaced, Subject, assign, search_counts, to_place, with_topology,
};
use quintet_queue_engine::internals::requests::Requests;
use quintet_queue_engine::internals::state::State;
use quintet_queue_engine::internals::tas::TasUse;
use quintet_queue_engine::model::{Demand, Fr, PodSetAdmission, ShapeHash};
use quintet_queue_engine::names::{FlavorId, Id, ResourceId, WorkloadId};
use quintet_queue_engine::status::resource_list;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::compare::{differences, set_differences};
use crate::world::World;

pub const OPS: [&str; 9] = [
    "tasFlavorsOnly",
    "workloadsTopologyRequests",
    "assignFlavors",
    "assignThenRecompute",
    "isPreferred",
    "podSetReducerSearch",
    "requiresBorrowing",
    "totalRequestsFor",
    "tasNetUsage",
];

pub fn run(case: &Case<'_>) -> Verdict {
    match case.op() {
        "assignFlavors" => assign_flavors(case),
        "assignThenRecompute" => recompute(case),
        "isPreferred" => preferred(case),
        "podSetReducerSearch" => reducer(case),
        "requiresBorrowing" => {
            let got = case.args()["borrowing"].as_u64().unwrap_or(0) > 0;
            Verdict::equal("result", &json!(got), &case.want()["result"])
        }
        "totalRequestsFor" => total_requests(case),
        "tasFlavorsOnly" => tas_flavors_only(case),
        "workloadsTopologyRequests" => topology_requests(case),
        _ => tas_net_usage(case),
    }
}

/// A queue with these flavors on nodes with a topology, and one flavor without.
fn add_tas_queue(world: &mut World, flavors: &Value) {
    let names: Vec<&str> = flavors.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    world.add(&json!({ "kind": "Topology", "metadata": { "name": "topology" },
        "spec": { "levels": [{ "nodeLabel": "kubernetes.io/hostname" }] } }));
    world.add(&json!({ "kind": "ResourceFlavor", "metadata": { "name": "without-topology" } }));
    for name in &names {
        world.add(&json!({ "kind": "ResourceFlavor", "metadata": { "name": name },
            "spec": { "topologyName": "topology" } }));
    }
    let quotas = names
        .iter()
        .copied()
        .chain(["without-topology"])
        .map(|name| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": "1" }] }));
    world.add(&json!({ "kind": "ClusterQueue", "metadata": { "name": "cq" }, "spec": { "resourceGroups": [
        { "coveredResources": ["cpu"], "flavors": quotas.collect::<Vec<_>>() }] } }));
}

fn topology_requests(case: &Case<'_>) -> Verdict {
    let mut world = World::without_workloads(case);
    let (calls, want) = (case.calls(), case.want());
    // Kueue's test (`pkg/scheduler/flavorassigner`) builds a queue that lists the flavor without its topology, which
    // objects cannot express.
    if want["error"] == "no TAS flavor assigned" && calls["clusterQueue"]["tasFlavors"].is_array() {
        return Verdict::Unsupported;
    }
    add_tas_queue(&mut world, &calls["clusterQueue"]["tasFlavors"]);
    let mut subject = subject(&mut world, &calls["workload"], "cq", 1);
    subject.replaced = replaced(&mut world, &calls["replacedSlice"]);
    let mut assignment = crate::preemption::assignment(&mut world, &calls["assignment"], &subject);
    let queue = Arc::clone(world.engine.state().queue(subject.queue).expect("queue"));
    let placed = to_place(&mut assignment, &subject, world.engine.state(), &queue);
    let names = placed.iter().filter_map(|(_, index)| subject.workload.pod_sets.get(*index));
    let names = json!(names.map(|pod_set| pod_set.name.to_string()).collect::<Vec<_>>());
    let mut found = Vec::new();
    for (key, wanted) in want.as_object().into_iter().flatten() {
        found.extend(match key.as_str() {
            "error" => {
                let error = assignment.pod_sets.first().and_then(|first| first.error.clone());
                differences(key, &json!(error), wanted)
            }
            "representativeMode" => {
                let got = format!("{:?}", assignment.mode());
                differences(key, &json!(got), wanted)
            }
            "requestedPodSets" => set_differences(key, &names, wanted),
            "requests" if wanted.as_array().is_none_or(Vec::is_empty) => differences(key, &names, wanted),
            _ => return Verdict::Unsupported,
        });
    }
    Verdict::from_differences(found)
}

fn tas_flavors_only(case: &Case<'_>) -> Verdict {
    let mut world = World::without_workloads(case);
    let calls = if case.args().is_null() { case.calls() } else { case.args() };
    let input = [&calls["resourceAssignment"], &calls["assignment"], &calls["flavors"]];
    let Some(input) = input.into_iter().find(|input| input.is_object()) else {
        return Verdict::Unsupported;
    };
    let wanted = &case.want()["result"];
    if wanted.is_null() || !calls["tasFlavors"].is_array() {
        return Verdict::Unsupported;
    }
    add_tas_queue(&mut world, &calls["tasFlavors"]);
    let subject = subject(&mut world, &json!({}), "cq", 1);
    let assignment = crate::preemption::assignment(
        &mut world,
        &json!({ "podSets": [{ "name": "main", "flavors": input }] }),
        &subject,
    );
    let state = world.engine.state();
    let choices = assignment.pod_sets.iter().flat_map(|pod_set| with_topology(&pod_set.flavors, state));
    let mut got = json!({});
    for (resource, _) in choices {
        let name = state.names.resource_name(*resource);
        got[name] = input[name].clone();
    }
    Verdict::equal("result", &got, wanted)
}

/// The stubbed oracle of the vectors.
struct Stub(Vec<(Fr, Possibility, u32)>);

impl Stub {
    fn new(world: &mut World, value: &Value) -> Self {
        let mut answers = Vec::new();
        for (flavor, resources) in value.as_object().into_iter().flatten() {
            for (resource, answer) in resources.as_object().into_iter().flatten() {
                let possibility = match answer["possibility"].as_str().unwrap_or("") {
                    "NoCandidates" => Possibility::NoCandidates,
                    "Reclaim" => Possibility::Reclaim,
                    _ => Possibility::Preempt,
                };
                let height = u32::try_from(answer["borrowingAfter"].as_u64().unwrap_or(0)).expect("height");
                answers.push((world.fr(flavor, resource), possibility, height));
            }
        }
        Self(answers)
    }
}

impl Oracle for Stub {
    fn possibility(&self, _: &mut State, _: &Subject, fr: Fr, _: Amount) -> (Possibility, u32) {
        let known = self.0.iter().find(|(own, ..)| *own == fr);
        known.map_or((Possibility::Preempt, 0), |(_, possibility, height)| (*possibility, *height))
    }
}

pub fn requests(world: &mut World, value: &Value) -> Requests {
    let names = &mut world.engine.state_mut().names;
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(name, value)| (names.resource(name), value.as_i64().unwrap_or(0))).collect()
}

fn flavors_of(world: &mut World, value: &Value) -> Vec<(ResourceId, FlavorId)> {
    let names = &mut world.engine.state_mut().names;
    let entries = value.as_object().into_iter().flatten();
    entries
        .map(|(name, flavor)| (names.resource(name), names.flavors.intern(flavor.as_str().unwrap_or(""))))
        .collect()
}

pub fn demands(world: &mut World, value: &Value) -> Vec<Demand> {
    let entries: Vec<Value> = value.as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|entry| Demand {
            requests: requests(world, &entry["requests"]),
            count: i32::try_from(entry["count"].as_i64().unwrap_or(0)).expect("count"),
            flavors: flavors_of(world, &entry["flavors"]),
            placed: !entry["topologyRequest"].is_null(),
            delayed: None,
        })
        .collect()
}

/// A workload info of a vector as a subject.
pub fn subject(world: &mut World, info: &Value, queue: &str, cycle: i64) -> Subject {
    let object = if info["workload"].is_null() { info } else { &info["workload"] };
    let workload = Arc::new(world.read_workload(object));
    let queue = world.queue(queue);
    let mut subject = Subject::new(workload, queue, cycle);
    if !info["totalRequests"].is_null() {
        subject.demands = demands(world, &info["totalRequests"]);
    }
    if !info["lastAssignment"].is_null() {
        subject.progress = Some(progress(world, &info["lastAssignment"], subject.workload.shape));
    }
    subject
}

pub fn progress(world: &mut World, value: &Value, shape: Option<ShapeHash>) -> Progress {
    let names = &mut world.engine.state_mut().names;
    let tried = value["lastTriedFlavorIdx"].as_array().into_iter().flatten().map(|entry| {
        let entries = entry.as_object().into_iter().flatten();
        entries
            .map(|(name, index)| {
                (names.resource(name), i32::try_from(index.as_i64().unwrap_or(0)).expect("index"))
            })
            .collect()
    });
    Progress {
        tried: tried.collect(),
        generation: value["clusterQueueGeneration"].as_i64().unwrap_or(0),
        cycle: value["schedulingCycle"].as_i64().unwrap_or(0),
        shape,
    }
}

fn replaced(world: &mut World, info: &Value) -> Option<Replaced> {
    if info.is_null() {
        return None;
    }
    let object = if info["workload"].is_null() { json!({}) } else { info["workload"].clone() };
    let mut workload = world.read_workload(&object);
    let held = if info["totalRequests"].is_null() {
        workload.demands()
    } else {
        demands(world, &info["totalRequests"])
    };
    if workload.admission.is_none() {
        let names: Vec<_> = info["totalRequests"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| entry["name"].as_str().unwrap_or("").to_owned())
            .collect();
        workload.admission = Some(Arc::new(quintet_queue_engine::model::Admission {
            queue: world.queue(""),
            pod_sets: names
                .iter()
                .zip(&held)
                .map(|(name, demand)| PodSetAdmission {
                    name: name.as_str().into(),
                    flavors: demand.flavors.clone(),
                    usage: demand.requests.clone(),
                    count: demand.count,
                    topology: None,
                    delayed: None,
                })
                .collect(),
        }));
    }
    Some(Replaced {
        id: WorkloadId::from_index(usize::MAX >> 33),
        workload: Arc::new(workload),
        demands: held,
    })
}

pub fn tas_uses(world: &mut World, value: &Value) -> Vec<TasUse> {
    let mut uses = Vec::new();
    for (flavor, entries) in value.as_object().into_iter().flatten() {
        for entry in entries.as_array().into_iter().flatten() {
            uses.push(TasUse {
                flavor: world.engine.state_mut().names.flavors.intern(flavor),
                domain: domain_id(&entry["values"]).into(),
                per_pod: requests(world, &entry["singlePodRequests"]),
                count: i32::try_from(entry["count"].as_i64().unwrap_or(0)).expect("count"),
            });
        }
    }
    uses
}

pub fn domain_id(values: &Value) -> String {
    let values: Vec<&str> = values.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    values.join(",")
}

fn add_usage(world: &mut World, usage: &Value) {
    for (queue, amounts) in usage.as_object().into_iter().flatten() {
        let usage = world.usage(amounts);
        let queue = world.queue(queue);
        let node = world.engine.state().queue(queue).expect("queue").node;
        world.engine.state_mut().tree.add_all(node, &usage);
    }
}

fn assign_flavors(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let mut world = World::new(case);
    for name in calls["deletedFlavors"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let id = world.engine.state_mut().names.flavors.intern(name);
        world.engine.state_mut().remove_flavor(id);
    }
    add_usage(&mut world, &calls["usage"]);
    let uses = tas_uses(&mut world, &calls["tasUsage"]);
    world.engine.state_mut().tas.change_usage(&uses, 1);
    let cycle = calls["schedulingCycle"].as_i64().unwrap_or(0);
    let mut subject =
        subject(&mut world, &calls["workload"], calls["clusterQueue"].as_str().unwrap_or(""), cycle);
    if !calls["lastAssignment"].is_null() {
        let shape = subject.workload.shape;
        subject.progress = Some(progress(&mut world, &calls["lastAssignment"], shape));
    }
    subject.replaced = replaced(&mut world, &calls["replacedSlice"]);
    let oracle = Stub::new(&mut world, &calls["oracle"]);
    let assignment = assign(world.engine.state_mut(), &oracle, &subject, None);
    Verdict::from_differences(check(case, &world, &assignment))
}

fn check(case: &Case<'_>, world: &World, assignment: &Assignment) -> Vec<String> {
    let want = case.want();
    let names = &world.engine.state().names;
    let mut found = Vec::new();
    if !want["representativeMode"].is_null() {
        found.extend(differences("mode", &json!(assignment.mode().name()), &want["representativeMode"]));
    }
    let expected = &want["assignment"];
    if let Some(pod_sets) = expected["podSets"].as_array() {
        if pod_sets.len() != assignment.pod_sets.len() {
            found.push(format!("pod sets: got {}, want {}", assignment.pod_sets.len(), pod_sets.len()));
        }
        for (got, wanted) in assignment.pod_sets.iter().zip(pod_sets) {
            found.extend(check_pod_set(world, got, wanted));
        }
        let borrowing = expected["borrowing"].as_u64().unwrap_or(0);
        if u64::from(assignment.borrowing) != borrowing {
            found.push(format!("borrowing: got {}, want {borrowing}", assignment.borrowing));
        }
        found.extend(differences("usage", &world.usage_json(&assignment.usage), &expected["usage"]["quota"]));
        let no_fit = assignment.no_fit.map_or("", |reason| reason.quota_reserved_reason().as_str());
        if no_fit != expected["noFitReason"].as_str().unwrap_or("") {
            found.push(format!("noFitReason: got {no_fit}, want {}", expected["noFitReason"]));
        }
    }
    if let Some(wanted) = want["noFitReason"].as_str() {
        let no_fit = assignment.no_fit.map_or("", |reason| reason.quota_reserved_reason().as_str());
        if no_fit != wanted {
            found.push(format!("noFitReason: got {no_fit}, want {wanted}"));
        }
    }
    for (name, attempts) in want["observed"]["attempts"].as_object().into_iter().flatten() {
        let assigned = assignment.pod_sets.iter().find(|assigned| &*assigned.name == name);
        let got: Vec<Value> = assigned.map_or_else(Vec::new, |assigned| {
            assigned.attempts.iter().map(|own| attempt(own, names)).collect()
        });
        found.extend(differences(&format!("attempts.{name}"), &Value::Array(got), attempts));
    }
    if !want["observed"]["lastTriedFlavorIdx"].is_null() {
        found.extend(differences(
            "tried",
            &tried(assignment, world),
            &want["observed"]["lastTriedFlavorIdx"],
        ));
    }
    for (name, flavors) in want["flavors"].as_object().into_iter().flatten() {
        let assigned = assignment.pod_sets.iter().find(|assigned| &*assigned.name == name);
        let mut got = json!({});
        for (resource, choice) in assigned.map_or(&[][..], |assigned| &assigned.flavors) {
            got[names.resource_name(*resource)] = names.flavor_name(choice.flavor).into();
        }
        found.extend(differences(&format!("flavors.{name}"), &got, flavors));
    }
    found
}

fn tried(assignment: &Assignment, world: &World) -> Value {
    let names = &world.engine.state().names;
    let entries = assignment.progress.tried.iter().map(|entry| {
        let entries = entry.iter().map(|(id, tried)| (names.resource_name(*id).to_owned(), json!(tried)));
        Value::Object(entries.collect())
    });
    Value::Array(entries.collect())
}

fn attempt(attempt: &Attempt, names: &quintet_queue_engine::names::Names) -> Value {
    let mut value = json!({ "flavor": names.flavor_name(attempt.flavor), "mode": attempt.mode.name() });
    if attempt.height > 0 {
        value["borrow"] = attempt.height.into();
    }
    if let Some(possibility) = attempt.possibility {
        value["preemptionPossibility"] = possibility.name().into();
    }
    if let Some(reason) = attempt.no_fit {
        value["noFitReason"] = reason.quota_reserved_reason().as_str().into();
    }
    let reasons = attempt.sorted_reasons(names);
    if !reasons.is_empty() {
        value["reasons"] = json!(reasons);
    }
    value
}

fn check_pod_set(world: &World, got: &PodSetAssignment, want: &Value) -> Vec<String> {
    let names = &world.engine.state().names;
    let path = format!("podSet {}", got.name);
    let mut found = Vec::new();
    found.extend(differences(&format!("{path}.name"), &json!(&*got.name), &want["name"]));
    if got.count != i32::try_from(want["count"].as_i64().unwrap_or(0)).unwrap() {
        found.push(format!("{path}.count: got {}, want {}", got.count, want["count"]));
    }
    let mut flavors = json!({});
    for (resource, choice) in &got.flavors {
        flavors[names.resource_name(*resource)] = json!({
            "name": names.flavor_name(choice.flavor),
            "mode": choice.mode.name(),
            "triedFlavorIdx": choice.tried,
        });
    }
    let mut wanted = want["flavors"].clone();
    for (_, choice) in wanted.as_object_mut().into_iter().flatten() {
        if choice["triedFlavorIdx"].is_null() {
            choice["triedFlavorIdx"] = 0.into();
        }
    }
    found.extend(differences(&format!("{path}.flavors"), &flavors, &wanted));
    found.extend(differences(
        &format!("{path}.requests"),
        &json!(resource_list(&got.requests, names)),
        &want["requests"],
    ));
    let reasons: Vec<String> = got.reasons.iter().map(|reason| reason.text(names)).collect();
    found.extend(set_differences(&format!("{path}.reasons"), &json!(reasons), &want["status"]["reasons"]));
    let error = got.error.clone().map_or(Value::Null, Value::String);
    found.extend(differences(&format!("{path}.error"), &error, &want["status"]["error"]));
    if !want["topologyAssignment"].is_null() {
        let topology = crate::tas::internal_json(got.topology.as_ref());
        found.extend(differences(&format!("{path}.topology"), &topology, &want["topologyAssignment"]));
    }
    found
}

fn recompute(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let mut world = World::new(case);
    let cycle = calls["schedulingCycle"].as_i64().unwrap_or(0);
    let mut subject =
        subject(&mut world, &calls["workload"], calls["clusterQueue"].as_str().unwrap_or(""), cycle);
    let oracle = Stub::new(&mut world, &calls["oracle"]);
    let first = assign(world.engine.state_mut(), &oracle, &subject, None);
    let summary = |assignment: &Assignment, world: &World| {
        json!({
            "representativeMode": assignment.mode().name(),
            "lastTriedFlavorIdx": tried(assignment, world),
            "topologyAssigned": assignment.pod_sets.iter().any(|assigned| assigned.topology.is_some()),
        })
    };
    let mut found = compare_summary("nominated", &summary(&first, &world), &case.want()["nominated"]);
    add_usage(&mut world, &calls["between"]["usage"]);
    let uses = tas_uses(&mut world, &calls["between"]["tasUsage"]);
    world.engine.state_mut().tas.change_usage(&uses, 1);
    let mut pinned = vec![Vec::new(); subject.workload.pod_sets.len()];
    for assigned in &first.pod_sets {
        pinned[assigned.index] = assigned.flavors.iter().map(|(id, choice)| (*id, choice.flavor)).collect();
    }
    subject.pinned = Some(pinned);
    subject.progress = None;
    let oracle = Stub::new(&mut world, &calls["recomputeOracle"]);
    let second = assign(world.engine.state_mut(), &oracle, &subject, None);
    found.extend(compare_summary("recomputed", &summary(&second, &world), &case.want()["recomputed"]));
    Verdict::from_differences(found)
}

fn compare_summary(what: &str, got: &Value, want: &Value) -> Vec<String> {
    let mut got = got.clone();
    if want["topologyAssigned"].is_null() {
        got["topologyAssigned"] = Value::Null;
    }
    differences(what, &got, want)
}

fn preferred(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let granular = |value: &Value| Granular {
        mode: match value["preemptionMode"].as_str().unwrap_or("") {
            "noPreemptionCandidates" => FlavorMode::NoCandidates,
            "preempt" => FlavorMode::Preempt,
            "reclaim" => FlavorMode::Reclaim,
            "fit" => FlavorMode::Fit,
            _ => FlavorMode::NoFit,
        },
        height: u32::try_from(value["borrowingLevel"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX),
    };
    let over = calls["flavorFungibility"]["preference"] == "PreemptionOverBorrowing";
    let got = granular(&calls["a"]).is_better_than(granular(&calls["b"]), over);
    Verdict::equal("preferred", &json!(got), &case.want()["preferred"])
}

fn reducer(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let number = |value: &Value| i32::try_from(value.as_i64().unwrap_or(0)).expect("count");
    let sets: Vec<(i32, i32)> = calls["podSets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|set| {
            let full = number(&set["count"]);
            (full, if set["minCount"].is_null() { full } else { number(&set["minCount"]) })
        })
        .collect();
    let limit = calls["acceptWhenTotalAtMost"].as_i64().unwrap_or(0);
    let result = search_counts(&sets, |counts| {
        let total: i64 = counts.iter().map(|count| i64::from(*count)).sum();
        (total <= limit).then_some(total)
    });
    let mut got = json!({ "found": result.is_some() });
    if let Some(total) = result {
        got["count"] = total.into();
    }
    let mut want = case.want().clone();
    if want["found"] == false {
        want["count"] = Value::Null;
    }
    Verdict::equal("search", &got, &want)
}

fn total_requests(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let mut world = World::new(case);
    let mut subject = subject(&mut world, &calls["workload"], "", 0);
    subject.replaced = replaced(&mut world, &calls["replacedSlice"]);
    let assignment = crate::preemption::assignment(&mut world, &calls["assignment"], &subject);
    let got = assignment.total_requests(&subject, world.engine.state().settings.ignores_undeclared());
    Verdict::equal("requests", &world.usage_json(&got), &case.want()["requests"])
}

fn tas_net_usage(case: &Case<'_>) -> Verdict {
    let calls = case.calls();
    let mut world = World::new(case);
    for name in calls["clusterQueue"]["tasFlavors"].as_array().into_iter().flatten().filter_map(Value::as_str)
    {
        crate::tas::add_flavor(&mut world, name, &["kubernetes.io/hostname"], &json!({}));
    }
    let subject = subject(&mut world, &calls["workload"], "", 0);
    let assignment = crate::preemption::assignment(&mut world, &calls["assignment"], &subject);
    let previous = if calls["previousAdmission"].is_null() {
        None
    } else {
        let mut object = if calls["workload"]["workload"].is_null() {
            calls["workload"].clone()
        } else {
            calls["workload"]["workload"].clone()
        };
        object["status"] = json!({ "admission": calls["previousAdmission"] });
        world.read_workload(&object).admission
    };
    let uses = assignment.tas_usage(&subject.workload, world.engine.state(), previous.as_deref());
    let names = &world.engine.state().names;
    let mut got = json!({});
    for usage in uses {
        let flavor = names.flavor_name(usage.flavor);
        if got[flavor].is_null() {
            got[flavor] = json!([]);
        }
        let per_pod: serde_json::Map<String, Value> = usage
            .per_pod
            .iter()
            .map(|(id, value)| (names.resource_name(id).to_owned(), value.into()))
            .collect();
        let values: Vec<&str> = usage.domain.split(',').collect();
        got[flavor].as_array_mut().unwrap().push(json!({
            "count": usage.count, "singlePodRequests": per_pod, "values": values,
        }));
    }
    let _ = Mode::Fit;
    Verdict::equal("usage", &got, &case.want()["usage"])
}
