//! `sparkoperator.k8s.io` SparkApplications: a driver and its executors. As `pkg/controller/jobs/sparkapplication` of
//! Kueue.
//!
//! Pods are described by fields of their own beside a template. What a pod set was assigned is written into these fields.

use std::ops::ControlFlow;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use quintet_api::kueue::v1beta2::PodSet;
use quintet_queue_engine::settings::Gates;
use serde_json::{Map, Value, json};

use super::{
    JobEnd, JsonKind, KindNames, PodSetInfo, Ranks, Role, TopologyAsk, UpdateCheck, annotations_of,
    expect_infos, integer, is_elastic, is_queued, items, names, pod_set, text,
};
use crate::settings::Settings;
use crate::validation::Errors;

/// Roles, and the names of their containers.
const ROLES: [(&str, &str); 2] =
    [("driver", "spark-kubernetes-driver"), ("executor", "spark-kubernetes-executor")];
/// Volumes that Spark adds itself.
const LOCAL_DIRECTORY: &str = "spark-local-dir-";
/// Fields of a pod that an assignment changes, beside the gates of its template.
const ASSIGNED: [(&str, &str); 4] =
    [("metadata", "annotations"), ("metadata", "labels"), ("spec", "nodeSelector"), ("spec", "tolerations")];

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct SparkApplication;

impl JsonKind for SparkApplication {
    const NAMES: KindNames = names!(
        "sparkoperator.k8s.io",
        "sparkoperator-k8s-io",
        "v1beta2",
        "SparkApplication",
        "sparkapplication"
    );
    const TAKES_PREBUILT: bool = false;
    const UPDATE: UpdateCheck = UpdateCheck::OfManaged;
    const TAKES_GROUPS: bool = false;

    fn roles(job: &Value) -> Vec<Role> {
        let role = |(name, _): &(&str, &str)| Role {
            name: (*name).to_owned(),
            count: if *name == "driver" { 1 } else { integer(&job["spec"]["executor"]["instances"], 0) },
            pointer: format!("/spec/{name}/template"),
            path: format!("spec.{name}"),
            ranks: Ranks::default(),
        };
        ROLES.iter().map(role).collect()
    }

    fn is_active(job: &Value) -> bool {
        job["status"]["applicationState"]["state"] == "RUNNING"
    }

    fn end(job: &Value) -> Option<JobEnd> {
        let state = &job["status"]["applicationState"];
        ["COMPLETED", "FAILED", "SUBMISSION_FAILED"].contains(&text(&state["state"])).then(|| JobEnd {
            succeeded: state["state"] == "COMPLETED",
            message: text(&state["errorMessage"]).to_owned(),
        })
    }

    fn is_ready(job: &Value) -> bool {
        let wanted = integer(&job["spec"]["executor"]["instances"], 0);
        let states = job["status"]["executorState"].as_object().into_iter().flatten();
        let ready = states.filter(|(_, state)| ["RUNNING", "COMPLETED"].contains(&text(state))).count();
        Self::is_active(job) && i32::try_from(ready).is_ok_and(|ready| ready >= wanted)
    }

    fn pod_sets(job: &Value, _: &[Value], gates: &Gates) -> Result<Vec<PodSet>, String> {
        let set = |(role, (name, container)): (&Role, &(&str, &str))| {
            let pod = pod_of(job, name, container);
            let template: PodTemplateSpec =
                serde_json::from_value(pod).map_err(|error| format!("spec.{name}: {error}"))?;
            Ok(pod_set(role, template, gates))
        };
        Self::roles(job).iter().zip(&ROLES).map(set).collect()
    }

    fn topology_requests(job: &Value, _: &[Value], _: &Gates) -> Result<Vec<TopologyAsk>, String> {
        let ask = |(role, (name, container)): (Role, &(&str, &str))| TopologyAsk {
            path: format!("{}.annotations", role.path),
            annotations: annotations_of(&pod_of(job, name, container)),
            count: role.count,
        };
        Ok(Self::roles(job).into_iter().zip(&ROLES).map(ask).collect())
    }

    /// The node selector of all pods becomes that of each role: the two exclude each other.
    fn inject(job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        expect_infos(ROLES.len(), infos)?;
        let shared = job["spec"].as_object_mut().and_then(|spec| spec.remove("nodeSelector"));
        for ((name, container), info) in ROLES.iter().zip(infos) {
            if let Some(shared) = &shared {
                job["spec"][name]["nodeSelector"] = shared.clone();
            }
            let mut template = as_template(&job["spec"][name]);
            info.inject_json(&mut template)?;
            write_back(&mut job["spec"][name], &template, container);
        }
        Ok(())
    }

    fn restore(job: &mut Value, sets: &[PodSet]) {
        if sets.len() != ROLES.len() {
            return;
        }
        for ((name, container), set) in ROLES.iter().zip(sets) {
            let original = serde_json::to_value(&set.template).unwrap_or_default();
            write_back(&mut job["spec"][name], &original, container);
        }
        // The schema allows no zero: what was not set stays so.
        let instances = job.pointer_mut("/spec/executor/instances");
        if let (Some(instances), Some(count)) = (instances, sets.last().and_then(|executors| executors.count))
        {
            *instances = count.into();
        }
    }

    fn check(job: &Value, settings: &Settings, errors: &mut Errors) -> ControlFlow<()> {
        if !is_queued(job, settings) {
            return ControlFlow::Continue(());
        }
        let spec = &job["spec"];
        if spec["mode"] != "cluster" {
            let why = "only Cluster mode is supported for a kueue managed job";
            errors.invalid("spec.mode", text(&spec["mode"]), why);
        }
        if spec["dynamicAllocation"]["enabled"] == true && !is_elastic(job, settings) {
            let why = "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices \
                feature gate is on and the job is an elastic job";
            errors.invalid("spec.dynamicAllocation.enabled", true, why);
        }
        ControlFlow::Continue(())
    }
}

/// The fields of a role, as a template has them.
fn as_template(role: &Value) -> Value {
    let mut template = json!({ "metadata": {}, "spec": {} });
    for (section, field) in ASSIGNED {
        template[section][field] = role[field].clone();
    }
    template["spec"]["schedulingGates"] = role["template"]["spec"]["schedulingGates"].clone();
    template
}

fn write_back(role: &mut Value, template: &Value, container: &str) {
    let put = |fields: &mut Value, name: &str, value: &Value| {
        if !fields.is_object() {
            *fields = Value::Object(Map::new());
        }
        if !value.is_null() {
            fields[name] = value.clone();
        } else if let Some(fields) = fields.as_object_mut() {
            fields.remove(name);
        }
    };
    for (section, field) in ASSIGNED {
        put(role, field, &template[section][field]);
    }
    let gates = &template["spec"]["schedulingGates"];
    if role["template"].is_null() && !gates.is_null() {
        role["template"] = json!({ "spec": { "containers": [{ "name": container }] } });
    }
    if !role["template"].is_null() {
        put(&mut role["template"]["spec"], "schedulingGates", gates);
    }
}

/// The pod that the Spark operator makes for a role, as far as its resources and its place matter.
fn pod_of(job: &Value, name: &str, container: &str) -> Value {
    let (spec, role) = (&job["spec"], &job["spec"][name]);
    let mut main = json!({ "name": container });
    let mut volumes = Vec::new();
    let mut mounts = Vec::new();
    for mount in items(&role["volumeMounts"]).filter(|own| !text(&own["name"]).starts_with(LOCAL_DIRECTORY)) {
        let Some(volume) = items(&spec["volumes"]).find(|own| own["name"] == mount["name"]) else { continue };
        if !volumes.contains(volume) {
            volumes.push(volume.clone());
        }
        mounts.push(mount.clone());
    }
    if !mounts.is_empty() {
        main["volumeMounts"] = mounts.into();
    }
    for (kind, resource, amount) in [
        ("requests", "cpu", role["coreRequest"].clone()),
        ("limits", "cpu", role["coreLimit"].clone()),
        ("requests", "memory", memory(&role["memory"])),
        ("limits", "memory", memory(&role["memoryLimit"])),
    ] {
        if !amount.is_null() {
            main["resources"][kind][resource] = amount;
        }
    }
    let (gpu, count) = (text(&role["gpu"]["name"]), integer(&role["gpu"]["quantity"], 0));
    if !gpu.is_empty() && count > 0 {
        main["resources"]["limits"][gpu] = count.to_string().into();
    }
    let containers: Vec<Value> = std::iter::once(main).chain(items(&role["sidecars"]).cloned()).collect();
    let selector =
        if role["nodeSelector"].is_object() { &role["nodeSelector"] } else { &spec["nodeSelector"] };
    let mut pod = json!({ "containers": containers });
    for (field, value) in [
        ("initContainers", &role["initContainers"]),
        ("priorityClassName", &role["priorityClassName"]),
        ("nodeSelector", selector),
        ("affinity", &role["affinity"]),
        ("tolerations", &role["tolerations"]),
        ("schedulingGates", &role["template"]["spec"]["schedulingGates"]),
    ] {
        if !value.is_null() {
            pod[field] = value.clone();
        }
    }
    if !volumes.is_empty() {
        pod["volumes"] = volumes.into();
    }
    let mut metadata = json!({});
    for field in ["labels", "annotations"] {
        let both = [&role["template"]["metadata"][field], &role[field]];
        let merged: Map<String, Value> = both
            .into_iter()
            .filter_map(Value::as_object)
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        if !merged.is_empty() {
            metadata[field] = merged.into();
        }
    }
    json!({ "metadata": metadata, "spec": pod })
}

/// Java writes `512m` for what Kubernetes calls `512Mi`.
fn memory(amount: &Value) -> Value {
    let Some(amount) = amount.as_str() else { return Value::Null };
    let lower = amount.to_lowercase();
    let units = [
        ("tb", "Ti"),
        ("gb", "Gi"),
        ("mb", "Mi"),
        ("kb", "Ki"),
        ("t", "Ti"),
        ("g", "Gi"),
        ("m", "Mi"),
        ("k", "Ki"),
    ];
    for (java, kubernetes) in units {
        if let Some(number) = lower.strip_suffix(java) {
            return format!("{number}{kubernetes}").into();
        }
    }
    amount.into()
}
