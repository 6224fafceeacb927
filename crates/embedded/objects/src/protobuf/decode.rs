//! From the wire to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::wire::{Reader, Wire};
use super::{ProtobufError, special};
use crate::types::{Field, Shape, Type};

/// Deeper than any object, shallower than any stack.
pub(super) const MAX_DEPTH: usize = 100;

/// Reads a message of a type.
pub(super) fn message(kind: &'static Type, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let mut fields = Map::new();
    read(kind, bytes, &mut fields, depth)?;
    Ok(Value::Object(fields))
}

fn read(
    kind: &'static Type,
    bytes: &[u8],
    fields: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > MAX_DEPTH {
        return Err(ProtobufError::Malformed("nested too deeply"));
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Some(field) = kind.fields.iter().find(|field| field.number == number) else { continue };
        if field.is_inline {
            if let Some(inner) = field.shape.as_struct() {
                read(inner, wire.bytes()?, fields, depth + 1)?;
            }
            continue;
        }
        put(field, wire, fields, depth)?;
    }
    Ok(())
}

fn put(
    field: &'static Field,
    wire: Wire<'_>,
    fields: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    match &field.shape {
        Shape::List(element) => {
            if let Some(value) = value(element, wire, depth)? {
                let list = fields.entry(field.name).or_insert_with(|| json!([]));
                if let Value::Array(items) = list {
                    items.push(value);
                }
            }
        }
        Shape::Map(element) => {
            let (mut key, mut found) = (String::new(), None);
            let mut reader = Reader::new(wire.bytes()?);
            while let Some((number, wire)) = reader.field()? {
                match number {
                    1 => key = wire.text()?,
                    2 => found = value(element, wire, depth)?,
                    _ => {}
                }
            }
            let map = fields.entry(field.name).or_insert_with(|| json!({}));
            if let Value::Object(entries) = map {
                entries.insert(key, found.unwrap_or_else(|| zero(element)));
            }
        }
        shape => {
            if let Some(value) = value(shape, wire, depth)? {
                let is_zero = match &value {
                    Value::String(text) => text.is_empty(),
                    Value::Bool(value) => !value,
                    Value::Number(number) => number.as_f64() == Some(0.0),
                    _ => false,
                };
                if is_zero && field.omits_empty && !field.is_pointer && *shape != Shape::IntOrString {
                    fields.remove(field.name);
                } else {
                    fields.insert(field.name.into(), value);
                }
            }
        }
    }
    Ok(())
}

fn value(shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Option<Value>, ProtobufError> {
    Ok(Some(match shape {
        Shape::String => json!(wire.text()?),
        Shape::Bool => json!(wire.integer()? != 0),
        Shape::Int32 => {
            #[expect(clippy::cast_possible_truncation, reason = "32-bit numbers are written with 64 bits")]
            let number = wire.integer()? as i32;
            json!(number)
        }
        Shape::Int64 => json!(wire.integer()?),
        Shape::Uint32 => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "32-bit numbers are written with 64 bits"
            )]
            let number = wire.integer()? as u32;
            json!(number)
        }
        Shape::Double => json!(wire.double()?),
        Shape::Bytes => json!(STANDARD.encode(wire.bytes()?)),
        Shape::Struct(id) => message(id.get(), wire.bytes()?, depth + 1)?,
        Shape::Items(element) | Shape::List(element) => {
            let mut items = Vec::new();
            let mut reader = Reader::new(wire.bytes()?);
            while let Some((number, wire)) = reader.field()? {
                if number == 1 {
                    items.extend(value(element, wire, depth + 1)?);
                }
            }
            Value::Array(items)
        }
        Shape::Map(_) => return Err(ProtobufError::Malformed("a map inside a list")),
        special => return special::read(special, wire, depth),
    }))
}

fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Bytes => json!(""),
        Shape::Bool => json!(false),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Double => json!(0),
        Shape::Quantity => json!("0"),
        Shape::List(_) | Shape::Items(_) => json!([]),
        _ => json!({}),
    }
}
