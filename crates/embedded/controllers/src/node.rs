//! The projection of a node that all controllers share.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSelector, NodeSelectorTerm, Taint};
use quintet_api::Quantity;
use quintet_api::selector::{Requirement, Test};
use quintet_controller::ApiKind;
use quintet_controller::cache::WatchSpec;
use serde::{Deserialize, Serialize};

use crate::pod::PodView;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeView {
    pub metadata: Metadata,
    pub spec: Spec,
    pub status: Status,
}

/// The metadata of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub creation_timestamp: Option<Timestamp>,
}

/// The spec of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub allocatable: BTreeMap<String, Quantity>,
    pub conditions: Vec<NodeCondition>,
}

impl NodeView {
    /// The watch that all controllers share.
    pub(crate) fn watch() -> WatchSpec<Self> {
        WatchSpec::projected(ApiKind::of::<Node>(), |text| serde_json::from_str(text))
    }

    /// Whether a pod's node selector and required node affinity allow the node.
    pub(crate) fn is_selected_by(&self, pod: &PodView) -> bool {
        let labels = &self.metadata.labels;
        if !pod.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
            return false;
        }
        let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        required.is_none_or(|selector| self.matches(selector))
    }

    /// Whether one of the terms of a selector matches.
    pub(crate) fn matches(&self, selector: &NodeSelector) -> bool {
        selector.node_selector_terms.iter().any(|term| self.matches_term(term))
    }

    /// Whether all requirements of a term match. A term without requirements matches nothing.
    pub(crate) fn matches_term(&self, term: &NodeSelectorTerm) -> bool {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return false;
        }
        let name = BTreeMap::from([("metadata.name".to_owned(), self.metadata.name.clone())]);
        let meets = |requirement: &k8s_openapi::api::core::v1::NodeSelectorRequirement, values| {
            requirement_of(requirement).is_some_and(|requirement| requirement.matches(values))
        };
        expressions.iter().all(|expression| meets(expression, &self.metadata.labels))
            && fields.iter().all(|field| meets(field, &name))
    }
}

/// A requirement on labels; `None` if its operator or value is invalid, which matches nothing.
fn requirement_of(requirement: &k8s_openapi::api::core::v1::NodeSelectorRequirement) -> Option<Requirement> {
    let values = requirement.values.clone().unwrap_or_default();
    let number = || values.first().and_then(|value| value.parse().ok());
    let test = match requirement.operator.as_str() {
        "In" => Test::In(values),
        "NotIn" => Test::NotIn(values),
        "Exists" => Test::Exists,
        "DoesNotExist" => Test::DoesNotExist,
        "Gt" => Test::GreaterThan(number()?),
        "Lt" => Test::LessThan(number()?),
        _ => return None,
    };
    Some(Requirement { key: requirement.key.clone(), test })
}
