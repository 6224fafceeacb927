//! Builds the catalog from its sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Yaml;

use super::files;
use super::item::{Item, ItemKind};
use super::metrics::Results;
use super::options::{self, Options};
use super::sources::{AssetType, Configuration, Label, NamedQuery, Source};
use crate::json::Json;

/// How a source fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Available,
    /// Some items cannot be used.
    Partial(String),
    Error(String),
    Disabled,
}

/// A source with how it fares.
#[derive(Debug, Clone)]
pub(crate) struct LoadedSource {
    pub(crate) source: Source,
    pub(crate) status: Status,
}

/// What is served; it is replaced as a whole when a file changes.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) sources: Vec<LoadedSource>,
    pub(crate) labels: Vec<Label>,
    pub(crate) named_queries: BTreeMap<String, NamedQuery>,
    pub(crate) models: Vec<Item>,
    pub(crate) servers: Vec<Item>,
    pub(crate) agents: Vec<Item>,
    pub(crate) options: Options,
}

/// The ids that items have. An item keeps its id while the server runs, also when it is away for a time.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    given: BTreeMap<(ItemKind, String), i32>,
    /// The last id, per table of upstream's schema: models, servers and agents share one, and all artifacts do.
    last: BTreeMap<&'static str, i32>,
}

impl Ids {
    fn id(&mut self, kind: ItemKind, key: String) -> i32 {
        if let Some(id) = self.given.get(&(kind, key.clone())) {
            return *id;
        }
        let table = match kind {
            ItemKind::Model | ItemKind::McpServer | ItemKind::Agent => "Context",
            ItemKind::Tool => "Execution",
            _ => "Artifact",
        };
        let last = self.last.entry(table).or_default();
        *last += 1;
        self.given.insert((kind, key), *last);
        *last
    }
}

/// The files that a catalog was made of, with what they looked like.
pub(crate) type Watched = BTreeMap<PathBuf, Option<(std::time::SystemTime, u64)>>;

/// Where a catalog comes from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) performance: Vec<PathBuf>,
}

/// Reads everything. `before` is what was served until now: a source that cannot be read keeps its items of then.
pub(crate) fn load(
    paths: &Paths,
    before: &Catalog,
    ids: &mut Ids,
    now: i64,
) -> Result<(Catalog, Watched), String> {
    let mut watched = Watched::new();
    let mut files = Vec::new();
    for path in &paths.sources {
        watch(&mut watched, path);
        let text = read(path).map_err(|why| format!("cannot read the sources: {why}"))?;
        files.push((path.clone(), text));
    }
    let configuration = Configuration::read(&files)?;
    let results = Results::read(&paths.performance);
    for path in &paths.performance {
        watch(&mut watched, path);
    }
    let mut catalog = Catalog {
        labels: configuration.labels,
        named_queries: configuration.named_queries,
        ..Catalog::default()
    };
    for source in configuration.sources {
        let kept = match source.asset_type {
            AssetType::Models => &before.models,
            AssetType::McpServers => &before.servers,
            AssetType::Agents | AssetType::Skills => &before.agents,
        };
        let (items, status) = load_source(&source, kept, &mut watched, now);
        for mut item in items {
            assign_ids(&mut item, ids);
            if item.kind == ItemKind::Model {
                let key = item.stored_name.clone().unwrap_or_default();
                results.enrich(&mut item, now, |external_id| {
                    ids.id(ItemKind::MetricsArtifact, format!("{key}:{external_id}"))
                });
            }
            let list = match item.kind {
                ItemKind::Model => &mut catalog.models,
                ItemKind::McpServer => &mut catalog.servers,
                _ => &mut catalog.agents,
            };
            // A server of the same name and version in a later source replaces the earlier one.
            list.retain(|it: &Item| it.id != item.id);
            list.push(item);
        }
        catalog.sources.push(LoadedSource { source, status });
    }
    catalog.options = options::collect(&catalog);
    Ok((catalog, watched))
}

fn assign_ids(item: &mut Item, ids: &mut Ids) {
    let key = item.stored_name.clone().unwrap_or_default();
    item.id = ids.id(item.kind, key.clone());
    for (index, child) in item.children.iter_mut().enumerate() {
        let child_key = child.stored_name.clone().unwrap_or_else(|| format!("{key}#{index}"));
        child.id = ids.id(child.kind, child_key);
    }
}

fn load_source(source: &Source, kept: &[Item], watched: &mut Watched, now: i64) -> (Vec<Item>, Status) {
    if !source.is_enabled {
        return (Vec::new(), Status::Disabled);
    }
    let keep = |why: String| {
        tracing::warn!(source = source.id, why, "a source of the catalog cannot be loaded");
        (kept.iter().filter(|it| it.source == source.id).cloned().collect(), Status::Error(why))
    };
    let path = match file_of(source) {
        Ok(path) => path,
        Err(why) => return keep(why),
    };
    watch(watched, &path);
    let content = match read(&path) {
        Ok(content) => content,
        Err(why) => return keep(format!("failed to read yamlCatalogPath file: {why}")),
    };
    let read = match source.asset_type {
        AssetType::McpServers => files::read_servers(&content, &source.id, now),
        AssetType::Agents => files::read_agents(&content, &source.id, now),
        AssetType::Models | AssetType::Skills => files::read_models(&content, &source.id, now),
    };
    let read = match read {
        Ok(read) => read,
        Err(why) => return keep(format!("failed to parse yamlCatalogPath file: {why}")),
    };
    let patterns = match patterns_of(source) {
        Ok(patterns) => patterns,
        Err(why) => return keep(why),
    };
    let (mut items, mut failures) = (Vec::new(), Vec::new());
    for item in read {
        match item {
            Ok(item) if item.name().is_some_and(|name| patterns.allow(name)) => items.push(item),
            Ok(_) => {}
            Err(why) => failures.push(why),
        }
    }
    let status = match failures.as_slice() {
        [] => Status::Available,
        failures if items.is_empty() => Status::Error(failures.join("; ")),
        failures => Status::Partial(failures.join("; ")),
    };
    (items, status)
}

/// The patterns of a source. Those to exclude may be among its properties, where they once were.
fn patterns_of(source: &Source) -> Result<super::patterns::Patterns, String> {
    let Some(former) = source.properties.get("excludedModels") else { return source.patterns() };
    let Some(former) = former.as_array() else {
        return Err("\"excludedModels\" property should be a list".to_owned());
    };
    let mut source = source.clone();
    let former = former.iter().filter_map(Yaml::as_str).map(str::to_owned);
    source.excluded.get_or_insert_default().extend(former);
    source.patterns()
}

/// The catalog file of a source.
fn file_of(source: &Source) -> Result<PathBuf, String> {
    let unknown = match source.asset_type {
        AssetType::Models if source.ty.is_empty() => "source has no type defined".to_owned(),
        AssetType::Models | AssetType::Skills => format!("catalog type \"{}\" not registered", source.ty),
        AssetType::McpServers => format!("unknown MCP provider type: {}", source.ty),
        AssetType::Agents => format!("unknown provider type: {}", source.ty),
    };
    if source.ty != "yaml" || source.asset_type == AssetType::Skills {
        return Err(unknown);
    }
    match source.properties.get("yamlCatalogPath").and_then(Yaml::as_str) {
        None | Some("") => Err(match source.asset_type {
            AssetType::Models | AssetType::Skills => "missing yamlCatalogPath string property".to_owned(),
            AssetType::McpServers => "yamlCatalogPath property is required for YAML MCP provider".to_owned(),
            AssetType::Agents => "yamlCatalogPath property is required for YAML agent provider".to_owned(),
        }),
        Some(path) => Ok(source.directory.join(path)),
    }
}

/// Reads a file, with the reason of a failure in the words that clients of the API know.
fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        format!("open {}: {why}", path.display())
    })
}

fn watch(watched: &mut Watched, path: &Path) {
    watched.insert(path.to_owned(), look(path));
}

/// What a file looks like from outside: it has changed if this has.
pub(crate) fn look(path: &Path) -> Option<(std::time::SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl LoadedSource {
    /// The source as answers show it.
    pub(crate) fn encode(&self) -> Json {
        let (status, error) = match &self.status {
            Status::Available => ("available", None),
            Status::Partial(why) => ("partially-available", Some(why)),
            Status::Error(why) => ("error", Some(why)),
            Status::Disabled => ("disabled", None),
        };
        let texts = |items: &[String]| Json::Array(items.iter().map(|it| Json::text(it.as_str())).collect());
        let source = &self.source;
        let mut members = BTreeMap::from([
            ("id", source.id.as_str().into()),
            ("name", source.name.as_str().into()),
            ("labels", texts(&source.labels)),
            ("enabled", Json::Bool(source.is_enabled)),
            ("status", status.into()),
            ("error", error.map_or(Json::Null, |why| why.as_str().into())),
        ]);
        if source.asset_type == AssetType::Models {
            let patterns = [("includedModels", &source.included), ("excludedModels", &source.excluded)];
            let given = |(name, patterns): (&'static str, &Option<Vec<String>>)| {
                Some((name, texts(patterns.as_deref()?)))
            };
            members.extend(patterns.into_iter().filter_map(given));
        } else {
            members.insert("assetType", source.asset_type.name().into());
        }
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}
