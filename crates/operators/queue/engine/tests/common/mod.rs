//! Objects in one line each, for the tests of this crate.

#![allow(dead_code, reason = "every test target uses a part of it")]
#![allow(unreachable_pub, reason = "shared by test targets")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may stop where it is wrong")]

use std::sync::Arc;

use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_queue_engine::Engine;
use quintet_queue_engine::internals::cycle::{CycleReport, Outcome, evaluate};
use quintet_queue_engine::internals::flavors::{Assignment, Subject};
use quintet_queue_engine::internals::preemption::PreemptionReason;
use quintet_queue_engine::internals::queue::PendingQueue;
use quintet_queue_engine::internals::quota::NodeId;
use quintet_queue_engine::model::Fr;
use quintet_queue_engine::names::{QueueId, WorkloadId};
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::testing;
use quintet_queue_engine::time::Time;
use serde_json::{Value, json};

pub const NOW: Time = Time::from_secs(1_735_689_600);

pub fn engine(settings: Settings, objects: &[Value]) -> Engine {
    testing::engine_with(settings, objects)
}

pub fn add(engine: &mut Engine, object: &Value) {
    testing::add(engine, object);
}

pub fn flavor(name: &str) -> Value {
    json!({ "kind": "ResourceFlavor", "metadata": { "name": name } })
}

/// A queue with `cpu` cores of flavor `default`, in a cohort unless that is empty.
pub fn queue(name: &str, cohort: &str, cpu: i64, preemption: Value) -> Value {
    let groups = json!([{ "coveredResources": ["cpu"], "flavors": [
        { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": cpu.to_string() }] }] }]);
    let mut queue = queue_with(name, cohort, &groups);
    if preemption.as_object().is_some_and(|policies| !policies.is_empty()) {
        queue["spec"]["preemption"] = preemption;
    }
    queue
}

pub fn queue_with(name: &str, cohort: &str, groups: &Value) -> Value {
    json!({ "kind": "ClusterQueue", "metadata": { "name": name }, "spec": {
        "cohortName": cohort, "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "resourceGroups": groups } })
}

/// A LocalQueue of the same name as its queue.
pub fn local_queue(queue: &str) -> Value {
    json!({ "kind": "LocalQueue", "metadata": { "namespace": "ns", "name": queue }, "spec": { "clusterQueue": queue } })
}

pub fn pending(name: &str, queue: &str, milli: i64, priority: i32) -> Value {
    let mut workload = testing::workload("ns", name, queue, 1);
    workload["spec"]["priority"] = priority.into();
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
        format!("{milli}m").into();
    workload
}

/// A workload admitted an hour ago.
pub fn admitted(name: &str, queue: &str, milli: i64, priority: i32) -> Value {
    let mut workload = pending(name, queue, milli, priority);
    workload["status"] = json!({
        "admission": { "clusterQueue": queue, "podSetAssignments": [{
            "name": "main", "count": 1, "flavors": { "cpu": "default" }, "resourceUsage": { "cpu": format!("{milli}m") } }] },
        "conditions": [
            { "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "lastTransitionTime": "2024-12-31T23:00:00Z" },
            { "type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": "2024-12-31T23:00:00Z" }],
    });
    workload
}

pub fn id(engine: &Engine, name: &str) -> WorkloadId {
    testing::id(engine, "ns", name)
}

pub fn node(engine: &Engine, queue: &str) -> NodeId {
    engine.state().queue(queue_id(engine, queue)).expect("queue").node
}

pub fn fr(engine: &mut Engine, resource: &str) -> Fr {
    let names = &mut engine.state_mut().names;
    Fr { flavor: names.flavors.intern("default"), resource: names.resource(resource) }
}

pub fn name_of(engine: &Engine, id: WorkloadId) -> String {
    engine.state().workload(id).map_or_else(String::new, |workload| workload.key.name.to_string())
}

/// The workloads to evict, and why.
pub fn preempted(engine: &Engine, report: &CycleReport) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for decision in &report.decisions {
        if let Outcome::Unadmitted(unadmitted) = &decision.outcome {
            found.extend(unadmitted.evict.iter().map(|target| {
                (name_of(engine, target.workload), target.reason.map_or("", PreemptionReason::as_str))
            }));
        }
    }
    found
}

/// Lets all evictions happen; returns how many.
pub fn evict(engine: &mut Engine, report: &CycleReport, now: Time) -> usize {
    let mut evicted = 0;
    for decision in &report.decisions {
        if let Outcome::Unadmitted(unadmitted) = &decision.outcome {
            for target in &unadmitted.evict {
                engine.return_to_queue(target.workload, now);
                evicted += 1;
            }
        }
    }
    evicted
}

/// The reason and message of a workload that was not admitted.
pub fn unadmitted(engine: &Engine, report: &CycleReport, name: &str) -> Option<(&'static str, String)> {
    let wanted = id(engine, name);
    report.decisions.iter().find(|decision| decision.workload == wanted).and_then(|decision| match &decision
        .outcome
    {
        Outcome::Unadmitted(unadmitted) => {
            Some((unadmitted.reason.map_or("", QuotaReservedReason::as_str), unadmitted.message.clone()))
        }
        _ => None,
    })
}

pub fn is_admitted(engine: &Engine, name: &str) -> bool {
    engine.state().held(id(engine, name)).is_some()
}

/// Fair sharing with both strategies.
pub fn fair() -> Settings {
    Settings { fair_sharing: Some(Settings::DEFAULT_STRATEGIES.to_vec()), ..Settings::default() }
}

pub fn pending_queue<'e>(engine: &'e Engine, name: &str) -> &'e PendingQueue {
    engine.pending(queue_id(engine, name)).unwrap()
}

pub fn queue_id(engine: &Engine, name: &str) -> QueueId {
    engine.state().names.queues.get(name).unwrap()
}

/// Removes a workload.
pub fn remove(engine: &mut Engine, name: &str) {
    let key = engine.state().workload(id(engine, name)).unwrap().key.clone();
    engine.remove_workload(&key, NOW);
}

pub fn strict(mut queue: Value) -> Value {
    queue["spec"]["queueingStrategy"] = "StrictFIFO".into();
    queue
}

/// A queue with the given flavors and cores.
pub fn flavored(name: &str, cohort: &str, flavors: &[(&str, i64)]) -> Value {
    let flavors: Vec<Value> = flavors
        .iter()
        .map(|(name, cpu)| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": cpu.to_string() }] }))
        .collect();
    queue_with(name, cohort, &json!([{ "coveredResources": ["cpu"], "flavors": flavors }]))
}

pub fn evaluated(engine: &mut Engine, name: &str, queue: &str) -> (Assignment, usize) {
    let workload = Arc::clone(engine.state().workload(id(engine, name)).unwrap());
    let mut subject = Subject::new(workload, queue_id(engine, queue), 1);
    let (assignment, targets) = evaluate(engine.state_mut(), &mut subject);
    (assignment, targets.len())
}

/// A cluster of hosts with a topology, as objects.
pub fn cluster(levels: &[&str], hosts: &[(&str, i64)]) -> Vec<Value> {
    let mut objects = vec![
        json!({ "kind": "Topology", "metadata": { "name": "t" },
            "spec": { "levels": levels.iter().map(|level| json!({ "nodeLabel": level })).collect::<Vec<_>>() } }),
        json!({ "kind": "ResourceFlavor", "metadata": { "name": "default" }, "spec": { "topologyName": "t" } }),
        queue("cq", "", 100, json!({})),
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
    objects
}

pub fn with_topology(count: i32, request: Value) -> Value {
    let mut workload = pending("w", "cq", 1000, 0);
    workload["spec"]["podSets"][0]["count"] = count.into();
    workload["spec"]["podSets"][0]["topologyRequest"] = request;
    workload
}

pub fn places(engine: &Engine) -> Option<Vec<(String, i32)>> {
    let admission = engine.state().workload(id(engine, "w"))?.admission.clone()?;
    let topology = admission.pod_sets[0].topology.clone()?;
    let place =
        |domain: &quintet_queue_engine::internals::tas::DomainAssignment| (domain.domain_id(), domain.count);
    Some(topology.domains.iter().map(place).collect())
}

pub const HOST: &str = "kubernetes.io/hostname";
