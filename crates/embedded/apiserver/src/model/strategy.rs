//! The strategy of a kind: what the server sets, keeps and counts when an object is created, changed or deleted.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::json;
use crate::json::carry;
use crate::resources::Model;
use crate::resources::Resource;

/// Fills in what the client left out.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match &resource.model {
        Model::BuiltIn(kind) => kind.apply_defaults(object),
        Model::Custom(custom) => custom.default(object),
    }
}

/// What a new object starts with, before admission.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    // Nodes register with their status.
    if resource.has_status() && !resource.is("", "nodes") {
        json::as_map(object).remove("status");
    }
    if resource.is("", "namespaces") {
        let name = json::text(object, "/metadata/name").to_owned();
        let labels = json::child(json::metadata(object), "labels");
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

/// What a new object gets once it has its identity.
pub(crate) fn finish_create(resource: &Resource, object: &mut Value) {
    match &resource.model {
        Model::BuiltIn(kind) => {
            kind.prepare_create(object);
            if is_definition(resource) {
                crate::crd::prepare_create(object);
            }
        }
        Model::Custom(custom) => {
            json::metadata(object).insert("generation".into(), 1.into());
            if custom.has_status {
                json::as_map(object).remove("status");
            }
        }
    }
}

/// Keeps what this request cannot change.
pub(crate) fn prepare_update(resource: &Resource, subresource: &str, new: &mut Value, old: &Value) {
    let nothing = Map::new();
    let before = old.as_object().unwrap_or(&nothing);
    match (&resource.model, subresource) {
        (Model::BuiltIn(kind), "status") => kind.prepare_status_update(new, old),
        (Model::BuiltIn(_), "binding") => {}
        (Model::BuiltIn(_), "ephemeralcontainers") => {
            let wanted = new.pointer("/spec/ephemeralContainers").cloned();
            keep_all_but(new, old, |spec| match wanted {
                Some(wanted) => drop(spec.insert("ephemeralContainers".into(), wanted)),
                None => drop(spec.remove("ephemeralContainers")),
            });
            count_spec(resource, new, old);
        }
        (Model::BuiltIn(_), "resize") => {
            let wanted = json::items(new, "/spec/containers").to_vec();
            keep_all_but(new, old, |spec| {
                let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
                for container in containers.into_iter().flatten() {
                    let is_same = |one: &&Value| json::text(one, "/name") == json::text(container, "/name");
                    if let Some(found) = wanted.iter().find(is_same).and_then(Value::as_object) {
                        carry(found, json::as_map(container), "resources");
                        carry(found, json::as_map(container), "resizePolicy");
                    }
                }
            });
            count_spec(resource, new, old);
        }
        (Model::BuiltIn(_), "approval") => carry(before, json::as_map(new), "spec"),
        (Model::BuiltIn(_), "finalize") => carry(before, json::as_map(new), "status"),
        (Model::BuiltIn(kind), _) => {
            kind.prepare_update(new, old);
            if resource.is("", "namespaces") {
                let name = json::text(old, "/metadata/name").to_owned();
                let labels = json::child(json::metadata(new), "labels");
                labels.insert("kubernetes.io/metadata.name".into(), name.into());
            }
        }
        (Model::Custom(_), "status") => {
            let status = new.get("status").cloned();
            let fields = new.pointer("/metadata/managedFields").cloned();
            let version = new.pointer("/metadata/resourceVersion").cloned();
            *new = old.clone();
            for (key, value) in [("managedFields", fields), ("resourceVersion", version)] {
                match value {
                    Some(value) => json::metadata(new).insert(key.into(), value),
                    None => json::metadata(new).remove(key),
                };
            }
            match status {
                Some(status) => json::as_map(new).insert("status".into(), status),
                None => json::as_map(new).remove("status"),
            };
        }
        (Model::Custom(custom), _) => {
            if custom.has_status {
                carry(before, json::as_map(new), "status");
            }
        }
    }
}

/// Puts the old object in the place of the new one, with a change to its spec. Who owns which fields, and which version
/// is replaced, is what the request says.
fn keep_all_but(new: &mut Value, old: &Value, change: impl FnOnce(&mut Map<String, Value>)) {
    let said = ["managedFields", "resourceVersion"].map(|key| new["metadata"].get(key).cloned());
    *new = old.clone();
    for (key, value) in ["managedFields", "resourceVersion"].into_iter().zip(said) {
        match value {
            Some(value) => json::metadata(new).insert(key.into(), value),
            None => json::metadata(new).remove(key),
        };
    }
    change(json::child(json::as_map(new), "spec"));
}

fn has_generation(resource: &Resource) -> bool {
    resource.as_built_in().is_none_or(|kind| kind.has_generation)
}

/// Counts a change that controllers have to act on.
pub(crate) fn count_generation(resource: &Resource, new: &mut Value, old: &Value) {
    let is_new = match &resource.model {
        // Counted when the update was prepared.
        Model::BuiltIn(_) => false,
        Model::Custom(custom) => {
            let significant = |object: &Value| -> Map<String, Value> {
                let members = object.as_object().into_iter().flatten();
                members
                    .filter(|(key, _)| {
                        *key != "metadata"
                            && *key != "apiVersion"
                            && *key != "kind"
                            && !(custom.has_status && *key == "status")
                    })
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            };
            significant(new) != significant(old)
        }
    };
    if is_new {
        bump_generation(resource, new);
    }
}

/// Counts a change of the spec that a subresource made to the old object.
fn count_spec(resource: &Resource, new: &mut Value, old: &Value) {
    if new.get("spec") != old.get("spec") {
        bump_generation(resource, new);
    }
}

/// Counts one more generation, if the kind counts them.
pub(crate) fn bump_generation(resource: &Resource, object: &mut Value) {
    if has_generation(resource) {
        let metadata = json::metadata(object);
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// Adds what the server itself wants to do before an object goes.
pub(crate) fn hold_back(resource: &Resource, object: &mut Value) {
    if is_definition(resource)
        && !json::texts(object, "/metadata/finalizers").any(|one| one == crate::crd::CLEANUP)
    {
        let finalizers = json::metadata(object).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut() {
            finalizers.push(crate::crd::CLEANUP.into());
        }
    }
}

/// What besides metadata tells that an object is being deleted.
pub(crate) fn mark_terminating(resource: &Resource, object: &mut Value) {
    if resource.is("", "namespaces") {
        json::child(json::as_map(object), "status").insert("phase".into(), "Terminating".into());
    }
}

/// Whether something other than finalizers keeps an object from going.
pub(crate) fn holds_back(resource: &Resource, object: &Value) -> bool {
    resource.is("", "namespaces") && !json::items(object, "/spec/finalizers").is_empty()
}

/// Whether a PUT must say which version it replaces.
pub(crate) fn needs_resource_version(resource: &Resource) -> bool {
    resource.as_built_in().is_none_or(|kind| kind.needs_resource_version)
}

pub(super) fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Whether an update changes nothing but the resource version.
pub(crate) fn is_same(new: &Value, old: &Value) -> bool {
    fn all_but<'a>(value: Option<&'a Value>, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        value.and_then(Value::as_object).into_iter().flatten().filter(move |(name, _)| *name != key)
    }
    all_but(Some(new), "metadata").eq(all_but(Some(old), "metadata"))
        && all_but(new.get("metadata"), "resourceVersion").eq(all_but(old.get("metadata"), "resourceVersion"))
}
