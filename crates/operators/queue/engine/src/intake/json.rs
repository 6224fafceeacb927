//! Small steps through JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// The value at a path of keys, or null.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, key| value.get(key).unwrap_or(&Value::Null))
}

pub(super) fn text<'v>(value: &'v Value, path: &str) -> Option<&'v str> {
    at(value, path).as_str()
}

pub(super) fn name(value: &Value) -> &str {
    text(value, "metadata.name").unwrap_or("")
}

pub(super) fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn int(value: &Value, path: &str) -> Option<i64> {
    at(value, path).as_i64()
}

pub(super) fn int32(value: &Value, path: &str) -> Option<i32> {
    int(value, path).and_then(|value| i32::try_from(value).ok())
}

/// A map of strings.
pub(super) fn strings(value: &Value) -> BTreeMap<Arc<str>, Arc<str>> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}

/// The texts of a list.
pub(super) fn texts(value: &Value, path: &str) -> Vec<Arc<str>> {
    list(value, path).iter().filter_map(Value::as_str).map(Into::into).collect()
}

/// The condition of a type.
pub(super) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    list(object, "status.conditions").iter().find(|condition| text(condition, "type") == Some(kind))
}

/// 128-bit FNV-1a over a canonical walk: keys in order, nulls and empty containers as if absent.
pub(super) struct Hasher(u128);

impl Hasher {
    pub(super) const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(&text.len().to_le_bytes());
        self.bytes(text.as_bytes());
    }

    pub(super) fn int(&mut self, value: i64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes(b"0"),
            Value::Bool(value) => self.bytes(if *value { b"t" } else { b"f" }),
            Value::Number(value) => {
                self.bytes(b"n");
                self.text(&value.to_string());
            }
            Value::String(value) => {
                self.bytes(b"s");
                self.text(value);
            }
            Value::Array(values) => {
                self.bytes(b"[");
                for value in values {
                    self.value(value);
                }
                self.bytes(b"]");
            }
            Value::Object(entries) => {
                let mut entries: Vec<_> = entries.iter().filter(|(_, value)| !is_empty(value)).collect();
                entries.sort_by_key(|(key, _)| *key);
                self.bytes(b"{");
                for (key, value) in entries {
                    self.text(key);
                    self.value(value);
                }
                self.bytes(b"}");
            }
        }
    }

    pub(super) const fn finish(self) -> u128 {
        self.0
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of the hash is enough for a fingerprint")]
    pub(super) const fn finish64(self) -> u64 {
        (self.0 >> 64) as u64 ^ self.0 as u64
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}
