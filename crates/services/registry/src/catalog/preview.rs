//! What a source would contribute, without adding it.

use std::path::{Component, Path, PathBuf};

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value as Yaml;

use super::encode;
use super::files::{model_names, read_yaml};
use super::multipart::Form;
use super::page::{Page, Texts};
use super::patterns::Patterns;
use crate::api::query::Query;
use crate::api::response::Response;
use crate::error::Error;
use crate::json::{Json, object};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    #[serde(rename = "type")]
    ty: String,
    asset_type: String,
    included_models: Vec<String>,
    excluded_models: Vec<String>,
    included_servers: Vec<String>,
    excluded_servers: Vec<String>,
    properties: serde_json::Map<String, Yaml>,
}

/// Only the names matter here.
#[derive(Debug, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Servers {
    #[serde(default)]
    mcp_servers: Vec<Named>,
}

/// Answers a preview. Paths are looked up in `directory`, and nowhere else.
pub(crate) fn answer(form: &Form, query: &Query, directory: &Path) -> Result<Response, Error> {
    super::page::size(query)?;
    let wanted = match query.get("filterStatus").to_lowercase().as_str() {
        "" | "all" => None,
        "included" => Some(true),
        "excluded" => Some(false),
        _ => {
            let why = "invalid filterStatus: must be 'all', 'included', or 'excluded'";
            return Err(Error::BadRequest(why.to_owned()));
        }
    };
    let Some(config) = form.file("config") else {
        let why = "required file field 'config' is missing from the request. \
                   Check that the field name is spelled correctly in your multipart form data.";
        return Err(Error::BadRequest(why.to_owned()));
    };
    let (is_servers, names, patterns) = match inspect(config, form.file("catalogData"), directory) {
        Ok(inspected) => inspected,
        Err(why) => return Ok(Response::unprocessable(&why)),
    };
    let results: Vec<(String, bool)> = names
        .into_iter()
        .map(|name| {
            let is_included = patterns.allow(&name);
            (name, is_included)
        })
        .collect();
    let included = results.iter().filter(|(_, is_included)| *is_included).count();
    let counts = [results.len(), included, results.len() - included];
    let shown = results.into_iter().filter(|(_, is_included)| wanted.is_none_or(|it| it == *is_included));
    let texts = Texts::read(query, true)?;
    let page = texts.page(shown.collect(), |(name, _)| (String::new(), name.clone()));
    Ok(Response::json(StatusCode::OK, &response(&page, is_servers, counts)))
}

fn response(page: &Page<(String, bool)>, is_servers: bool, counts: [usize; 3]) -> Json {
    let item = |(name, is_included): &(String, bool)| {
        object([("name", name.as_str().into()), ("included", Json::Bool(*is_included))])
    };
    let [total, included, excluded] = counts.map(|it| Json::Int(i64::try_from(it).unwrap_or(i64::MAX)));
    let (asset_type, summary) = if is_servers {
        let names = [("totalAssets", total), ("includedAssets", included), ("excludedAssets", excluded)];
        ("mcp_servers", object(names))
    } else {
        let names = [("totalModels", total), ("includedModels", included), ("excludedModels", excluded)];
        ("models", object(names))
    };
    let mut encoded = encode::page(page, item);
    if let Json::Object(members) = &mut encoded {
        members.insert("assetType".to_owned(), asset_type.into());
        members.insert("summary".to_owned(), summary);
    }
    encoded
}

/// Refuses anything but a mapping in the words of upstream's decoder, which has made JSON of it.
fn check_mapping(text: &str, ty: &str) -> Result<(), String> {
    let kind = match read_yaml::<Yaml>(text) {
        Ok(Yaml::Array(_)) => "array",
        Ok(Yaml::String(_)) => "string",
        Ok(Yaml::Number(_)) => "number",
        Ok(Yaml::Bool(_)) => "bool",
        _ => return Ok(()),
    };
    Err(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type modelcatalog.{ty}"
    ))
}

/// Whether it is about servers, all names of the source, and its patterns.
type Inspected = (bool, Vec<String>, Patterns);

fn inspect(config: &[u8], data: Option<&[u8]>, directory: &Path) -> Result<Inspected, String> {
    let invalid = |why: String| format!("invalid config: {why}");
    let config = text(config).and_then(|text| {
        check_mapping(text, "PreviewConfig")?;
        read_yaml::<Config>(text)
    });
    let config = config.map_err(|why| invalid(format!("failed to parse config: {why}")))?;
    if config.ty.is_empty() {
        return Err(invalid("missing required field: type".to_owned()));
    }
    let is_servers = config.asset_type == "mcp_servers";
    let patterns = if is_servers {
        let (included, excluded) = (&config.included_servers, &config.excluded_servers);
        Patterns::new(("includedServers", included), ("excludedServers", excluded))
    } else {
        let (included, excluded) = (&config.included_models, &config.excluded_models);
        Patterns::new(("includedModels", included), ("excludedModels", excluded))
    };
    let patterns = patterns.map_err(invalid)?;
    let what = if is_servers { "servers" } else { "models" };
    let failed = |why: String| format!("failed to load {what}: {why}");
    if config.ty == "hf" && !is_servers && config.included_models.is_empty() {
        let why = "includedModels is required for HuggingFace source preview";
        return Err(failed(format!("{why} (specifies which models to fetch from HuggingFace)")));
    }
    if config.ty != "yaml" {
        let kind =
            if is_servers { "unsupported source type for MCP preview" } else { "unsupported source type" };
        return Err(failed(format!("{kind}: {}", config.ty)));
    }
    let data = data.filter(|data| !data.is_empty());
    let content = match data {
        Some(data) => data.to_vec(),
        None => read(&config, directory).map_err(failed)?,
    };
    // Errors quote the file: only those who have sent it see them.
    let malformed = |why: String| match data {
        Some(_) => failed(format!("failed to parse catalog file: {why}")),
        None => failed("failed to parse catalog file: it is not a catalog".to_owned()),
    };
    let content = text(&content).map_err(malformed)?;
    let names = if is_servers {
        let file: Servers = read_yaml(content).map_err(malformed)?;
        file.mcp_servers.into_iter().map(|it| it.name).collect()
    } else {
        check_mapping(content, "yamlCatalog").map_err(malformed)?;
        model_names(content).map_err(malformed)?
    };
    Ok((is_servers, names, patterns))
}

fn text(content: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(content).map_err(|error| error.to_string())
}

/// Reads the file that a source names. Whoever may ask for a preview must not learn what other files there are: paths
/// that lead out of the directory are refused, and messages do not name it.
fn read(config: &Config, directory: &Path) -> Result<Vec<u8>, String> {
    let Some(path) =
        config.properties.get("yamlCatalogPath").and_then(Yaml::as_str).filter(|it| !it.is_empty())
    else {
        let hint = "provide catalogData file or set yamlCatalogPath in config";
        return Err(format!("missing required property: yamlCatalogPath ({hint})"));
    };
    let unreadable = || {
        "the file of yamlCatalogPath is not among the catalog files of this server; send it as catalogData"
            .to_owned()
    };
    let relative: PathBuf = Path::new(path).components().collect();
    if relative.components().any(|it| !matches!(it, Component::Normal(_) | Component::CurDir)) {
        return Err(unreadable());
    }
    let root = directory.canonicalize().map_err(|_| unreadable())?;
    let file = root.join(relative).canonicalize().map_err(|_| unreadable())?;
    if !file.starts_with(&root) {
        return Err(unreadable());
    }
    std::fs::read(file).map_err(|_| unreadable())
}
