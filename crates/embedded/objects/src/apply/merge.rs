//! Merging a configuration into an object, and taking out what its manager gave up.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::fields::{FieldSet, step_of};
use super::node::{Form, Node};

/// Deeper than any object.
const MAX_DEPTH: usize = 200;

/// The object with the configuration on top.
pub(super) fn merge(live: &Value, config: &Value, schema: Node<'_>) -> Value {
    merge_node(Some(live), config, schema, 0)
}

fn merge_node(live: Option<&Value>, config: &Value, schema: Node<'_>, depth: usize) -> Value {
    let form = schema.form(config);
    match (live, config, form) {
        (Some(Value::Object(live)), Value::Object(config), Form::Map) if depth < MAX_DEPTH => {
            let mut merged = live.clone();
            for (name, value) in config {
                let child = schema.child(name).unwrap_or(Node::Unknown);
                let value = merge_node(live.get(name), value, child, depth + 1);
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Some(Value::Array(live)), Value::Array(config), Form::Set | Form::Keyed(_)) if depth < MAX_DEPTH => {
            Value::Array(merge_items(live, config, form, schema, depth))
        }
        _ => config.clone(),
    }
}

/// Items of both sides. Those only the live object has stay where they are among the others; the rest follow the
/// order of the configuration.
fn merge_items(
    live: &[Value],
    config: &[Value],
    form: Form<'_>,
    schema: Node<'_>,
    depth: usize,
) -> Vec<Value> {
    let steps =
        |items: &[Value]| -> Vec<String> { items.iter().map(|item| step_of(item, form, schema)).collect() };
    let (live_steps, config_steps) = (steps(live), steps(config));
    // Of items with the same step, the first counts.
    let known: HashMap<&String, &Value> = live_steps.iter().zip(live).rev().collect();
    let configured: HashSet<&String> = config_steps.iter().collect();
    let mut shared = config_steps.iter().filter(|step| known.contains_key(step)).peekable();
    let mut merged = Vec::with_capacity(live.len() + config.len());
    let mut old = live.iter().zip(&live_steps).peekable();
    for (item, step) in config.iter().zip(&config_steps) {
        while let Some((old_item, old_step)) = old.peek() {
            if !configured.contains(old_step) {
                merged.push((*old_item).clone());
            } else if shared.peek() == Some(old_step) {
                break;
            }
            old.next();
        }
        merged.push(match known.get(step) {
            Some(known) => merge_node(Some(known), item, schema.item(), depth + 1),
            None => item.clone(),
        });
        if shared.next_if(|next| *next == step).is_some() {
            old.next_if(|(_, old_step)| *old_step == step);
        }
    }
    merged.extend(old.filter(|(_, step)| !configured.contains(step)).map(|(item, _)| item.clone()));
    merged
}

/// Removes from `object` the fields of `last` that no manager owns any more.
pub(super) fn prune(object: &mut Value, schema: Node<'_>, last: &FieldSet, owned: &FieldSet) {
    prune_node(object, schema, last, owned, &[]);
}

/// An item that stays keeps its keys.
fn prune_node(object: &mut Value, schema: Node<'_>, last: &FieldSet, owned: &FieldSet, keys: &[String]) {
    let form = schema.form(object);
    match object {
        Value::Object(fields) if form == Form::Map => {
            for (step, given_up) in &last.children {
                let Some(name) = step.strip_prefix("f:").filter(|name| !keys.iter().any(|key| key == name))
                else {
                    continue;
                };
                let child = schema.child(name).unwrap_or(Node::Unknown);
                let owned = owned.children.get(step);
                if owned.is_none() && (given_up.is_member || schema.has_declared_fields()) {
                    fields.remove(name);
                    continue;
                }
                let Some(value) = fields.get_mut(name).filter(|value| !is_empty_list(value)) else {
                    continue;
                };
                let unowned = FieldSet::default();
                prune_node(value, child, given_up, owned.unwrap_or(&unowned), &[]);
                // A list that has lost its last item is gone too.
                if is_empty_list(value) {
                    fields.remove(name);
                }
            }
        }
        Value::Array(items) if form != Form::Leaf => {
            let mut kept = Vec::with_capacity(items.len());
            for mut item in std::mem::take(items) {
                let step = step_of(&item, form, schema);
                match (last.children.get(&step), owned.children.get(&step)) {
                    // Fields inside an item do not keep it if no manager owns the item itself.
                    (Some(given_up), owned)
                        if given_up.is_member && owned.is_none_or(|owned| !owned.is_member) =>
                    {
                        continue;
                    }
                    (Some(given_up), Some(owned)) => {
                        let keys = if let Form::Keyed(keys) = form { keys } else { &[] };
                        prune_node(&mut item, schema.item(), given_up, owned, keys);
                    }
                    _ => {}
                }
                kept.push(item);
            }
            *items = kept;
        }
        _ => {}
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}
