//! Custom properties: what bodies may hold, and how it is stored.

use std::collections::BTreeMap;

use super::{Property, PropertyValue, structs};
use crate::json::{Json, Value, check_strict, object, parse_whole};
use crate::text;

/// A custom property as a body has it, not yet checked for its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CustomValue {
    Text(String),
    Int(String),
    Double(f64),
    Bool(bool),
    /// Base64 of a JSON object, or the object's text: what answers contain is accepted back.
    Struct(String),
    Proto,
    /// Without a known `metadataType`.
    Unknown,
}

/// The custom properties of a body.
pub(crate) type CustomProperties = BTreeMap<String, CustomValue>;

/// Names that the server sets on artifacts of experiment runs and hides from answers.
pub(crate) const EXPERIMENT_ID: &str = "experiment_id";
/// See [`EXPERIMENT_ID`].
pub(crate) const EXPERIMENT_RUN_ID: &str = "experiment_run_id";

/// Converts to what is stored. The error names the property.
pub(crate) fn to_properties(custom: &CustomProperties) -> Result<Vec<Property>, String> {
    let convert = |(name, value): (&String, &CustomValue)| {
        let value = to_value(name, value).map_err(|why| format!("bad request: {why}"))?;
        Ok(Property { name: name.clone(), is_custom: true, value })
    };
    custom.iter().map(convert).collect()
}

fn to_value(name: &str, value: &CustomValue) -> Result<PropertyValue, String> {
    Ok(match value {
        CustomValue::Text(text) => PropertyValue::Text(text.clone()),
        CustomValue::Int(digits) => PropertyValue::Int(text::int32(digits).map_err(|why| {
            format!("unable to decode as int64 invalid numeric string: {why} for key {name}")
        })?),
        CustomValue::Double(number) => PropertyValue::Double(*number),
        CustomValue::Bool(flag) => PropertyValue::Bool(*flag),
        CustomValue::Struct(text) => {
            let stored = to_struct(text).map_err(|why| format!("unable to decode {why} for key {name}"))?;
            PropertyValue::Text(stored)
        }
        CustomValue::Proto => return Err(format!("MetadataProtoValue is not supported for {name}")),
        CustomValue::Unknown => {
            return Err(format!(
                "metadataType not found for {name}: {{<nil> <nil> <nil> <nil> <nil> <nil>}}"
            ));
        }
    })
}

fn to_struct(text: &str) -> Result<String, String> {
    if text.trim_start().starts_with('{')
        && let Ok(Value::Object(members)) = parse_whole(text.as_bytes())
        && check_strict(text.as_bytes()).is_ok()
    {
        return Ok(structs::encode(&members));
    }
    let decoded = text::base64_decode(text)?;
    let token = match parse_whole(&decoded)? {
        Value::Object(members) => {
            check_strict(&decoded)?;
            return Ok(structs::encode(&members));
        }
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number,
        Value::String(text) => text::quoted(&text),
        Value::Array(_) => "[".to_owned(),
        Value::TooDeep => return Err("the value is nested too deeply".to_owned()),
    };
    Err(format!("proto: syntax error (line 1:1): unexpected token {token}"))
}

/// A stored custom property as answers show it.
pub(crate) fn encode(value: &PropertyValue) -> Json {
    let (kind, field, value) = match value {
        PropertyValue::Int(number) => ("MetadataIntValue", "int_value", Json::text(number.to_string())),
        PropertyValue::Text(text) => match structs::decode(text) {
            Some(json) => ("MetadataStructValue", "struct_value", Json::text(json.encode())),
            None => ("MetadataStringValue", "string_value", Json::text(text.as_str())),
        },
        PropertyValue::Bool(flag) => ("MetadataBoolValue", "bool_value", Json::Bool(*flag)),
        PropertyValue::Double(number) => ("MetadataDoubleValue", "double_value", Json::Double(*number)),
        PropertyValue::Bytes(bytes) => {
            ("MetadataStructValue", "struct_value", Json::text(encode_bytes(bytes)))
        }
    };
    object([("metadataType", Json::text(kind)), (field, value)])
}

/// Bytes show as base64 of a JSON string of their base64.
fn encode_bytes(bytes: &[u8]) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    STANDARD.encode(Json::text(STANDARD.encode(bytes)).encode())
}
