//! The pods of a DaemonSet.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use quintet_api::owners::controller_reference;

use crate::revision::POD_REVISION;
use crate::taints::{NO_EXECUTE, NO_SCHEDULE};

const TEMPLATE_GENERATION: &str = "pod-template-generation";
const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
const NODE_NAME: &str = "metadata.name";

/// Taints that daemons tolerate: they have to run where nothing else may.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];
const NETWORK_UNAVAILABLE: (&str, &str) = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE);

/// The pod for a node. It is not bound: its affinity leaves the scheduler no choice.
pub(super) fn pod(set: &DaemonSet, revision_hash: &str, node: &str, name: String) -> Pod {
    let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut metadata = template.metadata.unwrap_or_default();
    let generation =
        set.metadata.annotations.as_ref().and_then(|all| all.get(TEMPLATE_GENERATION_ANNOTATION));
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(POD_REVISION.to_owned(), revision_hash.to_owned());
    labels.extend(generation.map(|generation| (TEMPLATE_GENERATION.to_owned(), generation.clone())));
    metadata.name = Some(name);
    metadata.namespace.clone_from(&set.metadata.namespace);
    metadata.owner_references = controller_reference(set).map(|owner| vec![owner]);
    let mut spec = template.spec.unwrap_or_default();
    require_node(&mut spec, node);
    tolerate(&mut spec);
    Pod { metadata, spec: Some(spec), status: None }
}

/// Requires a node. The terms of the user keep what they say about labels.
fn require_node(spec: &mut PodSpec, node: &str) {
    let field = NodeSelectorRequirement {
        key: NODE_NAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let affinity = spec.affinity.get_or_insert_default();
    let of_nodes: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    let required: &mut NodeSelector =
        of_nodes.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields = Some(vec![field.clone()]);
    }
}

fn tolerate(spec: &mut PodSpec) {
    let network = Some(NETWORK_UNAVAILABLE).filter(|_| spec.host_network == Some(true));
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
}

/// The node that a pod is meant for: the one it is bound to, or the one its affinity names.
pub(super) fn node_of(pod: &crate::pod::PodView) -> Option<&str> {
    if let Some(node) = &pod.spec.node_name {
        return Some(node);
    }
    let affinity = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == NODE_NAME && field.operator == "In");
    names.find_map(|field| field.values.as_ref()?.first().map(String::as_str))
}
