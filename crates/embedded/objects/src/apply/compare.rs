//! What differs between two objects, field by field.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{FieldSet, step_of};
use super::node::{Form, Node};

/// Deeper than any object.
const MAX_DEPTH: usize = 200;

/// The places at which two objects differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Only in the new object.
    pub added: FieldSet,
    /// In both, with other values.
    pub modified: FieldSet,
    /// Only in the old object.
    pub removed: FieldSet,
}

impl Difference {
    /// Whether the objects are the same, as far as they can be owned.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    pub(super) fn ignore(&mut self, names: &[&str]) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.remove_never_owned(names);
        }
    }

    /// What the new object sets that the old one did not.
    pub(super) fn changed(&self) -> FieldSet {
        let mut changed = self.modified.clone();
        changed.unite(&self.added);
        changed
    }
}

/// Compares two objects of a type. Fields that cannot be owned are not compared.
pub fn compare(old: &Value, new: &Value, schema: Node<'_>) -> Difference {
    let mut walk = Walk { difference: Difference::default(), at: Vec::new() };
    walk.node(Some(old), Some(new), schema);
    walk.difference.ignore(&[]);
    walk.difference
}

/// Whether values are the same. An integer equals a float of its value: that is how Kubernetes compares them.
fn is_equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) if one.is_f64() != two.is_f64() => {
            one.as_f64() == two.as_f64()
        }
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_equal(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            let has_equal =
                |(key, value): (&String, &Value)| two.get(key).is_some_and(|other| is_equal(value, other));
            one.len() == two.len() && one.iter().all(has_equal)
        }
        _ => one == two,
    }
}

struct Walk {
    difference: Difference,
    at: Vec<String>,
}

#[derive(Clone, Copy)]
enum Change {
    Added,
    Modified,
    Removed,
}

impl Walk {
    fn record(&mut self, change: Change) {
        let set = match change {
            Change::Added => &mut self.difference.added,
            Change::Modified => &mut self.difference.modified,
            Change::Removed => &mut self.difference.removed,
        };
        let mut here = set;
        for step in &self.at {
            here = here.children.entry(step.clone()).or_default();
        }
        here.is_member = true;
    }

    fn node(&mut self, old: Option<&Value>, new: Option<&Value>, schema: Node<'_>) {
        let is_hollow = |value: Option<&Value>| match value {
            None | Some(Value::Null) => true,
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(_) => false,
        };
        if let (Some(old), Some(new)) = (old, new)
            && is_equal(old, new)
        {
            return;
        }
        let form =
            |value: Option<&Value>| value.filter(|value| !value.is_null()).map(|value| schema.form(value));
        let (old_form, new_form) = (form(old), form(new));
        let is_leaf = self.at.len() > MAX_DEPTH
            || (is_hollow(old) && is_hollow(new) && !(old.is_some() && new.is_some() && self.at.is_empty()))
            || old_form == Some(Form::Leaf)
            || new_form == Some(Form::Leaf)
            || (old_form.is_some() && new_form.is_some() && old_form != new_form);
        if is_leaf {
            self.replaced(old.zip(old_form), new.zip(new_form), schema);
            match (old, new) {
                (None, Some(_)) => self.record(Change::Added),
                (Some(_), None) => self.record(Change::Removed),
                (Some(_), Some(_)) => self.record(Change::Modified),
                (None, None) => {}
            }
            return;
        }
        match new_form.or(old_form) {
            Some(Form::Map) => self.map(old, new, schema),
            Some(form) => self.list(old, new, form, schema),
            None => {}
        }
        match (old, new) {
            (None, Some(_)) => self.record(Change::Added),
            (Some(_), None) => self.record(Change::Removed),
            _ => {}
        }
    }

    /// A value that changes its form loses the places in the old one and gains those in the new one.
    fn replaced(
        &mut self,
        old: Option<(&Value, Form<'_>)>,
        new: Option<(&Value, Form<'_>)>,
        schema: Node<'_>,
    ) {
        let (Some((old, old_form)), Some((new, new_form))) = (old, new) else { return };
        if old_form == new_form {
            return;
        }
        for (value, set) in [(old, &mut self.difference.removed), (new, &mut self.difference.added)] {
            let mut here = set;
            for step in &self.at {
                here = here.children.entry(step.clone()).or_default();
            }
            let mut places = FieldSet::of(value, schema);
            places.is_member = false;
            here.unite(&places);
        }
    }

    fn map(&mut self, old: Option<&Value>, new: Option<&Value>, schema: Node<'_>) {
        let none = Map::new();
        let old_fields = old.and_then(Value::as_object).unwrap_or(&none);
        let new_fields = new.and_then(Value::as_object).unwrap_or(&none);
        // Structs that are always there come and go with what they are part of.
        if let Some(kind) = schema.structure()
            && old.is_some() != new.is_some()
        {
            let fields = if new.is_some() { new_fields } else { old_fields };
            let change = if new.is_some() { Change::Added } else { Change::Removed };
            for name in kind.always_present().filter(|name| !fields.contains_key(*name)) {
                self.at.push(format!("f:{name}"));
                self.record(change);
                self.at.pop();
            }
        }
        let names: BTreeSet<&String> = old_fields.keys().chain(new_fields.keys()).collect();
        for name in names {
            let (mut before, mut after) =
                (old_fields.get(name).map(Cow::Borrowed), new_fields.get(name).map(Cow::Borrowed));
            if let (Some(before), Some(after)) = (&before, &after)
                && is_equal(before, after)
            {
                continue;
            }
            if before.is_none() && old.is_some() {
                before = schema.zero_of(name).map(Cow::Owned);
            }
            if after.is_none() && new.is_some() {
                after = schema.zero_of(name).map(Cow::Owned);
            }
            self.at.push(format!("f:{name}"));
            let child = schema.child(name).unwrap_or(Node::Unknown);
            self.node(before.as_deref(), after.as_deref(), child);
            self.at.pop();
        }
    }

    fn list(&mut self, old: Option<&Value>, new: Option<&Value>, form: Form<'_>, schema: Node<'_>) {
        let index = |value: Option<&'_ Value>| -> BTreeMap<String, Vec<usize>> {
            let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let mut index: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for (at, item) in items.iter().enumerate() {
                index.entry(step_of(item, form, schema)).or_default().push(at);
            }
            index
        };
        let (before, after) = (index(old), index(new));
        let steps: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for step in steps {
            let items = |list: Option<&'_ Value>, places: Option<&Vec<usize>>| -> Vec<Value> {
                let items = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                places.into_iter().flatten().filter_map(|at| items.get(*at).cloned()).collect()
            };
            let (one, two) = (items(old, before.get(step)), items(new, after.get(step)));
            // Items that cannot be told apart are owned as a whole.
            if one.len() > 1 || two.len() > 1 {
                self.at.push(step.clone());
                match (one.is_empty(), two.is_empty()) {
                    (true, _) => self.record(Change::Added),
                    (_, true) => self.record(Change::Removed),
                    _ if is_equal(&one.into(), &two.into()) => {}
                    _ => self.record(Change::Modified),
                }
                self.at.pop();
                continue;
            }
            let (one, two) = (one.into_iter().next(), two.into_iter().next());
            self.at.push(step.clone());
            match (&one, &two) {
                (Some(_) | None, Some(_)) | (Some(_), None) if matches!(form, Form::Keyed(_)) => {
                    self.node(one.as_ref(), two.as_ref(), schema.item());
                }
                (None, Some(_)) => self.record(Change::Added),
                (Some(_), None) => self.record(Change::Removed),
                _ => {}
            }
            self.at.pop();
        }
    }
}
