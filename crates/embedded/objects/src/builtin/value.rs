//! Reading and filling fields of JSON objects.

use serde_json::{Map, Value, json};

/// A text at a path, or nothing.
pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A whole number at a path.
pub(super) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

/// The items at a path, none if there is no list.
pub(super) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether something is there and not empty.
pub(super) fn is_set(value: &Value, pointer: &str) -> bool {
    match value.pointer(pointer) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

/// Fills in a field that is absent.
pub(super) fn fill(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(fields) = object
        && fields.get(name).is_none_or(Value::is_null)
    {
        fields.insert(name.into(), value);
    }
}

/// Fills in a text that is absent or empty.
pub(super) fn fill_text(object: &mut Value, name: &str, value: &str) {
    if let Value::Object(fields) = object
        && fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty)
    {
        fields.insert(name.into(), json!(value));
    }
}

/// The object in a field, made if it is absent.
pub(super) fn object<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    let fields = value.as_object_mut()?;
    let inner = fields.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if inner.is_null() {
        *inner = Value::Object(Map::new());
    }
    inner.is_object().then_some(inner)
}

/// The items of a list in a field.
pub(super) fn each<'v>(value: &'v mut Value, name: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}
