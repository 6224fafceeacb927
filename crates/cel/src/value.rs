//! Values of expressions.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

use base64::Engine as _;
use jiff::Timestamp;
use quintet_api::Quantity;
use serde_json::Value;

use super::kubernetes::{Semver, Url};
use super::schema::{JsonType, ListType, Schema};

/// A value. Objects and lists of JSON are borrowed, with the schema that says what their parts are.
#[derive(Clone, Debug)]
pub enum Val<'v> {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// Text.
    String(Cow<'v, str>),
    /// Bytes.
    Bytes(Rc<[u8]>),
    /// An object or list of JSON.
    Json(&'v Value, Option<&'v dyn Schema>),
    /// A list made by an expression.
    List(Rc<Vec<Self>>),
    /// A map made by an expression.
    Map(Rc<Vec<(Self, Self)>>),
    /// A map of maps, in which there is an empty map under every other key.
    Maps(Rc<Vec<(Self, Self)>>),
    /// A point in time.
    Timestamp(Timestamp),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A type.
    Type(&'static str),
    /// A value that may be missing.
    Optional(Option<Rc<Self>>),
    /// A resource quantity.
    Quantity(Quantity),
    /// A URL.
    Url(Rc<Url>),
    /// An IP address.
    Ip(IpAddr),
    /// A network.
    Cidr(IpAddr, u8),
    /// A semantic version.
    Semver(Rc<Semver>),
    /// A named format.
    Format(&'static str),
}

impl<'v> Val<'v> {
    /// A value of JSON, read as its schema says.
    pub fn from_json(value: &'v Value, schema: Option<&'v dyn Schema>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => {
                let kind = schema.and_then(Schema::kind);
                if kind == Some(JsonType::Number) {
                    return Self::Double(number.as_f64().unwrap_or(f64::NAN));
                }
                if let Some(number) = number.as_i64() {
                    return Self::Int(number);
                }
                let number = number.as_f64().unwrap_or(f64::NAN);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "saturates, and the schema asks for integers"
                )]
                if kind == Some(JsonType::Integer) { Self::Int(number as i64) } else { Self::Double(number) }
            }
            Value::String(text) => {
                let format =
                    schema.filter(|schema| schema.kind() == Some(JsonType::String)).and_then(Schema::format);
                let formatted = match format {
                    Some("date-time") => text.parse().ok().map(Self::Timestamp),
                    Some("date") => format!("{text}T00:00:00Z").parse().ok().map(Self::Timestamp),
                    Some("duration") => super::time::duration(text).map(Self::Duration),
                    Some("byte") => base64::engine::general_purpose::STANDARD
                        .decode(text)
                        .ok()
                        .map(|bytes| Self::Bytes(bytes.into())),
                    _ => None,
                };
                formatted.unwrap_or(Self::String(Cow::Borrowed(text)))
            }
            Value::Array(_) | Value::Object(_) => Self::Json(value, schema),
        }
    }

    /// The value as JSON; `None` if JSON has no such value.
    pub fn to_json(&self) -> Option<Value> {
        Some(match self {
            Self::Null | Self::Optional(None) => Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(number) => (*number).into(),
            Self::Uint(number) => (*number).into(),
            Self::Double(number) => serde_json::Number::from_f64(*number)?.into(),
            Self::String(text) => text.as_ref().into(),
            Self::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
            Self::Json(value, _) => (*value).clone(),
            Self::List(items) => Value::Array(items.iter().map(Self::to_json).collect::<Option<_>>()?),
            Self::Map(entries) | Self::Maps(entries) => {
                let entry = |(key, value): &(Self, Self)| match key {
                    Self::String(key) => Some((key.to_string(), value.to_json()?)),
                    _ => None,
                };
                Value::Object(entries.iter().map(entry).collect::<Option<_>>()?)
            }
            Self::Timestamp(time) => time.to_string().into(),
            Self::Optional(Some(value)) => value.to_json()?,
            Self::Quantity(quantity) => quantity.to_string().into(),
            _ => return None,
        })
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::String(Cow::Owned(text.into()))
    }

    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(items))
    }

    /// A semantic version, if the text is one.
    pub fn semver(text: &str) -> Option<Self> {
        Semver::parse(text, false).map(|version| Self::Semver(Rc::new(version)))
    }

    /// A missing value if there is none.
    pub fn optional(value: Option<Self>) -> Self {
        Self::Optional(value.map(Rc::new))
    }

    /// The name of the type, as `type()` gives it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Json(Value::Array(_), _) | Self::List(_) => "list",
            Self::Json(..) | Self::Map(_) | Self::Maps(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// The items, if this is a list.
    pub(super) fn items(&self) -> Option<Rc<Vec<Self>>> {
        match self {
            Self::List(items) => Some(items.clone()),
            Self::Json(Value::Array(items), schema) => {
                let schema = schema.and_then(Schema::items);
                Some(Rc::new(items.iter().map(|item| Self::from_json(item, schema)).collect()))
            }
            _ => None,
        }
    }

    /// The entries, if this is a map.
    pub(super) fn entries(&self) -> Option<Rc<Vec<(Self, Self)>>> {
        match self {
            Self::Map(entries) | Self::Maps(entries) => Some(entries.clone()),
            Self::Json(Value::Object(fields), schema) => {
                let entries = fields.iter().map(|(name, value)| {
                    let child = schema.and_then(|schema| schema.child(name));
                    (Self::String(Cow::Borrowed(name)), Self::from_json(value, child))
                });
                Some(Rc::new(entries.collect()))
            }
            _ => None,
        }
    }

    /// The number of items, entries, characters or bytes.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Self::String(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(items) => Some(items.len()),
            Self::Map(entries) | Self::Maps(entries) => Some(entries.len()),
            Self::Json(Value::Array(items), _) => Some(items.len()),
            Self::Json(Value::Object(fields), _) => Some(fields.len()),
            _ => None,
        }
    }

    /// Whether this is the empty value of its type.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Double(number) => *number == 0.0,
            Self::Duration(nanos) => *nanos == 0,
            Self::Optional(inner) => inner.is_none(),
            other => other.size() == Some(0),
        }
    }

    fn is_unordered(&self) -> bool {
        let Self::Json(Value::Array(_), Some(schema)) = self else { return false };
        matches!(schema.list_type(), ListType::Set | ListType::Map(_))
    }

    /// Equality as expressions see it: numbers by value, sets without order.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Json(one, _), Self::Json(two, _)) if !self.is_unordered() && one == two => true,
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(two)) => one == two,
            (Self::String(one), Self::String(two)) => one == two,
            (Self::Bytes(one), Self::Bytes(two)) => one == two,
            (Self::Timestamp(one), Self::Timestamp(two)) => one == two,
            (Self::Duration(one), Self::Duration(two)) => one == two,
            (Self::Type(one), Self::Type(two)) | (Self::Format(one), Self::Format(two)) => one == two,
            (Self::Quantity(one), Self::Quantity(two)) => one == two,
            (Self::Url(one), Self::Url(two)) => one == two,
            (Self::Ip(one), Self::Ip(two)) => one == two,
            (Self::Cidr(one, bits), Self::Cidr(two, others)) => one == two && bits == others,
            (Self::Semver(one), Self::Semver(two)) => one.compare(two) == Ordering::Equal,
            (Self::Optional(one), Self::Optional(two)) => match (one, two) {
                (Some(one), Some(two)) => one.equals(two),
                (None, None) => true,
                _ => false,
            },
            _ => {
                if let (Some(one), Some(two)) = (self.items(), other.items()) {
                    let is_unordered = self.is_unordered() || other.is_unordered();
                    return one.len() == two.len()
                        && if is_unordered {
                            one.iter().all(|item| two.iter().any(|other| item.equals(other)))
                        } else {
                            one.iter().zip(two.iter()).all(|(item, other)| item.equals(other))
                        };
                }
                if let (Some(one), Some(two)) = (self.entries(), other.entries()) {
                    return one.len() == two.len()
                        && one.iter().all(|(key, value)| {
                            two.iter().any(|(other, found)| key.equals(other) && value.equals(found))
                        });
                }
                self.number_order(other) == Some(Ordering::Equal)
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "comparison of integers with doubles is by value")]
    fn number_order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(one), Self::Int(two)) => Some(one.cmp(two)),
            (Self::Uint(one), Self::Uint(two)) => Some(one.cmp(two)),
            (Self::Int(one), Self::Uint(two)) => Some(i128::from(*one).cmp(&i128::from(*two))),
            (Self::Uint(one), Self::Int(two)) => Some(i128::from(*one).cmp(&i128::from(*two))),
            (Self::Double(one), Self::Double(two)) => one.partial_cmp(two),
            (Self::Int(one), Self::Double(two)) => (*one as f64).partial_cmp(two),
            (Self::Double(one), Self::Int(two)) => one.partial_cmp(&(*two as f64)),
            (Self::Uint(one), Self::Double(two)) => (*one as f64).partial_cmp(two),
            (Self::Double(one), Self::Uint(two)) => one.partial_cmp(&(*two as f64)),
            _ => None,
        }
    }

    /// Order, where there is one.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => Some(one.cmp(two)),
            (Self::String(one), Self::String(two)) => Some(one.cmp(two)),
            (Self::Bytes(one), Self::Bytes(two)) => Some(one.cmp(two)),
            (Self::Timestamp(one), Self::Timestamp(two)) => Some(one.cmp(two)),
            (Self::Duration(one), Self::Duration(two)) => Some(one.cmp(two)),
            (Self::Quantity(one), Self::Quantity(two)) => Some(one.cmp(two)),
            (Self::Semver(one), Self::Semver(two)) => Some(one.compare(two)),
            _ => self.number_order(other),
        }
    }
}
