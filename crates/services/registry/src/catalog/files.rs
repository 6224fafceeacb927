//! Catalog files: models, MCP servers and agents in YAML.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Yaml;

use super::item::{Item, ItemKind, Value};
use super::sources::to_json;
use super::{custom, license};
use crate::json::Json;

/// The schemes that the URI of an artifact may have.
const SCHEMES: [&str; 7] = ["oci", "http", "https", "s3", "gs", "az", "file"];

/// What a file holds: items, or why one of them cannot be used.
pub(crate) type Items = Vec<Result<Item, String>>;

type Properties = BTreeMap<String, Yaml>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    #[serde(default, rename = "source")]
    _source: Option<String>,
    #[serde(default)]
    models: Vec<Model>,
}

/// A model, with the fields of the API; those that the server sets itself are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Model {
    name: String,
    #[serde(rename = "id")]
    _id: Option<Yaml>,
    #[serde(rename = "source_id")]
    _source_id: Option<Yaml>,
    external_id: Option<String>,
    description: Option<String>,
    readme: Option<String>,
    maturity: Option<String>,
    language: Vec<String>,
    tasks: Vec<String>,
    validated_tasks: Vec<String>,
    provider: Option<String>,
    logo: Option<String>,
    license: Option<String>,
    license_link: Option<String>,
    library_name: Option<String>,
    serving_config: Option<Yaml>,
    custom_properties: Option<Properties>,
    create_time_since_epoch: Option<String>,
    last_update_time_since_epoch: Option<String>,
    artifacts: Vec<Artifact>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Artifact {
    #[serde(rename = "artifactType")]
    ty: String,
    uri: String,
    metrics_type: String,
    custom_properties: Option<Properties>,
    create_time_since_epoch: Option<String>,
    last_update_time_since_epoch: Option<String>,
}

/// Reads YAML. Unknown fields are refused in the words of upstream's reader.
pub(super) fn read_yaml<T: serde::de::DeserializeOwned>(content: &str) -> Result<T, String> {
    serde_saphyr::from_str(content).map_err(|error| {
        let error = error.to_string();
        let field = error.split_once("unknown field `").and_then(|(_, rest)| rest.split_once('`'));
        match field {
            Some((field, _)) => {
                let field = crate::text::quoted(field);
                format!("error unmarshaling JSON: while decoding JSON: json: unknown field {field}")
            }
            None => error,
        }
    })
}

/// The names of the models in a file.
pub(super) fn model_names(content: &str) -> Result<Vec<String>, String> {
    let file: ModelFile = read_yaml(content)?;
    Ok(file.models.into_iter().map(|it| it.name).collect())
}

#[derive(Debug, Deserialize)]
struct ServerFile {
    #[serde(default)]
    mcp_servers: Vec<Server>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Server {
    name: String,
    external_id: Option<String>,
    display_name: Option<String>,
    description: Option<String>,
    provider: Option<String>,
    version: Option<String>,
    logo: Option<String>,
    license: Option<String>,
    license_link: Option<String>,
    documentation_url: Option<String>,
    repository_url: Option<String>,
    source_code: Option<String>,
    readme: Option<String>,
    published_date: Option<String>,
    last_updated: Option<String>,
    deployment_mode: Option<String>,
    transports: Vec<String>,
    tags: Vec<String>,
    tools: Vec<Tool>,
    artifacts: Vec<Yaml>,
    endpoints: Option<BTreeMap<String, Option<String>>>,
    runtime_metadata: Option<Yaml>,
    #[serde(rename = "server_json")]
    raw: Option<Yaml>,
    security_indicators: BTreeMap<String, Yaml>,
    custom_properties: Option<Properties>,
    create_time_since_epoch: Option<String>,
    last_update_time_since_epoch: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Tool {
    name: String,
    description: Option<String>,
    access_type: Option<String>,
    external_id: Option<String>,
    parameters: Option<Yaml>,
    custom_properties: Option<Properties>,
}

#[derive(Debug, Deserialize)]
struct AgentFile {
    #[serde(default)]
    agents: Vec<Agent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Agent {
    name: String,
    external_id: Option<String>,
    display_name: Option<String>,
    description: Option<String>,
    readme: Option<String>,
    framework: Option<String>,
    labels: Vec<String>,
    logo: Option<String>,
    repository_url: Option<String>,
    env: Vec<Variable>,
    artifacts: Vec<Image>,
    templates: Vec<Template>,
    custom_properties: Option<Properties>,
    create_time_since_epoch: Option<String>,
    last_update_time_since_epoch: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    required: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    #[serde(default)]
    artifact_type: String,
    uri: String,
}

#[derive(Debug, Deserialize)]
struct Template {
    name: Option<String>,
    #[serde(default)]
    content: String,
}

fn text(text: Option<String>) -> Option<Value> {
    text.map(Value::Text)
}

fn list(items: Vec<String>) -> Option<Value> {
    (!items.is_empty()).then_some(Value::List(items))
}

fn json(value: Option<Yaml>) -> Option<Value> {
    value.map(|value| Value::Json(to_json(&value)))
}

/// A time in milliseconds; `now` where the file has none.
fn time(text: Option<&String>, now: i64) -> i64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(now)
}

/// Reads a file of models. Only the names are checked against nothing: a source's patterns are the caller's.
pub(crate) fn read_models(content: &str, source: &str, now: i64) -> Result<Items, String> {
    let file: ModelFile = read_yaml(content)?;
    Ok(file.models.into_iter().map(|model| to_model(model, source, now)).collect())
}

fn to_model(model: Model, source: &str, now: i64) -> Result<Item, String> {
    let mut item = Item::new(ItemKind::Model, source);
    item.stored_name = Some(format!("{source}:{}", model.name));
    item.external_id = model.external_id.map(|id| format!("{source}:{id}"));
    item.created = time(model.create_time_since_epoch.as_ref(), now);
    item.updated = time(model.last_update_time_since_epoch.as_ref(), now);
    item.put("source_id", Some(Value::Text(source.to_owned())));
    item.put("description", text(model.description));
    item.put("readme", text(model.readme));
    item.put("maturity", text(model.maturity));
    item.put("provider", text(model.provider));
    item.put("logo", text(model.logo));
    item.put("license", model.license.map(|it| Value::Text(license::name(&it))));
    item.put("license_link", text(model.license_link));
    item.put("library_name", text(model.library_name));
    item.put("language", Some(Value::List(model.language)));
    item.put("tasks", Some(Value::List(model.tasks)));
    item.put("validated_tasks", Some(Value::List(model.validated_tasks)));
    item.put("serving_config", json(model.serving_config));
    custom::put_all(&mut item, model.custom_properties.as_ref());
    // A tag without text says nothing about hardware.
    item.properties.retain(|it| it.name != "hardware_tag" || it.value != Value::Text(String::new()));
    for (index, artifact) in model.artifacts.into_iter().enumerate() {
        let child = to_artifact(artifact, source, now)
            .map_err(|why| format!("model \"{}\" artifact {index}: {why}", model.name))?;
        item.children.push(child);
    }
    Ok(item)
}

fn to_artifact(artifact: Artifact, source: &str, now: i64) -> Result<Item, String> {
    let mut item = match artifact.ty.as_str() {
        "" | "model-artifact" => {
            check_uri(&artifact.uri)?;
            let mut item = Item::new(ItemKind::ModelArtifact, source);
            item.put("uri", Some(Value::Text(artifact.uri)));
            item
        }
        "metrics-artifact" => {
            let mut item = Item::new(ItemKind::MetricsArtifact, source);
            item.put("metricsType", Some(Value::Text(artifact.metrics_type)));
            item
        }
        other => return Err(format!("unknown artifactType: {other}")),
    };
    item.created = time(artifact.create_time_since_epoch.as_ref(), now);
    item.updated = time(artifact.last_update_time_since_epoch.as_ref(), now);
    custom::put_all(&mut item, artifact.custom_properties.as_ref());
    Ok(item)
}

fn check_uri(uri: &str) -> Result<(), String> {
    if uri.is_empty() {
        return Err("artifact URI cannot be empty".to_owned());
    }
    let known = SCHEMES.join(" ");
    match uri.split_once(':') {
        Some((scheme, _)) if SCHEMES.contains(&scheme.to_lowercase().as_str()) => Ok(()),
        Some((scheme, _)) if scheme.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it)) => {
            Err(format!(
                "artifact URI \"{uri}\" has unsupported scheme \"{scheme}\" (valid schemes: [{known}])"
            ))
        }
        _ => Err(format!("artifact URI \"{uri}\" must have a scheme (valid schemes: [{known}])")),
    }
}

/// Reads a file of MCP servers.
pub(crate) fn read_servers(content: &str, source: &str, now: i64) -> Result<Items, String> {
    let file: ServerFile = read_yaml(content)?;
    Ok(file.mcp_servers.into_iter().map(|server| to_server(server, source, now)).collect())
}

fn to_server(server: Server, source: &str, now: i64) -> Result<Item, String> {
    let name = server.name;
    if name.is_empty() || name.contains('@') {
        return Err(format!("server \"{name}\": a name is needed, without @"));
    }
    for (index, artifact) in server.artifacts.iter().enumerate() {
        let uri = artifact.get("uri").and_then(Yaml::as_str).unwrap_or_default();
        check_uri(uri).map_err(|why| format!("server \"{name}\" artifact {index}: {why}"))?;
    }
    let endpoints = server.endpoints.unwrap_or_default();
    let endpoints: BTreeMap<String, Json> =
        endpoints.into_iter().filter_map(|(kind, url)| Some((kind, Json::Text(url?)))).collect();
    if server.deployment_mode.as_deref() == Some("remote") && endpoints.is_empty() {
        return Err(format!("server \"{name}\" has deploymentMode 'remote' but no endpoints defined"));
    }
    let mut item = Item::new(ItemKind::McpServer, source);
    let version = server.version.unwrap_or_default();
    item.stored_name = Some(if version.is_empty() { name.clone() } else { format!("{name}@{version}") });
    item.external_id = server.external_id;
    item.created = time(server.create_time_since_epoch.as_ref(), now);
    item.updated = time(server.last_update_time_since_epoch.as_ref(), now);
    item.put("source_id", Some(Value::Text(source.to_owned())));
    item.put("base_name", Some(Value::Text(name.clone())));
    item.put("version", (!version.is_empty()).then_some(Value::Text(version)));
    item.put("displayName", text(server.display_name));
    item.put("description", text(server.description));
    item.put("provider", text(server.provider));
    item.put("logo", text(server.logo));
    item.put("license", server.license.map(|it| Value::Text(license::name(&it))));
    item.put("license_link", text(server.license_link));
    item.put("documentationUrl", text(server.documentation_url));
    item.put("repositoryUrl", text(server.repository_url));
    item.put("sourceCode", text(server.source_code));
    item.put("readme", text(server.readme));
    item.put("publishedDate", text(server.published_date));
    item.put("lastUpdated", text(server.last_updated));
    item.put("deploymentMode", text(server.deployment_mode));
    item.put("transports", list(server.transports));
    item.put("tags", list(server.tags));
    item.put(
        "artifacts",
        (!server.artifacts.is_empty()).then(|| Value::Json(to_json(&Yaml::Array(server.artifacts)))),
    );
    item.put("endpoints", (!endpoints.is_empty()).then_some(Value::Json(Json::Object(endpoints))));
    item.put("runtimeMetadata", json(server.runtime_metadata));
    item.put("serverJson", json(server.raw));
    for indicator in ["verifiedSource", "secureEndpoint", "sast", "readOnlyTools"] {
        item.put(
            indicator,
            server.security_indicators.get(indicator).and_then(Yaml::as_bool).map(Value::Bool),
        );
    }
    custom::put_all(&mut item, server.custom_properties.as_ref());
    for tool in server.tools {
        let mut child = Item::new(ItemKind::Tool, source);
        child.stored_name = Some(format!("{}:{}", item.stored_name.clone().unwrap_or_default(), tool.name));
        child.external_id = tool.external_id;
        (child.created, child.updated) = (now, now);
        child.put("description", text(tool.description));
        child.put("accessType", text(tool.access_type));
        child.put("parameters", json(tool.parameters));
        custom::put_all(&mut child, tool.custom_properties.as_ref());
        item.children.push(child);
    }
    Ok(item)
}

/// Reads a file of agents.
pub(crate) fn read_agents(content: &str, source: &str, now: i64) -> Result<Items, String> {
    let file: AgentFile = read_yaml(content)?;
    Ok(file.agents.into_iter().map(|agent| Ok(to_agent(agent, source, now))).collect())
}

fn to_agent(agent: Agent, source: &str, now: i64) -> Item {
    let mut item = Item::new(ItemKind::Agent, source);
    item.stored_name = Some(format!("{source}:{}", agent.name));
    item.external_id = agent.external_id;
    item.created = time(agent.create_time_since_epoch.as_ref(), now);
    item.updated = time(agent.last_update_time_since_epoch.as_ref(), now);
    item.put("source_id", Some(Value::Text(source.to_owned())));
    item.put("displayName", text(agent.display_name));
    item.put("description", text(agent.description));
    item.put("readme", text(agent.readme));
    item.put("framework", text(agent.framework));
    item.put("labels", list(agent.labels));
    item.put("logo", text(agent.logo));
    item.put("repositoryUrl", text(agent.repository_url));
    let variable = |it: Variable| {
        crate::json::object([("name", Json::Text(it.name)), ("required", Json::Bool(it.required))])
    };
    let variables: Vec<Json> = agent.env.into_iter().map(variable).collect();
    item.put("env", (!variables.is_empty()).then_some(Value::Json(Json::Array(variables))));
    let image = |it: Image| {
        crate::json::object([("artifactType", Json::Text(it.artifact_type)), ("uri", Json::Text(it.uri))])
    };
    let images: Vec<Json> = agent.artifacts.into_iter().map(image).collect();
    item.put("artifacts", (!images.is_empty()).then_some(Value::Json(Json::Array(images))));
    custom::put_all(&mut item, agent.custom_properties.as_ref());
    for template in agent.templates {
        let name = template.name.filter(|it| !it.is_empty()).unwrap_or_else(|| "agent.yaml".to_owned());
        let mut child = Item::new(ItemKind::TemplateArtifact, source);
        child.stored_name = Some(format!("{source}:{}:{name}", agent.name));
        (child.created, child.updated) = (now, now);
        child.put("content", Some(Value::Text(template.content)));
        item.children.push(child);
    }
    item
}
