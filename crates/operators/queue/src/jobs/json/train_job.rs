//! `trainer.kubeflow.org` TrainJobs: a JobSet that is rendered from a training runtime. As `pkg/controller/jobs/trainjob` of
//! Kueue.
//!
//! The templates are the runtime's, so what pod sets were assigned is a patch of the runtime in the TrainJob. Patches can be
//! changed only while the job is suspended and has no pods.

use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod};
use quintet_controller::{ApiKind, ObjectKey};
use quintet_queue_engine::settings::Gates;
use serde_json::{Value, json};

use super::{
    JobEnd, JsonKind, KindNames, PodSetInfo, Reference, Role, TopologyAsk, end_by_conditions, integer, items,
    job_set, names, pod_set, template_of, text,
};
use crate::settings::Settings;

const GROUP: &str = "trainer.kubeflow.org";
const VERSION: &str = "v1alpha1";
/// Who writes the patches of runtimes that are ours.
pub(in super::super) const MANAGER: &str = "kueue.x-k8s.io/manager";
/// Label of a Job in a runtime: which part of a TrainJob it is.
const ANCESTOR: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
const TRAINER: &str = "trainer";
/// The Job and the container of the nodes that train.
const NODE: &str = "node";
/// Initializers, and their fields in a TrainJob.
const INITIALIZERS: [(&str, &str); 2] = [("dataset-initializer", "dataset"), ("model-initializer", "model")];
/// Lists of objects that patches merge, and the fields that name their items.
const MERGED: [(&str, &str); 8] = [
    ("containers", "name"),
    ("env", "name"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("replicatedJobs", "name"),
    ("schedulingGates", "name"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct TrainJob;

fn runtimes() -> [ApiKind; 2] {
    [
        ApiKind::cluster_scoped(GROUP, VERSION, "ClusterTrainingRuntime", "clustertrainingruntimes"),
        ApiKind::namespaced(GROUP, VERSION, "TrainingRuntime", "trainingruntimes"),
    ]
}

impl JsonKind for TrainJob {
    const NAMES: KindNames =
        names!("trainer.kubeflow.org", "trainer-kubeflow-org", "v1alpha1", "TrainJob", "trainjob");
    const CHANGES_WHILE_SUSPENDED: bool = true;
    const TAKES_GROUPS: bool = false;

    /// None: its templates are those of its runtime.
    fn roles(_: &Value) -> Vec<Role> {
        Vec::new()
    }

    fn is_active(job: &Value) -> bool {
        items(&job["status"]["jobsStatus"]).any(|own| integer(&own["active"], 0) > 0)
    }

    fn end(job: &Value) -> Option<JobEnd> {
        end_by_conditions(job, "Complete", "Failed")
    }

    /// Every Job has one replica.
    fn is_ready(job: &Value) -> bool {
        let is_ready = |own: &Value| integer(&own["ready"], 0) + integer(&own["succeeded"], 0) > 0;
        let mut jobs = items(&job["status"]["jobsStatus"]).peekable();
        jobs.peek().is_some() && jobs.all(is_ready)
    }

    fn reclaimable_pods(job: &Value, related: &[Value]) -> Vec<ReclaimablePod> {
        let jobs = related.first().map(|runtime| rendered(job, &runtime["spec"]));
        job_set::reclaimable(&jobs.unwrap_or_default(), &job["status"]["jobsStatus"])
    }

    fn related_kinds() -> Vec<ApiKind> {
        runtimes().into()
    }

    fn references(job: &Value) -> Vec<Reference> {
        let runtime = &job["spec"]["runtimeRef"];
        let [of_cluster, of_namespace] = runtimes();
        let name = text(&runtime["name"]);
        if runtime["kind"] == "TrainingRuntime" {
            let namespace = text(&job["metadata"]["namespace"]);
            return vec![Reference { kind: of_namespace, key: ObjectKey::new(namespace, name) }];
        }
        vec![Reference { kind: of_cluster, key: ObjectKey::cluster(name) }]
    }

    fn pod_sets(job: &Value, related: &[Value], gates: &Gates) -> Result<Vec<PodSet>, String> {
        let runtime = related.first().ok_or_else(|| missing(job))?;
        let jobs = json!({ "jobs": rendered(job, &runtime["spec"]) });
        let set = |role: &Role| Ok(pod_set(role, template_of(&jobs, role)?, gates));
        job_set::roles_of(&jobs["jobs"], "/jobs", "jobs").iter().map(set).collect()
    }

    const TOPOLOGY_HINT: &'static str = ". Adjust either the \"TrainJob.spec.runtimePatches\" or the \
        \"TrainingRuntime.Template\" annotations for the corresponding Job";

    fn topology_requests(job: &Value, related: &[Value], gates: &Gates) -> Result<Vec<TopologyAsk>, String> {
        let ask = |set: PodSet| TopologyAsk {
            path: format!("job[{}].annotations", set.name.unwrap_or_default()),
            annotations: json!(set.template.metadata.and_then(|metadata| metadata.annotations)),
            count: set.count.unwrap_or(1),
        };
        Ok(Self::pod_sets(job, related, gates)?.into_iter().map(ask).collect())
    }

    fn inject(job: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        let patches: Vec<Value> = infos.iter().map(patch_of).collect();
        let own = own_patch(job).ok_or("kueue runtime patch not found")?;
        own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"] = patches.into();
        Ok(())
    }

    fn restore(job: &mut Value, _: &[PodSet]) {
        let spec = own_patch(job).map(|own| &mut own["trainingRuntimeSpec"]["template"]["spec"]);
        if let Some(fields) = spec.and_then(Value::as_object_mut) {
            fields.remove("replicatedJobs");
        }
    }

    fn is_restored(job: &Value) -> bool {
        let own = items(&job["spec"]["runtimePatches"]).find(|patch| patch["manager"] == MANAGER);
        own.is_none_or(|own| own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].is_null())
    }

    fn default(job: &mut Value, _: &Settings) {
        let patches = &mut job["spec"]["runtimePatches"];
        if !patches.is_array() {
            *patches = json!([]);
        }
        if let Some(patches) = patches.as_array_mut() {
            patches.push(json!({ "manager": MANAGER,
                "trainingRuntimeSpec": { "template": { "spec": {} } } }));
        }
    }
}

/// What is said of a TrainJob whose runtime does not exist.
fn missing(job: &Value) -> String {
    format!("runtime '{}' not found", text(&job["spec"]["runtimeRef"]["name"]))
}

/// The patch of the runtime that is ours.
fn own_patch(job: &mut Value) -> Option<&mut Value> {
    let patches = job["spec"]["runtimePatches"].as_array_mut()?;
    patches.iter_mut().find(|patch| patch["manager"] == MANAGER)
}

/// What a pod set was assigned, as a patch of its Job.
fn patch_of(info: &PodSetInfo) -> Value {
    let assigned = info.to_json();
    let part = |names: &[&str]| {
        let known = names.iter().filter(|name| !assigned[**name].is_null());
        known.map(|name| ((*name).to_owned(), assigned[*name].clone())).collect::<Value>()
    };
    let template = json!({ "metadata": part(&["annotations", "labels"]),
        "spec": part(&["nodeSelector", "tolerations", "schedulingGates"]) });
    json!({ "name": info.name, "template": { "spec": { "template": template } } })
}

/// The replicated Jobs of the JobSet that the trainer makes of a TrainJob: as far as their pods and counts matter.
fn rendered(job: &Value, runtime: &Value) -> Value {
    let mut spec = runtime["template"]["spec"].clone();
    for patch in items(&job["spec"]["runtimePatches"]).filter(|patch| patch["manager"] != MANAGER) {
        merge(&mut spec, &patch["trainingRuntimeSpec"]["template"]["spec"]);
    }
    let policy = &runtime["mlPolicy"];
    for replicated in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
        let step = text(&replicated["template"]["metadata"]["labels"][ANCESTOR]).to_owned();
        // The trainer gives every Job at least one pod, and as many completions as pods.
        let parallelism = integer(&replicated["template"]["spec"]["parallelism"], 1).max(1);
        let count = nodes(job, policy, &step, text(&replicated["name"])).unwrap_or(parallelism);
        replicated["template"]["spec"]["parallelism"] = count.into();
        replicated["template"]["spec"]["completions"] = count.into();
        let is_node = policy["mpi"]["runLauncherAsNode"] == true && replicated["name"] == NODE;
        let containers = replicated.pointer_mut("/template/spec/template/spec/containers");
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            if step == TRAINER || is_node {
                set_trainer(container, &job["spec"]["trainer"], step == TRAINER);
            }
            for (name, field) in INITIALIZERS {
                if step == name && container["name"] == name {
                    set_initializer(container, &job["spec"]["initializer"][field]);
                }
            }
        }
    }
    spec["replicatedJobs"].take()
}

/// How many pods a Job has, unless its own fields say so.
fn nodes(job: &Value, policy: &Value, step: &str, name: &str) -> Option<i32> {
    let asked = job["spec"]["trainer"]["numNodes"].as_i64().and_then(|count| i32::try_from(count).ok());
    if policy["mpi"].is_object() && name == NODE {
        let is_launcher_node = policy["mpi"]["runLauncherAsNode"] == true;
        return asked.map(|count| if is_launcher_node { (count - 1).max(1) } else { count });
    }
    if step != TRAINER || policy["mpi"].is_object() {
        return (step == TRAINER && !policy.is_null()).then(|| integer(&policy["numNodes"], 1));
    }
    asked.or_else(|| (!policy.is_null()).then(|| integer(&policy["numNodes"], 1)))
}

fn set_trainer(container: &mut Value, trainer: &Value, is_trainer: bool) {
    if container["name"] != NODE {
        return;
    }
    for field in ["image", "command", "args"] {
        if is_trainer && !trainer[field].is_null() {
            container[field] = trainer[field].clone();
        }
    }
    if !trainer["resourcesPerNode"].is_null() {
        let resources = &mut container["resources"];
        if !resources.is_object() {
            *resources = json!({});
        }
        merge(resources, &trainer["resourcesPerNode"]);
    }
    add_env(container, &trainer["env"]);
}

fn set_initializer(container: &mut Value, initializer: &Value) {
    if let Some(uri) = initializer["storageUri"].as_str() {
        add_env(container, &json!([{ "name": "STORAGE_URI", "value": uri }]));
    }
    add_env(container, &initializer["env"]);
    if initializer["secretRef"].is_object() {
        let source = json!({ "secretRef": { "name": initializer["secretRef"]["name"] } });
        match container["envFrom"].as_array_mut() {
            Some(sources) => sources.push(source),
            None => container["envFrom"] = json!([source]),
        }
    }
}

fn add_env(container: &mut Value, env: &Value) {
    if env.is_array() {
        merge(container, &json!({ "env": env }));
    }
}

/// Merges a patch: objects by field, lists of named items by name. Other values take the place of what was there.
fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return };
    for (name, value) in fields {
        let key = MERGED.iter().find(|(list, _)| list == name).map(|(_, key)| *key);
        let place = &mut into[name.as_str()];
        match (value, key) {
            (Value::Object(_), _) if place.is_object() => merge(place, value),
            (Value::Array(patches), Some(key)) if place.is_array() => merge_items(place, patches, key),
            _ => *place = value.clone(),
        }
    }
}

fn merge_items(into: &mut Value, patches: &[Value], key: &str) {
    let Some(known) = into.as_array_mut() else { return };
    for patch in patches {
        match known.iter_mut().find(|item| item[key] == patch[key]) {
            Some(item) => merge(item, patch),
            None => known.push(patch.clone()),
        }
    }
}
