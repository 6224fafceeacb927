//! Objects for examples and tests, from JSON and in one line each.

use serde_json::{Value, json};

use crate::engine::Engine;
use crate::ingest;
use crate::model::{QueueSpec, WorkloadKey};
use crate::names::{Id, WorkloadId};
use crate::settings::Settings;
use crate::time::Time;

/// An engine with these objects, in any order; namespaces of LocalQueues are made as needed.
pub fn engine(objects: &[Value]) -> Engine {
    engine_with(Settings::default(), objects)
}

/// As [`engine`], with settings.
pub fn engine_with(settings: Settings, objects: &[Value]) -> Engine {
    const ORDER: [&str; 8] = [
        "Namespace",
        "Topology",
        "ResourceFlavor",
        "Node",
        "Cohort",
        "ClusterQueue",
        "LocalQueue",
        "Workload",
    ];
    let mut engine = Engine::new(settings);
    for kind in ORDER {
        for object in objects.iter().filter(|object| object.get("kind").is_some_and(|own| own == kind)) {
            add(&mut engine, object);
        }
    }
    engine
}

/// Adds or changes one object.
///
/// # Panics
/// If the object cannot be ingested: a test would go on without it.
#[expect(clippy::panic, reason = "for examples and tests only")]
pub fn add(engine: &mut Engine, object: &Value) {
    let start = Time::ZERO;
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    if let Some(namespace) = namespace {
        let id = engine.state.names.namespaces.intern(namespace);
        if engine.state.namespace(id).is_none() {
            engine.set_namespace(id, Some(crate::labels::Labels::new()), start);
        }
    }
    if let Err(error) = engine.apply_json(object, start) {
        panic!("{error}: {object}");
    }
}

/// Ingests a ClusterQueue without adding it.
///
/// # Panics
/// If the object cannot be ingested.
#[expect(clippy::panic, reason = "for examples and tests only")]
pub fn queue(engine: &mut Engine, object: &Value) -> QueueSpec {
    let decoded = ingest::decode("ClusterQueue", object);
    match decoded.and_then(|queue| ingest::cluster_queue(&queue, &mut engine.state.names)) {
        Ok(queue) => queue,
        Err(error) => panic!("{error}: {object}"),
    }
}

/// A pending Workload of one pod that requests `cpu` cores. Its UID is its name.
pub fn workload(namespace: &str, name: &str, queue: &str, cpu: i64) -> Value {
    json!({
        "kind": "Workload",
        "metadata": { "namespace": namespace, "name": name, "uid": name },
        "spec": { "queueName": queue, "podSets": [{
            "name": "main", "count": 1,
            "template": { "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu.to_string() } } }] } },
        }] },
    })
}

/// The id of a workload, or one that no workload has.
pub fn id(engine: &Engine, namespace: &str, name: &str) -> WorkloadId {
    let namespace = engine.state.names.namespaces.get(namespace);
    let key = namespace.map(|namespace| WorkloadKey { namespace, name: name.into() });
    key.and_then(|key| engine.state.workload_id(&key))
        .unwrap_or_else(|| WorkloadId::from_index(u32::MAX as usize))
}
