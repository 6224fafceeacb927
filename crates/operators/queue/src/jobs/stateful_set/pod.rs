//! What controllers keep of the pods of StatefulSets.

use std::collections::BTreeMap;

use quintet_api::kueue::metadata::{
    ADMISSION_GATE, MANAGED_FINALIZER, POD_GROUP_NAME, POD_SUSPENDING_PARENT, TOPOLOGY_GATE,
};
use quintet_controller::cache::Owner;
use serde::{Deserialize, Serialize};

use super::{GROUP, KIND};

type Texts = BTreeMap<String, String>;

/// A pod without what it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodHead {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    labels: Texts,
    annotations: Texts,
    finalizers: Vec<String>,
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scheduling_gates: Vec<Gate>,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Gate {
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

impl PodHead {
    /// The StatefulSet that controls it.
    pub(in super::super) fn owner(&self) -> Option<&Owner> {
        let mut owners = self.metadata.owner_references.iter();
        owners.find(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.controller && *owner.kind == *KIND && group == Some(GROUP)
        })
    }

    pub(super) fn parent(&self) -> Option<&str> {
        self.annotation(POD_SUSPENDING_PARENT)
    }

    pub(in super::super) fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.get(name).map(String::as_str)
    }

    pub(in super::super) fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.get(name).map(String::as_str)
    }

    /// Whether it names this group.
    pub(super) fn is_in(&self, group: &str) -> bool {
        let by_annotation = self.metadata.annotations.get(POD_GROUP_NAME).filter(|name| !name.is_empty());
        by_annotation.or_else(|| self.metadata.labels.get(POD_GROUP_NAME)).is_some_and(|own| own == group)
    }

    pub(in super::super) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Its finalizers without that of older versions, if it has that.
    pub(in super::super) fn other_finalizers(&self) -> Option<Vec<&String>> {
        let own = &self.metadata.finalizers;
        let others: Vec<&String> = own.iter().filter(|name| *name != MANAGED_FINALIZER).collect();
        (others.len() < own.len()).then_some(others)
    }

    /// Its gates without those of admission and placement, if it has one of them.
    pub(in super::super) fn other_gates(&self) -> Option<Vec<&Gate>> {
        let own = &self.spec.scheduling_gates;
        let is_other = |gate: &&Gate| gate.name != ADMISSION_GATE && gate.name != TOPOLOGY_GATE;
        let others: Vec<&Gate> = own.iter().filter(is_other).collect();
        (others.len() < own.len()).then_some(others)
    }
}
