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
    /// Owners of the object.
    pub owner_references: Vec<Owner>,
    /// Finalizers.
    pub finalizers: Vec<Box<str>>,
    /// When it was created.
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was requested.
    pub deletion_timestamp: Option<Timestamp>,
    /// Generation of its spec.
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
    /// Uid of the owner.
    pub uid: Box<str>,
    /// Whether it is the managing controller.
    pub controller: bool,
}

impl ObjectMetadata {
    /// The managing controller.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}
