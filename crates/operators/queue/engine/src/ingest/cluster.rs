//! Nodes, pods and namespaces.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use quintet_api::kueue::metadata;

use super::IngestError;
use super::pod::{labels, pod_requests, quantities, requests, taints};
use crate::labels::Labels;
use crate::names::{Names, NamespaceId, ResourceId};
use crate::requests::Requests;
use crate::tas::NodeInfo;

/// A Namespace: its labels.
pub fn namespace(object: &Namespace, names: &mut Names) -> (NamespaceId, Labels) {
    let name = object.metadata.name.as_deref().unwrap_or("");
    (names.namespaces.intern(name), labels(object.metadata.labels.as_ref()))
}

/// A Node, without the usage of its pods.
pub fn node(object: &Node, names: &mut Names) -> Result<NodeInfo, IngestError> {
    let (spec, status) = (object.spec.as_ref(), object.status.as_ref());
    let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let is_cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let allocatable = quantities(status.and_then(|status| status.allocatable.as_ref()))?;
    Ok(NodeInfo {
        name: object.metadata.name.as_deref().unwrap_or("").into(),
        labels: labels(object.metadata.labels.as_ref()),
        taints: taints(spec.and_then(|spec| spec.taints.as_deref()))?,
        allocatable: requests(&allocatable, names),
        usable: is_ready && !is_cordoned,
        non_tas_usage: Requests::new(),
    })
}

/// What a Pod outside topology aware scheduling uses of its node, and the name of the node.
pub fn pod_usage(object: &Pod, names: &mut Names) -> Result<Option<(Arc<str>, Requests)>, IngestError> {
    let annotations = object.metadata.annotations.as_ref();
    let is_placed = annotations.is_some_and(|annotations| {
        metadata::TOPOLOGY_REQUESTS.iter().any(|key| annotations.contains_key(*key))
    });
    let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_terminated = matches!(phase, Some("Succeeded" | "Failed"));
    let Some(spec) = object.spec.as_ref().filter(|_| !is_placed && !is_terminated) else {
        return Ok(None);
    };
    let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) else {
        return Ok(None);
    };
    let mut usage = requests(&pod_requests(spec)?, names);
    let pods = usage.get(ResourceId::PODS).saturating_add(1);
    usage.set(ResourceId::PODS, pods);
    Ok(Some((node.into(), usage)))
}
