//! Fields of JSON objects that others wrote: absent ones are made, and those of another type are errors.

use serde_json::{Map, Value};

/// An object in a field, empty if it is not there.
pub(crate) fn object<'a>(
    fields: &'a mut Map<String, Value>,
    name: &str,
) -> Result<&'a mut Map<String, Value>, String> {
    let value = fields.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().ok_or_else(|| format!("{name} is not an object"))
}

/// A list in a field, empty if it is not there.
pub(crate) fn list<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Result<&'a mut Vec<Value>, String> {
    let value = fields.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().ok_or_else(|| format!("{name} is not a list"))
}
