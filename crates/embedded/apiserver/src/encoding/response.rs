//! Responses and watch events: JSON, YAML, protobuf, tables, partial metadata.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use quintet_objects::table::{IncludeObject, partial_metadata};
use serde_json::{Value, json};

use crate::{
    api::Api,
    json::text,
    model,
    request::{
        body::ResponseBody,
        content_type::ContentType,
        negotiate::{Accepted, Format, View},
    },
    resources::Resource,
    status::Failure,
    store::Entry,
    verbs::Output,
};

/// Plain JSON of whole objects.
pub(crate) const PLAIN: Accepted = Accepted { format: Format::Json, view: View::Whole };

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// An event of plain JSON, straight from the stored bytes.
pub(crate) fn event_json(resource: &Resource, kind: EventType, entry: &Entry) -> Bytes {
    // Enough that it is never moved: it is kept, with the room that it has, for as long as the event.
    let room = entry.body.len() + resource.api_version.len() + resource.kind.len() + 128;
    let mut out = Vec::with_capacity(room);
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.name().as_bytes());
    out.extend_from_slice(br#"","object":"#);
    entry.write_json(&mut out, Some((&resource.api_version, &resource.kind)));
    out.extend_from_slice(b"}\n");
    out.into()
}

/// An event in any representation.
pub(crate) fn event(
    resource: &Resource,
    accepted: Accepted,
    include: IncludeObject,
    kind: EventType,
    object: Value,
    is_first: bool,
    now: jiff::Timestamp,
) -> Result<Bytes, Failure> {
    let object = match accepted.view {
        View::Whole => object,
        View::Metadata { .. } => partial_metadata(&object),
        View::Table => {
            let metadata = json!({"resourceVersion": object.pointer("/metadata/resourceVersion")});
            model::table(resource, std::slice::from_ref(&object), &metadata, include, is_first, now)
        }
    };
    frame(accepted.format, kind, &object)
}

/// Frames of one watch are all of one format: a reader of protobuf takes the first bytes of JSON for a length.
fn frame(format: Format, kind: EventType, object: &Value) -> Result<Bytes, Failure> {
    if format == Format::Protobuf {
        return model::watch_event_protobuf(kind.name(), object);
    }
    let mut out =
        serde_json::to_vec(&json!({"type": kind.name(), "object": object})).map_err(Failure::internal)?;
    out.push(b'\n');
    Ok(out.into())
}

/// The event that tells a watcher why it ends.
pub(crate) fn error_event(accepted: Accepted, failure: &Failure) -> Result<Bytes, Failure> {
    frame(accepted.format, EventType::Error, &failure.to_value())
}

/// An object that only carries a version.
pub(crate) fn bookmark(resource: &Resource, rv: u64, ends_initial: bool) -> Value {
    let mut metadata = json!({"resourceVersion": rv.to_string(), "creationTimestamp": null});
    if ends_initial && let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("annotations".into(), json!({"k8s.io/initial-events-end": "true"}));
    }
    let mut object =
        json!({"kind": &*resource.kind, "apiVersion": &*resource.api_version, "metadata": metadata});
    // Typed clients decode these even when they are empty.
    if resource.as_built_in().is_some()
        && let Some(schema) = quintet_objects::types::kind(&resource.api_version, &resource.kind)
        && let Some(object) = object.as_object_mut()
    {
        for field in ["spec", "status"] {
            if schema.field(field).is_some_and(|field| !field.is_pointer && field.shape.as_struct().is_some())
            {
                object.insert(field.into(), json!({}));
            }
        }
    }
    object
}

/// Bytes of a value in a format.
pub(crate) fn encode(value: &Value, format: Format, is_pretty: bool) -> Result<Vec<u8>, Failure> {
    match format {
        Format::Json if is_pretty => {
            let mut bytes = serde_json::to_vec_pretty(value).map_err(Failure::internal)?;
            bytes.push(b'\n');
            Ok(bytes)
        }
        Format::Json => {
            let mut bytes = serde_json::to_vec(value).map_err(Failure::internal)?;
            bytes.push(b'\n');
            Ok(bytes)
        }
        Format::Yaml => serde_saphyr::to_string(value).map(String::into_bytes).map_err(Failure::internal),
        Format::Protobuf => model::to_protobuf(value),
    }
}

/// The representation of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Representation {
    pub(crate) accepted: Accepted,
    pub(crate) include: IncludeObject,
    pub(crate) is_pretty: bool,
}

/// A response with a body.
pub(crate) fn with_body(
    code: u16,
    content_type: ContentType,
    body: impl Into<Bytes>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(body));
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type.header());
    response
}

/// A value as a response.
pub(crate) fn value(
    code: u16,
    value: &Value,
    wanted: Representation,
) -> Result<Response<ResponseBody>, Failure> {
    let mut format = wanted.accepted.format;
    if format == Format::Protobuf && !model::has_protobuf(value) {
        // JSON is what every client also reads.
        format = Format::Json;
    }
    let bytes = encode(value, format, wanted.is_pretty)?;
    Ok(with_body(code, format.content_type(false), bytes))
}

/// A failure as a response.
pub(crate) fn failure(failure: &Failure) -> Response<ResponseBody> {
    let mut response = if failure.is_plain() {
        with_body(failure.code(), ContentType::Text, failure.message().to_owned())
    } else {
        let mut bytes = serde_json::to_vec(&failure.to_value()).unwrap_or_default();
        bytes.push(b'\n');
        with_body(failure.code(), ContentType::Json, bytes)
    };
    if let Some(seconds) = failure.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// One object as a response.
pub(crate) async fn object(
    api: &Api,
    resource: &Resource,
    code: u16,
    shown: Output,
    wanted: Representation,
) -> Result<Response<ResponseBody>, Failure> {
    let object = match shown {
        Output::Entry(entry) => {
            if wanted.accepted == PLAIN && !wanted.is_pretty && Api::reads_raw(resource, &entry) {
                let mut out = Vec::with_capacity(entry.body.len() + 128);
                entry.write_json(&mut out, Some((&resource.api_version, &resource.kind)));
                out.push(b'\n');
                return Ok(with_body(code, ContentType::Json, out));
            }
            api.load(resource, &entry).await?
        }
        Output::Value(value) => value,
    };
    if text(&object, "/kind") == "Status" && text(&object, "/apiVersion") == "v1" {
        return value(code, &object, wanted);
    }
    let object = match wanted.accepted.view {
        View::Whole => object,
        View::Metadata { is_list: false } => partial_metadata(&object),
        View::Metadata { is_list: true } => {
            return Err(Failure::not_acceptable(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
        View::Table => {
            let metadata = json!({"resourceVersion": object.pointer("/metadata/resourceVersion")});
            model::table(resource, std::slice::from_ref(&object), &metadata, wanted.include, true, api.now())
        }
    };
    value(code, &object, wanted)
}

/// Longest text of all warnings together before each is cut.
const WARNINGS_AT_MOST: usize = 4096;

/// Adds warnings to the headers of a response.
pub(crate) fn warnings(headers: &mut HeaderMap, warnings: &[String]) {
    let is_long = warnings.iter().map(|warning| warning.chars().count()).sum::<usize>() > WARNINGS_AT_MOST;
    let mut left = WARNINGS_AT_MOST;
    for warning in warnings {
        let mut text: String = warning.chars().filter(|c| !c.is_control()).collect();
        if is_long {
            text = text.chars().take(256).collect();
        }
        // Headers that no client reads to their end would make a success look like a failure.
        let Some(rest) = left.checked_sub(text.chars().count()) else { break };
        left = rest;
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            headers.append(header::WARNING, value);
        }
    }
}
