//! What expressions need to know of the schema of a value.

use std::fmt;

/// The JSON types a schema can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// An object or map.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// One writer owns the list as a whole.
    #[default]
    Atomic,
    /// Items are scalars, each there once, each with owners of its own.
    Set,
    /// Items are objects, found by these keys.
    Map(Vec<String>),
}

/// A node of a schema.
pub trait Schema: fmt::Debug {
    /// The JSON type; `None` where any (or int-or-string) is allowed.
    fn kind(&self) -> Option<JsonType>;

    /// The format of texts.
    fn format(&self) -> Option<&str>;

    /// A declared field of an object.
    fn property(&self, name: &str) -> Option<&dyn Schema>;

    /// Values of an object used as a map.
    fn additional(&self) -> Option<&dyn Schema>;

    /// Items of a list.
    fn items(&self) -> Option<&dyn Schema>;

    /// How the items of a list are told apart.
    fn list_type(&self) -> &ListType;

    /// Whether integers and texts are both allowed.
    fn is_int_or_string(&self) -> bool;

    /// Whether the value is a Kubernetes object of its own.
    fn is_embedded(&self) -> bool;

    /// Whether an object has no fields that are known.
    fn is_open(&self) -> bool;

    /// The schema of a field or map value, if it has one.
    fn child(&self, key: &str) -> Option<&dyn Schema> {
        self.property(key).or_else(|| self.additional())
    }
}
