//! What is kept of pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use quintet_api::kueue::metadata::{
    POD_GROUP_NAME, POD_INDEX_OFFSET, POD_SET, SAFE_TO_FORCEFULLY_DELETE, TOPOLOGY_GATE, TOPOLOGY_REQUESTS,
    WORKLOAD,
};
use quintet_queue_engine::ingest::{PodOnNode, pod_on_node};
use serde::{Deserialize, Serialize};

use crate::jobs::SLICE_NAME;

/// Condition of a pod that failure recovery has failed.
pub(crate) const FAILURE_RECOVERY: &str = "KueueFailureRecovery";

type Texts = BTreeMap<String, String>;

/// The node label by which pods are bound to a node.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// A pod. Of those without a Workload no more is kept than what they use, and what failure recovery needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodView {
    metadata: Metadata,
    spec: Spec,
    status: Status,
    /// What it uses of its node, unless topology aware scheduling has placed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    outside_topology: Option<Box<PodOnNode>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    labels: Texts,
    annotations: Texts,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<jiff::Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Box<str>,
    scheduling_gates: Vec<Gate>,
    node_selector: Texts,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gate {
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Box<str>,
    /// Whether failure recovery has failed it.
    is_recovered: bool,
}

impl Status {
    fn of(status: PodStatus) -> Self {
        let mut conditions = status.conditions.iter().flatten();
        let is_recovered = conditions.any(|condition| condition.type_ == FAILURE_RECOVERY);
        Self { phase: status.phase.unwrap_or_default().into(), is_recovered }
    }
}

impl PodView {
    /// Reads a pod.
    pub(super) fn project(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<Pod>(text).map(Self::of)
    }

    fn of(pod: Pod) -> Self {
        let outside_topology = match pod_on_node(&pod) {
            Ok(on_node) => on_node.map(Box::new),
            Err(error) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(name, "the usage of a Pod does not count: {error}");
                None
            }
        };
        let Pod { metadata, spec, status } = pod;
        let (spec, labels) = (spec.unwrap_or_default(), metadata.labels.unwrap_or_default());
        let mut view = Self {
            metadata: Metadata {
                labels,
                annotations: metadata.annotations.unwrap_or_default(),
                deletion_timestamp: metadata.deletion_timestamp.map(|time| time.0),
                deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
            },
            spec: Spec {
                node_name: spec.node_name.unwrap_or_default().into(),
                scheduling_gates: spec
                    .scheduling_gates
                    .into_iter()
                    .flatten()
                    .map(|gate| Gate { name: gate.name })
                    .collect(),
                node_selector: spec.node_selector.unwrap_or_default(),
            },
            status: Status::of(status.unwrap_or_default()),
            outside_topology,
        };
        view.metadata.annotations.retain(|name, _| is_read(name));
        if !view.is_of_workload() {
            view.metadata.labels = Texts::new();
            (view.spec.scheduling_gates, view.spec.node_selector) = (Vec::new(), Texts::new());
        }
        view
    }

    fn is_of_workload(&self) -> bool {
        self.slice().is_some() || self.pod_set().is_some()
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.get(name).map(String::as_str)
    }

    /// The name of its Workload.
    pub(crate) fn workload(&self) -> Option<&str> {
        self.annotation(WORKLOAD)
    }

    /// The first slice of its job, if that is elastic, and else its Workload.
    pub(crate) fn slice(&self) -> Option<&str> {
        self.annotation(SLICE_NAME).or_else(|| self.workload())
    }

    pub(crate) fn pod_set(&self) -> Option<&str> {
        self.metadata.labels.get(POD_SET).map(String::as_str)
    }

    /// Whether it is one of a group of pods.
    pub(super) fn is_in_group(&self) -> bool {
        self.metadata.labels.contains_key(POD_GROUP_NAME) || self.annotation(POD_GROUP_NAME).is_some()
    }

    /// A number that a label has.
    pub(super) fn index(&self, label: &str) -> Option<i32> {
        self.metadata.labels.get(label)?.parse().ok().filter(|index| *index >= 0)
    }

    /// What is taken off its index to get its rank.
    pub(super) fn index_offset(&self) -> Option<&str> {
        self.annotation(POD_INDEX_OFFSET)
    }

    /// Whether topology aware scheduling has placed it, or is to do so.
    pub(crate) fn asks_for_topology(&self) -> bool {
        TOPOLOGY_REQUESTS.iter().any(|name| self.metadata.annotations.contains_key(*name))
    }

    /// Whether it waits for its place.
    pub(crate) fn is_gated(&self) -> bool {
        self.is_gated_by(TOPOLOGY_GATE)
    }

    pub(crate) fn is_gated_by(&self, name: &str) -> bool {
        self.spec.scheduling_gates.iter().any(|gate| gate.name == name)
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// The node it was scheduled to.
    pub(crate) fn node(&self) -> Option<&str> {
        (!self.spec.node_name.is_empty()).then_some(&*self.spec.node_name)
    }

    /// The node that it waits for: no other may run it.
    pub(crate) fn awaited_node(&self) -> Option<&str> {
        let is_waiting = self.node().is_none() && &*self.status.phase == "Pending" && !self.is_gated();
        let host = self.spec.node_selector.get(HOSTNAME).filter(|_| is_waiting)?;
        Some(host)
    }

    /// Whether it is bound to a domain.
    pub(super) fn is_in(&self, levels: &[String], values: &[String]) -> bool {
        levels.iter().zip(values).all(|(level, value)| self.spec.node_selector.get(level) == Some(value))
    }

    /// Its other gates.
    pub(crate) fn gates_but(&self, name: &str) -> Vec<&Gate> {
        self.spec.scheduling_gates.iter().filter(|gate| gate.name != name).collect()
    }

    /// What it uses of its node, if topology aware scheduling has not placed it.
    pub(crate) fn outside_topology(&self) -> Option<&PodOnNode> {
        self.outside_topology.as_deref()
    }

    /// Since when it should be gone, and how long it was given to end, if users let it be deleted forcefully.
    pub(crate) fn forceful_deletion(&self) -> Option<(jiff::Timestamp, i64)> {
        let is_safe = self.annotation(SAFE_TO_FORCEFULLY_DELETE) == Some("true");
        let since = self.metadata.deletion_timestamp.filter(|_| is_safe)?;
        Some((since, self.metadata.deletion_grace_period_seconds.unwrap_or_default()))
    }

    /// Whether failure recovery has failed it.
    pub(crate) fn is_recovered(&self) -> bool {
        self.status.is_recovered
    }
}

/// Whether anything depends on an annotation.
fn is_read(name: &str) -> bool {
    [WORKLOAD, SLICE_NAME, POD_GROUP_NAME, POD_INDEX_OFFSET, SAFE_TO_FORCEFULLY_DELETE].contains(&name)
        || TOPOLOGY_REQUESTS.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(pod: &Value) -> PodView {
        PodView::project(&pod.to_string()).unwrap()
    }

    #[test]
    fn no_more_is_kept_of_other_pods_than_what_they_use() {
        let pod = view(
            &json!({ "metadata": { "name": "p", "labels": { "app": "a" }, "annotations": { "a": "b" } },
            "spec": { "nodeName": "n", "nodeSelector": { "a": "b" }, "containers": [
                { "name": "c", "resources": { "requests": { "cpu": "1" } } }] } }),
        );
        assert_eq!(pod.outside_topology().map(|usage| &*usage.node), Some("n"));
        assert_eq!((&pod.metadata, &pod.spec.node_selector), (&Metadata::default(), &Texts::new()));
    }

    #[test]
    fn a_pod_without_its_gate_awaits_the_node_that_it_is_bound_to() {
        let pod = |spec: Value, phase: &str| {
            view(&json!({ "metadata": { "annotations": { "kueue.x-k8s.io/workload": "w" } },
                "spec": spec, "status": { "phase": phase } }))
        };
        let selector = json!({ "kubernetes.io/hostname": "n" });
        let waits = pod(json!({ "nodeSelector": selector, "containers": [] }), "Pending");
        assert_eq!(waits.awaited_node(), Some("n"));
        let gate = json!([{ "name": "kueue.x-k8s.io/topology" }]);
        for (spec, phase) in [
            (json!({ "nodeSelector": selector, "containers": [], "schedulingGates": gate }), "Pending"),
            (json!({ "nodeSelector": selector, "containers": [], "nodeName": "n" }), "Pending"),
            (json!({ "nodeSelector": selector, "containers": [] }), "Failed"),
            (json!({ "containers": [] }), "Pending"),
        ] {
            assert_eq!(pod(spec.clone(), phase).awaited_node(), None, "{spec} {phase}");
        }
    }
}
