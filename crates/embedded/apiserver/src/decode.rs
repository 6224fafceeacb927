//! Decoding of request bodies.

use std::fmt;

use quintet_objects::{error::quoted, types};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{
    model,
    request::{negotiate::PROTOBUF, options::FieldValidation},
    resources::Resource,
    status::Failure,
    verbs::RequestContext,
};

/// The largest body of a request.
pub(crate) const BODY_AT_MOST: usize = 3 << 20;

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const ACCEPTED_CUSTOM: &str = "application/json, application/yaml";

/// No more duplicate fields are reported: a body can have very many, at very long paths.
const DUPLICATES_AT_MOST: usize = 100;
const PATH_AT_MOST: usize = 1024;

/// Where in a document the reader is.
struct JsonPath<'a> {
    /// Nothing at the top.
    outer: Option<&'a Self>,
    step: Step<'a>,
}

enum Step<'a> {
    Top,
    Member(&'a str),
    Item(usize),
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.outer {
            outer.fmt(f)?;
        }
        match self.step {
            Step::Top => Ok(()),
            Step::Item(index) => write!(f, "[{index}]"),
            Step::Member(key) if self.outer.is_some_and(|outer| !matches!(outer.step, Step::Top)) => {
                write!(f, ".{key}")
            }
            Step::Member(key) => f.write_str(key),
        }
    }
}

/// A JSON value, and the fields that were given more than once.
struct Tracked<'a> {
    path: JsonPath<'a>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Tracked<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tracked<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = JsonPath { outer: Some(&self.path), step: Step::Item(list.len()) };
            match items.next_element_seed(Tracked { path, duplicates: self.duplicates })? {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let path = JsonPath { outer: Some(&self.path), step: Step::Member(&key) };
            if map.contains_key(&key) && self.duplicates.len() < DUPLICATES_AT_MOST {
                self.duplicates.push(path.to_string().chars().take(PATH_AT_MOST).collect());
            }
            let value = members.next_value_seed(Tracked { path, duplicates: self.duplicates })?;
            map.insert(key, value);
        }
        Ok(map.into())
    }
}

/// Reads JSON; fields that are given twice are named.
fn json(bytes: &[u8], duplicates: Option<&mut Vec<String>>) -> Result<Value, serde_json::Error> {
    let Some(duplicates) = duplicates else { return serde_json::from_slice(bytes) };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let path = JsonPath { outer: None, step: Step::Top };
    let value = Tracked { path, duplicates }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// As deep as JSON may be stored.
const YAML_DEPTH: usize = 120;
/// The YAML parser takes up to 32 KB for each level, which is more than threads usually have.
const YAML_STACK: usize = 8 << 20;

/// Reads YAML (and so JSON).
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, Failure> {
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Failure::bad_request("error decoding YAML: the body is not UTF-8"))?;
    let parse = || {
        let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: YAML_DEPTH } };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
    };
    let parsed = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("yaml".into()).stack_size(YAML_STACK);
        thread.spawn_scoped(scope, parse).map(std::thread::ScopedJoinHandle::join)
    });
    let Ok(Ok(parsed)) = parsed else { return Err(Failure::internal("the YAML could not be read")) };
    parsed.map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))
}

/// Reads the body of a JSON or merge patch.
pub(crate) fn patch_json(bytes: &[u8]) -> Result<Value, Failure> {
    json(bytes, None).map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))
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
    duplicates: Option<&mut Vec<String>>,
) -> Result<Value, Failure> {
    match media_type(content_type) {
        "" | "application/json" | "*/*" => {
            json(bytes, duplicates).map_err(|error| Failure::bad_request(error.to_string()))
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(bytes),
        PROTOBUF => model::from_protobuf(bytes, fallback),
        _ => Err(Failure::unsupported_body(ACCEPTED)),
    }
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
    let mut duplicates = Vec::new();
    let tracked = (context.options.field_validation != FieldValidation::Ignore).then_some(&mut duplicates);
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
    let complaints = complaints(&duplicates, &unknown);
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

fn complaints(duplicates: &[String], unknown: &[String]) -> Vec<String> {
    let duplicates = duplicates.iter().map(|path| format!("duplicate field {}", quoted(path)));
    duplicates.chain(unknown.iter().map(|path| format!("unknown field {}", quoted(path)))).collect()
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

/// Makes a patched object fit its kind.
pub(crate) fn patched(context: &RequestContext, object: &mut Value) -> Result<(), Failure> {
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
    let complaints = complaints(&[], &unknown);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_named() {
        let mut duplicates = Vec::new();
        let value = json(br#"{"a":{"b":1,"b":2},"l":[{"x":1,"x":2}]}"#, Some(&mut duplicates)).unwrap();
        assert_eq!(duplicates, ["a.b", "l[0].x"]);
        assert_eq!(value["a"]["b"], 2);
    }

    #[test]
    fn deep_bodies_are_refused() {
        let deep = "[".repeat(100_000);
        assert!(json(deep.as_bytes(), Some(&mut Vec::new())).is_err());
        assert!(json(deep.as_bytes(), None).is_err());
        assert!(yaml(deep.as_bytes()).is_err());
    }
}
