//! Where fields wait that an older version does not know.

use serde_json::{Map, Value};

use super::object::{child, children, text};

/// The annotation that carries them, as a JSON object of path to value.
const ANNOTATION: &str = "api.quintet.dev/newer-fields";

/// Fields on their way through an older version.
#[derive(Default)]
pub(super) struct Stash(Map<String, Value>);

impl Stash {
    /// Whether an object carries one.
    pub(super) fn is_in(object: &Map<String, Value>) -> bool {
        object.get("metadata").is_some_and(|metadata| metadata["annotations"].get(ANNOTATION).is_some())
    }

    /// Takes fields out of an object; `parent` names the object in the stash.
    pub(super) fn take(&mut self, parent: &str, object: Option<&mut Map<String, Value>>, fields: &[&str]) {
        let Some(object) = object else { return };
        for field in fields {
            if let Some(value) = object.remove(*field) {
                self.0.insert(format!("{parent}.{field}"), value);
            }
        }
    }

    /// Takes a field out of each named item of a list, below `inner`.
    pub(super) fn take_each(
        &mut self,
        object: &mut Map<String, Value>,
        list: &str,
        inner: &str,
        field: &str,
    ) {
        for item in children(object, list) {
            let Some(name) = text(item, "name").map(|name| format!("{list}/{name}")) else { continue };
            self.take(&name, child(item, inner), &[field]);
        }
    }

    /// Puts fields back; what the older version's client removed along with their parent stays removed.
    pub(super) fn put_back(
        &mut self,
        parent: &str,
        object: Option<&mut Map<String, Value>>,
        fields: &[&str],
    ) {
        let Some(object) = object else { return };
        for field in fields {
            if let Some(value) = self.0.remove(&format!("{parent}.{field}")) {
                object.insert((*field).into(), value);
            }
        }
    }

    /// Puts a field back into each named item of a list, below `inner`.
    pub(super) fn put_back_each(
        &mut self,
        object: &mut Map<String, Value>,
        list: &str,
        inner: &str,
        field: &str,
    ) {
        for item in children(object, list) {
            let Some(name) = text(item, "name").map(|name| format!("{list}/{name}")) else { continue };
            self.put_back(&name, child(item, inner), &[field]);
        }
    }

    /// Writes the annotation, if there is anything to carry.
    pub(super) fn into_annotation(self, object: &mut Map<String, Value>) {
        if self.0.is_empty() {
            return;
        }
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Some(metadata) = metadata.as_object_mut() else { return };
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(ANNOTATION.into(), Value::Object(self.0).to_string().into());
        }
    }

    /// Removes the annotation. One that cannot be decoded is ignored.
    pub(super) fn from_annotation(object: &mut Map<String, Value>) -> Self {
        let Some(metadata) = child(object, "metadata") else { return Self::default() };
        let Some(annotations) = child(metadata, "annotations") else { return Self::default() };
        let carried = annotations.remove(ANNOTATION);
        if annotations.is_empty() && carried.is_some() {
            metadata.remove("annotations");
        }
        let carried =
            carried.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
        Self(carried.unwrap_or_default())
    }
}
