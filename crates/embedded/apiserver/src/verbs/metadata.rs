//! Object metadata that the server sets and checks for every kind.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::RequestContext;
use crate::{
    json::{self, carry, metadata, text, timestamp},
    status::Failure,
};

/// Longest generated name, without its end.
const BASE_AT_MOST: usize = 58;

/// Checks that the object is for the place the request names, and puts it there.
pub(crate) fn bind_to_url(context: &RequestContext, object: &mut Value) -> Result<(), Failure> {
    let namespace = text(object, "/metadata/namespace").to_owned();
    if context.resource.is_namespaced {
        if !namespace.is_empty() && namespace != context.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata(object).insert("namespace".into(), context.namespace.as_str().into());
    } else {
        metadata(object).remove("namespace");
    }
    let name = text(object, "/metadata/name").to_owned();
    if !context.name.is_empty() {
        if name.is_empty() {
            metadata(object).insert("name".into(), context.name.as_str().into());
        } else if name != context.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                context.name
            )));
        }
    }
    Ok(())
}

/// A whole object has to say its name, even where the URL does.
pub(crate) fn require_name(context: &RequestContext, object: &Value) -> Result<(), Failure> {
    if text(object, "/metadata/name").is_empty() {
        let message = format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            context.name
        );
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// Removes from a new object what only the server may say.
pub(crate) fn clear_server_fields(object: &mut Value) {
    let metadata = metadata(object);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
    ] {
        metadata.remove(key);
    }
}

/// Drops owner references that are there twice.
pub(crate) fn deduplicate_owners(context: &RequestContext, object: &mut Value) {
    let Some(owners) = metadata(object).get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    let mut seen = HashSet::new();
    let before = owners.len();
    let mut twice = Vec::new();
    owners.retain(|owner| {
        let is_new = seen.insert(text(owner, "/uid").to_owned());
        if !is_new {
            twice.push(text(owner, "/uid").to_owned());
        }
        is_new
    });
    if owners.len() < before {
        for uid in twice {
            context.warn(format!(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uid}"));
        }
    }
}

/// Gives a new object its identity.
pub(crate) fn set_identity(context: &RequestContext, object: &mut Value) {
    let metadata = metadata(object);
    metadata.insert("uid".into(), context.api.rng().uuid().into());
    metadata.insert("creationTimestamp".into(), timestamp(context.now).into());
}

/// Generates a name from `generateName`; returns whether it did.
pub(crate) fn generate_name(context: &RequestContext, object: &mut Value) -> bool {
    let metadata = metadata(object);
    let is_named = metadata.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let base = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
    if is_named || base.is_empty() {
        return false;
    }
    let mut end = base.len().min(BASE_AT_MOST);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let name = format!("{}{}", base.get(..end).unwrap_or_default(), context.api.rng().name_suffix());
    metadata.insert("name".into(), name.into());
    true
}

/// Keeps what a client cannot change in an update.
pub(crate) fn keep(old: &Value, new: &mut Value) {
    let nothing = Map::new();
    let before = old.get("metadata").and_then(Value::as_object).unwrap_or(&nothing);
    let metadata = metadata(new);
    for key in ["name", "namespace", "uid", "creationTimestamp", "generation", "generateName", "selfLink"] {
        if key == "generateName" && metadata.contains_key(key) {
            continue;
        }
        carry(before, metadata, key);
    }
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if before.contains_key(key) || key == "deletionGracePeriodSeconds" {
            carry(before, metadata, key);
        }
    }
}

/// Finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    json::texts(object, "/metadata/finalizers").collect()
}

/// Whether an object is being deleted.
pub(crate) fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Whether an object is only waiting for its last finalizer.
pub(crate) fn is_finished(object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    is_terminating(object) && grace == 0 && finalizers(object).is_empty()
}
