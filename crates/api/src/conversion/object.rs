//! Small words for taking JSON objects apart.

use serde_json::{Map, Value};

/// A text field.
pub(super) fn text<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str)
}

/// An object inside the object.
pub(super) fn child<'a>(
    object: &'a mut Map<String, Value>,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

/// The objects of a list inside the object.
pub(super) fn children<'a>(
    object: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Gives a field another name, if it is there.
pub(super) fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.into(), value);
    }
}

/// Whether a field is absent, null, or an empty text, list or object: what Go calls its zero value.
pub(super) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}
