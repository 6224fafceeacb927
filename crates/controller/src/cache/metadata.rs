use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a metadata-only watch keeps: enough to find owners and to select.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMetadata {
    /// Labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Annotations.
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    /// Who owns the object.
    pub owner_references: Vec<Owner>,
    /// What has to be done before it may go.
    pub finalizers: Vec<Box<str>>,
    /// When it was made.
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was asked for.
    pub deletion_timestamp: Option<Timestamp>,
    /// How often its wish has changed.
    pub generation: i64,
}

/// One owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: Box<str>,
    /// Kind of the owner.
    pub kind: Box<str>,
    /// Name of the owner, in the namespace of the object or in none.
    pub name: Box<str>,
    /// Identity of the owner.
    pub uid: Box<str>,
    /// Whether it is the one owner that manages the object.
    pub controller: bool,
}

impl ObjectMetadata {
    /// The owner that manages the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}
