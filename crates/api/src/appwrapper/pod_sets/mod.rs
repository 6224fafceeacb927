//! The pod sets of components: where their pod templates are, and how many pods come from each. The order is that of
//! Kueue's pod sets.

mod path;

use std::collections::BTreeMap;

use serde_json::Value;

use super::AppWrapperPodSet;
use super::metadata::{TAS_POD_INDEX_LABEL, TAS_SUB_GROUP_COUNT, TAS_SUB_GROUP_INDEX_LABEL};
pub use path::{at_path, at_path_mut};

const JOB_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const JOBSET_JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
const TRAINING_INDEX: &str = "training.kubeflow.org/replica-index";

/// The pod sets of a template; none if its kind is not known.
///
/// # Errors
///
/// Names a count that is not an integer, for the user to fix.
pub fn infer(template: &Value) -> Result<Vec<AppWrapperPodSet>, String> {
    let text = |field: &str| template[field].as_str().unwrap_or_default();
    Ok(match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => vec![pod_set("template".to_owned(), 1)],
        ("apps/v1", "Deployment" | "StatefulSet") => deployment(template)?,
        ("batch/v1", "Job") => vec![job(template)],
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => job_set(template),
        ("kubeflow.org/v1", "PyTorchJob") => pytorch_job(template)?,
        ("ray.io/v1", "RayCluster") => ray_cluster(template, "template.spec.")?,
        ("ray.io/v1", "RayJob") => ray_cluster(template, "template.spec.rayClusterSpec.")?,
        _ => Vec::new(),
    })
}

fn pod_set(path: String, replicas: i32) -> AppWrapperPodSet {
    AppWrapperPodSet { annotations: None, path, replicas: Some(replicas) }
}

fn annotated(pod_set: AppWrapperPodSet, annotations: &[(&str, &str)]) -> AppWrapperPodSet {
    let annotations: BTreeMap<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    AppWrapperPodSet { annotations: Some(annotations), ..pod_set }
}

/// A count at a path; `default` if it is not there. Anything but an integer is an error.
fn count(template: &Value, path: &str, default: i32) -> Result<i32, String> {
    let Some(value) = at_path(template, path).ok().filter(|value| !value.is_null()) else {
        return Ok(default);
    };
    let wrong = || format!("at path position '{path}' non-int value {}", printed(value));
    value.as_i64().and_then(|number| i32::try_from(number).ok()).ok_or_else(wrong)
}

/// A value as Go's `%v` prints it.
fn printed(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(" ");
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(printed).collect())),
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            let fields = sorted.into_iter().map(|(name, value)| format!("{name}:{}", printed(value)));
            format!("map[{}]", joined(fields.collect()))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn deployment(template: &Value) -> Result<Vec<AppWrapperPodSet>, String> {
    let path = "template.spec.template";
    if at_path(template, path).is_err() {
        return Ok(Vec::new());
    }
    Ok(vec![pod_set(path.to_owned(), count(template, "template.spec.replicas", 1)?)])
}

/// Pods of a Job at the same time. Counts that are not integers are ignored, as upstream's `InferPodSets` does.
fn pods_of_job(template: &Value, spec: &str) -> i32 {
    let parallelism = count(template, &format!("{spec}.parallelism"), 1).unwrap_or(1);
    let completions = count(template, &format!("{spec}.completions"), parallelism).unwrap_or(parallelism);
    parallelism.min(completions)
}

fn job(template: &Value) -> AppWrapperPodSet {
    let pods = pods_of_job(template, "template.spec");
    annotated(pod_set("template.spec.template".to_owned(), pods), &[(TAS_POD_INDEX_LABEL, JOB_INDEX)])
}

fn job_set(template: &Value) -> Vec<AppWrapperPodSet> {
    let jobs = at_path(template, "template.spec.replicatedJobs").ok().and_then(Value::as_array);
    let of_job = |number: usize| {
        let job = format!("template.spec.replicatedJobs[{number}]");
        let replicas = count(template, &format!("{job}.replicas"), 1).unwrap_or(1);
        let pods = replicas.saturating_mul(pods_of_job(template, &format!("{job}.template.spec")));
        let annotations = [
            (TAS_POD_INDEX_LABEL, JOB_INDEX),
            (TAS_SUB_GROUP_INDEX_LABEL, JOBSET_JOB_INDEX),
            (TAS_SUB_GROUP_COUNT, &replicas.to_string()),
        ];
        annotated(pod_set(format!("{job}.template.spec.template"), pods), &annotations)
    };
    let has_template = |number: &usize| {
        at_path(template, &format!("template.spec.replicatedJobs[{number}].template")).is_ok()
    };
    (0..jobs.map_or(0, Vec::len)).filter(has_template).map(of_job).collect()
}

fn pytorch_job(template: &Value) -> Result<Vec<AppWrapperPodSet>, String> {
    let mut pod_sets = Vec::new();
    for role in ["Master", "Worker"] {
        let spec = format!("template.spec.pytorchReplicaSpecs.{role}");
        let path = format!("{spec}.template");
        if at_path(template, &path).is_ok() {
            let replicas = count(template, &format!("{spec}.replicas"), 1)?;
            pod_sets.push(annotated(pod_set(path, replicas), &[(TAS_POD_INDEX_LABEL, TRAINING_INDEX)]));
        }
    }
    Ok(pod_sets)
}

/// Head and worker groups of a RayCluster whose spec is at `spec`. A group without replicas has none: that is what its CRD
/// fills in, while upstream expects one pod that never comes.
fn ray_cluster(template: &Value, spec: &str) -> Result<Vec<AppWrapperPodSet>, String> {
    let mut pod_sets = vec![pod_set(format!("{spec}headGroupSpec.template"), 1)];
    let groups = at_path(template, &format!("{spec}workerGroupSpecs")).ok().and_then(Value::as_array);
    for number in 0..groups.map_or(0, Vec::len) {
        let group = format!("{spec}workerGroupSpecs[{number}]");
        let path = format!("{group}.template");
        if at_path(template, &path).is_ok() {
            let replicas = count(template, &format!("{group}.replicas"), 0)?;
            pod_sets.push(pod_set(path, replicas));
        }
    }
    Ok(pod_sets)
}
