//! An engine with the objects of a case.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use quintet_queue_engine::Engine;
use quintet_queue_engine::ingest::{self, PodDefaults, PodUsage};
use quintet_queue_engine::internals::state::State;
use quintet_queue_engine::model::{Fr, Workload};
use quintet_queue_engine::names::{Names, QueueId, WorkloadId};
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::time::Time;
use serde_json::{Value, json};

use crate::case::Case;
use crate::objects::{decode, time};

pub struct World {
    pub engine: Engine,
    pub now: Time,
    defaults: PodDefaults,
    /// Workloads in the API, by key.
    pub api: BTreeMap<String, Value>,
}

pub fn key(object: &Value) -> String {
    let text = |path| object.pointer(path).and_then(Value::as_str).unwrap_or("");
    format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))
}

/// The manager configuration of a case, without fields for the runner.
pub fn configuration(config: &Value, names: &mut Names) -> Settings {
    const KNOWN: [&str; 4] = ["fairSharing", "admissionFairSharing", "resources", "waitForPodsReady"];
    let mut own = config.clone();
    if let Some(fields) = own.as_object_mut() {
        fields.retain(|key, _| KNOWN.contains(&key.as_str()));
    }
    ingest::settings(&decode(&own), names)
}

pub fn settings(case: &Case<'_>, names: &mut Names) -> Settings {
    let mut settings = configuration(&case.config, names);
    for (gate, on) in case.raw["gates"].as_object().into_iter().flatten() {
        settings.gates.set(gate, on.as_bool().unwrap_or(false));
    }
    settings
}

impl World {
    /// Everything but workloads.
    pub fn without_workloads(case: &Case<'_>) -> Self {
        let mut engine = Engine::new(Settings::default());
        let settings = settings(case, &mut engine.state_mut().names);
        engine.state_mut().settings = settings;
        let mut defaults = PodDefaults::default();
        for range in case.objects("limitRanges") {
            defaults.apply_limit_range(&decode(range)).expect("limit range");
        }
        for class in case.objects("runtimeClasses") {
            defaults.apply_runtime_class(&decode(class));
        }
        let now = time(&case.raw["now"]);
        let mut world = Self { engine, now, defaults, api: BTreeMap::new() };
        for object in case.objects("namespaces") {
            world.add(object);
        }
        for kind in
            ["topologies", "resourceFlavors", "admissionChecks", "cohorts", "clusterQueues", "localQueues"]
        {
            for object in case.objects(kind) {
                world.add(object);
            }
        }
        world.set_nodes(&case.objects("nodes"), &case.objects("pods"));
        world
    }

    pub fn new(case: &Case<'_>) -> Self {
        let mut world = Self::without_workloads(case);
        for object in case.objects("workloads") {
            world.add_workload(object);
        }
        world
    }

    pub fn add(&mut self, object: &Value) {
        let (engine, now) = (&mut self.engine, self.now);
        match object["kind"].as_str().unwrap_or("") {
            "Namespace" => engine.apply_namespace(&decode(object), now),
            // Without a flush: the cases begin with everything in place.
            "Topology" => {
                let state = engine.state_mut();
                let (id, levels) = ingest::topology(&decode(object), &mut state.names);
                state.set_topology(id, levels);
            }
            "ResourceFlavor" => {
                let state = engine.state_mut();
                let (id, flavor) =
                    ingest::resource_flavor(&decode(object), &mut state.names).expect("flavor");
                state.set_flavor(id, flavor);
            }
            "AdmissionCheck" => {
                let (name, check) = ingest::admission_check(&decode(object));
                engine.state_mut().set_check(name, Some(check));
            }
            "Cohort" => engine.apply_cohort(&decode(object), now).expect("cohort"),
            "ClusterQueue" => engine.apply_cluster_queue(&decode(object), now).expect("queue"),
            "LocalQueue" => engine.apply_local_queue(&decode(object)).expect("local queue"),
            other => panic!("unknown kind {other}"),
        }
    }

    pub fn set_nodes(&mut self, nodes: &[&Value], pods: &[&Value]) {
        let state = self.engine.state_mut();
        let mut usage = PodUsage::default();
        for pod in pods {
            let pod: Pod = decode(pod);
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let on_node = ingest::pod_on_node(&pod).expect("pod");
            usage.apply(namespace, name, on_node.as_ref(), &mut state.names);
        }
        let nodes = nodes.iter().map(|node| {
            let mut node = ingest::node(&decode(node), &mut state.names).expect("node");
            node.non_tas_usage = usage.of_node(&node.name);
            (Arc::clone(&node.name), Some(node))
        });
        let nodes: Vec<_> = nodes.collect();
        state.tas.set_nodes(nodes);
    }

    pub fn read_workload(&mut self, object: &Value) -> Workload {
        let State { names, settings, .. } = self.engine.state_mut();
        self.defaults.workload(&decode(object), settings, names).expect("workload")
    }

    pub fn add_workload(&mut self, object: &Value) -> WorkloadId {
        self.api.insert(key(object), object.clone());
        let workload = self.read_workload(object);
        self.engine.set_workload(workload, self.now)
    }

    pub fn key_of(&self, id: WorkloadId) -> String {
        let state = self.engine.state();
        state.workload(id).map_or_else(String::new, |workload| state.key_text(&workload.key))
    }

    pub fn queue(&mut self, name: &str) -> QueueId {
        self.engine.state_mut().names.queues.intern(name)
    }

    pub fn fr(&mut self, flavor: &str, resource: &str) -> Fr {
        let names = &mut self.engine.state_mut().names;
        Fr { flavor: names.flavors.intern(flavor), resource: names.resource(resource) }
    }

    /// `{flavor:{resource:n}}` as usage.
    pub fn usage(&mut self, value: &Value) -> quintet_queue_engine::model::Usage {
        let mut usage = Vec::new();
        for (flavor, resources) in value.as_object().into_iter().flatten() {
            for (resource, amount) in resources.as_object().into_iter().flatten() {
                usage.push((self.fr(flavor, resource), amount_of(amount)));
            }
        }
        usage
    }

    /// Usage as `{flavor:{resource:n}}`.
    pub fn usage_json(&self, usage: &quintet_queue_engine::model::Usage) -> Value {
        let names = &self.engine.state().names;
        let mut result = json!({});
        for (fr, amount) in usage {
            let flavor = names.flavor_name(fr.flavor);
            if result[flavor].is_null() {
                result[flavor] = json!({});
            }
            result[flavor][names.resource_name(fr.resource)] = amount_json(*amount);
        }
        result
    }
}

pub fn amount_of(value: &Value) -> quintet_queue_engine::internals::amount::Amount {
    use quintet_queue_engine::internals::amount::Amount;
    if value == "unlimited" { Amount::UNLIMITED } else { Amount::new(value.as_i64().unwrap_or(0)) }
}

pub fn amount_json(amount: quintet_queue_engine::internals::amount::Amount) -> Value {
    if amount.is_unlimited() { "unlimited".into() } else { amount.get().into() }
}
