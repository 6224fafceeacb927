//! What apply needs to know about a place in an object, whether its type is built in or defined by a CRD.

use serde_json::Value;

use crate::schema::{JsonType, Structural};
use crate::types::{Field, ListType, Shape, Type};

/// The schema at one place.
#[derive(Clone, Copy, Debug)]
pub enum Node<'s> {
    /// A built-in struct.
    Struct(&'static Type),
    /// A field of a built-in struct.
    Field(&'static Field),
    /// An item or value inside a field of a built-in struct.
    Shape(&'static Shape),
    /// A custom resource or part of one; the flag marks the object itself and embedded objects.
    Custom(&'s Structural, bool),
    /// Object metadata inside a custom resource, or anything whose schema is not known.
    Unknown,
}

/// How a value at one place is merged and owned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form<'s> {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map,
    /// Item by item, each there once.
    Set,
    /// Item by item, found by keys.
    Keyed(&'s [String]),
}

impl<'s> Node<'s> {
    /// The root of a built-in kind.
    pub const fn builtin(kind: &'static Type) -> Self {
        Self::Struct(kind)
    }

    /// The root of a custom resource.
    pub const fn custom(schema: &'s Structural) -> Self {
        Self::Custom(schema, true)
    }

    /// How `value` is owned here.
    pub(super) fn form(self, value: &Value) -> Form<'s> {
        match value {
            Value::Object(_) if self.is_map() => Form::Map,
            Value::Array(_) => match self.list_type() {
                ListType::Atomic => Form::Leaf,
                ListType::Set => Form::Set,
                ListType::Map(keys) => Form::Keyed(keys),
            },
            _ => Form::Leaf,
        }
    }

    fn is_map(self) -> bool {
        match self {
            Self::Struct(kind) => !kind.is_atomic,
            Self::Field(field) => !field.is_atomic && Node::Shape(&field.shape).is_map(),
            Self::Shape(shape) => match shape {
                Shape::Struct(id) => !id.get().is_atomic,
                Shape::Map(_) | Shape::Raw | Shape::Json => true,
                _ => false,
            },
            Self::Custom(schema, _) => !schema.is_atomic,
            Self::Unknown => true,
        }
    }

    fn list_type(self) -> &'s ListType {
        match self {
            Self::Field(field) => &field.list,
            Self::Custom(schema, _) => schema.list_type(),
            Self::Struct(_) | Self::Shape(_) | Self::Unknown => &ListType::Atomic,
        }
    }

    /// The struct this is, if built in.
    pub(super) fn structure(self) -> Option<&'static Type> {
        match self {
            Self::Struct(kind) => Some(kind),
            Self::Field(field) => field.shape.as_struct(),
            Self::Shape(shape) => shape.as_struct(),
            Self::Custom(..) | Self::Unknown => None,
        }
    }

    /// The schema of a field or map value; `None` if there is no such field.
    pub(super) fn child(self, name: &str) -> Option<Self> {
        if let Some(kind) = self.structure() {
            return kind.field(name).map(Node::Field);
        }
        match self {
            Self::Field(field) => Node::Shape(&field.shape).child(name),
            Self::Shape(Shape::Map(element)) => Some(Node::Shape(element)),
            Self::Custom(schema, is_object) => match (name, schema.properties.get(name)) {
                ("metadata", _) if is_object || schema.is_embedded => Some(metadata()),
                ("apiVersion" | "kind", None) if is_object || schema.is_embedded => Some(Node::Unknown),
                (_, Some(child)) => Some(Node::Custom(child, false)),
                _ => match &schema.additional {
                    Some(additional) => Some(Node::Custom(additional, false)),
                    None if schema.preserves_unknown || schema.allows_additional => Some(Node::Unknown),
                    None if schema.kind != Some(JsonType::Object) => Some(Node::Unknown),
                    None => None,
                },
            },
            _ => Some(Node::Unknown),
        }
    }

    /// The schema of the items.
    pub(super) fn item(self) -> Self {
        match self {
            Self::Field(field) => field.shape.element().map_or(Node::Unknown, Node::Shape),
            Self::Shape(shape) => shape.element().map_or(Node::Unknown, Node::Shape),
            Self::Custom(schema, _) => {
                schema.items.as_deref().map_or(Node::Unknown, |items| Node::Custom(items, false))
            }
            Self::Struct(_) | Self::Unknown => Node::Unknown,
        }
    }

    /// The JSON type of values here; `None` if there are several, or any.
    pub(super) fn json_type(self) -> Option<JsonType> {
        match self {
            Self::Struct(_) => Some(JsonType::Object),
            Self::Field(field) => Node::Shape(&field.shape).json_type(),
            Self::Shape(shape) => match shape {
                Shape::Struct(_) | Shape::Map(_) => Some(JsonType::Object),
                Shape::List(_) | Shape::Items(_) => Some(JsonType::Array),
                Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Duration => {
                    Some(JsonType::String)
                }
                Shape::Bool => Some(JsonType::Boolean),
                Shape::Int32 | Shape::Int64 | Shape::Uint32 => Some(JsonType::Integer),
                Shape::Double => Some(JsonType::Number),
                _ => None,
            },
            Self::Custom(schema, _) => schema.kind.filter(|_| !schema.is_int_or_string),
            Self::Unknown => None,
        }
    }

    /// What stands for an absent key of an item.
    pub(super) fn default_of(self, key: &str) -> Option<Value> {
        match self.child(key)? {
            // A text that Go always writes is published with this default.
            Node::Field(field) if field.default.is_none() && !field.is_pointer && !field.omits_empty => {
                (field.shape == Shape::String).then(|| Value::String(String::new()))
            }
            Node::Field(field) => field.default.clone(),
            Node::Custom(schema, _) => schema.default.clone(),
            _ => None,
        }
    }

    /// Whether the fields of this place are declared rather than keys of a map.
    pub(super) fn has_declared_fields(self) -> bool {
        match self {
            Self::Custom(schema, is_object) => is_object || !schema.properties.is_empty(),
            Self::Unknown => false,
            other => other.structure().is_some(),
        }
    }

    /// Whether a field is declared by name, rather than an entry of a map.
    pub(super) fn declares(self, name: &str) -> bool {
        match self {
            Self::Custom(schema, is_object) => {
                let is_system = matches!(name, "apiVersion" | "kind" | "metadata");
                schema.properties.contains_key(name) || (is_system && (is_object || schema.is_embedded))
            }
            Self::Unknown => false,
            other => other.structure().is_some_and(|kind| kind.field(name).is_some()),
        }
    }

    /// The zero value of a field that Go always writes.
    pub(super) fn zero_of(self, name: &str) -> Option<Value> {
        let field = self.structure()?.field(name)?;
        if field.is_inline || (field.is_pointer && field.omits_empty) {
            return None;
        }
        match &field.shape {
            _ if field.is_pointer => Some(Value::Null),
            Shape::Struct(_) => Some(Value::Object(serde_json::Map::new())),
            _ if field.omits_empty => None,
            Shape::List(_) | Shape::Map(_) | Shape::Items(_) => Some(Value::Null),
            Shape::String => Some(Value::String(String::new())),
            Shape::Bool => Some(Value::Bool(false)),
            Shape::Int32 | Shape::Int64 => Some(0.into()),
            _ => None,
        }
    }
}

fn metadata() -> Node<'static> {
    crate::types::by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .map_or(Node::Unknown, Node::Struct)
}
