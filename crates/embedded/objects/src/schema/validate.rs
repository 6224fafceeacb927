//! Checking values against a schema.

use quintet_cel::format;
use serde_json::{Value, json};

use super::{JsonType, ListType, NO_PATH, Structural, type_of};
use crate::error::{ErrorKind, FieldError};
use crate::path::Path;

/// The most errors reported; keeps responses to huge invalid objects small.
const MAX_ERRORS: usize = 100;

pub(super) fn validate(schema: &Structural, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    node(schema, new, old, &Path::ROOT, errors);
    embedded(schema, new, &Path::ROOT, errors);
    lists(schema, new, old, &Path::ROOT, errors);
}

fn node(
    schema: &Structural,
    new: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    // What has not changed is as valid as it was.
    if errors.len() >= MAX_ERRORS || old.is_some_and(|old| old == new) {
        return;
    }
    if new.is_null() && schema.is_nullable {
        return;
    }
    if !has_type(schema, new) {
        let wanted = wanted(schema);
        let found = type_of(new);
        errors.push(FieldError::new(
            ErrorKind::TypeInvalid,
            path,
            Some(json!(found)),
            format!("{path} in body must be of type {wanted}: \"{found}\""),
        ));
        alternatives(schema, new, path, errors);
        if schema.kind == Some(JsonType::Integer) && new.is_number() {
            let text = format!("Checked value must be of type integer (default format) in {path}");
            errors.push(unplaced(text));
        }
        return;
    }
    let bounds = &schema.bounds;
    if !bounds.one_of_values.is_empty() && !bounds.one_of_values.iter().any(|one| is_same(one, new)) {
        let supported: Vec<String> = bounds
            .one_of_values
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), Into::into))
            .collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, new, &supported));
    }
    match new {
        Value::String(text) => string(schema, text, new, path, errors),
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                numeric(schema, number, new, path, errors);
            }
        }
        Value::Array(items) => {
            if let Some(least) = bounds.min_items.filter(|least| items.len() < *least) {
                errors.push(in_body(
                    path,
                    &json!(items.len()),
                    &format!("should have at least {least} items"),
                ));
            }
            if let Some(most) = bounds.max_items.filter(|most| items.len() > *most) {
                errors.push(FieldError::too_many(path, items.len(), most));
            }
            if let Some(item_schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| schema.corresponding(item, old));
                    node(item_schema, item, old, &path.index(index), errors);
                }
            }
        }
        Value::Object(fields) => {
            if let Some(least) = bounds.min_properties.filter(|least| fields.len() < *least) {
                errors.push(in_body(
                    path,
                    &json!(fields.len()),
                    &format!("should have at least {least} properties"),
                ));
            }
            if let Some(most) = bounds.max_properties.filter(|most| fields.len() > *most) {
                errors.push(FieldError::too_many(path, fields.len(), most));
            }
            for name in &bounds.required {
                if !fields.contains_key(name) {
                    errors.push(FieldError::required(&path.field(name), ""));
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    node(child, value, old.and_then(|old| old.get(name)), &path.field(name), errors);
                }
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
    alternatives(schema, new, path, errors);
}

/// Alternatives of a schema. Where none of several holds, the errors of the first are reported.
fn alternatives(schema: &Structural, new: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let problems = |schema: &Structural| {
        let mut errors = Vec::new();
        node(schema, new, None, path, &mut errors);
        errors
    };
    let holds = |schema: &Structural| problems(schema).is_empty();
    if !bounds.any_of.is_empty() && !bounds.any_of.iter().any(holds) {
        errors.push(unplaced(format!("\"{path}\" must validate at least one schema (anyOf)")));
        errors.extend(bounds.any_of.first().into_iter().flat_map(problems));
    }
    if !bounds.one_of.is_empty() {
        let found = bounds.one_of.iter().filter(|schema| holds(schema)).count();
        let must = format!("\"{path}\" must validate one and only one schema (oneOf)");
        match found {
            1 => {}
            0 => {
                errors.push(unplaced(format!("{must}. Found none valid")));
                errors.extend(bounds.one_of.first().into_iter().flat_map(problems));
            }
            several => errors.push(unplaced(format!("{must}. Found {several} valid alternatives"))),
        }
    }
    if bounds.not.as_deref().is_some_and(holds) {
        errors.push(unplaced(format!("\"{path}\" must not validate the schema (not)")));
    }
    if !bounds.all_of.iter().all(holds) {
        errors.extend(bounds.all_of.iter().flat_map(problems));
        errors.push(unplaced(format!("\"{path}\" must validate all the schemas (allOf)")));
    }
}

/// An error that names its field in the text only, as those of kube-openapi's schema validation do.
fn unplaced(detail: String) -> FieldError {
    FieldError { path: NO_PATH.into(), kind: ErrorKind::Invalid, value: Some(json!("")), detail }
}

fn string(schema: &Structural, text: &str, new: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let length = || text.chars().count();
    if let Some(least) = bounds.min_length.filter(|least| text.len() < least * 4 && length() < *least) {
        errors.push(in_body(path, new, &format!("should be at least {least} chars long")));
    }
    if let Some(most) = bounds.max_length.filter(|most| text.len() > *most && length() > *most) {
        errors.push(FieldError::too_long(path, most));
    }
    if let Some((pattern, regex)) = &bounds.pattern
        && !regex.is_match(text)
    {
        errors.push(in_body(path, new, &format!("should match '{pattern}'")));
    }
    if let Some(format) = &bounds.format
        && !schema.is_int_or_string
        && !format::is_valid(format, text)
    {
        errors.push(in_body(path, new, &format!("must be of type {format}: \"{text}\"")));
    }
}

fn numeric(schema: &Structural, number: f64, new: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    if let Some((least, is_excluded)) = bounds.minimum
        && (number < least || (is_excluded && number <= least))
    {
        let or_equal = if is_excluded { "" } else { " or equal to" };
        errors.push(in_body(path, new, &format!("should be greater than{or_equal} {least}")));
    }
    if let Some((most, is_excluded)) = bounds.maximum
        && (number > most || (is_excluded && number >= most))
    {
        let or_equal = if is_excluded { "" } else { " or equal to" };
        errors.push(in_body(path, new, &format!("should be less than{or_equal} {most}")));
    }
    if let Some(factor) = bounds.multiple_of.filter(|factor| *factor > 0.0)
        && (number / factor).fract() != 0.0
    {
        errors.push(in_body(path, new, &format!("should be a multiple of {factor}")));
    }
    let range = match bounds.format.as_deref() {
        Some("int32") => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        _ => None,
    };
    if let (Some((least, most)), Some(format)) = (range, &bounds.format)
        && !(least..=most).contains(&number)
    {
        errors.push(in_body(path, new, &format!("must be of type {format}: \"{number}\"")));
    }
}

fn in_body(path: &Path<'_>, value: &Value, text: &str) -> FieldError {
    FieldError::invalid(path, value, format!("{path} in body {text}"))
}

fn has_type(schema: &Structural, value: &Value) -> bool {
    if schema.is_int_or_string {
        return matches!(type_of(value), "integer" | "string");
    }
    match schema.kind {
        None => true,
        Some(JsonType::Object) => value.is_object(),
        Some(JsonType::Array) => value.is_array(),
        Some(JsonType::String) => value.is_string(),
        Some(JsonType::Boolean) => value.is_boolean(),
        Some(JsonType::Number) => value.is_number(),
        Some(JsonType::Integer) => type_of(value) == "integer",
    }
}

fn wanted(schema: &Structural) -> &'static str {
    match schema.kind {
        _ if schema.is_int_or_string => "integer,string",
        Some(JsonType::Object) => "object",
        Some(JsonType::Array) => "array",
        Some(JsonType::Integer) => "integer",
        Some(JsonType::Number) => "number",
        Some(JsonType::Boolean) => "boolean",
        Some(JsonType::String) | None => "string",
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    one == other
        || matches!((one.as_f64(), other.as_f64()), (Some(one), Some(other)) if one.to_bits() == other.to_bits())
}

/// Objects inside objects need a type of their own.
fn embedded(schema: &Structural, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.is_embedded {
                for name in ["apiVersion", "kind"] {
                    type_name(fields.get(name), &path.field(name), errors);
                }
                let version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
                if version.matches('/').count() > 1 {
                    let problem = format!("unexpected GroupVersion string: {version}");
                    errors.push(FieldError::invalid(&path.field("apiVersion"), &json!(version), problem));
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    embedded(child, value, &path.field(name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    embedded(schema, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn type_name(name: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match name {
        None => errors.push(FieldError::required(path, "")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(FieldError::invalid(path, &json!(""), "must not be empty"));
        }
        Some(_) => {}
    }
}

/// Items of sets and keys of list maps occur once.
fn lists(
    schema: &Structural,
    new: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    match new {
        Value::Array(items) => {
            let found = duplicates(schema, items);
            let old_items = old.and_then(Value::as_array);
            let was_wrong = old_items.is_some_and(|items| !duplicates(schema, items).is_empty());
            if !was_wrong {
                for (index, value) in found {
                    errors.push(FieldError::duplicate(&path.index(index), &value));
                }
            }
            if let Some(item_schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| schema.corresponding(item, old));
                    lists(item_schema, item, old, &path.index(index), errors);
                }
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    lists(child, value, old.and_then(|old| old.get(name)), &path.field(name), errors);
                }
            }
        }
        _ => {}
    }
}

fn duplicates(schema: &Structural, items: &[Value]) -> Vec<(usize, Value)> {
    let mut seen = std::collections::BTreeSet::new();
    let mut found = Vec::new();
    match schema.list_type() {
        ListType::Atomic => {}
        ListType::Set => {
            for (index, item) in items.iter().enumerate() {
                if !seen.insert(item.to_string()) {
                    found.push((index, item.clone()));
                }
            }
        }
        ListType::Map(keys) => {
            for (index, item) in items.iter().enumerate() {
                let key: serde_json::Map<String, Value> =
                    keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect();
                let key = Value::Object(key);
                if !seen.insert(key.to_string()) {
                    found.push((index, key));
                }
            }
        }
    }
    found
}
