use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::object::ObjectKey;

/// Which objects of a kind a watch asks for.
///
/// Typed rather than text, because responses to writes have to be selected by the same rule as the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Selector {
    /// Only these namespaces; all of them, if none are named.
    pub namespaces: Vec<String>,
    labels: Vec<LabelRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
enum LabelRule {
    Equals(String, String),
    Exists(String),
    Missing(String),
}

impl Selector {
    /// Every object of the kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only in this namespace, beside those named before.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespaces.push(namespace.to_owned());
        self
    }

    /// Only the object of this name. RBAC rules with `resourceNames` allow such a watch, and no other.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only pods that are bound to this node. Responses to writes are not checked for it: a kubelet writes its own pods
    /// only, and a binding never changes.
    #[must_use]
    pub fn on_node(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    /// Only with this label and value.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.push(LabelRule::Equals(name.to_owned(), value.to_owned()));
        self
    }

    /// Only with this label, whatever its value.
    #[must_use]
    pub fn has_label(mut self, name: &str) -> Self {
        self.labels.push(LabelRule::Exists(name.to_owned()));
        self
    }

    /// Only without this label.
    #[must_use]
    pub fn lacks_label(mut self, name: &str) -> Self {
        self.labels.push(LabelRule::Missing(name.to_owned()));
        self
    }

    /// The label part as the API takes it.
    pub fn labels_text(&self) -> String {
        self.labels.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// The field part as the API takes it.
    pub fn fields_text(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("metadata.name={name}"));
        let node = self.node.as_ref().map(|node| format!("spec.nodeName={node}"));
        name.into_iter().chain(node).collect::<Vec<_>>().join(",")
    }

    pub(super) fn has_rules(&self) -> bool {
        !self.labels.is_empty()
    }

    pub(super) fn matches(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> bool {
        let is_named = |namespace: &str| self.namespaces.iter().any(|one| one == namespace);
        let in_namespace = self.namespaces.is_empty() || key.namespace().is_some_and(is_named);
        in_namespace
            && self.name.as_ref().is_none_or(|name| name == key.name())
            && self.labels.iter().all(|rule| match rule {
                LabelRule::Equals(name, value) => labels.get(name) == Some(value),
                LabelRule::Exists(name) => labels.contains_key(name),
                LabelRule::Missing(name) => !labels.contains_key(name),
            })
    }
}

impl fmt::Display for LabelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(name, value) => write!(f, "{name}={value}"),
            Self::Exists(name) => f.write_str(name),
            Self::Missing(name) => write!(f, "!{name}"),
        }
    }
}
