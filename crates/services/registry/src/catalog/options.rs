//! What can be filtered: the values that occur, and the named queries.

use std::collections::{BTreeMap, BTreeSet};

use super::item::{Item, Value};
use super::load::Catalog;
use super::sources::{AssetType, FieldFilter, to_json};
use crate::json::{Json, object};

/// Texts with as many values, or with a value as long, are free text and no choice.
const MAX_VALUES: usize = 50;
const MAX_LENGTH: usize = 100;

/// The answers of `filter_options`, by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) models: Option<Json>,
    pub(crate) servers: Option<Json>,
    pub(crate) agents: Option<Json>,
}

/// The values of one property.
#[derive(Debug, Default)]
struct Occurring {
    texts: BTreeSet<String>,
    members: BTreeSet<String>,
    ints: Option<(i32, i32)>,
    doubles: Option<(f64, f64)>,
}

/// By name, and by whether it is custom.
type Properties = BTreeMap<(String, bool), Occurring>;

/// Collects what occurs in a catalog.
pub(crate) fn collect(catalog: &Catalog) -> Options {
    let models = occurring(catalog.models.iter());
    let artifacts = occurring(catalog.models.iter().chain(&catalog.agents).flat_map(|it| &it.children));
    let servers = occurring(catalog.servers.iter());
    let agents = occurring(catalog.agents.iter());
    let mut filters = shown(&models, "", &["source_id", "logo", "license_link", "serving_config"]);
    filters.extend(shown(&artifacts, "artifacts.", &["metricsType", "model_id"]));
    let server_fields = [
        "artifacts",
        "base_name",
        "documentationUrl",
        "license_link",
        "logo",
        "repositoryUrl",
        "sourceCode",
        "source_id",
        "tools",
        "version",
        "serverJson",
    ];
    let agent_fields = ["source_id", "logo", "repositoryUrl", "readme", "artifacts", "env"];
    Options {
        models: Some(encode(catalog, AssetType::Models, filters)),
        servers: Some(encode(catalog, AssetType::McpServers, shown(&servers, "", &server_fields))),
        agents: Some(encode(catalog, AssetType::Agents, shown(&agents, "", &agent_fields))),
    }
}

fn occurring<'a>(items: impl Iterator<Item = &'a Item>) -> Properties {
    let mut properties = Properties::new();
    for property in items.flat_map(|item| &item.properties) {
        let seen = properties.entry((property.name.clone(), property.is_custom)).or_default();
        match &property.value {
            Value::Text(text) if text.is_empty() => {}
            Value::Text(text) => drop(seen.texts.insert(text.clone())),
            Value::Json(value) => drop(seen.texts.insert(value.encode())),
            Value::List(items) => seen.members.extend(items.iter().cloned()),
            Value::Int(number) => {
                let (least, greatest) = seen.ints.unwrap_or((*number, *number));
                seen.ints = Some((least.min(*number), greatest.max(*number)));
            }
            Value::Double(number) => {
                let (least, greatest) = seen.doubles.unwrap_or((*number, *number));
                seen.doubles = Some((least.min(*number), greatest.max(*number)));
            }
            Value::Bool(_) => {}
        }
    }
    properties
}

/// An option: its description, and its range if it is a number.
type Shown = BTreeMap<String, (Json, Option<(f64, f64)>)>;

fn shown(properties: &Properties, prefix: &str, hidden: &[&str]) -> Shown {
    let mut shown = Shown::new();
    for ((name, is_custom), seen) in properties {
        if hidden.contains(&name.as_str()) {
            continue;
        }
        let range =
            seen.doubles.or_else(|| seen.ints.map(|(least, most)| (f64::from(least), f64::from(most))));
        let (column, option) = if let Some((least, most)) = range {
            let column = if seen.doubles.is_some() { "double_value" } else { "int_value" };
            let range = object([("min", Json::Double(least)), ("max", Json::Double(most))]);
            (column, object([("type", "number".into()), ("range", range)]))
        } else {
            let is_list = !seen.members.is_empty();
            let values = if is_list { &seen.members } else { &seen.texts };
            let is_choice = !values.is_empty()
                && values.len() < MAX_VALUES
                && values.iter().all(|value| value.chars().count() <= MAX_LENGTH);
            if !is_choice {
                continue;
            }
            let values = values.iter().map(|value| Json::text(value.as_str())).collect();
            let column = if is_list { "array_value" } else { "string_value" };
            (column, object([("type", "string".into()), ("values", Json::Array(values))]))
        };
        let suffix = if *is_custom { format!(".{column}") } else { String::new() };
        shown.insert(format!("{prefix}{name}{suffix}"), (option, range));
    }
    shown
}

fn encode(catalog: &Catalog, asset_type: AssetType, filters: Shown) -> Json {
    let queries: BTreeMap<String, Json> = catalog
        .named_queries
        .iter()
        .filter(|(_, query)| query.asset_type == asset_type)
        .map(|(name, query)| {
            let fields = query.filters.iter();
            let fields =
                fields.map(|(field, filter)| (field.clone(), encode_filter(field, filter, &filters)));
            (name.clone(), Json::Object(fields.collect()))
        })
        .collect();
    let filters = filters.into_iter().map(|(name, (option, _))| (name, option)).collect();
    let mut members = BTreeMap::from([("filters".to_owned(), Json::Object(filters))]);
    if !queries.is_empty() {
        members.insert("namedQueries".to_owned(), Json::Object(queries));
    }
    Json::Object(members)
}

/// The values `min` and `max` stand for the ends of the field's range.
fn encode_filter(field: &str, filter: &FieldFilter, options: &Shown) -> Json {
    let range = options.get(field).and_then(|(_, range)| *range);
    let value = match (filter.value.as_str(), range) {
        (Some("min"), Some((least, _))) => Json::Double(least),
        (Some("max"), Some((_, most))) => Json::Double(most),
        _ => to_json(&filter.value),
    };
    object([("operator", filter.operator.as_str().into()), ("value", value)])
}

/// The conditions of a named query, in the language of `filterQuery`.
pub(crate) fn to_query(filters: &BTreeMap<String, FieldFilter>) -> String {
    let literal = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => format!("'{}'", text.replace('\'', "\\'")),
        other => other.to_string(),
    };
    let mut conditions = Vec::new();
    for (field, filter) in filters {
        let operator = filter.operator.to_uppercase();
        let items = filter.value.as_array().map(|items| items.iter().map(literal).collect::<Vec<_>>());
        match (operator.as_str(), items) {
            ("IN", Some(items)) => conditions.push(format!("{field} IN ({})", items.join(", "))),
            ("NOT IN", Some(items)) => {
                conditions.extend(items.iter().map(|item| format!("{field} != {item}")));
            }
            _ => conditions.push(format!("{field} {operator} {}", literal(&filter.value))),
        }
    }
    conditions.join(" AND ")
}
