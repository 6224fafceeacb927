//! Built-in kinds: discovery, defaults, validation, conversion.

mod convert;
mod defaults;
mod fields;
mod prepare;
mod registry;
#[cfg(test)]
mod tests;
mod validation;
mod value;

use serde_json::Value;

use crate::error::FieldError;

pub use convert::convert;
pub use fields::value_of as field_value;
pub use registry::all;

/// The verbs of an ordinary kind.
pub const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A built-in kind in one version.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent trait of the kind")]
pub struct Kind {
    /// Its API group; empty for the core group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its name, such as `Pod`.
    pub kind: &'static str,
    /// Its name in paths, such as `pods`.
    pub plural: &'static str,
    /// Its name for one object, such as `pod`.
    pub singular: &'static str,
    /// Abbreviations, such as `po`.
    pub short_names: &'static [&'static str],
    /// Groups of kinds it belongs to, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub is_namespaced: bool,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
    /// What can be found below an object.
    pub subresources: Vec<Subresource>,
    /// The group and version objects are stored in; differs only where versions share objects.
    pub storage: (&'static str, &'static str),
    /// Whether `metadata.generation` counts changes of the spec.
    pub has_generation: bool,
    /// Whether an update must name the version it is based on.
    pub needs_resource_version: bool,
    /// Whether PUT creates what is not there.
    pub creates_on_update: bool,
    /// Whether DELETE returns the object rather than a Status.
    pub returns_deleted: bool,
    /// Whether dependents are orphaned unless the client says otherwise.
    pub orphans_by_default: bool,
}

/// Something below an object: `pods/log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Its name, such as `scale`.
    pub name: &'static str,
    /// The group of its kind.
    pub group: &'static str,
    /// The version of its kind.
    pub version: &'static str,
    /// Its kind, such as `Scale`.
    pub kind: &'static str,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
}

/// Finds a kind by its name in paths.
pub fn resource(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    all().iter().find(|one| one.plural == plural && one.version == version && one.group == group)
}

/// Finds a kind by group, version and kind.
pub fn kind(group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
    all().iter().find(|one| one.kind == kind && one.version == version && one.group == group)
}

impl Kind {
    /// Group and version as objects write them: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.into() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The type of its objects.
    pub fn schema(&self) -> Option<&'static crate::types::Type> {
        crate::types::kind(&self.api_version(), self.kind)
    }

    /// Whether it has a status of its own.
    pub fn has_status(&self) -> bool {
        self.subresources.iter().any(|one| one.name == "status")
    }

    /// Fills in what a client may leave out.
    pub fn apply_defaults(&self, object: &mut Value) {
        defaults::apply(self, object);
    }

    /// Everything wrong with a new object, or with the change from `old`. Metadata is included.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        validation::validate(self, new, old)
    }

    /// What names of this kind must look like.
    pub fn name_rule(&self) -> crate::meta::NameRule {
        validation::name_rule(self)
    }

    /// Makes a decoded and defaulted object ready to be created: status and generation. Jobs need their uid by then.
    pub fn prepare_create(&self, object: &mut Value) {
        prepare::create(self, object);
    }

    /// Makes an update ready: what the main resource cannot change stays, the generation counts.
    pub fn prepare_update(&self, new: &mut Value, old: &Value) {
        prepare::update(self, new, old);
    }

    /// Makes an update of the status ready: everything else stays.
    pub fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        prepare::update_status(self, new, old);
    }

    /// The fields objects can be selected by, besides name and namespace.
    pub fn selectable_fields(&self) -> &'static [&'static str] {
        fields::names(self)
    }

    /// Whether a change from `old` to `new` counts as a new generation.
    pub fn is_new_generation(&self, old: &Value, new: &Value) -> bool {
        if !self.has_generation {
            return false;
        }
        let differs =
            |key: &str| old.get(key).unwrap_or(&Value::Null) != new.get(key).unwrap_or(&Value::Null);
        match (self.group, self.kind) {
            // The deployment controller copies annotations to ReplicaSets, so they count.
            ("apps", "Deployment") => {
                differs("spec")
                    || old.pointer("/metadata/annotations") != new.pointer("/metadata/annotations")
            }
            ("discovery.k8s.io", _) => ["addressType", "endpoints", "ports"].into_iter().any(differs),
            // Its strategy does not count changes.
            ("scheduling.k8s.io", "PriorityClass") => false,
            ("admissionregistration.k8s.io", _) if self.kind.ends_with("WebhookConfiguration") => {
                differs("webhooks")
            }
            _ => differs("spec"),
        }
    }
}
