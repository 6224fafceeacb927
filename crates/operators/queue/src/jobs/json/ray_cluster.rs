//! `ray.io` RayClusters, and what RayJobs and RayServices have in common with them. As `pkg/controller/jobs/raycluster` of
//! Kueue.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use quintet_api::kueue::metadata::{ELASTIC_JOB, MULTIKUEUE_CONTROLLER};
use quintet_api::kueue::v1beta2::PodSet;
use quintet_api::quantity::Quantity;
use quintet_queue_engine::settings::Gates;
use serde_json::{Value, json};

use super::ray_job::SUBMITTER;
use super::{
    Counts, JobEnd, JsonKind, KindNames, Ranks, Role, TopologyOrder, UpdateCheck, integer, is_elastic,
    is_queued, items, names, pod_set, template_of, text,
};
use crate::jobs::slices::PARTIAL_SCALE_UP;
use crate::settings::Settings;
use crate::validation::Errors;

/// Scheduling gate of the pods of elastic jobs.
const ELASTIC_JOB_GATE: &str = ELASTIC_JOB;
const HEAD: &str = "head";
/// Pod sets that are no workers.
const OTHERS: [&str; 2] = [HEAD, SUBMITTER];
const HEAD_READY: &str = "HeadPodReady";
/// Pod sets of a Workload.
const MAX_POD_SETS: usize = 18;
/// Annotation of older RayClusters whose head survives restarts.
const FAULT_TOLERANT: &str = "ray.io/ft-enabled";

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct RayCluster;

impl JsonKind for RayCluster {
    const NAMES: KindNames = names!("ray.io", "ray-io", "v1", "RayCluster", "raycluster");
    const TAKES_ELASTIC: bool = true;
    const UPDATE: UpdateCheck = UpdateCheck::OfManaged;
    const TOPOLOGY_ORDER: TopologyOrder = TopologyOrder::HeadAndGroups;

    fn roles(job: &Value) -> Vec<Role> {
        roles_of(&job["spec"], "/spec", "spec")
    }

    /// One that has only some of its workers is not ready, and active.
    fn is_active(job: &Value) -> bool {
        let status = &job["status"];
        let grows_partially = job["metadata"]["annotations"][PARTIAL_SCALE_UP] == "true";
        let has_pods = || has_head(status) || integer(&status["availableWorkerReplicas"], 0) > 0;
        is_cluster_ready(status) || grows_partially && status["state"] != "suspended" && has_pods()
    }

    /// It runs until it is deleted.
    fn end(_: &Value) -> Option<JobEnd> {
        None
    }

    fn is_ready(job: &Value) -> bool {
        is_cluster_ready(&job["status"])
    }

    fn pod_sets(job: &Value, _: &[Value], gates: &Gates) -> Result<Vec<PodSet>, String> {
        pod_sets_of(job, &job["spec"], &Self::roles(job), gates)
    }

    fn min_counts(job: &Value) -> BTreeMap<String, i32> {
        min_counts_of(&job["spec"], |group| integer(&group["minReplicas"], 0))
    }

    fn has_ready(job: &Value, counts: &Counts) -> bool {
        has_ready(&job["status"], counts)
    }

    fn default(job: &mut Value, settings: &Settings) {
        gate_elastic::<Self>(job, settings);
    }

    fn check(job: &Value, settings: &Settings, errors: &mut Errors) -> ControlFlow<()> {
        if !is_queued(job, settings) {
            return ControlFlow::Continue(());
        }
        let spec = &job["spec"];
        if is_elastic(job, settings) {
            check_elastic(job, errors);
        } else if spec["enableInTreeAutoscaling"] == true {
            let why = "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the \
                ElasticJobsViaWorkloadSlices feature gate and set the \"kueue.x-k8s.io/elastic-job\": \"true\" annotation";
            errors.invalid("spec.enableInTreeAutoscaling", true, why);
        }
        check_groups(spec, "spec", errors);
        ControlFlow::Continue(())
    }
}

/// Whether the status of a RayCluster says that it is ready.
pub(super) fn is_cluster_ready(status: &Value) -> bool {
    status["state"] == "ready"
}

/// Whether the status of a cluster says that the head and as many workers as these are ready. The workers above that wait
/// for quota.
pub(super) fn has_ready(status: &Value, counts: &Counts) -> bool {
    let workers: i64 = counts
        .iter()
        .filter(|(name, _)| !OTHERS.contains(&name.as_str()))
        .map(|(_, count)| i64::from(*count))
        .sum();
    is_cluster_ready(status)
        || status["readyWorkerReplicas"].as_i64().unwrap_or(0) >= workers && has_head(status)
}

fn has_head(status: &Value) -> bool {
    items(&status["conditions"]).any(|own| own["type"] == HEAD_READY && own["status"] == "True")
}

/// The worker groups whose replicas are single pods, and how few of them are enough. A part of the pods of a replica is of
/// no use.
pub(super) fn min_counts_of(spec: &Value, least: impl Fn(&Value) -> i32) -> BTreeMap<String, i32> {
    items(&spec["workerGroupSpecs"])
        .filter(|group| integer(&group["numOfHosts"], 1) <= 1)
        .map(|group| (text(&group["groupName"]).to_lowercase(), least(group).max(0)))
        .collect()
}

/// Pods of an elastic job wait for their slice of the Workload, not the cluster.
pub(super) fn gate_elastic<K: JsonKind>(job: &mut Value, settings: &Settings) {
    if !is_elastic(job, settings) {
        return;
    }
    for role in K::roles(job) {
        let Some(template) = job.pointer_mut(&role.pointer) else { continue };
        let gates = &mut template["spec"]["schedulingGates"];
        if !gates.is_array() {
            *gates = json!([]);
        }
        let is_known = items(gates).any(|gate| gate["name"] == ELASTIC_JOB_GATE);
        if let (false, Some(gates)) = (is_known, gates.as_array_mut()) {
            gates.push(json!({ "name": ELASTIC_JOB_GATE }));
        }
    }
}

/// Pods of an elastic cluster wait for their slice, and its size follows the cluster that it runs on.
fn check_elastic(job: &Value, errors: &mut Errors) {
    let mut roles = RayCluster::roles(job);
    // Errors of the workers come first.
    roles.rotate_left(1);
    for role in roles {
        let gates = job.pointer(&role.pointer).map(|template| &template["spec"]["schedulingGates"]);
        let gates = gates.unwrap_or(&Value::Null);
        if !items(gates).any(|gate| gate["name"] == ELASTIC_JOB_GATE) {
            let path = format!("{}.spec.schedulingGates", role.path);
            errors.invalid(path, gates, "an elastic job must have the ElasticJobSchedulingGate");
        }
    }
    if job["spec"]["enableInTreeAutoscaling"] == true && job["spec"]["managedBy"] == MULTIKUEUE_CONTROLLER {
        let why = "in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster";
        errors.forbidden("spec.enableInTreeAutoscaling", why);
    }
}

/// What is checked of the cluster of a RayJob or RayService.
pub(super) fn check_cluster(job: &Value, spec: &Value, path: &str, settings: &Settings, errors: &mut Errors) {
    if spec["enableInTreeAutoscaling"] == true && !is_elastic(job, settings) {
        let why = "a kueue managed job should only use autoscaling when workload slicing is enabled";
        errors.invalid(format!("{path}.enableInTreeAutoscaling"), true, why);
    }
    check_groups(spec, path, errors);
}

fn check_groups(spec: &Value, path: &str, errors: &mut Errors) {
    let path = format!("{path}.workerGroupSpecs");
    let count = items(&spec["workerGroupSpecs"]).count() + 1;
    if count > MAX_POD_SETS {
        errors.too_many(&path, count, MAX_POD_SETS);
    }
    for (index, group) in items(&spec["workerGroupSpecs"]).enumerate() {
        if group["groupName"] == HEAD {
            let why = format!("{HEAD:?} is reserved for the head group");
            errors.forbidden(format!("{path}[{index}].groupName"), why);
        }
    }
}

/// The head and the worker groups of a cluster at a JSON pointer.
pub(super) fn roles_of(spec: &Value, pointer: &str, path: &str) -> Vec<Role> {
    let head = Role {
        name: HEAD.to_owned(),
        count: 1,
        pointer: format!("{pointer}/headGroupSpec/template"),
        path: format!("{path}.headGroupSpec.template"),
        ranks: Ranks::default(),
    };
    let worker = |(index, group): (usize, &Value)| Role {
        name: text(&group["groupName"]).to_owned(),
        count: pod_count(group),
        pointer: format!("{pointer}/workerGroupSpecs/{index}/template"),
        path: format!("{path}.workerGroupSpecs[{index}].template"),
        ranks: Ranks::default(),
    };
    let workers = items(&spec["workerGroupSpecs"]).enumerate().map(worker);
    std::iter::once(head).chain(workers).collect()
}

/// How many pods a worker group has.
pub(super) fn pod_count(group: &Value) -> i32 {
    integer(&group["replicas"], 1).saturating_mul(integer(&group["numOfHosts"], 1).max(1))
}

/// The pod sets of a cluster, with what KubeRay adds to its head.
pub(super) fn pod_sets_of(
    job: &Value,
    spec: &Value,
    roles: &[Role],
    gates: &Gates,
) -> Result<Vec<PodSet>, String> {
    let set = |role: &Role| Ok(pod_set(role, template_of(job, role)?, gates));
    let mut sets = roles.iter().map(set).collect::<Result<Vec<PodSet>, String>>()?;
    let Some(head) = sets.first_mut() else { return Ok(sets) };
    let pod = head.template.spec.get_or_insert_default();
    if is_fault_tolerant(job, spec) {
        let Some(ray) = pod.containers.first_mut() else {
            return Err("cannot account for Redis cleanup resources: head pod template must include the Ray container".to_owned());
        };
        // The Job that cleans Redis up takes the place of the head.
        let requests = ray.resources.get_or_insert_default().requests.get_or_insert_default();
        for (name, least) in [("cpu", "200m"), ("memory", "256Mi")] {
            raise(requests.entry(name.to_owned()).or_insert_with(|| Amount(least.to_owned())), least);
        }
    }
    if spec["enableInTreeAutoscaling"] == true {
        pod.containers.push(autoscaler(&spec["autoscalerOptions"]["resources"])?);
    }
    Ok(sets)
}

fn raise(amount: &mut Amount, least: &str) {
    let (own, other) = (amount.0.parse::<Quantity>(), least.parse::<Quantity>());
    if let (Ok(own), Ok(other)) = (own, other)
        && own < other
    {
        *amount = Amount(least.to_owned());
    }
}

/// Whether the state of a cluster outlives its head, as `IsGCSFaultToleranceEnabled` of KubeRay says.
pub(super) fn is_fault_tolerant(job: &Value, spec: &Value) -> bool {
    let by_annotation = text(&job["metadata"]["annotations"][FAULT_TOLERANT]);
    by_annotation.eq_ignore_ascii_case("true") || !spec["gcsFaultToleranceOptions"].is_null()
}

/// The container that KubeRay adds to the head of a cluster that scales itself.
fn autoscaler(resources: &Value) -> Result<Container, String> {
    let default = || json!({ "cpu": "500m", "memory": "512Mi" });
    let resources: ResourceRequirements = if resources.is_null() {
        serde_json::from_value(json!({ "requests": default(), "limits": default() }))
    } else {
        serde_json::from_value(resources.clone())
    }
    .map_err(|error| format!("autoscalerOptions.resources: {error}"))?;
    Ok(Container { name: "autoscaler".to_owned(), resources: Some(resources), ..Container::default() })
}
