//! Whether an applied configuration fits the schema: declared fields, types, and no item twice. Errors are worded as
//! structured-merge-diff words them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{shown, step_of};
use super::node::{Form, Node};
use crate::schema::JsonType;

/// Deeper than any object.
const MAX_DEPTH: usize = 200;

/// Checks a configuration.
pub(super) fn check(config: &Value, schema: Node<'_>) -> Result<(), String> {
    let mut walk = Walk { at: Vec::new(), errors: Vec::new() };
    walk.node(config, schema);
    match walk.errors.as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

struct Walk {
    at: Vec<String>,
    errors: Vec<String>,
}

impl Walk {
    fn fail(&mut self, what: &str) {
        self.errors.push(format!("{}: {what}", shown(&self.at)));
    }

    fn node(&mut self, value: &Value, schema: Node<'_>) {
        if self.at.len() > MAX_DEPTH {
            return self.fail("nested too deeply");
        }
        if let Some(reason) = wrong_type(value, schema) {
            return self.fail(&reason);
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.at.push(format!("f:{name}"));
                    match schema.child(name) {
                        Some(child) => self.node(value, child),
                        None => self.fail("field not declared in schema"),
                    }
                    self.at.pop();
                }
            }
            Value::Array(items) => self.items(items, schema.form(value), schema),
            _ => {}
        }
    }

    fn items(&mut self, items: &[Value], form: Form<'_>, schema: Node<'_>) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let mut place = format!("i:{index}");
            if let Some(reason) = wrong_item(item, form, schema) {
                self.fail(&format!("element {index}: {reason}"));
                continue;
            }
            if form != Form::Leaf {
                place = step_of(item, form, schema);
                if !seen.insert(place.clone()) {
                    let key = shown(std::slice::from_ref(&place));
                    self.fail(&format!("duplicate entries for key {key}"));
                    continue;
                }
            }
            self.at.push(place);
            self.node(item, schema.item());
            self.at.pop();
        }
    }
}

/// Why an item cannot be told from others.
fn wrong_item(item: &Value, form: Form<'_>, schema: Node<'_>) -> Option<String> {
    let text = match (form, item) {
        (Form::Keyed(_), Value::Null) => "associative list with keys may not have a null element",
        (Form::Keyed(keys), Value::Object(fields)) => {
            let items = schema.item();
            if keys.iter().any(|key| fields.contains_key(key) || items.default_of(key).is_some()) {
                return None;
            }
            return Some(format!(
                "associative list with keys has an element that omits all key fields {keys:?} (and doesn't have default values for any key fields)"
            ));
        }
        (Form::Keyed(_), _) => "associative list with keys may not have non-map elements",
        (Form::Set, Value::Null) => "associative list without keys has an element that's an explicit null",
        (Form::Set, Value::Object(_)) => "associative list without keys has an element that's a map type",
        (Form::Set, Value::Array(_)) => "not supported: associative list with lists as elements",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Why a value is not of its schema's type.
fn wrong_type(value: &Value, schema: Node<'_>) -> Option<String> {
    if value.is_null() {
        return None;
    }
    match (schema.json_type()?, value) {
        (JsonType::Object, Value::Object(_))
        | (JsonType::Array, Value::Array(_))
        | (JsonType::String, Value::String(_))
        | (JsonType::Boolean, Value::Bool(_))
        | (JsonType::Integer | JsonType::Number, Value::Number(_)) => None,
        (JsonType::Object, _) => Some(format!("expected map, got &{{{}}}", crate::patch::shown(value))),
        (JsonType::Array, _) => Some(format!("expected list, got &{{{}}}", crate::patch::shown(value))),
        (JsonType::Boolean, _) => Some(format!("expected boolean, got &{{{}}}", crate::patch::shown(value))),
        (JsonType::String, _) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)))
        }
        (JsonType::Integer | JsonType::Number, _) => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
    }
}

/// The Go type a JSON value is decoded to.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    let list = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Array(items) => format!("[]interface {{}}{{{}}}", list(items.iter().map(go_syntax).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name:?}:{}", go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", list(fields.collect()))
        }
        other => other.to_string(),
    }
}
