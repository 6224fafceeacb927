//! Tables and protobuf.

use bytes::Bytes;
use quintet_objects::protobuf;
use quintet_objects::table::IncludeObject;
use quintet_objects::table::Printer;
use serde_json::Value;

use crate::json;
use crate::resources::Model;
use crate::resources::Resource;
use crate::status::Failure;

/// Objects as rows of a table.
pub(crate) fn table(
    resource: &Resource,
    objects: &[Value],
    metadata: &Value,
    include: IncludeObject,
    with_definitions: bool,
    now: jiff::Timestamp,
) -> Value {
    match &resource.model {
        Model::BuiltIn(kind) => {
            Printer::builtin(kind).table(objects, metadata, include, with_definitions, now)
        }
        Model::Custom(custom) => custom.printer.table(objects, metadata, include, with_definitions, now),
    }
}

/// Reads a protobuf body; `fallback` is what it is taken for if it does not say.
pub(crate) fn from_protobuf(bytes: &[u8], fallback: Option<(&str, &str)>) -> Result<Value, Failure> {
    protobuf::decode(bytes, fallback).map_err(|error| Failure::bad_request(error.to_string()))
}

/// Writes an object as protobuf.
pub(crate) fn to_protobuf(value: &Value) -> Result<Vec<u8>, Failure> {
    protobuf::encode(value).map_err(Failure::internal)
}

/// Whether there are messages for the kind of an object.
pub(crate) fn has_protobuf(object: &Value) -> bool {
    protobuf::is_supported(json::text(object, "/apiVersion"), json::text(object, "/kind"))
}

/// A watch event as protobuf.
pub(crate) fn watch_event_protobuf(kind: &str, object: &Value) -> Result<Bytes, Failure> {
    let encoded = protobuf::encode_watch_event(kind, object).map(Bytes::from);
    encoded.map_err(|error| {
        let text = |pointer| json::text(object, pointer);
        let name = [text("/metadata/namespace"), text("/metadata/name")];
        let name = name.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        Failure::internal(format!("unable to encode watch object {} {name:?}: {error}", text("/kind")))
    })
}
