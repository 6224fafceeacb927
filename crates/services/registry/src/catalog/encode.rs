//! Items as answers show them.

use std::collections::BTreeMap;

use super::custom;
use super::item::{Item, ItemKind, Value};
use super::page::Page;
use crate::json::{Json, object};

/// The fields of a model, with the properties they are stored as.
const MODEL: [(&str, &str); 14] = [
    ("source_id", "source_id"),
    ("description", "description"),
    ("readme", "readme"),
    ("maturity", "maturity"),
    ("language", "language"),
    ("tasks", "tasks"),
    ("validatedTasks", "validated_tasks"),
    ("provider", "provider"),
    ("logo", "logo"),
    ("license", "license"),
    ("licenseLink", "license_link"),
    ("libraryName", "library_name"),
    ("servingConfig", "serving_config"),
    ("owner", "owner"),
];

/// The fields of servers, agents, tools and artifacts, which are stored by their names.
const SERVER: [&str; 17] = [
    "source_id",
    "displayName",
    "description",
    "provider",
    "logo",
    "license",
    "license_link",
    "readme",
    "deploymentMode",
    "documentationUrl",
    "repositoryUrl",
    "sourceCode",
    "tags",
    "transports",
    "artifacts",
    "endpoints",
    "serverJson",
];
const AGENT: [&str; 10] = [
    "source_id",
    "displayName",
    "description",
    "readme",
    "framework",
    "labels",
    "logo",
    "repositoryUrl",
    "env",
    "artifacts",
];

/// Encodes an item, without what belongs to it.
pub(crate) fn encode(item: &Item) -> BTreeMap<String, Json> {
    let mut members = BTreeMap::new();
    let mut put = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            members.insert(name.to_owned(), value);
        }
    };
    let field = |name: &str| item.property(name).map(Value::to_json);
    put("id", Some(Json::text(item.id.to_string())));
    put("name", item.name().map(Json::text));
    put("externalId", shown_external_id(item).map(Json::text));
    put("createTimeSinceEpoch", Some(Json::text(item.created.to_string())));
    put("lastUpdateTimeSinceEpoch", Some(Json::text(item.updated.to_string())));
    put("artifactType", item.kind.artifact_type().map(Json::text));
    let custom = custom::encode(item);
    let shows_none = matches!(item.kind, ItemKind::McpServer | ItemKind::Tool);
    put("customProperties", (shows_none || !custom.is_empty()).then_some(Json::Object(custom)));
    match item.kind {
        ItemKind::Model => {
            for (name, stored) in MODEL {
                put(name, field(stored));
            }
        }
        ItemKind::McpServer => {
            for name in SERVER {
                put(name, field(name));
            }
            put("version", Some(item.text("version").unwrap_or_default().into()));
            put("toolCount", Some(Json::Int(i64::try_from(item.children.len()).unwrap_or(i64::MAX))));
            put("publishedDate", item.text("publishedDate").and_then(time));
            put("lastUpdated", item.text("lastUpdated").and_then(time));
            put("runtimeMetadata", field("runtimeMetadata"));
            let flags = ["verifiedSource", "secureEndpoint", "sast", "readOnlyTools"];
            let flags: BTreeMap<String, Json> =
                flags.iter().filter_map(|name| Some(((*name).to_owned(), field(name)?))).collect();
            put("securityIndicators", (!flags.is_empty()).then_some(Json::Object(flags)));
        }
        ItemKind::Agent => {
            for name in AGENT {
                put(name, field(name));
            }
        }
        ItemKind::Tool => {
            put("description", field("description"));
            put("accessType", Some(item.text("accessType").unwrap_or("read_only").into()));
            put("parameters", field("parameters"));
        }
        ItemKind::ModelArtifact => put("uri", field("uri")),
        ItemKind::MetricsArtifact => put("metricsType", field("metricsType")),
        ItemKind::TemplateArtifact => put("content", field("content")),
    }
    members
}

fn shown_external_id(item: &Item) -> Option<&str> {
    let id = item.external_id.as_deref()?;
    let prefix = format!("{}:", item.source);
    Some(if item.kind == ItemKind::Model { id.strip_prefix(&prefix).unwrap_or(id) } else { id })
}

/// A time is shown only if it is one.
fn time(text: &str) -> Option<Json> {
    text.parse::<jiff::Timestamp>().is_ok().then(|| text.into())
}

/// Encodes a model with how many artifacts it has, by type.
pub(crate) fn model_with_counts(model: &Item) -> Json {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for artifact in &model.children {
        let ty = match artifact.kind {
            ItemKind::MetricsArtifact => artifact.text("metricsType").unwrap_or("unknown"),
            _ => "model-artifact",
        };
        *counts.entry(ty.to_owned()).or_default() += 1;
    }
    let mut members = encode(model);
    if !counts.is_empty() {
        let counts = counts.into_iter().map(|(ty, count)| (ty, Json::Int(count))).collect();
        members.insert("artifactCounts".to_owned(), Json::Object(counts));
    }
    Json::Object(members)
}

/// Encodes a server, with some of its tools.
pub(crate) fn server(server: &Item, tools: Option<usize>) -> Json {
    let mut members = encode(server);
    if let Some(limit) = tools {
        let shown: Vec<Json> =
            server.children.iter().take(limit).map(|it| Json::Object(encode(it))).collect();
        if !shown.is_empty() {
            members.insert("tools".to_owned(), Json::Array(shown));
        }
    }
    Json::Object(members)
}

/// Encodes a page.
pub(crate) fn page<T>(page: &Page<T>, encode: impl Fn(&T) -> Json) -> Json {
    let items: Vec<Json> = page.items.iter().map(encode).collect();
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    object([
        ("items", Json::Array(items)),
        ("nextPageToken", page.next_page_token.as_str().into()),
        ("pageSize", Json::Int(i64::from(page.size))),
        ("size", Json::Int(size)),
    ])
}
