//! Sources of the catalog: which ConfigMaps count, and what is removed from those of users.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::names::SOURCES_KEY;
use crate::settings::is_dns_label;

/// The id of a source that former versions put among those of users.
const FORMER_DEFAULT: &str = "default_catalog";
/// What names of volumes begin with.
const VOLUME_PREFIX: &str = "labeled-";

/// What is kept of a ConfigMap with sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SourcesView {
    data: BTreeMap<String, String>,
}

impl SourcesView {
    /// The sources, if there are any.
    pub(super) fn text(&self) -> Option<&str> {
        self.data.get(SOURCES_KEY).map(String::as_str)
    }
}

/// Whether a ConfigMap of this name can be mounted: its volume's name is derived from it.
pub(super) fn can_be_mounted(name: &str) -> bool {
    is_dns_label(name) && VOLUME_PREFIX.len() + name.len() <= 63
}

/// ConfigMaps that a Deployment mounts, and that are no longer among the sources.
pub(super) fn removed(deployment: &Value, sources: &[String]) -> Vec<String> {
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array();
    let names = volumes.into_iter().flatten().filter_map(|volume| volume["name"].as_str());
    let labelled = names.filter_map(|name| name.strip_prefix(VOLUME_PREFIX));
    labelled.filter(|name| !sources.iter().any(|source| source == name)).map(str::to_owned).collect()
}

/// The keys that former versions knew. Documents with others are never rewritten, because these would be lost. They are
/// written in the order of the alphabet, and empty ones are left out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    agent_catalogs: Vec<Source>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    catalogs: Vec<Source>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    labels: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mcp_catalogs: Vec<Source>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    model_catalogs: Vec<Source>,
    #[serde(rename = "namedQueries", default, skip_serializing_if = "Value::is_null")]
    named_queries: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(default)]
    id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, String>,
    #[serde(rename = "type", default)]
    type_: String,
}

/// Numbers and flags among properties count as texts.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let text = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) => Ok((name, number.to_string())),
        Value::Bool(flag) => Ok((name, flag.to_string())),
        _ => Err(serde::de::Error::custom(format!("the property {name} is no text"))),
    };
    values.into_iter().map(text).collect()
}

/// The document without the source that former versions put there; `None` if it stays as it is.
pub(super) fn without_former_default(text: &str) -> Option<String> {
    // Most documents do not mention it.
    if !text.contains(FORMER_DEFAULT) {
        return None;
    }
    let mut document: Document = serde_saphyr::from_str(text).ok()?;
    let mut has_changed = false;
    for sources in [&mut document.catalogs, &mut document.model_catalogs] {
        let before = sources.len();
        sources.retain(|source| source.id != FORMER_DEFAULT);
        has_changed |= sources.len() != before;
    }
    if has_changed { serde_saphyr::to_string(&document).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_fit_into_volumes() {
        for (name, fits) in
            [("a", true), ("with.dots", false), (&"x".repeat(55), true), (&"x".repeat(56), false)]
        {
            assert_eq!(can_be_mounted(name), fits, "{name}");
        }
    }

    #[test]
    fn the_former_default_is_removed_from_documents_that_are_understood() {
        let text =
            "catalogs:\n- id: default_catalog\n  name: Default\n- id: mine\n  type: yaml\nmcp_catalogs: []\n";
        let stripped = without_former_default(text).unwrap();
        assert_eq!(stripped, "catalogs:\n- id: mine\n  name: \"\"\n  type: yaml\n");
        let all = "catalogs:\n- id: default_catalog\n  name: Default\n";
        assert_eq!(without_former_default(all).as_deref(), Some("{}\n"));
        let full = "model_catalogs: [{id: default_catalog}, {id: b, name: B, type: yaml, enabled: false, labels: [x], \
                    properties: {yamlCatalogPath: a.yaml, maxModels: 5}}]\nlabels: [{name: x}]\n";
        let expected = "labels:\n- name: x\nmodel_catalogs:\n- enabled: false\n  id: b\n  labels:\n  - x\n  name: B\n  properties:\n    \
                        maxModels: \"5\"\n    yamlCatalogPath: a.yaml\n  type: yaml\n";
        assert_eq!(without_former_default(full).as_deref(), Some(expected));
        assert_eq!(without_former_default(&stripped), None);
        let kept = [
            "catalogs:\n- id: mine\n",
            "catalogs:\n- id: default_catalog\n  includedModels: [a]\n",
            "skill_catalogs: []\ncatalogs:\n- id: default_catalog\n",
            "mcp_catalogs:\n- id: default_catalog\n",
            "default_catalog: [",
        ];
        for text in kept {
            assert_eq!(without_former_default(text), None, "{text}");
        }
    }

    #[test]
    fn mounted_sources_that_are_gone_are_found() {
        let volumes = json!([{"name": "labeled-a"}, {"name": "labeled-b"}, {"name": "catalog-data"}]);
        let deployment = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        assert_eq!(removed(&deployment, &["a".to_owned()]), ["b"]);
        assert!(removed(&Value::Null, &[]).is_empty());
    }
}
