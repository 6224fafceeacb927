//! Request bodies, decoded against the fields of a kind.
//!
//! Errors read as those of Go's decoder for the generated type of the body. As there, a value of
//! the wrong JSON type is noted and decoding goes on, while an unknown enum value ends it.

use crate::json::Value;
use crate::model::Kind;
use crate::model::custom::{CustomProperties, CustomValue};
use crate::model::fields::{Field, Type};

/// Which fields a body may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Create,
    Update,
    /// The entity itself, with its id and times.
    Full,
}

/// A value of a kind's own field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldValue {
    Text(String),
    List(Vec<String>),
    Double(f64),
    Int(i64),
}

/// A decoded body. Fields that are absent or null are `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Body {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) external_id: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) custom: Option<CustomProperties>,
    pub(crate) fields: Vec<(&'static Field, FieldValue)>,
    /// When it was created and last changed, as far as the body says so. It does not count, but must be numbers.
    pub(crate) times: [Option<String>; 2],
}

impl Body {
    /// The text of the field `name`.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field.name == name).and_then(|(_, value)| match value {
            FieldValue::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Sets the text of the field `name`, if the kind has it.
    pub(crate) fn set_text(&mut self, kind: Kind, name: &str, text: &str) {
        if let Some(field) = kind.fields().iter().find(|field| field.name == name) {
            self.set(field, Some(FieldValue::Text(text.to_owned())));
        }
    }

    fn set(&mut self, field: &'static Field, value: Option<FieldValue>) {
        self.fields.retain(|(it, _)| it.name != field.name);
        self.fields.extend(value.map(|value| (field, value)));
    }
}

/// A body with the defaults that the plain routes fill in before decoding.
pub(crate) fn with_defaults(kind: Kind) -> Body {
    let defaults = kind.fields().iter().filter_map(|field| {
        let default = field.default?;
        Some((field, FieldValue::Text(default.to_owned())))
    });
    Body { fields: defaults.collect(), ..Body::default() }
}

/// Decodes a body of `kind` into `body`; unknown members are refused if `is_strict`.
pub(crate) fn decode(
    value: &Value,
    kind: Kind,
    shape: Shape,
    is_strict: bool,
    mut body: Body,
) -> Result<Body, String> {
    let type_name = match shape {
        Shape::Create => format!("{}Create", kind.schema_name()),
        Shape::Update => format!("{}Update", kind.schema_name()),
        Shape::Full => kind.schema_name().to_owned(),
    };
    let members = match value {
        Value::Object(members) => members.as_slice(),
        Value::Null => &[],
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type openapi.{type_name}",
                other.kind()
            ));
        }
    };
    let mut decoder = Decoder { type_name, noted: None };
    for (key, value) in members {
        match find(kind, shape, key) {
            Some(member) => decoder.member(&mut body, &member, value)?,
            None if is_strict => decoder.note(format!("json: unknown field {}", crate::text::quoted(key))),
            None => {}
        }
    }
    decoder.noted.map_or(Ok(body), Err)
}

/// The first required field that is missing.
pub(crate) fn missing(kind: Kind, body: &Body) -> Option<&'static str> {
    let is_empty = |text: Option<&str>| text.is_none_or(str::is_empty);
    if kind.requires_name() && is_empty(body.name.as_deref()) {
        return Some("name");
    }
    let mut required = kind.fields().iter().filter(|field| field.is_required);
    required.find(|field| is_empty(body.text(field.name))).map(|field| field.name)
}

/// The names of [`Body::times`].
const TIMES: [&str; 2] = ["createTimeSinceEpoch", "lastUpdateTimeSinceEpoch"];

/// Checks the times in the body of a new entity.
pub(crate) fn check_times(body: &Body) -> Result<(), String> {
    for (name, time) in TIMES.iter().zip(&body.times) {
        let Some(time) = time else { continue };
        crate::text::int64(time).map_err(|why| {
            format!(
                "error setting field Attributes: bad request: unable to decode as int64 invalid numeric string: {why} for key {name}"
            )
        })?;
    }
    Ok(())
}

/// A member that a body may have.
enum Member {
    Id,
    Name,
    ExternalId,
    Description,
    Custom,
    /// One of [`Body::times`].
    Time(usize),
    /// Read-only text, which is checked and dropped.
    Ignored(&'static str),
    Field(&'static Field),
}

impl Member {
    fn name(&self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::ExternalId => "externalId",
            Self::Description => "description",
            Self::Custom => "customProperties",
            Self::Time(index) => TIMES.get(*index).copied().unwrap_or_default(),
            Self::Ignored(name) => name,
            Self::Field(field) => field.name,
        }
    }
}

/// Finds the member for a key: the exact one, or else one that differs in case only.
fn find(kind: Kind, shape: Shape, key: &str) -> Option<Member> {
    let mut members = vec![Member::Custom, Member::Description, Member::ExternalId];
    if shape != Shape::Update {
        members.push(Member::Name);
    }
    if kind.artifact_type().is_some() {
        members.push(Member::Ignored("artifactType"));
    }
    if shape == Shape::Full {
        members.extend([Member::Id, Member::Time(0), Member::Time(1)]);
        if kind.artifact_type().is_some() {
            members.extend([Member::Ignored("experimentId"), Member::Ignored("experimentRunId")]);
        }
    }
    let own = kind.fields().iter().filter(|field| shape != Shape::Update || field.is_mutable);
    members.extend(own.map(Member::Field));
    let exact = members.iter().position(|member| member.name() == key);
    let folded = || members.iter().position(|member| crate::text::is_same_name(member.name(), key));
    exact.or_else(folded).map(|index| members.swap_remove(index))
}

struct Decoder {
    type_name: String,
    /// The first error that did not end decoding.
    noted: Option<String>,
}

impl Decoder {
    fn note(&mut self, error: String) {
        self.noted.get_or_insert(error);
    }

    fn wrong_type(&self, value: &str, field: &str, ty: &str) -> String {
        format!("json: cannot unmarshal {value} into Go struct field {}.{field} of type {ty}", self.type_name)
    }

    fn member(&mut self, body: &mut Body, member: &Member, value: &Value) -> Result<(), String> {
        let name = member.name();
        match member {
            Member::Id => body.id = self.text(name, value),
            Member::Name => body.name = self.text(name, value),
            Member::ExternalId => body.external_id = self.text(name, value),
            Member::Description => body.description = self.text(name, value),
            Member::Time(index) => {
                let time = self.text(name, value);
                if let Some(slot) = body.times.get_mut(*index) {
                    *slot = time;
                }
            }
            Member::Ignored(_) => drop(self.text(name, value)),
            Member::Custom => match value {
                Value::Null => body.custom = None,
                // A repeated map adds to what is there, as Go decodes into a map.
                Value::Object(members) => body.custom.get_or_insert_default().extend(custom(members)?),
                other => {
                    let error = self.wrong_type(other.kind(), name, "map[string]openapi.MetadataValue");
                    self.note(error);
                }
            },
            Member::Field(field) => {
                let value = self.field(field, value)?;
                body.set(field, value);
            }
        }
        Ok(())
    }

    fn text(&mut self, name: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => {
                let error = self.wrong_type(other.kind(), name, "string");
                self.note(error);
                None
            }
        }
    }

    fn field(&mut self, field: &'static Field, value: &Value) -> Result<Option<FieldValue>, String> {
        let name = field.name;
        Ok(match (field.ty, value) {
            (_, Value::Null) => None,
            (Type::Enum(values), Value::String(text)) => {
                if !values.values.contains(&text.as_str()) {
                    return Err(format!("{text} is not a valid {}", values.name));
                }
                Some(FieldValue::Text(text.clone()))
            }
            // The type's own decoder reports this, which ends decoding.
            (Type::Enum(_), other) => return Err(self.wrong_type(other.kind(), name, "string")),
            (Type::Text | Type::Id, value) => self.text(name, value).map(FieldValue::Text),
            (Type::List, Value::Array(items)) => {
                let items = items.iter().map(|item| self.text(name, item).unwrap_or_default()).collect();
                Some(FieldValue::List(items))
            }
            (Type::List, other) => {
                let error = self.wrong_type(other.kind(), name, "[]string");
                self.note(error);
                None
            }
            (Type::Double, Value::Number(text)) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Some(FieldValue::Double(number)),
                _ => self.refuse(&format!("number {text}"), name, "float64"),
            },
            (Type::Double, other) => self.refuse(other.kind(), name, "float64"),
            (Type::Int, Value::Number(text)) => match text.parse() {
                Ok(number) => Some(FieldValue::Int(number)),
                Err(_) => self.refuse(&format!("number {text}"), name, "int64"),
            },
            (Type::Int, other) => self.refuse(other.kind(), name, "int64"),
        })
    }

    fn refuse(&mut self, value: &str, name: &str, ty: &str) -> Option<FieldValue> {
        let error = self.wrong_type(value, name, ty);
        self.note(error);
        None
    }
}

fn custom(members: &[(String, Value)]) -> Result<CustomProperties, String> {
    members.iter().map(|(name, value)| Ok((name.clone(), custom_value(value)?))).collect()
}

/// Decodes a property by its `metadataType`; other members are ignored.
fn custom_value(value: &Value) -> Result<CustomValue, String> {
    match value {
        Value::Object(_) => {}
        Value::Null => return Ok(CustomValue::Unknown),
        _ => return Err("failed to unmarshal JSON into map for the discriminator lookup".to_owned()),
    }
    let Some(Value::String(kind)) = value.member("metadataType") else { return Ok(CustomValue::Unknown) };
    let (field, ty) = match kind.as_str() {
        "MetadataStringValue" => ("string_value", "string"),
        "MetadataIntValue" => ("int_value", "string"),
        "MetadataDoubleValue" => ("double_value", "float64"),
        "MetadataBoolValue" => ("bool_value", "bool"),
        "MetadataStructValue" => ("struct_value", "string"),
        "MetadataProtoValue" => ("proto_value", "string"),
        _ => return Ok(CustomValue::Unknown),
    };
    let content = value.folded_member(field).unwrap_or(&Value::Null);
    let wrong = |found: &str| {
        let error =
            format!("json: cannot unmarshal {found} into Go struct field {kind}.{field} of type {ty}");
        Err(format!("failed to unmarshal MetadataValue as {kind}: {error}"))
    };
    match (ty, content) {
        ("float64", Value::Null) => Ok(CustomValue::Double(0.0)),
        ("float64", Value::Number(text)) => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(CustomValue::Double(number)),
            _ => wrong(&format!("number {text}")),
        },
        ("bool", Value::Null) => Ok(CustomValue::Bool(false)),
        ("bool", Value::Bool(flag)) => Ok(CustomValue::Bool(*flag)),
        ("string", Value::Null) => Ok(custom_text(kind, String::new())),
        ("string", Value::String(text)) => Ok(custom_text(kind, text.clone())),
        (_, other) => wrong(other.kind()),
    }
}

fn custom_text(kind: &str, text: String) -> CustomValue {
    match kind {
        "MetadataIntValue" => CustomValue::Int(text),
        "MetadataStructValue" => CustomValue::Struct(text),
        "MetadataProtoValue" => CustomValue::Proto,
        _ => CustomValue::Text(text),
    }
}
