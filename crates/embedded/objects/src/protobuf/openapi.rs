//! OpenAPI v2 as protobuf: what older clients ask for. The messages are those of gnostic's `openapi.v2` package.

use serde_json::Value;

use super::wire::Writer;

/// Deeper than any definition.
const MAX_DEPTH: usize = 100;

/// Writes an OpenAPI v2 document: information and definitions, which is what clients read of it.
pub fn encode_document(document: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(1, text(document, "swagger").as_bytes());
    let info = document.get("info").unwrap_or(&Value::Null);
    let mut writer = Writer::default();
    writer.bytes(1, text(info, "title").as_bytes());
    writer.bytes(2, text(info, "version").as_bytes());
    out.bytes(2, &writer.finish());
    out.bytes(8, b"");
    let mut definitions = Writer::default();
    for (name, definition) in document.get("definitions").and_then(Value::as_object).into_iter().flatten() {
        definitions.bytes(1, &named(name, &schema(definition, 0)));
    }
    out.bytes(9, &definitions.finish());
    out.finish()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn named(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(1, name.as_bytes());
    out.bytes(2, value);
    out.finish()
}

/// Any value, as the YAML it also is.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(2, format!("{value}\n").as_bytes());
    out.finish()
}

fn schema(value: &Value, depth: usize) -> Vec<u8> {
    let mut out = Writer::default();
    let Value::Object(fields) = value else { return out.finish() };
    if depth > MAX_DEPTH {
        return out.finish();
    }
    for (number, key) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        if let Some(text) = fields.get(key).and_then(Value::as_str) {
            out.bytes(number, text.as_bytes());
        }
    }
    if let Some(default) = fields.get("default") {
        out.bytes(5, &any(default));
    }
    for (number, key) in [(7, "maximum"), (9, "minimum")] {
        if let Some(bound) = fields.get(key).and_then(Value::as_f64) {
            out.double(number, bound);
        }
    }
    for (number, key) in [(11, "maxLength"), (12, "minLength"), (14, "maxItems"), (15, "minItems")] {
        if let Some(bound) = fields.get(key).and_then(Value::as_i64) {
            out.integer(number, bound);
        }
    }
    for name in fields.get("required").and_then(Value::as_array).into_iter().flatten() {
        out.bytes(19, name.as_str().unwrap_or_default().as_bytes());
    }
    for value in fields.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.bytes(20, &any(value));
    }
    match fields.get("additionalProperties") {
        Some(Value::Bool(allows)) => {
            let mut item = Writer::default();
            item.integer(2, i64::from(*allows));
            out.bytes(21, &item.finish());
        }
        Some(inner) => {
            let mut item = Writer::default();
            item.bytes(1, &schema(inner, depth + 1));
            out.bytes(21, &item.finish());
        }
        None => {}
    }
    if let Some(kind) = fields.get("type").and_then(Value::as_str) {
        let mut item = Writer::default();
        item.bytes(1, kind.as_bytes());
        out.bytes(22, &item.finish());
    }
    if let Some(items) = fields.get("items") {
        let mut item = Writer::default();
        item.bytes(1, &schema(items, depth + 1));
        out.bytes(23, &item.finish());
    }
    for part in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        out.bytes(24, &schema(part, depth + 1));
    }
    if let Some(Value::Object(properties)) = fields.get("properties") {
        let mut all = Writer::default();
        for (name, property) in properties {
            all.bytes(1, &named(name, &schema(property, depth + 1)));
        }
        out.bytes(25, &all.finish());
    }
    for (key, value) in fields.iter().filter(|(key, _)| key.starts_with("x-")) {
        out.bytes(30, &named(key, &any(value)));
    }
    out.finish()
}
