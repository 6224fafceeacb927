//! From JSON to the wire.

use serde_json::Value;

use super::wire::Writer;
use super::{ProtobufError, decode, special};
use crate::byte_field;
use crate::types::{Field, Shape, Type};

/// Writes an object as a message of a type. Fields the type does not have are left out.
pub(super) fn message(kind: &'static Type, object: &Value, depth: usize) -> Result<Vec<u8>, ProtobufError> {
    if depth > decode::MAX_DEPTH {
        return Err(ProtobufError::Shape("nested too deeply".into()));
    }
    let Value::Object(fields) = object else {
        return Err(ProtobufError::Shape(format!("expected an object for {}", kind.short_name())));
    };
    let mut writer = Writer::default();
    for field in kind.fields.iter().filter(|field| field.number > 0) {
        if field.is_inline {
            if let Some(inner) = field.shape.as_struct() {
                writer.bytes(field.number, &message(inner, object, depth + 1)?);
            }
            continue;
        }
        match fields.get(field.name) {
            None | Some(Value::Null) => absent(field, &mut writer, depth)?,
            Some(value) => put(field, value, &mut writer, depth)?,
        }
    }
    Ok(writer.finish())
}

/// Structs and scalars that always exist are written even when they are empty: old readers insist.
fn absent(field: &'static Field, writer: &mut Writer, depth: usize) -> Result<(), ProtobufError> {
    if field.is_pointer {
        return Ok(());
    }
    match &field.shape {
        Shape::Struct(id) if depth < 4 => {
            writer
                .bytes(field.number, &message(id.get(), &Value::Object(serde_json::Map::new()), depth + 1)?);
        }
        Shape::Struct(_) | Shape::Time | Shape::MicroTime | Shape::String => writer.bytes(field.number, b""),
        Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Uint32 => writer.integer(field.number, 0),
        _ => {}
    }
    Ok(())
}

fn put(field: &'static Field, value: &Value, writer: &mut Writer, depth: usize) -> Result<(), ProtobufError> {
    match (&field.shape, value) {
        (Shape::List(element), Value::Array(items)) => {
            for item in items {
                single(field.number, element, item, writer, depth)?;
            }
            Ok(())
        }
        (Shape::Map(element), Value::Object(entries)) => {
            for (key, value) in entries {
                let mut entry = Writer::default();
                entry.bytes(1, key.as_bytes());
                single(2, element, value, &mut entry, depth)?;
                writer.bytes(field.number, &entry.finish());
            }
            Ok(())
        }
        (shape, value) => single(field.number, shape, value, writer, depth),
    }
}

fn single(
    number: u32,
    shape: &Shape,
    value: &Value,
    writer: &mut Writer,
    depth: usize,
) -> Result<(), ProtobufError> {
    let wrong = || ProtobufError::Shape(format!("{value} is not a {shape:?}"));
    match shape {
        Shape::String => writer.bytes(number, value.as_str().ok_or_else(wrong)?.as_bytes()),
        Shape::Bool => writer.integer(number, i64::from(value.as_bool().ok_or_else(wrong)?)),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 => {
            writer.integer(number, value.as_i64().ok_or_else(wrong)?);
        }
        Shape::Double => writer.double(number, value.as_f64().ok_or_else(wrong)?),
        Shape::Bytes => {
            let bytes = value.as_str().and_then(|text| byte_field::decode(text).ok()).ok_or_else(wrong)?;
            writer.bytes(number, &bytes);
        }
        Shape::Struct(id) => writer.bytes(number, &message(id.get(), value, depth + 1)?),
        Shape::Items(element) | Shape::List(element) => {
            let mut inner = Writer::default();
            for item in value.as_array().ok_or_else(wrong)? {
                single(1, element, item, &mut inner, depth + 1)?;
            }
            writer.bytes(number, &inner.finish());
        }
        Shape::Map(_) => return Err(wrong()),
        special => writer.bytes(number, &special::write(special, value, depth)?),
    }
    Ok(())
}
