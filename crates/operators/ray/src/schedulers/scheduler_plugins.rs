//! The co-scheduling plugin: a PodGroup named like the cluster, made once.

use k8s_openapi::api::core::v1::Pod;
use quintet_api::{owners::controller_reference, ray::v1::RayCluster};
use quintet_controller::{Action, ApiKind, Step};
use serde_json::json;

use super::{is_gang, volcano};

pub(super) fn kind() -> ApiKind {
    ApiKind::namespaced("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
}

pub(super) fn pod_group(cluster: &RayCluster) -> Option<Step> {
    if !is_gang(cluster) {
        return None;
    }
    let owner = controller_reference(cluster).map(|mut owner| {
        owner.controller = None;
        owner.block_owner_deletion = None;
        [owner]
    });
    let object = json!({
        "metadata": {
            "name": cluster.metadata.name,
            "namespace": cluster.metadata.namespace,
            "ownerReferences": owner,
        },
        "spec": {"minMember": volcano::members(cluster), "minResources": volcano::resources(cluster)},
    });
    Some(Action::ensure(kind(), &object).into())
}

pub(super) fn mark(pod: &mut Pod, cluster: &RayCluster) {
    if is_gang(cluster) {
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert("scheduling.x-k8s.io/pod-group".to_owned(), name);
    }
}
