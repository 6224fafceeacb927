//! Custom properties in catalog files and in answers.

use std::collections::BTreeMap;

use serde_json::Value as Yaml;

use super::item::{Item, Value};
use super::sources::to_json;
use crate::json::{Json, object};
use crate::text;

/// Sets the custom properties of a file's item.
pub(crate) fn put_all(item: &mut Item, properties: Option<&BTreeMap<String, Yaml>>) {
    for (name, property) in properties.into_iter().flatten() {
        item.put_custom(name, read(property));
    }
}

/// Reads a property; what is none of the known types is kept as its text.
fn read(property: &Yaml) -> Value {
    let text_of = |field: &str| property.get(field).and_then(Yaml::as_str).unwrap_or_default().to_owned();
    match property.get("metadataType").and_then(Yaml::as_str) {
        Some("MetadataStringValue") => Value::Text(text_of("string_value")),
        Some("MetadataIntValue") => {
            let digits = text_of("int_value");
            text::int32(&digits).map_or(Value::Text(digits), Value::Int)
        }
        Some("MetadataDoubleValue") => {
            Value::Double(property.get("double_value").and_then(Yaml::as_f64).unwrap_or_default())
        }
        Some("MetadataBoolValue") => {
            Value::Bool(property.get("bool_value").and_then(Yaml::as_bool).unwrap_or_default())
        }
        Some("MetadataStructValue") => Value::Text(text_of("struct_value")),
        _ => Value::Text(to_json(property).encode()),
    }
}

/// The custom properties of an item as answers show them.
pub(crate) fn encode(item: &Item) -> BTreeMap<String, Json> {
    let custom = item.properties.iter().filter(|it| it.is_custom);
    custom.map(|it| (it.name.clone(), encode_value(&it.value))).collect()
}

fn encode_value(value: &Value) -> Json {
    let (ty, field, value) = match value {
        Value::Int(number) => ("MetadataIntValue", "int_value", Json::text(number.to_string())),
        Value::Double(number) => ("MetadataDoubleValue", "double_value", Json::Double(*number)),
        Value::Bool(flag) => ("MetadataBoolValue", "bool_value", Json::Bool(*flag)),
        other => ("MetadataStringValue", "string_value", Json::text(other.as_text().unwrap_or_default())),
    };
    object([("metadataType", ty.into()), (field, value)])
}
