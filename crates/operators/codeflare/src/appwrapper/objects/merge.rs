//! Adding to fields that templates may have.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fields;

/// Adds texts; one that is there with another value is a conflict.
pub(super) fn texts(
    object: &mut Map<String, Value>,
    name: &str,
    added: &BTreeMap<String, String>,
) -> Result<(), String> {
    let live = fields::object(object, name)?;
    for (key, value) in added {
        match live.get(key).and_then(Value::as_str) {
            Some(other) if other != value => {
                return Err(format!(
                    "conflict updating {name}: conflict for key={key}, value1={other}, value2={value}"
                ));
            }
            _ => drop(live.insert(key.clone(), value.clone().into())),
        }
    }
    Ok(())
}
