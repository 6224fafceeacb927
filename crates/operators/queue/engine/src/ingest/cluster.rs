//! Nodes, pods and namespaces.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use quintet_api::kueue::metadata;
use serde::{Deserialize, Serialize};

use super::IngestError;
use super::pod::{Quantities, labels, pod_requests, quantities, requests, taints};
use crate::labels::Labels;
use crate::names::{Names, NamespaceId};
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

/// What a Pod uses of its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodOnNode {
    /// The name of the node.
    pub node: Box<str>,
    /// What the Pod requests.
    pub requests: Quantities,
}

/// What a Pod outside topology aware scheduling uses; `None` for others, and while it has no node or has ended.
pub fn pod_on_node(object: &Pod) -> Result<Option<PodOnNode>, IngestError> {
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
    Ok(Some(PodOnNode { node: node.into(), requests: pod_requests(spec)? }))
}
