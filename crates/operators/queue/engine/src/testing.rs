//! Objects for examples and tests, from JSON and in one line each.

use serde_json::{Value, json};

use crate::engine::Engine;
use crate::intake::{self, IntakeOptions};
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
    let mut engine = Engine::new(settings);
    let order = [
        "Namespace",
        "Topology",
        "ResourceFlavor",
        "Node",
        "Cohort",
        "ClusterQueue",
        "LocalQueue",
        "Workload",
    ];
    for kind in order {
        for object in objects.iter().filter(|object| object.get("kind").is_some_and(|own| own == kind)) {
            add(&mut engine, object);
        }
    }
    engine
}

/// Adds or changes one object; one that cannot be read is left out.
pub fn add(engine: &mut Engine, object: &Value) {
    let start = Time::ZERO;
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("");
    let names = &mut engine.state.names;
    match kind {
        "Namespace" => {
            let (id, labels) = intake::namespace(object, names);
            engine.set_namespace(id, Some(labels), start);
        }
        "Topology" => {
            let (id, levels) = intake::topology(object, names);
            engine.set_topology(id, Some(levels), start);
        }
        "ResourceFlavor" => {
            if let Ok((id, flavor)) = intake::flavor(object, names) {
                engine.set_flavor(id, Some(flavor), start);
            }
        }
        "Node" => {
            if let Ok(node) = intake::node(object, names) {
                engine.state.tas.set_nodes([(std::sync::Arc::clone(&node.name), Some(node))]);
            }
        }
        "Cohort" => {
            if let Ok((id, spec)) = intake::cohort(object, names) {
                engine.set_cohort(id, Some(spec), start);
            }
        }
        "ClusterQueue" => {
            let spec = queue(engine, object);
            engine.set_queue(spec, start);
        }
        "LocalQueue" => {
            let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("");
            let id = names.namespaces.intern(namespace);
            if engine.state.namespace(id).is_none() {
                engine.set_namespace(id, Some(crate::labels::Labels::new()), start);
            }
            if let Ok((id, local_queue)) = intake::local_queue(object, &mut engine.state.names) {
                engine.set_local_queue(id, Some(local_queue));
            }
        }
        _ => {
            let gates = engine.state.settings.gates.clone();
            if let Ok(workload) =
                intake::workload(object, &IntakeOptions::default(), &gates, &mut engine.state.names)
            {
                engine.set_workload(workload, start);
            }
        }
    }
}

/// Reads a ClusterQueue; one that cannot be read owns nothing.
pub fn queue(engine: &mut Engine, object: &Value) -> QueueSpec {
    let names = &mut engine.state.names;
    intake::queue(object, names).unwrap_or_else(|_| QueueSpec::new(names.queues.intern("")))
}

/// A pending Workload of one pod that asks for `cpu` cores. Its UID is its name.
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

/// The id of a workload, or one that nobody has.
pub fn id(engine: &Engine, namespace: &str, name: &str) -> WorkloadId {
    let namespace = engine.state.names.namespaces.get(namespace);
    let key = namespace.map(|namespace| WorkloadKey { namespace, name: name.into() });
    key.and_then(|key| engine.state.workload_id(&key))
        .unwrap_or_else(|| WorkloadId::from_index(u32::MAX as usize))
}
