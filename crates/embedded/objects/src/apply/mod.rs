//! Field ownership: managed fields on every kind of write, and server-side apply.
//!
//! ```text
//! apply:  config ──set──► own entry          live + config ──merge──► prune what was given up ──► new object
//! update: live ──compare──► new object: what changed becomes the writer's, silently
//! ```

mod check;
mod compare;
mod conflict;
mod fields;
mod managers;
mod merge;
mod node;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub use compare::{Difference, compare};
pub use conflict::{Conflict, Conflicts};
pub use fields::FieldSet;
pub use managers::{Entry, Managers, Operation};
pub use node::Node;

/// The manager of fields that were set before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The annotation of client-side apply.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The writer of a request.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The group and version of the request.
    pub api_version: &'a str,
    /// The subresource that is written, or nothing.
    pub subresource: &'a str,
    /// The time of the request, such as `2026-01-02T03:04:05Z`.
    pub now: &'a str,
    /// Top-level fields this write cannot change, such as `status` on the main resource.
    pub ignored: &'a [&'a str],
}

/// Why an object cannot be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields of the configuration: 409.
    #[error("{0}")]
    Conflict(Conflicts),
    /// The configuration does not fit the schema: 500, without a reason.
    #[error("{0}")]
    Schema(String),
    /// The request is invalid: 400.
    #[error("{0}")]
    BadRequest(String),
}

/// Sets `metadata.managedFields` of `new` after a create, update or patch. `live` is the object as it was; absent on
/// create. `new` is defaulted and pruned, and has the managed fields the client sent, if any.
pub fn update(live: Option<&Value>, new: &mut Value, schema: Node<'_>, writer: &Writer<'_>) {
    let sent = new.pointer("/metadata/managedFields").and_then(Value::as_array).cloned();
    let is_reset = sent.as_ref().is_some_and(|sent| {
        sent.is_empty() || sent.iter().all(|entry| entry.as_object().is_some_and(Map::is_empty))
    });
    if is_reset && live.is_some() {
        set_managed(new, Vec::new());
        return;
    }
    let kept =
        live.and_then(|live| live.pointer("/metadata/managedFields")).and_then(Value::as_array).cloned();
    let before = match (live.is_some(), sent.filter(|sent| !sent.is_empty()), kept) {
        (true, Some(sent), _) => sent,
        (true, None, Some(kept)) => kept,
        // An object whose managed fields were reset is not tracked until the first apply.
        (true, None, None) => {
            set_managed(new, Vec::new());
            return;
        }
        (false, _, _) => Vec::new(),
    };
    let mut managers = Managers::parse(&before);
    let nothing = json!({});
    let mut difference = compare(live.unwrap_or(&nothing), new, schema);
    difference.ignore(writer.ignored);
    let is_same = difference.is_empty() && live.is_some();
    if !is_same {
        managers.update(&difference, writer);
    }
    set_managed(new, managers.print());
}

/// Merges `config` into `object` as apply does, without field owners: a change that the server itself makes. Values
/// that are owned as a whole cannot be part of it, because the owner of the result would be unknown.
pub fn merge(object: &Value, config: &Value, schema: Node<'_>) -> Result<Value, String> {
    check::check(config, schema)?;
    let mut atomic = Vec::new();
    find_atomic(config, schema, "", &mut atomic);
    if !atomic.is_empty() {
        let paths = atomic.join(", ");
        return Err(format!("may not mutate atomic arrays, maps or structs: {paths}"));
    }
    Ok(merge::merge(object, config, schema))
}

fn find_atomic(config: &Value, schema: Node<'_>, path: &str, found: &mut Vec<String>) {
    match (config, schema.form(config)) {
        (Value::Object(_) | Value::Array(_), node::Form::Leaf) => found.push(path.to_owned()),
        (Value::Object(fields), _) => {
            for (name, value) in fields {
                let child = schema.child(name).unwrap_or(Node::Unknown);
                find_atomic(value, child, &format!("{path}.{name}"), found);
            }
        }
        (Value::Array(items), _) => {
            for item in items {
                find_atomic(item, schema.item(), path, found);
            }
        }
        _ => {}
    }
}

/// Applies `config` to `live`. The result still wants defaulting, pruning and validation; its managed fields are set.
/// An object equal to `live` means that nothing is to be written.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    schema: Node<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    if config.pointer("/metadata/managedFields").is_some_and(|sent| !sent.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    }
    check::check(config, schema).map_err(|error| ApplyError::Schema(named(config, &error)))?;
    let nothing = json!({});
    let base = live.unwrap_or(&nothing);
    let before =
        base.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut managers = Managers::parse(&before);
    if live.is_some() && managers.is_empty() {
        let mut all = compare(&nothing, base, schema);
        all.ignore(writer.ignored);
        let earlier = Writer { manager: BEFORE_FIRST_APPLY, subresource: "", ..*writer };
        managers.update(&all, &earlier);
    }

    let mut set = FieldSet::of(config, schema);
    let configured = set.clone();
    set.remove_never_owned(writer.ignored);
    let last = managers.replace_applied(writer, set);

    let mut object = merge::merge(base, config, schema);
    if let Some(last) = &last {
        // What is configured stays, also where no manager owns it: names, for example.
        let mut owned = managers.union();
        owned.unite(&configured);
        merge::prune(&mut object, schema, last, &owned);
    }
    keep_ignored(base, &mut object, writer.ignored);
    keep_system_fields(base, &mut object);
    let mut difference = compare(base, &object, schema);
    difference.ignore(writer.ignored);
    let conflicts = managers.conflicts(&difference, writer);
    if !conflicts.is_empty() && !force && !is_migrating(writer, base, &conflicts, schema) {
        return Err(ApplyError::Conflict(conflicts));
    }
    managers.yield_to(&difference, writer);
    let is_changed = !difference.is_empty();
    managers.stamp_applied(writer, is_changed, last.is_none());
    refresh_last_applied(writer, base, config, &mut object);
    set_managed(&mut object, managers.print());
    Ok(object)
}

fn named(config: &Value, error: &str) -> String {
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {error}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/apiVersion"),
        text("/kind")
    )
}

fn set_managed(object: &mut Value, entries: Vec<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), Value::Array(entries));
    }
}

/// What this write cannot change stays as it was.
fn keep_ignored(live: &Value, object: &mut Value, ignored: &[&str]) {
    let Value::Object(fields) = object else { return };
    for name in ignored.iter().filter(|name| **name != "metadata") {
        match live.get(*name) {
            Some(value) => {
                fields.insert((*name).into(), value.clone());
            }
            None => {
                fields.remove(*name);
            }
        }
    }
}

/// What the server sets is not the client's to apply.
fn keep_system_fields(live: &Value, object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for name in ["uid", "creationTimestamp", "generation", "selfLink", "managedFields"] {
        match live.pointer(&format!("/metadata/{name}")) {
            Some(value) => {
                metadata.insert(name.into(), value.clone());
            }
            None => {
                metadata.remove(name);
            }
        }
    }
}

/// kubectl moving from client-side to server-side apply takes over what it applied before.
fn is_migrating(writer: &Writer<'_>, live: &Value, conflicts: &Conflicts, schema: Node<'_>) -> bool {
    if writer.manager != "kubectl" {
        return false;
    }
    let annotation = live.pointer("/metadata/annotations").and_then(|all| all.get(LAST_APPLIED));
    // An annotation that is not JSON proves nothing: the conflict stands, as with Kubernetes.
    let applied: Option<Value> =
        annotation.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    applied.is_some_and(|applied| {
        let set = FieldSet::of(&applied, schema);
        conflicts.iter().all(|conflict| set.contains(&conflict.elements))
    })
}

fn refresh_last_applied(writer: &Writer<'_>, live: &Value, config: &Value, object: &mut Value) {
    let has_annotation = live
        .pointer("/metadata/annotations")
        .is_some_and(|annotations| annotations.get(LAST_APPLIED).is_some());
    if writer.manager != "kubectl" || !has_annotation {
        return;
    }
    let mut applied = config.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(LAST_APPLIED.into(), Value::String(format!("{applied}\n")));
    }
}
