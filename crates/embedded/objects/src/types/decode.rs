//! Makes a JSON value fit a built-in type, as decoding into a Go struct and encoding it again would: unknown fields
//! and nulls go, quantities and times take their canonical form, wrong types are errors.

use jiff::Timestamp;
use quintet_api::Quantity;
use serde_json::{Map, Value};

use super::{Shape, Type, by_name};
use crate::byte_field;
use crate::path::Path;

/// Deeper than any object of Kubernetes, shallower than any stack.
const MAX_DEPTH: usize = 200;

/// What decoding found besides the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Paths of fields the type does not have, such as `spec.bogus`.
    pub unknown: Vec<String>,
}

/// Why a value is not of its type. The text is what Go's decoder says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value of another JSON type.
    #[error("json: cannot unmarshal {found} into Go {}{kind}", at(.owner, .path))]
    Type {
        /// What was found: `string`, `number`, ...
        found: &'static str,
        /// The struct the field belongs to.
        owner: String,
        /// The path of the field.
        path: String,
        /// What Go calls the type of the field.
        kind: String,
    },
    /// A value of the right type that does not parse.
    #[error("{message}")]
    Value {
        /// What is wrong with it.
        message: String,
    },
    /// An object nested deeper than any real one.
    #[error("exceeded max depth")]
    Depth,
}

fn at(owner: &str, path: &str) -> String {
    if path.is_empty() { "value of type ".into() } else { format!("struct field {owner}.{path} of type ") }
}

/// Makes `object` fit `kind`.
pub fn decode(kind: &'static Type, object: &mut Value) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder { decoded: Decoded::default(), owner: kind.short_name() };
    decoder.structure(kind, object, &Path::ROOT, 0)?;
    Ok(decoder.decoded)
}

struct Decoder {
    decoded: Decoded,
    owner: &'static str,
}

impl Decoder {
    fn structure(
        &mut self,
        kind: &'static Type,
        value: &mut Value,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::Depth);
        }
        let Value::Object(fields) = value else {
            return Err(self.wrong_type(value, path, &go_struct(kind)));
        };
        let before = std::mem::replace(&mut self.owner, kind.short_name());
        let mut dropped = Vec::new();
        for (name, value) in fields.iter_mut() {
            let Some(field) = kind.field(name) else {
                self.decoded.unknown.push(dotted(&path.field(name)));
                dropped.push(name.clone());
                continue;
            };
            if value.is_null() {
                dropped.push(name.clone());
                continue;
            }
            self.value(&field.shape, value, &path.field(name), depth)?;
            let is_empty = match value {
                Value::String(text) => text.is_empty(),
                Value::Bool(set) => !*set,
                Value::Number(number) => number.as_i64() == Some(0) || number.as_f64() == Some(0.0),
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty() && matches!(field.shape, Shape::Map(_)),
                Value::Null => true,
            };
            let is_omitted = is_empty && field.omits_empty && !field.is_pointer && is_droppable(&field.shape);
            if is_omitted || value.is_null() {
                dropped.push(name.clone());
            }
        }
        for name in dropped {
            fields.remove(&name);
        }
        self.owner = before;
        Ok(())
    }

    fn value(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        match shape {
            Shape::Struct(id) => self.structure(id.get(), value, path, depth + 1),
            Shape::List(element) | Shape::Items(element) => {
                let Value::Array(items) = value else {
                    return Err(self.wrong_type(value, path, &go_type(shape)));
                };
                for (index, item) in items.iter_mut().enumerate() {
                    if item.is_null() {
                        *item = zero(element);
                    }
                    self.value(element, item, &path.index(index), depth + 1)?;
                }
                Ok(())
            }
            Shape::Map(element) => {
                let Value::Object(entries) = value else {
                    return Err(self.wrong_type(value, path, &go_type(shape)));
                };
                for (key, item) in entries.iter_mut() {
                    if item.is_null() {
                        *item = zero(element);
                    }
                    self.value(element, item, &path.key(key), depth + 1)?;
                }
                Ok(())
            }
            Shape::String | Shape::Duration if value.is_string() => Ok(()),
            Shape::Bool if value.is_boolean() => Ok(()),
            Shape::Int32 | Shape::Int64 | Shape::Uint32 => self.integer(shape, value, path),
            Shape::Double if value.is_number() => Ok(()),
            Shape::Bytes => match value {
                Value::String(text) => byte_field::normalize(text)
                    .map_err(|corrupt| DecodeError::Value { message: corrupt.to_string() }),
                _ => Err(self.wrong_type(value, path, "[]uint8")),
            },
            Shape::Time | Shape::MicroTime => self.time(shape, value, path),
            Shape::Quantity => quantity(value),
            Shape::IntOrString => match value {
                Value::String(_) => Ok(()),
                Value::Number(_) => self.integer(&Shape::Int32, value, path),
                _ => Err(self.wrong_type(value, path, "int32")),
            },
            Shape::Raw | Shape::Json | Shape::Fields => Ok(()),
            Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => {
                self.schema_or(shape, value, path, depth)
            }
            Shape::String | Shape::Bool | Shape::Double | Shape::Duration => {
                Err(self.wrong_type(value, path, &go_type(shape)))
            }
        }
    }

    /// As the `UnmarshalJSON` of `JSONSchemaPropsOrArray`, `JSONSchemaPropsOrBool` and `JSONSchemaPropsOrStringArray`,
    /// of which two take what they do not expect for nothing.
    fn schema_or(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let schema = by_name("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        let Some(schema) = schema else { return Ok(()) };
        match (shape, value) {
            (_, value @ Value::Object(_)) => self.structure(schema, value, path, depth + 1),
            (Shape::SchemaOrBool, Value::Bool(_)) => Ok(()),
            (Shape::SchemaOrBool, _) => {
                Err(DecodeError::Value { message: "boolean or JSON schema expected".into() })
            }
            (Shape::SchemaOrArray, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if item.is_null() {
                        *item = Value::Object(Map::new());
                    }
                    self.structure(schema, item, &path.index(index), depth + 1)?;
                }
                Ok(())
            }
            (_, Value::Array(names)) => {
                let other = names.iter().find(|name| !name.is_string());
                other.map_or(Ok(()), |other| Err(self.wrong_type(other, path, "string")))
            }
            (_, unexpected) => {
                *unexpected = Value::Null;
                Ok(())
            }
        }
    }

    fn integer(&self, shape: &Shape, value: &mut Value, path: &Path<'_>) -> Result<(), DecodeError> {
        // A whole number written as 1.0 is an integer to Go's decoder of JSON made from YAML, too.
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
        let number = match value.as_i64() {
            Some(number) => Some(number),
            None => value
                .as_f64()
                .filter(|number| number.fract() == 0.0 && number.abs() < 9e15)
                .map(|number| number as i64),
        };
        let fits = number.is_some_and(|number| match shape {
            Shape::Int32 => i32::try_from(number).is_ok(),
            Shape::Uint32 => u32::try_from(number).is_ok(),
            _ => true,
        });
        match number {
            Some(number) if fits => {
                *value = number.into();
                Ok(())
            }
            _ => Err(self.wrong_type(value, path, &go_type(shape))),
        }
    }

    fn time(&self, shape: &Shape, value: &mut Value, path: &Path<'_>) -> Result<(), DecodeError> {
        let Value::String(text) = value else {
            return Err(self.wrong_type(value, path, "string"));
        };
        match rfc3339(text) {
            Some(time) => {
                let form =
                    if *shape == Shape::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
                *text = time.strftime(form).to_string();
                Ok(())
            }
            None => Err(DecodeError::Value {
                message: format!(
                    "parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"{text}\" as \"2006\""
                ),
            }),
        }
    }

    fn wrong_type(&self, value: &Value, path: &Path<'_>, kind: &str) -> DecodeError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        DecodeError::Type { found, owner: self.owner.into(), path: without_indexes(path), kind: kind.into() }
    }
}

/// A time in the one form that Go reads. The parser knows others, among them years that are written with a sign, which
/// nothing could read back.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let form = |text: &[u8], form: &[u8]| {
        text.len() == form.len()
            && text.iter().zip(form).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                form => byte == form,
            })
    };
    let (seconds, rest) = text.as_bytes().split_at_checked("0000-00-00T00:00:00".len())?;
    if !form(seconds, b"0000-00-00T00:00:00") || seconds.ends_with(b":60") {
        return None;
    }
    let fraction = match rest {
        [b'.' | b',', digits @ ..] => 1 + digits.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        _ => 0,
    };
    let zone = rest.get(fraction..)?;
    if fraction == 1 || !(zone == b"Z" || form(zone, b"+00:00") || form(zone, b"-00:00")) {
        return None;
    }
    let time: Timestamp = text.parse().ok()?;
    (0..=9999).contains(&time.to_zoned(jiff::tz::TimeZone::UTC).year()).then_some(time)
}

/// Go's decoder names fields only, not positions in lists.
fn without_indexes(path: &Path<'_>) -> String {
    let mut out = String::new();
    let mut is_inside = false;
    for character in path.to_string().chars() {
        match character {
            '[' => is_inside = true,
            ']' => is_inside = false,
            other if !is_inside => out.push(other),
            _ => {}
        }
    }
    out
}

/// Strict decoding errors name map keys as if they were fields.
fn dotted(path: &Path<'_>) -> String {
    let text = path.to_string();
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let (key, after) = after.split_once(']').unwrap_or((after, ""));
        if key.parse::<usize>().is_ok() {
            out.push('[');
            out.push_str(key);
            out.push(']');
        } else {
            out.push('.');
            out.push_str(key);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Structs are written even when empty; so are values whose emptiness means something.
fn is_droppable(shape: &Shape) -> bool {
    !matches!(
        shape,
        Shape::Struct(_)
            | Shape::Raw
            | Shape::Json
            | Shape::Fields
            | Shape::IntOrString
            | Shape::Quantity
            | Shape::SchemaOrArray
            | Shape::SchemaOrBool
            | Shape::SchemaOrStrings
    )
}

fn quantity(value: &mut Value) -> Result<(), DecodeError> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    match text.parse::<Quantity>() {
        Ok(quantity) => {
            *value = Value::String(quantity.to_string());
            Ok(())
        }
        Err(_) => Err(DecodeError::Value {
            message:
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                    .into(),
        }),
    }
}

fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Bytes => Value::String(String::new()),
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Double | Shape::IntOrString => 0.into(),
        Shape::Quantity => "0".into(),
        Shape::List(_) | Shape::Items(_) => Value::Array(Vec::new()),
        _ => Value::Object(Map::new()),
    }
}

fn go_struct(kind: &Type) -> String {
    let mut parts = kind.name.rsplit('.');
    let name = parts.next().unwrap_or_default();
    format!("{}.{name}", parts.next().unwrap_or_default())
}

fn go_type(shape: &Shape) -> String {
    match shape {
        Shape::String | Shape::Duration | Shape::Time | Shape::MicroTime => "string".into(),
        Shape::Bool => "bool".into(),
        Shape::Int32 | Shape::IntOrString => "int32".into(),
        Shape::Int64 => "int64".into(),
        Shape::Uint32 => "uint32".into(),
        Shape::Double => "float64".into(),
        Shape::Bytes => "[]uint8".into(),
        Shape::Struct(id) => go_struct(id.get()),
        Shape::List(element) | Shape::Items(element) => format!("[]{}", go_type(element)),
        Shape::Map(element) => format!("map[string]{}", go_type(element)),
        _ => "object".into(),
    }
}
