//! Removing what a schema does not know.

use serde_json::Value;

use super::Structural;
use crate::path::Path;

/// What every object has, whatever its schema says.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn prune(schema: &Structural, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    node(schema, object, true, &Path::ROOT, &mut unknown);
    unknown
}

fn node(schema: &Structural, value: &mut Value, is_object: bool, path: &Path<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let is_object = is_object || schema.is_embedded;
            let keeps_all = schema.preserves_unknown || schema.allows_additional;
            let mut dropped = Vec::new();
            for (name, value) in fields.iter_mut() {
                if is_object && OBJECT_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                match schema.child(name) {
                    Some(child) => node(child, value, false, &path.field(name), unknown),
                    None if keeps_all => {}
                    None => {
                        unknown.push(path.field(name).to_string());
                        dropped.push(name.clone());
                    }
                }
            }
            for name in dropped {
                fields.remove(&name);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                node(schema, item, false, &path.index(index), unknown);
            }
        }
        _ => {}
    }
}
