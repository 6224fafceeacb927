//! Types that are one value in JSON and a message of their own on the wire.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::wire::{Reader, Wire, Writer};
use super::{MAGIC, ProtobufError, decode, encode};
use crate::types::{Shape, Type, by_name};

fn schema_type() -> Result<&'static Type, ProtobufError> {
    by_name("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .ok_or(ProtobufError::Malformed("no schema type"))
}

/// An object inside another counts as this many levels: it is rare, and takes much stack.
const ENVELOPE: usize = 20;

/// Reads a message of a special type; nothing means that the field is absent.
pub(super) fn read(shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Option<Value>, ProtobufError> {
    let bytes = wire.bytes()?;
    let mut reader = Reader::new(bytes);
    match shape {
        Shape::Time | Shape::MicroTime => {
            if bytes.is_empty() {
                return Ok(None);
            }
            let (mut seconds, mut nanos) = (0, 0);
            while let Some((number, field)) = reader.field()? {
                match number {
                    1 => seconds = field.integer()?,
                    2 => nanos = field.integer()?,
                    _ => {}
                }
            }
            let nanos = i32::try_from(nanos).map_err(|_| ProtobufError::Malformed("nanoseconds"))?;
            let time = Timestamp::from_second(seconds)
                .and_then(|time| time.checked_add(SignedDuration::from_nanos(i64::from(nanos))))
                .map_err(|_| ProtobufError::Malformed("time out of range"))?;
            let form = if *shape == Shape::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            Ok(Some(json!(time.strftime(form).to_string())))
        }
        Shape::Duration => {
            let mut nanos = 0;
            while let Some((number, field)) = reader.field()? {
                if number == 1 {
                    nanos = field.integer()?;
                }
            }
            Ok(Some(json!(go_duration(nanos))))
        }
        Shape::Quantity => {
            let mut text = String::from("0");
            while let Some((number, field)) = reader.field()? {
                if number == 1 {
                    text = field.text()?;
                }
            }
            Ok(Some(json!(text)))
        }
        Shape::IntOrString => {
            let (mut is_text, mut number_value, mut text) = (false, 0, String::new());
            while let Some((number, field)) = reader.field()? {
                match number {
                    1 => is_text = field.integer()? == 1,
                    2 => number_value = field.integer()?,
                    3 => text = field.text()?,
                    _ => {}
                }
            }
            Ok(Some(if is_text { json!(text) } else { json!(number_value) }))
        }
        Shape::Raw | Shape::Json | Shape::Fields => {
            let mut raw: &[u8] = b"";
            while let Some((number, field)) = reader.field()? {
                if number == 1 {
                    raw = field.bytes()?;
                }
            }
            if raw.is_empty() {
                return Ok(None);
            }
            if raw.starts_with(&MAGIC) {
                return super::decode_at(raw, None, depth + ENVELOPE).map(Some);
            }
            let value = serde_json::from_slice(raw).map_err(|_| ProtobufError::Malformed("embedded JSON"))?;
            Ok(Some(value))
        }
        Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => {
            read_schema(shape, reader, depth)
        }
        _ => Err(ProtobufError::Malformed("not a special type")),
    }
}

fn read_schema(shape: &Shape, mut reader: Reader<'_>, depth: usize) -> Result<Option<Value>, ProtobufError> {
    let (mut schema, mut list, mut allows) = (None, Vec::new(), false);
    while let Some((number, field)) = reader.field()? {
        match (shape, number) {
            (Shape::SchemaOrBool, 1) => allows = field.integer()? != 0,
            (Shape::SchemaOrBool, 2) | (Shape::SchemaOrArray | Shape::SchemaOrStrings, 1) => {
                schema = Some(decode::message(schema_type()?, field.bytes()?, depth + 1)?);
            }
            (Shape::SchemaOrArray, 2) => {
                list.push(decode::message(schema_type()?, field.bytes()?, depth + 1)?);
            }
            (Shape::SchemaOrStrings, 2) => list.push(json!(field.text()?)),
            _ => {}
        }
    }
    Ok(Some(match schema {
        Some(schema) => schema,
        None if *shape == Shape::SchemaOrBool => json!(allows),
        None => Value::Array(list),
    }))
}

/// Writes a value of a special type as its message.
pub(super) fn write(shape: &Shape, value: &Value, depth: usize) -> Result<Vec<u8>, ProtobufError> {
    let wrong = || ProtobufError::Shape(format!("{value} is not a {shape:?}"));
    let mut writer = Writer::default();
    match shape {
        Shape::Time | Shape::MicroTime => {
            let time: Timestamp = value.as_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
            let (seconds, mut nanos) = (time.as_second(), i64::from(time.subsec_nanosecond()));
            if *shape == Shape::Time {
                nanos = 0;
            }
            writer.integer(1, if nanos < 0 { seconds - 1 } else { seconds });
            writer.integer(2, if nanos < 0 { nanos + 1_000_000_000 } else { nanos });
        }
        Shape::Duration => {
            let nanos = value.as_str().and_then(quintet_cel::duration).ok_or_else(wrong)?;
            writer.integer(1, nanos);
        }
        Shape::Quantity => {
            let text = value.as_str().map_or_else(|| value.to_string(), Into::into);
            writer.bytes(1, text.as_bytes());
        }
        Shape::IntOrString => {
            let (kind, number, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                value => (0, value.as_i64().ok_or_else(wrong)?, ""),
            };
            writer.integer(1, kind);
            writer.integer(2, number);
            writer.bytes(3, text.as_bytes());
        }
        Shape::Raw | Shape::Json | Shape::Fields => writer.bytes(1, value.to_string().as_bytes()),
        Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => {
            write_schema(shape, value, &mut writer, depth)?;
        }
        _ => return Err(wrong()),
    }
    Ok(writer.finish())
}

fn write_schema(
    shape: &Shape,
    value: &Value,
    writer: &mut Writer,
    depth: usize,
) -> Result<(), ProtobufError> {
    match (shape, value) {
        (Shape::SchemaOrBool, Value::Bool(allows)) => writer.integer(1, i64::from(*allows)),
        (Shape::SchemaOrBool, value) => {
            writer.integer(1, 1);
            writer.bytes(2, &encode::message(schema_type()?, value, depth + 1)?);
        }
        (_, Value::Array(items)) => {
            for item in items {
                match item {
                    Value::String(text) => writer.bytes(2, text.as_bytes()),
                    item => writer.bytes(2, &encode::message(schema_type()?, item, depth + 1)?),
                }
            }
        }
        (_, value) => writer.bytes(1, &encode::message(schema_type()?, value, depth + 1)?),
    }
    Ok(())
}

/// A duration as Go writes it: `1h0m0s`, `1.5s`, `250ms`.
fn go_duration(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".into();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let fraction = |whole: u64, part: u64, digits: usize| {
        if part == 0 {
            return whole.to_string();
        }
        let text = format!("{whole}.{part:0digits$}");
        text.trim_end_matches('0').to_owned()
    };
    if nanos < 1_000 {
        return format!("{sign}{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{sign}{}µs", fraction(nanos / 1_000, nanos % 1_000, 3));
    }
    if nanos < 1_000_000_000 {
        return format!("{sign}{}ms", fraction(nanos / 1_000_000, nanos % 1_000_000, 6));
    }
    let seconds = nanos / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = fraction(seconds % 60, nanos % 1_000_000_000, 9);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}s"),
        (0, minutes) => format!("{sign}{minutes}m{rest}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{rest}s"),
    }
}
