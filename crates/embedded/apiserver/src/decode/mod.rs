//! Decoding of request bodies.

mod json;
mod tracked;
mod yaml;

use std::fmt;

use quintet_objects::{error::quoted, types};
use serde_json::Value;

use crate::{
    model,
    request::{negotiate::PROTOBUF, options::FieldValidation},
    resources::Resource,
    status::Failure,
    verbs::RequestContext,
};

pub(crate) use yaml::Yaml;

/// The largest body of a request.
pub(crate) const BODY_AT_MOST: usize = 3 << 20;

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const ACCEPTED_CUSTOM: &str = "application/json, application/yaml";

/// Reads the body of a JSON, merge or strategic merge patch. Fields that are given twice are complaints.
pub(crate) fn patch_json(context: &RequestContext, bytes: &[u8]) -> Result<(Value, Vec<String>), Failure> {
    let mut duplicates = Vec::new();
    let tracked = context.is_strict().then_some(&mut duplicates);
    let patch = json::parse(bytes, tracked)
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
    let prefix = if patch.is_array() { "json patch " } else { "" };
    let complaints = duplicates.iter().map(|path| format!("{prefix}{}", duplicate(path))).collect();
    Ok((patch, complaints))
}

/// The media type of a Content-Type header, without its parameters.
pub(crate) fn media_type(content_type: Option<&str>) -> &str {
    content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// Reads an object of any kind, without checking what it is.
pub(crate) fn any(
    content_type: Option<&str>,
    bytes: &[u8],
    fallback: Option<(&str, &str)>,
    duplicates: Option<&mut Duplicates>,
) -> Result<Value, Failure> {
    match media_type(content_type) {
        "" | "application/json" | "*/*" => {
            let fields = duplicates.map(|found| &mut found.fields);
            json::parse(bytes, fields).map_err(|error| Failure::bad_request(error.to_string()))
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => {
            let yaml = Yaml::parse(bytes)?;
            if let Some(found) = duplicates {
                found.yaml = yaml.duplicate_keys();
            }
            Ok(yaml.value)
        }
        PROTOBUF => model::from_protobuf(bytes, fallback),
        _ => Err(Failure::unsupported_body(ACCEPTED)),
    }
}

/// What a body has more than once.
#[derive(Default)]
pub(crate) struct Duplicates {
    /// Paths of fields in JSON.
    fields: Vec<String>,
    /// What Go's decoder says of keys in YAML.
    yaml: Option<String>,
}

/// Reads the object of a POST or PUT: of the kind the request is for, with known fields only.
pub(crate) fn object(
    context: &RequestContext,
    content_type: Option<&str>,
    bytes: &[u8],
) -> Result<Value, Failure> {
    let resource = &context.resource;
    let (group, version, kind) = expected(context);
    let is_custom = resource.as_custom().is_some();
    if is_custom && media_type(content_type) == PROTOBUF {
        return Err(Failure::unsupported_body(ACCEPTED_CUSTOM));
    }
    let mut duplicates = Duplicates::default();
    let tracked = context.is_strict().then_some(&mut duplicates);
    let wanted = crate::resources::api_version(&group, &version);
    let mut object = any(content_type, bytes, Some((&wanted, &kind)), tracked).map_err(|failure| match failure.code() {
        400 => Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {} ({})",
            failure.message(),
            excerpt(bytes)
        )),
        _ => failure,
    })?;
    let found = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let found_kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !object.is_object() {
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct ({})",
            json_type(&object),
            excerpt(bytes)
        )));
    }
    if is_custom {
        for (key, value) in [("Kind", &found_kind), ("apiVersion", &found)] {
            if value.is_empty() {
                return Err(Failure::bad_request(format!(
                    "Object '{key}' is missing in '{}'",
                    full_excerpt(bytes)
                )));
            }
        }
    }
    if !found.is_empty() && found != wanted {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({wanted})"
        )));
    }
    if !found_kind.is_empty() && found_kind != kind {
        return Err(Failure::bad_request(format!(
            "{found_kind} in version {} cannot be handled as a {kind}: converting ({}.{found_kind}) to ({}.{kind}): unknown conversion",
            quoted(&version),
            version,
            version
        )));
    }
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), wanted.as_str().into());
        map.insert("kind".into(), kind.as_str().into());
    }
    let unknown = fit(context, &mut object, &wanted, &kind).map_err(|error| {
        Failure::bad_request(format!(
            "{kind} in version {} cannot be handled as a {kind}: {error}",
            quoted(&version)
        ))
    })?;
    let mut complaints: Vec<String> = duplicates.yaml.into_iter().collect();
    complaints.extend(if is_custom || unknown.is_empty() || duplicates.fields.is_empty() {
        // Custom resources are pruned after they are decoded.
        complain(&duplicates.fields, &unknown)
    } else {
        json::in_document_order(bytes, &unknown)
    });
    match context.options.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => Err(Failure::bad_request(format!(
            "{kind} in version {} cannot be handled as a {kind}: strict decoding error: {}",
            quoted(&version),
            complaints.join(", ")
        ))),
        FieldValidation::Warn => {
            for complaint in complaints {
                context.warn(complaint);
            }
            Ok(object)
        }
        _ => Ok(object),
    }
}

/// Group, version and kind that the body must be of.
fn expected(context: &RequestContext) -> (String, String, String) {
    if let Some(sub) = context.resource.subresource(&context.subresource)
        && !sub.kind.is_empty()
        && sub.name != "status"
    {
        let group =
            if sub.version.is_empty() { context.resource.group.to_string() } else { sub.group.clone() };
        let version =
            if sub.version.is_empty() { context.resource.version.to_string() } else { sub.version.clone() };
        return (group, version, sub.kind.clone());
    }
    let resource = &context.resource;
    (resource.group.to_string(), resource.version.to_string(), resource.kind.to_string())
}

fn complain(duplicates: &[String], unknown: &[String]) -> Vec<String> {
    duplicates
        .iter()
        .map(|path| duplicate(path))
        .chain(unknown.iter().map(|path| unknown_field(path)))
        .collect()
}

fn duplicate(path: &str) -> String {
    format!("duplicate field {}", quoted(path))
}

fn unknown_field(path: &str) -> String {
    format!("unknown field {}", quoted(path))
}

/// Makes an object fit its kind; returns the fields that were dropped.
fn fit(
    context: &RequestContext,
    object: &mut Value,
    api_version: &str,
    kind: &str,
) -> Result<Vec<String>, String> {
    match context.resource.as_custom() {
        Some(custom) if kind == &*context.resource.kind => model::fit_custom(custom, object),
        _ => {
            let Some(schema) = types::kind(api_version, kind) else { return Ok(Vec::new()) };
            types::decode(schema, object).map(|decoded| decoded.unknown).map_err(|error| error.to_string())
        }
    }
}

/// Makes a patched object fit its kind. The patch itself may have given rise to complaints.
pub(crate) fn patched(
    context: &RequestContext,
    object: &mut Value,
    mut complaints: Vec<String>,
) -> Result<(), Failure> {
    let resource = &context.resource;
    let invalid = |shown: String, why: String| {
        let body = format!("Invalid value: {}: {why}", quoted(&shown));
        Failure::new(422, "Invalid", format!(" \"\" is invalid: patch: {body}")).with_cause(
            "FieldValueInvalid",
            &body,
            "patch",
        )
    };
    let unknown = fit(context, object, &resource.api_version, &resource.kind)
        .map_err(|error| invalid(object.to_string(), error))?;
    complaints.extend(unknown.iter().map(|path| unknown_field(path)));
    match context.options.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(invalid(object.to_string(), format!("strict decoding error: {}", complaints.join(", "))))
        }
        FieldValidation::Warn => {
            for complaint in complaints {
                context.warn(complaint);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether an object says that it is of a resource's kind; if not, what it says.
pub(crate) fn check_type(resource: &Resource, object: &Value) -> Result<(), String> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version == &*resource.api_version && kind == &*resource.kind {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Err(format!("{group}/{version}, Kind={kind}"))
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The beginning of a body in hexadecimal, as Kubernetes shows it.
fn excerpt(bytes: &[u8]) -> String {
    bytes.iter().take(64).fold(String::new(), |mut text, byte| {
        use fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn full_excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(256).collect()
}
