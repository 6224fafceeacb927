//! The built-in types of Kubernetes: fields, wire numbers and how lists and maps merge.
//!
//! One generated table (see `generate/`) serves protobuf, strategic merge patch, apply, unknown-field detection and
//! OpenAPI, so that they cannot disagree. It is read once, in about a millisecond, and lives as long as the process.

mod decode;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use quintet_cel::schema::ListType;
use serde_json::Value;

pub use decode::{DecodeError, Decoded, decode};

/// A struct of the built-in API.
#[derive(Debug)]
pub struct Type {
    /// Its name in OpenAPI documents, such as `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// Its fields as in protobuf: embedded structs are single fields with [`Field::is_inline`].
    pub fields: Vec<Field>,
    /// Whether one writer owns it as a whole.
    pub is_atomic: bool,
    /// Where a JSON field is: the type that declares it, and its position there.
    json: HashMap<&'static str, (TypeId, usize)>,
}

/// A field of a [`Type`].
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent marker of the field")]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its number in protobuf; 0 where protobuf does not have it.
    pub number: u32,
    /// What it holds.
    pub shape: Shape,
    /// Whether absence differs from zero.
    pub is_pointer: bool,
    /// Whether zero values are left out of JSON.
    pub omits_empty: bool,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether its fields are those of the struct around it, in JSON.
    pub is_inline: bool,
    /// How a list merges under apply.
    pub list: ListType,
    /// Whether one writer owns the map or struct as a whole.
    pub is_atomic: bool,
    /// The key by which a strategic merge patch finds items.
    pub merge_key: Option<&'static str>,
    /// Whether a strategic merge patch merges the list.
    pub is_merged: bool,
    /// Whether a strategic merge patch may name the keys to keep.
    pub retains_keys: bool,
    /// Whether a strategic merge patch replaces the value.
    pub is_replaced: bool,
    /// The value that stands for an absent key of a list map.
    pub default: Option<Value>,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Text.
    String,
    /// True or false.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// An unsigned 32-bit integer.
    Uint32,
    /// A floating point number.
    Double,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A time to the second.
    Time,
    /// A time to the microsecond.
    MicroTime,
    /// A duration, as Go writes them.
    Duration,
    /// A resource quantity.
    Quantity,
    /// An integer or a text.
    IntOrString,
    /// Any object.
    Raw,
    /// Any JSON value.
    Json,
    /// A set of fields.
    Fields,
    /// A JSON schema or several.
    SchemaOrArray,
    /// A JSON schema or a boolean.
    SchemaOrBool,
    /// A JSON schema or a list of names.
    SchemaOrStrings,
    /// A struct.
    Struct(TypeId),
    /// A list.
    List(Box<Self>),
    /// A list that is a message of its own in protobuf.
    Items(Box<Self>),
    /// A map with text keys.
    Map(Box<Self>),
}

/// A reference to a [`Type`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(u16);

impl TypeId {
    /// The type itself.
    pub fn get(self) -> &'static Type {
        static NOTHING: LazyLock<Type> =
            LazyLock::new(|| Type { name: "", fields: Vec::new(), is_atomic: false, json: HashMap::new() });
        TABLE.types.get(usize::from(self.0)).unwrap_or(&NOTHING)
    }
}

impl Type {
    /// A field by its name in JSON, also through embedded structs.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let (owner, position) = self.json.get(name)?;
        owner.get().fields.get(*position)
    }

    /// All fields as JSON has them, sorted by name.
    pub fn json_fields(&self) -> Vec<&'static Field> {
        let mut fields: Vec<&'static Field> =
            self.json.values().filter_map(|(owner, position)| owner.get().fields.get(*position)).collect();
        fields.sort_by_key(|field| field.name);
        fields
    }

    /// Fields that hold structs and can be empty but never absent.
    pub fn always_present(&self) -> impl Iterator<Item = &'static str> + '_ {
        let fields = self.fields.iter().filter(|field| !field.is_inline && !field.is_pointer);
        fields.filter(|field| matches!(field.shape, Shape::Struct(_))).map(|field| field.name)
    }

    /// The name without group and version: `Pod`.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

impl Shape {
    /// The struct this is, if it is one.
    pub fn as_struct(&self) -> Option<&'static Type> {
        match self {
            Self::Struct(id) => Some(id.get()),
            _ => None,
        }
    }

    /// What a list or map holds.
    pub fn element(&self) -> Option<&Self> {
        match self {
            Self::List(element) | Self::Items(element) | Self::Map(element) => Some(element),
            _ => None,
        }
    }
}

/// The type of a kind, if it is built in.
pub fn kind(api_version: &str, kind: &str) -> Option<&'static Type> {
    TABLE.kinds.get(api_version)?.get(kind).map(|id| id.get())
}

/// A type by its name in OpenAPI documents.
pub fn by_name(name: &str) -> Option<&'static Type> {
    TABLE.names.get(name).map(|id| id.get())
}

/// All types, sorted by name.
pub fn all() -> &'static [Type] {
    &TABLE.types
}

struct Table {
    types: Vec<Type>,
    names: HashMap<&'static str, TypeId>,
    kinds: HashMap<&'static str, HashMap<&'static str, TypeId>>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| parse::table(include_str!("generated/types.txt")));
