//! Kubernetes' protobuf: objects of built-in kinds in an envelope that says what they are.
//!
//! Reading and writing are driven by the table of types; JSON is what everything else works with. Fields the table
//! does not know are skipped, malformed bytes are errors.

mod decode;
mod encode;
mod openapi;
mod special;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::{Value, json};

use crate::types::{self, Type};
pub use openapi::encode_document;
use wire::{Reader, Writer};

/// The first bytes of every object.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// Why bytes are not an object, or an object cannot be bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The bytes do not start as an object does.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    /// The bytes end or contradict themselves.
    #[error("malformed protobuf: {0}")]
    Malformed(&'static str),
    /// The kind has no protobuf form.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\" in protobuf")]
    Unknown {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The object does not have the form of its kind.
    #[error("object does not fit its kind: {0}")]
    Shape(String),
}

/// Reads an enveloped object. What the envelope leaves out (clients may send options without a kind) is taken from
/// `fallback`, a group-version and a kind. Options are recognised in whatever group they are sent.
pub fn decode(bytes: &[u8], fallback: Option<(&str, &str)>) -> Result<Value, ProtobufError> {
    decode_at(bytes, fallback, 0)
}

/// The same inside another object.
fn decode_at(bytes: &[u8], fallback: Option<(&str, &str)>, depth: usize) -> Result<Value, ProtobufError> {
    let body = bytes.strip_prefix(&MAGIC).ok_or(ProtobufError::Magic)?;
    let mut reader = Reader::new(body);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), [].as_slice());
    let mut content_type = String::new();
    while let Some((number, field)) = reader.field()? {
        match number {
            1 => {
                let mut inner = Reader::new(field.bytes()?);
                while let Some((number, field)) = inner.field()? {
                    match number {
                        1 => api_version = field.text()?,
                        2 => kind = field.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = field.bytes()?,
            4 => content_type = field.text()?,
            _ => {}
        }
    }
    if let Some((version, name)) = fallback {
        if api_version.is_empty() {
            version.clone_into(&mut api_version);
        }
        if kind.is_empty() {
            name.clone_into(&mut kind);
        }
    }
    if content_type == "application/json" || raw.first() == Some(&b'{') {
        return serde_json::from_slice(raw).map_err(|_| ProtobufError::Malformed("embedded JSON"));
    }
    let schema = find(&api_version, &kind)
        .ok_or_else(|| ProtobufError::Unknown { api_version: api_version.clone(), kind: kind.clone() })?;
    let mut object = decode::message(schema, raw, depth)?;
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".into(), json!(api_version));
        fields.insert("kind".into(), json!(kind));
    }
    Ok(object)
}

/// Writes an object of a built-in kind in its envelope.
pub fn encode(object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let (api_version, kind, schema) = typed(object)?;
    let raw = encode::message(schema, object, 0)?;
    Ok(envelope(api_version, kind, &raw))
}

/// The version, kind and type of an object.
fn typed(object: &Value) -> Result<(&str, &str, &'static Type), ProtobufError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let schema = find(api_version, kind)
        .ok_or_else(|| ProtobufError::Unknown { api_version: api_version.into(), kind: kind.into() })?;
    Ok((api_version, kind, schema))
}

/// The field of the items in every list.
const ITEMS: u32 = 2;

/// What follows the items of a list: an empty content encoding and content type.
pub const LIST_TAIL: [u8; 4] = [0x1a, 0, 0x22, 0];

/// Writes what precedes the items of a list, if those take `length` bytes. The list has a kind and metadata.
pub fn encode_list_head(list: &Value, length: usize) -> Result<Vec<u8>, ProtobufError> {
    let (api_version, kind, schema) = typed(list)?;
    let before = encode::message(schema, list, 0)?;
    let mut unknown = Writer::default();
    unknown.bytes(1, &type_meta(api_version, kind));
    unknown.length(2, before.len() + length);
    Ok([&MAGIC, unknown.finish().as_slice(), &before].concat())
}

/// Writes one item of a list, which has a kind.
pub fn encode_list_item(item: &Value) -> Result<Vec<u8>, ProtobufError> {
    let (_, _, schema) = typed(item)?;
    let mut writer = Writer::default();
    writer.bytes(ITEMS, &encode::message(schema, item, 0)?);
    Ok(writer.finish())
}

/// One event of a watch: a length of four bytes, and a bare WatchEvent with the enveloped object inside.
pub fn encode_watch_event(event: &str, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let inner = encode(object)?;
    let mut extension = Writer::default();
    extension.bytes(1, &inner);
    let mut frame = Writer::default();
    frame.bytes(1, event.as_bytes());
    frame.bytes(2, &extension.finish());
    let frame = frame.finish();
    let length = u32::try_from(frame.len()).map_err(|_| ProtobufError::Malformed("event is too long"))?;
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(&frame);
    Ok(out)
}

/// Whether objects of a kind can be protobuf.
pub fn is_supported(api_version: &str, kind: &str) -> bool {
    find(api_version, kind).is_some()
}

fn type_meta(api_version: &str, kind: &str) -> Vec<u8> {
    let mut meta = Writer::default();
    meta.bytes(1, api_version.as_bytes());
    meta.bytes(2, kind.as_bytes());
    meta.finish()
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut unknown = Writer::default();
    unknown.bytes(1, &type_meta(api_version, kind));
    unknown.bytes(2, raw);
    unknown.bytes(3, b"");
    unknown.bytes(4, b"");
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&unknown.finish());
    out
}

fn find(api_version: &str, kind: &str) -> Option<&'static Type> {
    types::kind(api_version, kind).or_else(|| {
        // Options and metadata look the same in every group.
        let is_common = kind.ends_with("Options") || kind.starts_with("PartialObjectMetadata");
        is_common.then(|| types::kind("meta.k8s.io/v1", kind)).flatten()
    })
}
