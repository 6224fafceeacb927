//! What the ungater keeps of a pod.

use std::collections::BTreeMap;

use quintet_api::kueue::metadata::{POD_SET, TOPOLOGY_GATE, WORKLOAD};
use serde::{Deserialize, Serialize};

use crate::jobs::SLICE_NAME;

type Texts = BTreeMap<String, String>;

/// A pod of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodView {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    labels: Texts,
    annotations: Texts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scheduling_gates: Vec<Gate>,
    node_selector: Texts,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gate {
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

impl PodView {
    /// The name of its Workload.
    pub(super) fn workload(&self) -> Option<&str> {
        self.metadata.annotations.get(WORKLOAD).map(String::as_str)
    }

    /// The first slice of its job, if that is elastic.
    pub(crate) fn slice(&self) -> Option<&str> {
        self.metadata.annotations.get(SLICE_NAME).map(String::as_str).or_else(|| self.workload())
    }

    pub(crate) fn pod_set(&self) -> Option<&str> {
        self.metadata.labels.get(POD_SET).map(String::as_str)
    }

    /// Its index, by the label that has it.
    pub(super) fn rank(&self, label: &str) -> Option<usize> {
        self.metadata.labels.get(label).or_else(|| self.metadata.annotations.get(label))?.parse().ok()
    }

    /// Whether it waits for its place.
    pub(super) fn is_gated(&self) -> bool {
        self.is_gated_by(TOPOLOGY_GATE)
    }

    pub(crate) fn is_gated_by(&self, name: &str) -> bool {
        self.spec.scheduling_gates.iter().any(|gate| gate.name == name)
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether it is bound to a domain.
    pub(super) fn is_in(&self, levels: &[String], values: &[String]) -> bool {
        levels.iter().zip(values).all(|(level, value)| self.spec.node_selector.get(level) == Some(value))
    }

    /// Its other gates.
    pub(crate) fn gates_but(&self, name: &str) -> Vec<&Gate> {
        self.spec.scheduling_gates.iter().filter(|gate| gate.name != name).collect()
    }
}
