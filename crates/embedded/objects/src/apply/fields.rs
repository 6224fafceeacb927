//! Sets of fields, as `fieldsV1` writes them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::{Form, Node};

/// Metadata that is never owned.
const NEVER_OWNED: [&str; 8] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
];
/// Deeper than any object.
const MAX_DEPTH: usize = 200;

/// A set of places in an object, as a tree. Each step is written as in `fieldsV1`: `f:name`, `k:{"name":"a"}`,
/// `v:"x"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the place itself is in the set.
    pub(super) is_member: bool,
    pub(super) children: BTreeMap<String, Self>,
}

impl FieldSet {
    /// Reads `fieldsV1`; what is not understood is left out.
    pub fn parse(fields: &Value) -> Self {
        let mut set = Self::default();
        set.read(fields, 0);
        set
    }

    fn read(&mut self, fields: &Value, depth: usize) {
        let Value::Object(fields) = fields else { return };
        if fields.is_empty() {
            self.is_member = true;
        }
        if depth > MAX_DEPTH {
            return;
        }
        for (step, below) in fields {
            match step.split_once(':') {
                _ if step == "." => self.is_member = true,
                Some(("f" | "k" | "v" | "i", _)) => {
                    let mut child = Self::default();
                    child.read(below, depth + 1);
                    self.children.insert(step.clone(), child);
                }
                _ => {}
            }
        }
    }

    /// Writes `fieldsV1`.
    pub fn print(&self) -> Value {
        let mut fields = Map::new();
        if self.is_member && !self.children.is_empty() {
            fields.insert(".".into(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            fields.insert(step.clone(), child.print());
        }
        Value::Object(fields)
    }

    /// The places a value sets: leaves, and items of lists with keys.
    pub fn of(value: &Value, schema: Node<'_>) -> Self {
        let mut set = Self::default();
        set.add(value, schema, 0);
        set
    }

    /// As `toFieldSetWalker` of structured-merge-diff: an empty list with identified items has no place of its own,
    /// an entry of a map has one besides what is in it.
    fn add(&mut self, value: &Value, schema: Node<'_>, depth: usize) {
        let form = schema.form(value);
        if form == Form::Leaf || depth > MAX_DEPTH {
            self.is_member = true;
            return;
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let child = self.child(format!("f:{name}"));
                    child.add(value, schema.child(name).unwrap_or(Node::Unknown), depth + 1);
                    let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                    child.is_member |= is_empty || !schema.declares(name);
                    if child.is_empty() {
                        self.children.remove(&format!("f:{name}"));
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    let child = self.child(step_of(item, form, schema));
                    if matches!(form, Form::Keyed(_)) {
                        child.add(item, schema.item(), depth + 1);
                    }
                    child.is_member = true;
                }
            }
            _ => {}
        }
    }

    pub(super) fn child(&mut self, step: String) -> &mut Self {
        self.children.entry(step).or_default()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        !self.is_member && self.children.values().all(Self::is_empty)
    }

    /// Whether a place is in the set.
    pub fn contains(&self, elements: &[String]) -> bool {
        let found = elements.iter().try_fold(self, |set, step| set.children.get(step));
        found.is_some_and(|set| set.is_member)
    }

    /// Adds another set.
    pub fn unite(&mut self, other: &Self) {
        self.is_member |= other.is_member;
        for (step, child) in &other.children {
            self.children.entry(step.clone()).or_default().unite(child);
        }
    }

    /// Takes another set away.
    pub fn subtract(&mut self, other: &Self) {
        if other.is_member {
            self.is_member = false;
        }
        for (step, gone) in &other.children {
            if let Some(child) = self.children.get_mut(step) {
                child.subtract(gone);
                if child.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// Takes away all places at and below those of another set.
    pub(super) fn subtract_below(&mut self, other: &Self) {
        for (step, gone) in &other.children {
            if gone.is_member {
                self.children.remove(step);
            } else if let Some(child) = self.children.get_mut(step) {
                child.subtract_below(gone);
                if child.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// The places in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { is_member: self.is_member && other.is_member, children: BTreeMap::new() };
        for (step, child) in &self.children {
            if let Some(other) = other.children.get(step) {
                let shared = child.intersection(other);
                if !shared.is_empty() {
                    both.children.insert(step.clone(), shared);
                }
            }
        }
        both
    }

    /// Every place, as a list of steps.
    pub fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.walk(&mut Vec::new(), &mut paths);
        paths
    }

    /// Places directly below come before those further down, as conflict messages list them.
    fn walk(&self, at: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        for (step, _) in self.children.iter().filter(|(_, child)| child.is_member) {
            at.push(step.clone());
            paths.push(at.clone());
            at.pop();
        }
        for (step, child) in &self.children {
            at.push(step.clone());
            child.walk(at, paths);
            at.pop();
        }
    }

    /// Removes fields that are never owned, and those this write cannot change.
    pub(super) fn remove_never_owned(&mut self, ignored: &[&str]) {
        self.is_member = false;
        if self.children.is_empty() {
            return;
        }
        self.children.remove("f:apiVersion");
        self.children.remove("f:kind");
        self.children.retain(|step, _| !ignored.iter().any(|name| step.strip_prefix("f:") == Some(name)));
        if let Some(metadata) = self.children.get_mut("f:metadata") {
            metadata.is_member = false;
            for name in NEVER_OWNED {
                metadata.children.remove(name);
            }
            if metadata.is_empty() {
                self.children.remove("f:metadata");
            }
        }
    }
}

/// The step that leads to an item of a set or a list with keys.
pub(super) fn step_of(item: &Value, form: Form<'_>, schema: Node<'_>) -> String {
    match form {
        Form::Keyed(keys) => {
            let items = schema.item();
            let mut fields = Map::new();
            for key in keys {
                if let Some(value) = item.get(key).cloned().or_else(|| items.default_of(key)) {
                    fields.insert(key.clone(), whole_as_integer(value));
                }
            }
            format!("k:{}", Value::Object(fields))
        }
        _ => format!("v:{}", whole_as_integer(item.clone())),
    }
}

/// A value as Go writes it: a float without a fraction looks like the integer, and is the same element.
fn whole_as_integer(value: Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value.as_f64() {
        Some(float) if value.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => {
            #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
            let whole = float as i64;
            whole.into()
        }
        _ => value,
    }
}

/// A place as conflict messages write it: `.spec.containers[name="a"].image`.
pub(super) fn shown(elements: &[String]) -> String {
    let mut out = String::new();
    for element in elements {
        match element.split_once(':') {
            Some(("f", name)) => {
                out.push('.');
                out.push_str(name);
            }
            Some(("k", keys)) => {
                out.push('[');
                match serde_json::from_str::<Map<String, Value>>(keys) {
                    Ok(keys) => {
                        let keys: Vec<String> =
                            keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                        out.push_str(&keys.join(","));
                    }
                    // Read from `fieldsV1` that a client wrote: shown as it is.
                    Err(_) => out.push_str(keys),
                }
                out.push(']');
            }
            Some(("v", value)) => {
                out.push_str("[=");
                out.push_str(value);
                out.push(']');
            }
            Some((_, index)) => {
                out.push('[');
                out.push_str(index);
                out.push(']');
            }
            None => {}
        }
    }
    out
}
