//! Small ways into objects.

use serde_json::{Map, Value};

/// A text at a pointer; empty if it is not there.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The metadata of an object, made if it is not there.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    child(as_map(object), "metadata")
}

/// A member that is an object, made if it is not there.
pub(crate) fn child<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    as_map(map.entry(key).or_insert_with(|| Value::Object(Map::new())))
}

/// The value as an object; anything else becomes an empty one.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Items of a list at a pointer; none if it is not there.
pub(crate) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Texts of a list at a pointer.
pub(crate) fn texts<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    items(value, pointer).iter().filter_map(Value::as_str)
}

/// Copies a member from one object to another, or removes it there.
pub(crate) fn carry(from: &Map<String, Value>, to: &mut Map<String, Value>, key: &str) {
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

/// The time as objects write it.
pub(crate) fn timestamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A random UUID (version 4).
pub(crate) fn uuid() -> String {
    let mut bytes = [0_u8; 16];
    random(&mut bytes);
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{number:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// Random bytes.
pub(crate) fn random(bytes: &mut [u8]) {
    if aws_lc_rs::rand::fill(bytes).is_err() {
        // The operating system has no randomness to give: names will collide and be refused, not reused.
        tracing::error!("no randomness available");
    }
}

/// The end of a generated name.
pub(crate) fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bytes = [0_u8; 5];
    random(&mut bytes);
    bytes
        .iter()
        .filter_map(|byte| LETTERS.get(usize::from(*byte) % LETTERS.len()))
        .map(|b| char::from(*b))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_is_of_version_four() {
        let uuid = super::uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
        assert_ne!(uuid, super::uuid());
    }
}
