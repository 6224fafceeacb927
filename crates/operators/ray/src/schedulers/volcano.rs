//! Volcano: a PodGroup says how many pods have to start together.

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use quintet_api::{
    owners::controller_reference,
    ray::v1::{RayCluster, RayJob},
};
use quintet_controller::{Action, ApiKind, Step, api::FIELD_MANAGER};
use serde_json::{Value, json};

use super::{annotate, copy_label, label};
use crate::{
    labels,
    pod::{Origin, is_autoscaling},
    raycluster::{annotations_for_others, sum_of_templates},
};

const QUEUE: &str = "volcano.sh/queue-name";
const TOPOLOGY_MODE: &str = "volcano.sh/network-topology-mode";
const TOPOLOGY_TIER: &str = "volcano.sh/network-topology-highest-tier-allowed";

/// The kind of Volcano's PodGroups.
pub(super) fn kind() -> ApiKind {
    ApiKind::namespaced("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
}

/// The PodGroup of a cluster; a RayJob has one of its own.
pub(super) fn pod_group(cluster: &RayCluster) -> Result<Option<Step>, String> {
    if Origin::of(cluster) == Origin::RayJob {
        return Ok(None);
    }
    let owner = controller_reference(cluster);
    group(&cluster.metadata, owner, &group_name(cluster), members(cluster), &resources(cluster))
        .map(Into::into)
        .map(Some)
}

/// The PodGroup of a RayJob, with the submitter's resources but without its pod: it waits for the others. One
/// without a cluster asks for nothing.
pub(super) fn pod_group_of_job<C>(
    job: &RayJob,
    cluster: Option<&RayCluster>,
    submitter: Option<&PodTemplateSpec>,
) -> Result<Action<C>, String> {
    let name = format!("ray-{}-pg", job.metadata.name.as_deref().unwrap_or_default());
    let needs = cluster.map(|cluster| {
        let workers = needed(cluster).map(|(count, group)| (count, &group.template));
        let all = workers.chain(submitter.map(|template| (1, template)));
        json!(sum_of_templates(&cluster.spec.head_group_spec.template, all))
    });
    let needs = needs.unwrap_or_else(|| json!({}));
    group(&job.metadata, controller_reference(job), &name, cluster.map_or(0, members), &needs)
}

fn group<C>(
    metadata: &ObjectMeta,
    owner: Option<OwnerReference>,
    name: &str,
    members: i64,
    resources: &Value,
) -> Result<Action<C>, String> {
    let label = |name: &str| metadata.labels.as_ref()?.get(name);
    let mut spec = json!({"minMember": members, "minResources": resources});
    if let Some(queue) = label(QUEUE) {
        spec["queue"] = queue.clone().into();
    }
    if let Some(class) = label(labels::PRIORITY_CLASS) {
        spec["priorityClassName"] = class.clone().into();
    }
    if let Some(mode) = label(TOPOLOGY_MODE) {
        spec["networkTopology"] = topology(mode, label(TOPOLOGY_TIER))?;
    }
    let object = json!({
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "annotations": annotations_for_others(metadata),
            "ownerReferences": owner.map(|owner| [owner]),
        },
        "spec": spec,
    });
    Ok(Action::apply(kind(), FIELD_MANAGER, &object))
}

fn topology(mode: &str, tier: Option<&String>) -> Result<Value, String> {
    let mut topology = json!({"mode": mode});
    if let Some(tier) = tier {
        let number: i32 =
            tier.parse().map_err(|_| format!("label {TOPOLOGY_TIER} must be a number, got {tier:?}"))?;
        topology["highestTierAllowed"] = number.into();
    }
    Ok(topology)
}

fn group_name(cluster: &RayCluster) -> String {
    let own = cluster.metadata.name.as_ref();
    let name = match Origin::of(cluster) {
        Origin::RayJob => label(cluster, labels::ORIGIN_NAME).or(own),
        Origin::RayCluster | Origin::RayService => own,
    };
    format!("ray-{}-pg", name.map_or("", String::as_str))
}

/// Replicas that have to be there: what an autoscaler starts from, or all.
pub(super) fn needed(
    cluster: &RayCluster,
) -> impl Iterator<Item = (i64, &quintet_api::ray::v1::WorkerGroupSpec)> {
    let is_autoscaling = is_autoscaling(&cluster.spec);
    let groups = cluster.spec.worker_group_specs.iter().flatten();
    groups.filter(|group| group.suspend != Some(true)).map(move |group| {
        let min = group.min_replicas.unwrap_or_default();
        let max = group.max_replicas.unwrap_or(i32::MAX);
        let all = group.replicas.unwrap_or(min).max(min).min(max);
        let replicas = if is_autoscaling { min } else { all };
        (i64::from(replicas) * i64::from(group.num_of_hosts.unwrap_or(1)), group)
    })
}

pub(super) fn members(cluster: &RayCluster) -> i64 {
    1 + needed(cluster).map(|(count, _)| count).sum::<i64>()
}

pub(super) fn resources(cluster: &RayCluster) -> Value {
    let workers = needed(cluster).map(|(count, group)| (count, &group.template));
    json!(sum_of_templates(&cluster.spec.head_group_spec.template, workers))
}

pub(super) fn mark(pod: &mut Pod, group: &str, cluster: &RayCluster) {
    annotate(pod, "scheduling.k8s.io/group-name", group_name(cluster));
    annotate(pod, "volcano.sh/task-spec", group);
    copy_label(pod, cluster, QUEUE, QUEUE);
    copy_label(pod, cluster, labels::PRIORITY_CLASS, labels::PRIORITY_CLASS);
}
