//! JSON as the registry's clients know it: decoding with the leniency and the error texts of Go's
//! `encoding/json`, and encoding with its spelling of numbers.
//!
//! Clients match on these texts (the Python client's own tests compare the body for an unknown
//! field), so a general-purpose decoder does not fit.

mod scan;
mod strict;
mod write;

pub(crate) use scan::{parse, parse_whole};
pub(crate) use strict::check as check_strict;
pub(crate) use write::{Json, object};

/// A decoded JSON value. Objects keep their members in order, repeated names included.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it was written.
    Number(String),
    /// A string; invalid UTF-8 and lone surrogates are replaced.
    String(String),
    /// An array.
    Array(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
    /// A container nested deeper than anything the API reads.
    TooDeep,
}

impl Value {
    /// The word Go's decoder uses for this kind of value.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) | Self::TooDeep => "object",
        }
    }

    /// The member `name`, the last one if it is repeated.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

impl Value {
    /// The last member whose name is `name` but for case.
    pub(crate) fn folded_member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                let found = members.iter().rev().find(|(key, _)| crate::text::is_same_name(key, name));
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
