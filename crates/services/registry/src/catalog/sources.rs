//! The files that list sources, labels and named queries.
//!
//! Several files are merged: a later one overrides single fields of a source of the same id, so that `{id, enabled: false}`
//! is enough to switch one off.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::patterns::Patterns;
use crate::json::Json;

/// What a source holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AssetType {
    Models,
    McpServers,
    Agents,
    Skills,
}

impl AssetType {
    pub(crate) const ALL: [Self; 4] = [Self::Models, Self::McpServers, Self::Agents, Self::Skills];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::McpServers => "mcp_servers",
            Self::Agents => "agents",
            Self::Skills => "skills",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// A source.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) asset_type: AssetType,
    pub(crate) ty: String,
    pub(crate) is_enabled: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) properties: serde_json::Map<String, Value>,
    pub(crate) included: Option<Vec<String>>,
    pub(crate) excluded: Option<Vec<String>>,
    /// Relative paths of its properties start here.
    pub(crate) directory: PathBuf,
}

impl Source {
    /// The names that are in the catalog.
    pub(crate) fn patterns(&self) -> Result<Patterns, String> {
        let (included, excluded) = match self.asset_type {
            AssetType::McpServers => ("includedServers", "excludedServers"),
            _ => ("includedModels", "excludedModels"),
        };
        let list = |patterns: &Option<Vec<String>>| patterns.clone().unwrap_or_default();
        Patterns::new((included, &list(&self.included)), (excluded, &list(&self.excluded)))
    }
}

/// A label: texts by name. Its own name may be null, which stands for sources without a label.
pub(crate) type Label = BTreeMap<String, Option<String>>;

/// A query with a name: conditions by field.
#[derive(Debug, Clone)]
pub(crate) struct NamedQuery {
    pub(crate) asset_type: AssetType,
    pub(crate) filters: BTreeMap<String, FieldFilter>,
}

/// A condition of a named query.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FieldFilter {
    #[serde(default)]
    pub(crate) operator: String,
    #[serde(default)]
    pub(crate) value: Value,
}

/// All files together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Configuration {
    pub(crate) sources: Vec<Source>,
    pub(crate) labels: Vec<Label>,
    pub(crate) named_queries: BTreeMap<String, NamedQuery>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    model_catalogs: Vec<Entry>,
    /// The former name of `model_catalogs`.
    catalogs: Vec<Entry>,
    mcp_catalogs: Vec<Entry>,
    agent_catalogs: Vec<Entry>,
    skill_catalogs: Vec<Entry>,
    labels: Vec<BTreeMap<String, Value>>,
    #[serde(rename = "namedQueries")]
    named_queries: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Entry {
    id: String,
    name: Option<String>,
    #[serde(rename = "type")]
    ty: Option<String>,
    enabled: Option<bool>,
    labels: Option<Vec<String>>,
    properties: Option<serde_json::Map<String, Value>>,
    asset_type: Option<String>,
    #[serde(alias = "includedServers")]
    included_models: Option<Vec<String>>,
    #[serde(alias = "excludedServers")]
    excluded_models: Option<Vec<String>>,
}

impl Configuration {
    /// Reads and merges files, which are given as their path and their text.
    pub(crate) fn read(files: &[(PathBuf, String)]) -> Result<Self, String> {
        let mut configuration = Self::default();
        for (path, text) in files {
            let file: File =
                if text.trim().is_empty() { Ok(File::default()) } else { serde_saphyr::from_str(text) }
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            configuration
                .merge(file, path.parent().unwrap_or_else(|| Path::new("")))
                .map_err(|why| format!("invalid configuration in {}: {why}", path.display()))?;
        }
        for source in &configuration.sources {
            source.patterns().map_err(|why| format!("invalid source {}: {why}", source.id))?;
        }
        Ok(configuration)
    }

    fn merge(&mut self, file: File, directory: &Path) -> Result<(), String> {
        let mut models = file.model_catalogs;
        let is_known = |entry: &Entry| models.iter().any(|it| it.id == entry.id);
        let former: Vec<Entry> = file.catalogs.into_iter().filter(|entry| !is_known(entry)).collect();
        models.extend(former);
        let sections = [
            (AssetType::Models, "model", models),
            (AssetType::McpServers, "mcp", file.mcp_catalogs),
            (AssetType::Agents, "agent", file.agent_catalogs),
            (AssetType::Skills, "skill", file.skill_catalogs),
        ];
        let mut seen = BTreeMap::new();
        for (asset_type, section, entries) in sections {
            for entry in entries {
                if entry.id.is_empty() {
                    return Err(format!("{section} catalog source missing id"));
                }
                match seen.insert(entry.id.clone(), asset_type) {
                    Some(before) if before == asset_type => {
                        return Err(format!("duplicate {section} catalog id: {}", entry.id));
                    }
                    Some(_) => return Err(format!("id \"{}\" used in multiple catalog types", entry.id)),
                    None => self.merge_source(asset_type, entry, directory),
                }
            }
        }
        self.merge_labels(file.labels)?;
        for (name, query) in file.named_queries {
            self.merge_query(name, query).map_err(|why| format!("invalid named queries: {why}"))?;
        }
        Ok(())
    }

    fn merge_source(&mut self, asset_type: AssetType, entry: Entry, directory: &Path) {
        // Sources of models may be declared to hold something else.
        let asset_type = entry.asset_type.as_deref().and_then(AssetType::from_name).unwrap_or(asset_type);
        let existing = self.sources.iter_mut().find(|it| it.id == entry.id);
        let Some(source) = existing else {
            self.sources.push(Source {
                id: entry.id,
                name: entry.name.unwrap_or_default(),
                asset_type,
                ty: entry.ty.unwrap_or_default(),
                is_enabled: entry.enabled.unwrap_or(true),
                labels: entry.labels.unwrap_or_default(),
                properties: entry.properties.unwrap_or_default(),
                included: entry.included_models,
                excluded: entry.excluded_models,
                directory: directory.to_owned(),
            });
            return;
        };
        let Entry { id: _, name, ty, enabled, labels, properties, asset_type: _, .. } = entry;
        source.name = name.unwrap_or_else(|| source.name.clone());
        source.ty = ty.unwrap_or_else(|| source.ty.clone());
        source.is_enabled = enabled.unwrap_or(source.is_enabled);
        source.labels = labels.unwrap_or_else(|| source.labels.clone());
        source.included = entry.included_models.or_else(|| source.included.clone());
        source.excluded = entry.excluded_models.or_else(|| source.excluded.clone());
        if let Some(properties) = properties {
            source.properties = properties;
            directory.clone_into(&mut source.directory);
        }
    }

    fn merge_labels(&mut self, labels: Vec<BTreeMap<String, Value>>) -> Result<(), String> {
        let name_of = |label: &Label| label.get("name").cloned().flatten();
        let mut names: BTreeSet<Option<String>> = self.labels.iter().map(name_of).collect();
        for (index, label) in labels.into_iter().enumerate() {
            if !label.contains_key("name") {
                return Err(format!("invalid label at index {index}: missing required 'name' field"));
            }
            let mut texts = Label::new();
            for (key, value) in label {
                let text = match value {
                    Value::String(text) => Some(text),
                    Value::Null if key == "name" => None,
                    _ => return Err(format!("label {index} has invalid property \"{key}\": it is no text")),
                };
                texts.insert(key, text);
            }
            if !names.insert(name_of(&texts)) {
                let name = name_of(&texts).unwrap_or_else(|| "null".to_owned());
                return Err(format!("duplicate label name '{name}'"));
            }
            self.labels.push(texts);
        }
        Ok(())
    }

    fn merge_query(&mut self, name: String, query: Value) -> Result<(), String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Scoped {
            #[serde(default)]
            asset_type: String,
            filters: BTreeMap<String, FieldFilter>,
        }
        let (asset_type, filters) = match serde_json::from_value::<Scoped>(query.clone()) {
            Ok(scoped) => (scoped.asset_type, scoped.filters),
            Err(_) => (
                String::new(),
                serde_json::from_value(query).map_err(|error| format!("named query '{name}': {error}"))?,
            ),
        };
        let asset_type = match asset_type.as_str() {
            "" => AssetType::Models,
            given => AssetType::from_name(given)
                .ok_or_else(|| format!("named query '{name}' has invalid assetType '{given}'"))?,
        };
        if filters.is_empty() {
            return Err(format!("named query '{name}' must contain at least one field filter"));
        }
        for (field, filter) in &filters {
            filter.check().map_err(|why| format!("{why} for field '{field}' in named query '{name}'"))?;
        }
        match self.named_queries.get_mut(&name) {
            Some(existing) => existing.filters.extend(filters),
            None => drop(self.named_queries.insert(name, NamedQuery { asset_type, filters })),
        }
        Ok(())
    }
}

impl FieldFilter {
    fn check(&self) -> Result<(), String> {
        const OPERATORS: [&str; 10] = ["=", "!=", ">", "<", ">=", "<=", "LIKE", "ILIKE", "IN", "NOT IN"];
        let operator = self.operator.to_uppercase();
        if !OPERATORS.contains(&operator.as_str()) {
            return Err(format!("unsupported operator '{}'", self.operator));
        }
        if self.value.is_null() {
            return Err("value cannot be nil".to_owned());
        }
        if operator.ends_with("IN") && !self.value.is_array() {
            return Err(format!("operator '{}' requires array value", self.operator));
        }
        Ok(())
    }
}

/// A value of YAML or JSON as answers show it.
pub(crate) fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Json::Int(number),
            None => Json::Double(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Json::text(text.as_str()),
        Value::Array(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Object(members) => {
            Json::Object(members.iter().map(|(name, value)| (name.clone(), to_json(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Configuration;

    fn read(texts: &[&str]) -> Result<Configuration, String> {
        let files: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(index, text)| (format!("/{index}/sources.yaml").into(), (*text).to_owned()))
            .collect();
        Configuration::read(&files)
    }

    #[test]
    fn later_files_override_single_fields() {
        let first = "model_catalogs: [{id: a, name: A, type: yaml, labels: [x], properties: {yamlCatalogPath: a.yaml}}]";
        let merged = read(&[first, "catalogs: [{id: a, enabled: false}]"]).expect("a configuration");
        let [source] = merged.sources.as_slice() else { panic!("one source: {merged:?}") };
        assert!(!source.is_enabled);
        assert_eq!((source.name.as_str(), source.ty.as_str()), ("A", "yaml"));
        assert_eq!(source.directory, std::path::Path::new("/0"));
        let merged = read(&[first, "model_catalogs: [{id: a, properties: {yamlCatalogPath: b.yaml}}]"]);
        assert_eq!(merged.expect("a configuration").sources[0].directory, std::path::Path::new("/1"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, why) in [
            ("model_catalogs: [{id: a}, {id: a}]", "duplicate model catalog id: a"),
            ("model_catalogs: [{id: a}]\nmcp_catalogs: [{id: a}]", "id \"a\" used in multiple catalog types"),
            ("model_catalogs: [{name: a}]", "model catalog source missing id"),
            ("labels: [{displayName: x}]", "invalid label at index 0: missing required 'name' field"),
            ("labels: [{name: x}, {name: x}]", "duplicate label name 'x'"),
            ("namedQueries: {q: {f: {operator: '~', value: 1}}}", "unsupported operator '~' for field 'f'"),
            ("namedQueries: {q: {f: {operator: IN, value: 1}}}", "operator 'IN' requires array value"),
            ("nonsense: 1", "nonsense"),
        ] {
            let error = read(&[text]).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
