//! The REST API of the catalog.

use std::path::Path;

use http::{HeaderValue, Method, StatusCode, header};

use super::filter::Filter;
use super::item::{Item, ItemKind};
use super::load::{Catalog, LoadedSource};
use super::multipart::Form;
use super::page::{List, Page, Texts};
use super::recommend::flag;
use super::sources::{AssetType, Label};
use super::{encode, models, options, preview};
use crate::api::Request;
use crate::api::query::{self, Query, unescape};
use crate::api::response::Response;
use crate::error::Error;
use crate::filter::pattern;
use crate::json::{Json, object};
use crate::text;

/// Answers a request; `catalog` is `None` until the sources have been read once.
pub(crate) fn answer(catalog: Option<&Catalog>, request: &Request, directory: &Path) -> Response {
    if let Some(response) = probe(catalog.is_some(), request) {
        return response;
    }
    let Some(route) = route(&request.path) else {
        return empty_segment(request).unwrap_or_else(|| Response::no_route(&request.method));
    };
    let allowed: &[&Method] = if route == Route::Preview { &[&Method::POST] } else { &[&Method::GET] };
    if !allowed.contains(&&request.method) {
        return Response::method_not_allowed(&request.method, allowed);
    }
    if let Some(refusal) = crate::api::refuse_nul(request) {
        return refusal;
    }
    let Some(catalog) = catalog else {
        return Response::text(StatusCode::SERVICE_UNAVAILABLE, "the catalog is not loaded yet\n");
    };
    handle(catalog, route, request, directory).unwrap_or_else(|error| Response::refusal(&error))
}

/// `/healthz` and `/readyz`.
fn probe(is_ready: bool, request: &Request) -> Option<Response> {
    let (status, body) = match request.path.as_str() {
        "/healthz" => (StatusCode::OK, object([("status", "ok".into())])),
        "/readyz" => {
            let plugins = ["model", "mcp", "agent", "skill"].map(|name| (name, Json::Bool(is_ready)));
            let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let word = if is_ready { "ready" } else { "not_ready" };
            (status, object([("status", word.into()), ("plugins", object(plugins))]))
        }
        _ => return None,
    };
    if request.method != Method::GET {
        return Some(Response::method_not_allowed(&request.method, &[&Method::GET]));
    }
    let mut response = Response::json(status, &body);
    response.headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Some(response)
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    Sources,
    Preview,
    Labels,
    Models,
    ModelOptions,
    Model { source: String, name: String },
    Artifacts { source: String, name: String },
    Performance { source: String, name: String },
    Servers,
    ServerOptions,
    Server(String),
    Tools(String),
    Tool(String, String),
    Agents,
    AgentOptions,
    Agent(String),
    AgentArtifacts(String),
    Skills,
    SkillOptions,
    Skill(String),
}

/// The refusal of a path that lacks a name in its midst, or that of a model.
fn empty_segment(request: &Request) -> Option<Response> {
    let path = request.path.strip_prefix("/api/")?;
    let field = if let Some(rest) = path.strip_prefix("model_catalog/v1alpha1/sources/") {
        match rest.split_once("/models/")? {
            ("", _) => "source_id",
            (_, "") => "*",
            (_, "/artifacts" | "/artifacts/performance") => "model_name",
            _ => return None,
        }
    } else {
        match path {
            "mcp_catalog/v1alpha1/mcp_servers//tools" => "server_id",
            path if is_tool_of_nothing(path) => "server_id",
            "agent_catalog/v1alpha1/agents//artifacts" => "id",
            _ => return None,
        }
    };
    if request.method != Method::GET {
        return Some(Response::method_not_allowed(&request.method, &[&Method::GET]));
    }
    Some(Response::refusal(&Error::Unprocessable(format!("required field '{field}' is zero value."))))
}

fn is_tool_of_nothing(path: &str) -> bool {
    let tool = path.strip_prefix("mcp_catalog/v1alpha1/mcp_servers//tools/");
    tool.is_some_and(|tool| !tool.is_empty() && !tool.contains('/'))
}

fn route(path: &str) -> Option<Route> {
    let is_plain = query::is_plain_path(path)?;
    let decoded = |text: &str| Some(query::segment(text, is_plain)).filter(|it| !it.is_empty());
    let path = path.strip_prefix("/api/")?;
    if let Some(rest) = path.strip_prefix("model_catalog/v1alpha1/") {
        if let Some((source, name)) = rest.strip_prefix("sources/").and_then(|it| it.split_once("/models/")) {
            return model_route(decoded(source).filter(|it| !it.contains('/'))?, name);
        }
        return match rest {
            "sources" => Some(Route::Sources),
            "sources/preview" => Some(Route::Preview),
            "labels" => Some(Route::Labels),
            "models" => Some(Route::Models),
            "models/filter_options" => Some(Route::ModelOptions),
            _ => None,
        };
    }
    let (catalog, rest) = path.split_once("/v1alpha1/")?;
    let segments: Vec<&str> = rest.split('/').collect();
    Some(match (catalog, segments.as_slice()) {
        ("mcp_catalog", ["mcp_servers"]) => Route::Servers,
        ("mcp_catalog", ["mcp_servers", "filter_options"]) => Route::ServerOptions,
        ("mcp_catalog", ["mcp_servers", id]) => Route::Server(decoded(id)?),
        ("mcp_catalog", ["mcp_servers", id, "tools"]) => Route::Tools(decoded(id)?),
        ("mcp_catalog", ["mcp_servers", id, "tools", name]) => Route::Tool(decoded(id)?, decoded(name)?),
        ("agent_catalog", ["agents"]) => Route::Agents,
        ("agent_catalog", ["agents", "filter_options"]) => Route::AgentOptions,
        ("agent_catalog", ["agents", id]) => Route::Agent(decoded(id)?),
        ("agent_catalog", ["agents", id, "artifacts"]) => Route::AgentArtifacts(decoded(id)?),
        ("skill_catalog", ["skills"]) => Route::Skills,
        ("skill_catalog", ["skills", "filter_options"]) => Route::SkillOptions,
        ("skill_catalog", ["skills", id]) => Route::Skill(decoded(id)?),
        _ => return None,
    })
}

/// Names of models contain slashes, which may come encoded or not.
fn model_route(source: String, rest: &str) -> Option<Route> {
    let decoded = |text: &str| {
        let bytes = unescape(text, false).ok()?;
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    };
    if let Some(name) = rest.strip_suffix("/artifacts/performance") {
        return Some(Route::Performance { source, name: decoded(name)? });
    }
    if let Some(name) = rest.strip_suffix("/artifacts") {
        return Some(Route::Artifacts { source, name: decoded(name)? });
    }
    Some(Route::Model { source, name: decoded(rest)? })
}

fn handle(catalog: &Catalog, route: Route, request: &Request, directory: &Path) -> Result<Response, Error> {
    let query = &request.query;
    if let Some(why) = query.error() {
        return Err(Error::BadRequest(why.to_owned()));
    }
    let body = match route {
        Route::Preview => {
            let content_type = request.headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
            let form = Form::parse(content_type.unwrap_or_default(), &request.body);
            return preview::answer(&form.map_err(Error::BadRequest)?, query, directory);
        }
        Route::Sources => sources(catalog, query)?,
        Route::Labels => labels(catalog, query)?,
        Route::Models => models::list(catalog, query)?,
        Route::Model { source, name } => encode::model_with_counts(models::find(catalog, &source, &name)?),
        Route::Artifacts { source, name } => models::artifacts(catalog, &source, &name, query)?,
        Route::Performance { source, name } => models::performance(catalog, &source, &name, query)?,
        Route::ModelOptions => catalog.options.models.clone().unwrap_or(Json::Null),
        Route::ServerOptions => catalog.options.servers.clone().unwrap_or(Json::Null),
        Route::AgentOptions => catalog.options.agents.clone().unwrap_or(Json::Null),
        Route::SkillOptions => object([("filters", object([]))]),
        Route::Servers => servers(catalog, query)?,
        Route::Server(id) => {
            let tools = tools(query)?;
            encode::server(by_id(&catalog.servers, &id, "server")?, tools)
        }
        Route::Tools(id) => {
            let list = List::read(query, ItemKind::Tool, "ID")?;
            let server = by_id(&catalog.servers, &id, "server")?;
            encode::page(&list.page(server.children.iter()), |tool| Json::Object(encode::encode(tool)))
        }
        Route::Tool(id, name) => {
            let server = by_id(&catalog.servers, &id, "server")?;
            let tool = server.children.iter().find(|it| it.name() == Some(name.as_str()));
            let missing = || Error::not_found(format!("tool '{name}' not found in server {id}"));
            Json::Object(encode::encode(tool.ok_or_else(missing)?))
        }
        Route::Agents => agents(catalog, query)?,
        Route::Agent(id) => Json::Object(encode::encode(by_id(&catalog.agents, &id, "agent")?)),
        Route::AgentArtifacts(id) => agent_artifacts(catalog, &id, query)?,
        Route::Skills => {
            let list = List::read(query, ItemKind::Agent, "ID")?;
            encode::page(&list.page(std::iter::empty()), |_| Json::Null)
        }
        Route::Skill(id) => {
            return Err(by_id(&[], &id, "skill").err().unwrap_or_else(|| Error::not_found(id)));
        }
    };
    Ok(Response::json(StatusCode::OK, &body))
}

fn sources(catalog: &Catalog, query: &Query) -> Result<Json, Error> {
    let list = Texts::read(query, true)?;
    let by_name = match list.order_by {
        "" | "ID" => false,
        "NAME" => true,
        _ => return Err(Error::BadRequest("unsupported order by field".to_owned())),
    };
    let asset_type = match query.get("assetType") {
        "" => Some(AssetType::Models),
        name => AssetType::from_name(name),
    };
    let wanted = query.get("name").to_lowercase();
    let mut found: Vec<&LoadedSource> = catalog
        .sources
        .iter()
        .filter(|it| {
            Some(it.source.asset_type) == asset_type && it.source.name.to_lowercase().contains(&wanted)
        })
        .collect();
    let key = |it: &LoadedSource| if by_name { it.source.name.clone() } else { it.source.id.clone() };
    found.sort_by_key(|it| key(it));
    if list.sort_order == "DESC" {
        found.reverse();
    }
    // The value in a token is empty unless an order is asked for.
    let value = |it: &LoadedSource| if list.order_by.is_empty() { String::new() } else { key(it) };
    let page = list.page(found, |it| (value(it), it.source.id.clone()));
    Ok(encode::page(&page, |it| it.encode()))
}

fn labels(catalog: &Catalog, query: &Query) -> Result<Json, Error> {
    let asset_type = match query.get("assetType") {
        "" => AssetType::Models,
        name => AssetType::from_name(name).ok_or_else(|| {
            let valid = AssetType::ALL.map(AssetType::name).join(" ");
            Error::BadRequest(format!("invalid value '{name}' for assetType: valid values are [{valid}]"))
        })?,
    };
    let list = Texts::read(query, false)?;
    let type_of =
        |label: &Label| label.get("assetType").cloned().flatten().unwrap_or_else(|| "models".to_owned());
    let labels = catalog.labels.iter().filter(|label| type_of(label) == asset_type.name());
    let mut labels: Vec<(usize, &Label)> = labels.enumerate().collect();
    if !list.order_by.is_empty() {
        let value = |label: &Label| label.get(list.order_by).cloned().flatten();
        labels.sort_by(|(_, left), (_, right)| match (value(left), value(right)) {
            (Some(left), Some(right)) if list.sort_order == "DESC" => right.cmp(&left),
            (Some(left), Some(right)) => left.cmp(&right),
            (left, right) => left.is_none().cmp(&right.is_none()),
        });
    }
    let page = list.page(labels, |(index, _)| (String::new(), index.to_string()));
    let encode_label = |(_, label): &(usize, &Label)| {
        let value = |text: &Option<String>| text.as_ref().map_or(Json::Null, |it| it.as_str().into());
        Json::Object(label.iter().map(|(name, text)| (name.clone(), value(text))).collect())
    };
    Ok(encode::page(&page, encode_label))
}

fn servers(catalog: &Catalog, query: &Query) -> Result<Json, Error> {
    let shown = tools(query)?;
    let mut list = List::read(query, ItemKind::McpServer, "ID")?;
    match query.get("namedQuery") {
        "" => {}
        name => {
            let named = catalog.named_queries.get(name).filter(|it| it.asset_type == AssetType::McpServers);
            let unknown = || Error::bad_request(format!("unknown named query {}", text::quoted(name)));
            let conditions = options::to_query(&named.ok_or_else(unknown)?.filters);
            if let Some(filter) = Filter::parse(&conditions, ItemKind::McpServer)? {
                list.require(filter);
            }
        }
    }
    let Some(sources) = labelled(catalog, AssetType::McpServers, query) else {
        return Ok(encode::page(&Page::<()>::empty(list.size), |()| Json::Null));
    };
    let (name, search) = (query.get("name"), query.get("q"));
    let found = catalog.servers.iter().filter(|it| {
        (name.is_empty() || it.name().is_some_and(|it| pattern::matches(name, it)))
            && is_found(it, search, &["description", "provider"])
            && (sources.is_empty() || sources.contains(&it.source))
    });
    Ok(encode::page(&list.page(found), |it| encode::server(it, shown)))
}

fn agents(catalog: &Catalog, query: &Query) -> Result<Json, Error> {
    let list = List::read(query, ItemKind::Agent, "ID")?;
    let given: Vec<String> = parts(query, "source");
    let sources = if given.is_empty() { labelled(catalog, AssetType::Agents, query) } else { Some(given) };
    let Some(sources) = sources else {
        return Ok(encode::page(&Page::<()>::empty(list.size), |()| Json::Null));
    };
    let (name, search) = (query.get("name"), query.get("q"));
    let found = catalog.agents.iter().filter(|it| {
        (name.is_empty() || it.name().is_some_and(|it| pattern::matches(name, it)))
            && is_found(it, search, &["description", "displayName", "framework"])
            && (sources.is_empty() || sources.contains(&it.source))
    });
    Ok(encode::page(&list.page(found), |it| Json::Object(encode::encode(it))))
}

fn agent_artifacts(catalog: &Catalog, id: &str, query: &Query) -> Result<Json, Error> {
    let types = types(query, "artifactType");
    if let Some(unknown) = types.iter().find(|it| *it != "template-artifact") {
        let why = format!("invalid value '{unknown}' for AgentArtifactTypeQueryParam");
        return Err(Error::BadRequest(format!("artifactType: {why}: valid values are [template-artifact]")));
    }
    // As upstream's, this list has no filter.
    let list = List::filtered(query, ItemKind::TemplateArtifact, "ID", "")?;
    let agent = by_id(&catalog.agents, id, "agent")?;
    Ok(encode::page(&list.page(agent.children.iter()), |it| Json::Object(encode::encode(it))))
}

/// How many tools are shown with a server: none, or as many as the query says, 0 for all.
fn tools(query: &Query) -> Result<Option<usize>, Error> {
    let is_shown = flag(query, "includeTools")?;
    let refused = |why: &str| Error::BadRequest(format!("toolLimit: {why}"));
    let limit = match query.get("toolLimit") {
        "" => 10,
        digits => text::int32(digits).map_err(|why| refused(&why))?,
    };
    if limit < 0 {
        return Err(refused("provided parameter is not respecting minimum value constraint"));
    }
    if limit > 100 {
        return Err(refused("provided parameter is not respecting maximum value constraint"));
    }
    let limit = usize::try_from(limit).ok().filter(|it| *it > 0).unwrap_or(usize::MAX);
    Ok(is_shown.then_some(limit))
}

fn by_id<'a>(items: &'a [Item], id: &str, words: &str) -> Result<&'a Item, Error> {
    let number = text::int32(id).map_err(|_| Error::bad_request(format!("invalid {words} ID '{id}'")))?;
    let found = items.iter().find(|it| it.id == number);
    found.ok_or_else(|| Error::not_found(format!("{words} not found with ID {id}")))
}

/// The parts of a parameter, separated by commas.
pub(super) fn parts(query: &Query, name: &str) -> Vec<String> {
    match query.get(name) {
        "" => Vec::new(),
        value => value.split(',').map(str::to_owned).collect(),
    }
}

/// The types of artifacts that a parameter names. One that is there but empty names a type without a name.
pub(super) fn types(query: &Query, name: &str) -> Vec<String> {
    if !query.has(name) {
        return Vec::new();
    }
    query.get(name).split(',').map(str::to_owned).collect()
}

/// The enabled sources that have one of the labels asked for; empty if none is, `None` if there is no such source.
pub(super) fn labelled(catalog: &Catalog, asset_type: AssetType, query: &Query) -> Option<Vec<String>> {
    let wanted: Vec<String> = parts(query, "sourceLabel").iter().map(|it| it.to_lowercase()).collect();
    if wanted.is_empty() {
        return Some(Vec::new());
    }
    let has_label = |it: &&LoadedSource| {
        let is_wanted = |label: &String| wanted.contains(&label.to_lowercase());
        let source = &it.source;
        source.is_enabled
            && source.asset_type == asset_type
            && (source.labels.iter().any(is_wanted)
                || source.labels.is_empty() && wanted.iter().any(|it| it == "null"))
    };
    let found: Vec<String> =
        catalog.sources.iter().filter(has_label).map(|it| it.source.id.clone()).collect();
    (!found.is_empty()).then_some(found)
}

/// Whether a text occurs in the name or in one of these properties; `%` and `_` are wildcards in it.
pub(super) fn is_found(item: &Item, search: &str, properties: &[&str]) -> bool {
    if search.is_empty() {
        return true;
    }
    let wanted = format!("%{search}%");
    let occurs = |text: &str| pattern::matches_ignoring_case(&wanted, text);
    item.stored_name.as_deref().is_some_and(occurs)
        || properties.iter().any(|name| {
            let value = item.property(name).and_then(super::item::Value::as_text);
            value.is_some_and(|text| occurs(&text))
        })
}
