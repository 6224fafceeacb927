//! YuniKorn: labels name application and queue, an annotation describes the gang.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use quintet_api::ray::v1::RayCluster;
use serde_json::{Value, json};

use super::{annotate, copy_label, is_gang};
use crate::{labels, raycluster::sum_of_templates};

const TASK_GROUPS: &str = "yunikorn.apache.org/task-groups";

pub(super) fn mark(pod: &mut Pod, group: &str, cluster: &RayCluster) {
    copy_label(pod, cluster, "yunikorn.apache.org/app-id", "applicationId");
    copy_label(pod, cluster, "yunikorn.apache.org/queue", "queue");
    if !is_gang(cluster) {
        return;
    }
    let own = cluster.metadata.annotations.as_ref().and_then(|all| all.get(TASK_GROUPS).cloned());
    annotate(pod, TASK_GROUPS, own.unwrap_or_else(|| Value::from(task_groups(cluster)).to_string()));
    annotate(pod, "yunikorn.apache.org/task-group-name", group);
}

/// Writes the gang of a RayJob on its cluster, the submitter included, unless the user has.
pub(super) fn add_submitter(cluster: &mut RayCluster, group: &str, submitter: &PodTemplateSpec) {
    if !is_gang(cluster) {
        return;
    }
    let mut groups = task_groups(cluster);
    groups.push(task_group(group, 1, submitter));
    let annotations = cluster.metadata.annotations.get_or_insert_default();
    annotations.entry(TASK_GROUPS.to_owned()).or_insert_with(|| Value::from(groups).to_string());
}

fn task_groups(cluster: &RayCluster) -> Vec<Value> {
    let head = task_group(labels::HEAD_GROUP, 1, &cluster.spec.head_group_spec.template);
    let workers = cluster.spec.worker_group_specs.iter().flatten().map(|group| {
        let members = group.min_replicas.unwrap_or_default() * group.num_of_hosts.unwrap_or(1);
        task_group(&group.group_name, members, &group.template)
    });
    [head].into_iter().chain(workers).collect()
}

fn task_group(name: &str, members: i32, template: &PodTemplateSpec) -> Value {
    let pod = template.spec.clone().unwrap_or_default();
    let mut group = json!({
        "name": name,
        "minMember": members,
        "minResource": sum_of_templates(template, []),
    });
    for (field, value) in [
        ("nodeSelector", json!(pod.node_selector)),
        ("tolerations", json!(pod.tolerations)),
        ("affinity", json!(pod.affinity)),
    ] {
        if !value.is_null() {
            group[field] = value;
        }
    }
    group
}
