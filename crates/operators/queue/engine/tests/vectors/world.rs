//! An engine with the objects of a case.

use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_queue_engine::Engine;
use quintet_queue_engine::intake::{self, IntakeOptions, LimitSummary};
use quintet_queue_engine::model::Fr;
use quintet_queue_engine::names::{QueueId, WorkloadId};
use quintet_queue_engine::settings::Settings;
use quintet_queue_engine::tas::NodeInfo;
use quintet_queue_engine::time::Time;
use serde_json::{Value, json};

use crate::case::Case;

pub struct World {
    pub engine: Engine,
    pub options: IntakeOptions,
    pub now: Time,
    /// LimitRanges and RuntimeClasses.
    limit_ranges: Vec<Value>,
    runtime_classes: Vec<Value>,
    /// Workloads in the API, by key.
    pub api: BTreeMap<String, Value>,
}

pub fn key(object: &Value) -> String {
    let text = |path| object.pointer(path).and_then(Value::as_str).unwrap_or("");
    format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))
}

pub fn settings(case: &Case<'_>, engine_names: &mut quintet_queue_engine::names::Names) -> Settings {
    let mut settings = intake::settings(&case.config, engine_names).expect("configuration");
    for (gate, on) in case.raw["gates"].as_object().into_iter().flatten() {
        settings.gates.set(gate, on.as_bool().unwrap_or(false));
    }
    settings
}

impl World {
    /// Everything but workloads.
    pub fn without_workloads(case: &Case<'_>) -> Self {
        let now = intake::time(&case.raw["now"]).expect("now");
        let mut engine = Engine::new(Settings::default());
        engine.state.settings = settings(case, &mut engine.state.names);
        let options = IntakeOptions::from_config(&case.config).expect("options");
        let all = |kind: &str| case.objects(kind).into_iter().cloned().collect();
        let mut world = Self {
            engine,
            options,
            now,
            limit_ranges: all("limitRanges"),
            runtime_classes: all("runtimeClasses"),
            api: BTreeMap::new(),
        };
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
        let now = self.now;
        let state = &mut self.engine.state;
        match object["kind"].as_str().unwrap_or("") {
            "Namespace" => {
                let (id, labels) = intake::namespace(object, &mut state.names);
                self.engine.set_namespace(id, Some(labels), now);
            }
            "Topology" => {
                let (id, levels) = intake::topology(object, &mut state.names);
                state.set_topology(id, levels);
            }
            "ResourceFlavor" => {
                let (id, flavor) = intake::flavor(object, &mut state.names).expect("flavor");
                state.set_flavor(id, flavor);
            }
            "AdmissionCheck" => {
                let (name, check) = intake::check(object);
                state.set_check(name, Some(check));
            }
            "Cohort" => {
                let (id, spec) = intake::cohort(object, &mut state.names).expect("cohort");
                self.engine.set_cohort(id, Some(spec), now);
            }
            "ClusterQueue" => {
                let spec = intake::queue(object, &mut state.names).expect("queue");
                self.engine.set_queue(spec, now);
            }
            "LocalQueue" => {
                let (id, local_queue) = intake::local_queue(object, &mut state.names).expect("local queue");
                self.engine.set_local_queue(id, Some(local_queue));
            }
            other => panic!("unknown kind {other}"),
        }
    }

    pub fn set_nodes(&mut self, nodes: &[&Value], pods: &[&Value]) {
        let names = &mut self.engine.state.names;
        let mut all: BTreeMap<Arc<str>, NodeInfo> = BTreeMap::new();
        for node in nodes {
            let node = intake::node(node, names).expect("node");
            all.insert(Arc::clone(&node.name), node);
        }
        for pod in pods {
            if let Some((node, usage)) = intake::pod_usage(pod, names).expect("pod")
                && let Some(node) = all.get_mut(&node)
            {
                node.non_tas_usage.add(&usage);
            }
        }
        self.engine.state.tas.set_nodes(all.into_iter().map(|(name, node)| (name, Some(node))));
    }

    pub fn read_workload(&mut self, object: &Value) -> quintet_queue_engine::model::Workload {
        let mut object = object.clone();
        let namespace = object.pointer("/metadata/namespace").cloned().unwrap_or_default();
        let own =
            |range: &&Value| range.pointer("/metadata/namespace").cloned().unwrap_or_default() == namespace;
        let limits = LimitSummary::new(self.limit_ranges.iter().filter(own)).expect("limit ranges");
        if object.pointer("/status/admission").is_none_or(Value::is_null) {
            let classes: Vec<&Value> = self.runtime_classes.iter().collect();
            intake::adjust_resources(&mut object, &classes, &limits);
        }
        let state = &mut self.engine.state;
        let gates = state.settings.gates.clone();
        let mut workload =
            intake::workload(&object, &self.options, &gates, &mut state.names).expect("workload");
        let mut invalid = |what: &str, errors: &[intake::FieldError]| {
            let links = workload.links.get_or_insert_default();
            if !errors.is_empty() && links.invalid.is_none() {
                links.invalid = Some(format!("{what}: {}", intake::FieldError::join(errors)));
            }
        };
        let errors = intake::validate_resources(&object, &mut state.names).expect("resources");
        invalid("resources validation failed", &errors);
        let mut errors = Vec::new();
        for (index, pod_set) in object["spec"]["podSets"].as_array().into_iter().flatten().enumerate() {
            let path = format!("spec.podSets[{index}].template.spec");
            errors
                .extend(limits.validate(&pod_set["template"]["spec"], &path, &mut state.names).expect("pod"));
        }
        invalid("resources didn't satisfy LimitRange constraints", &errors);
        workload
    }

    pub fn add_workload(&mut self, object: &Value) -> WorkloadId {
        self.api.insert(key(object), object.clone());
        let workload = self.read_workload(object);
        self.engine.set_workload(workload, self.now)
    }

    pub fn key_of(&self, id: WorkloadId) -> String {
        self.engine
            .state
            .workload(id)
            .map_or_else(String::new, |workload| self.engine.state.key_text(&workload.key))
    }

    pub fn queue(&mut self, name: &str) -> QueueId {
        self.engine.state.names.queues.intern(name)
    }

    pub fn fr(&mut self, flavor: &str, resource: &str) -> Fr {
        let names = &mut self.engine.state.names;
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
        let names = &self.engine.state.names;
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

pub fn amount_of(value: &Value) -> quintet_queue_engine::amount::Amount {
    use quintet_queue_engine::amount::Amount;
    if value == "unlimited" { Amount::UNLIMITED } else { Amount::new(value.as_i64().unwrap_or(0)) }
}

pub fn amount_json(amount: quintet_queue_engine::amount::Amount) -> Value {
    if amount.is_unlimited() { "unlimited".into() } else { amount.get().into() }
}
