//! Strategic merge patch: merge patch that knows which lists have keys.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::PatchError;
use crate::error::quoted;
use crate::types::{Field, Shape, Type};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";
/// Deeper than any object of Kubernetes.
const MAX_DEPTH: usize = 200;

type Fields = Map<String, Value>;

/// Applies a strategic merge patch to an object of a built-in type.
pub fn strategic_merge(target: &mut Value, patch: &Value, kind: &'static Type) -> Result<(), PatchError> {
    let Value::Object(changes) = patch else {
        return Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            crate::schema::type_of(patch)
        )));
    };
    let original = match target {
        Value::Object(fields) => std::mem::take(fields),
        _ => Fields::new(),
    };
    *target = Value::Object(merge_map(original, changes, Some(kind), 0)?);
    Ok(())
}

fn fail(text: impl Into<String>) -> PatchError {
    PatchError::Strategic(text.into())
}

/// The field of a type, or an error as Kubernetes words it. Maps without a type have no fields to know.
fn field_of(kind: Option<&'static Type>, name: &str) -> Result<Option<&'static Field>, PatchError> {
    match kind {
        None => Ok(None),
        Some(kind) => match kind.field(name) {
            Some(field) => Ok(Some(field)),
            None => Err(fail(format!(
                "unable to find api field in struct {} for the json field {}",
                kind.short_name(),
                quoted(name)
            ))),
        },
    }
}

fn merge_map(
    mut original: Fields,
    patch: &Fields,
    kind: Option<&'static Type>,
    depth: usize,
) -> Result<Fields, PatchError> {
    if depth > MAX_DEPTH {
        return Err(fail("patch is nested too deeply"));
    }
    match patch.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None => {}
        Some("replace") => {
            return Ok(patch
                .iter()
                .filter(|(name, _)| *name != DIRECTIVE)
                .map(|(name, value)| (name.clone(), raw(value)))
                .collect());
        }
        Some("delete") => return Ok(Fields::new()),
        Some(other) => {
            return Err(fail(format!(
                "unknown patch type: {other} in map: {}",
                shown(&Value::Object(patch.clone()))
            )));
        }
    }
    if let Some(keys) = patch.get(RETAIN) {
        let Value::Array(keys) = keys else {
            return Err(fail(format!("unable to parse retainKeys list: {}", shown(keys))));
        };
        let is_kept = |name: &String| keys.iter().any(|key| key == name);
        if patch.iter().any(|(name, value)| !name.starts_with('$') && !value.is_null() && !is_kept(name)) {
            return Err(fail("$retainKeys list doesn't match any key in the patch"));
        }
        original.retain(|name, _| is_kept(name));
    }
    for (name, change) in patch {
        if name == DIRECTIVE || name == RETAIN {
            continue;
        }
        if let Some(field) = name.strip_prefix(DELETE_PREFIX) {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (original.get_mut(field), change) {
                let gone: HashSet<&Value> = gone.iter().collect();
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if let Some(field) = name.strip_prefix(ORDER_PREFIX) {
            // Together with the list itself, if the patch has one.
            if !patch.contains_key(field) {
                set_order(&mut original, field, change, kind, depth)?;
            }
            continue;
        }
        let order = patch.get(&format!("{ORDER_PREFIX}{name}"));
        match (original.remove(name), change) {
            (_, Value::Null) => {}
            (Some(Value::Object(old)), Value::Object(changes)) => {
                let field = field_of(kind, name)?;
                let merged = if field.is_some_and(|field| field.is_replaced) {
                    fields_without_nulls(changes)
                } else {
                    let inner = field.and_then(|field| field.shape.as_struct());
                    // A map of structs merges value by value.
                    match field.map(|field| &field.shape) {
                        Some(Shape::Map(element)) => merge_values(old, changes, element, depth + 1)?,
                        _ => merge_map(old, changes, inner, depth + 1)?,
                    }
                };
                original.insert(name.clone(), Value::Object(merged));
            }
            (Some(Value::Array(old)), Value::Array(changes)) => {
                let field = field_of(kind, name)?;
                let merged = merge_list(&old, changes, order, field, depth + 1)?;
                original.insert(name.clone(), Value::Array(merged));
            }
            (None, Value::Array(changes)) if order.is_some() => {
                let field = field_of(kind, name)?;
                let merged = merge_list(&[], changes, order, field, depth + 1)?;
                original.insert(name.clone(), Value::Array(merged));
            }
            (_, change) => {
                if let Some(value) = taken(change) {
                    original.insert(name.clone(), value);
                }
            }
        }
    }
    Ok(original)
}

fn merge_values(
    mut original: Fields,
    patch: &Fields,
    element: &Shape,
    depth: usize,
) -> Result<Fields, PatchError> {
    let Some(kind) = element.as_struct() else { return merge_map(original, patch, None, depth) };
    for (name, change) in patch {
        match (original.remove(name), change) {
            (_, Value::Null) => {}
            (Some(Value::Object(old)), Value::Object(changes)) => {
                original.insert(name.clone(), Value::Object(merge_map(old, changes, Some(kind), depth + 1)?));
            }
            (_, change) => {
                if let Some(value) = taken(change) {
                    original.insert(name.clone(), value);
                }
            }
        }
    }
    Ok(original)
}

fn set_order(
    original: &mut Fields,
    name: &str,
    order: &Value,
    kind: Option<&'static Type>,
    depth: usize,
) -> Result<(), PatchError> {
    if let Some(Value::Array(items)) = original.get(name) {
        let field = field_of(kind, name)?;
        let merged = merge_list(items, &[], Some(order), field, depth)?;
        original.insert(name.into(), Value::Array(merged));
    }
    Ok(())
}

fn merge_list(
    old: &[Value],
    patch: &[Value],
    order: Option<&Value>,
    field: Option<&'static Field>,
    depth: usize,
) -> Result<Vec<Value>, PatchError> {
    let Some(field) = field.filter(|field| field.is_merged) else {
        return Ok(patch.iter().map(raw).collect());
    };
    let kind = field.shape.element().and_then(Shape::as_struct);
    let Some(key) = field.merge_key.filter(|_| kind.is_some()) else {
        let mut merged = old.to_vec();
        let mut known: HashSet<&Value> = old.iter().collect();
        merged.extend(patch.iter().filter(|item| known.insert(item)).cloned());
        return ordered(merged, old, patch, order, None);
    };
    let mut deleted: HashSet<&Value> = HashSet::new();
    let mut changes = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(fail(format!("unable to merge a list of maps with {}", shown(item))));
        };
        match fields.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
            Some("replace") => replaces = true,
            Some("delete") => match fields.get(key) {
                Some(value) => drop(deleted.insert(value)),
                None => {
                    return Err(fail(format!(
                        "delete patch type with no merge key defined: {}",
                        shown(item)
                    )));
                }
            },
            None => changes.push(item),
            Some("merge") => return Err(fail("merging lists cannot yet be specified in the patch")),
            Some(other) => return Err(fail(format!("unknown patch type: {other} in map: {}", shown(item)))),
        }
    }
    if replaces {
        return Ok(changes.into_iter().map(raw).collect());
    }
    let is_kept = |item: &&Value| item.get(key).is_none_or(|value| !deleted.contains(value));
    let server: Vec<Value> = old.iter().filter(is_kept).cloned().collect();
    let mut merged = server.clone();
    let mut places: HashMap<Value, usize> = HashMap::new();
    for (place, item) in merged.iter().enumerate() {
        if let Some(value) = item.get(key) {
            places.entry(value.clone()).or_insert(place);
        }
    }
    for item in &changes {
        let Value::Object(fields) = item else { continue };
        let Some(value) = fields.get(key) else {
            return Err(fail(format!("map: {} does not contain declared merge key: {key}", shown(item))));
        };
        if let Some(Value::Object(known)) = places.get(value).and_then(|place| merged.get_mut(*place)) {
            *known = merge_map(std::mem::take(known), fields, kind, depth + 1)?;
        } else {
            places.insert(value.clone(), merged.len());
            merged.push(raw(item));
        }
    }
    let changes: Vec<Value> = changes.into_iter().cloned().collect();
    ordered(merged, &server, &changes, order, Some(key))
}

/// Puts items in the order that was asked for, or that patch and server together suggest.
fn ordered(
    merged: Vec<Value>,
    server: &[Value],
    patch: &[Value],
    order: Option<&Value>,
    key: Option<&'static str>,
) -> Result<Vec<Value>, PatchError> {
    fn identity<'v>(item: &'v Value, key: Option<&str>) -> &'v Value {
        key.and_then(|key| item.get(key)).unwrap_or(item)
    }
    let wanted: Vec<&Value> = match order {
        Some(Value::Array(order)) => {
            let wanted: Vec<&Value> = order.iter().map(|item| identity(item, key)).collect();
            let mut rest = wanted.iter();
            let is_in_order = patch.iter().all(|item| rest.any(|wanted| *wanted == identity(item, key)));
            if !is_in_order {
                return Err(fail(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    shown(&Value::Array(patch.to_vec())),
                    shown(&Value::Array(order.clone()))
                )));
            }
            wanted
        }
        Some(other) => return Err(fail(format!("unable to parse setElementOrder list: {}", shown(other)))),
        None => patch.iter().map(|item| identity(item, key)).collect(),
    };
    // Of equal ones, the first counts.
    let wanted: HashMap<&Value, usize> =
        wanted.into_iter().enumerate().rev().map(|(place, item)| (item, place)).collect();
    let on_server: HashMap<&Value, usize> =
        server.iter().enumerate().rev().map(|(place, item)| (identity(item, key), place)).collect();
    let place = |item: &Value| wanted.get(identity(item, key)).copied();
    let server_place = |item: &Value| on_server.get(identity(item, key)).copied();
    let (mut listed, server_only): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(item).is_some());
    listed.sort_by_key(&place);
    let mut out = Vec::with_capacity(listed.len() + server_only.len());
    let mut server_only = server_only.into_iter().peekable();
    for item in listed {
        let limit = server_place(&item);
        while let Some(next) = server_only
            .next_if(|next| matches!((server_place(next), limit), (Some(next), Some(limit)) if next < limit))
        {
            out.push(next);
        }
        out.push(item);
    }
    out.extend(server_only);
    Ok(out)
}

/// A value as it is stored where nothing is merged: directives have no meaning there.
fn raw(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, value)| !value.is_null() && *name != DIRECTIVE)
            .map(|(name, value)| (name.clone(), raw(value)))
            .collect(),
        Value::Array(items) => items.iter().map(raw).collect(),
        other => other.clone(),
    }
}

/// A value as it is stored when there was nothing to merge it with: without nulls, and without objects that are
/// directives.
fn taken(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        other => Some(without_nulls(other)),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields_without_nulls(fields)),
        Value::Array(items) => Value::Array(items.iter().filter_map(taken).collect()),
        other => other.clone(),
    }
}

fn fields_without_nulls(fields: &Fields) -> Fields {
    fields
        .iter()
        .filter(|(name, value)| {
            !value.is_null()
                && *name != DIRECTIVE
                && *name != RETAIN
                && !name.starts_with(ORDER_PREFIX)
                && !name.starts_with(DELETE_PREFIX)
        })
        .filter_map(|(name, value)| Some((name.clone(), taken(value)?)))
        .collect()
}

/// A value as Go's `%v` prints it.
pub(crate) fn shown(value: &Value) -> String {
    let mut out = String::new();
    show(value, &mut out, 0);
    out
}

fn show(value: &Value, out: &mut String, depth: usize) {
    if depth > 32 {
        return;
    }
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                show(item, out, depth + 1);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                show(value, out, depth + 1);
            }
            out.push(']');
        }
        other => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{other}");
        }
    }
}
