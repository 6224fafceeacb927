//! Comparison of objects and messages by meaning.

use serde_json::Value;

use crate::canonical::compact;

/// How an object differs from the recorded one. Go writes empty fields and zero counters that others leave out.
pub(crate) fn objects(got: &Value, want: &Value) -> Option<String> {
    let (got, want) = (normal(got), normal(want));
    (got != want).then(|| format!("got {got}, want {want}"))
}

fn normal(value: &Value) -> Value {
    let mut value = compact(value);
    if let Some(annotations) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("api.quintet.dev/newer-fields");
        if annotations.is_empty() {
            value["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
    }
    if let Some(fields) = value.as_object_mut() {
        let counters = fields.get_mut("status").and_then(Value::as_object_mut);
        if let Some(status) = counters {
            status.retain(|_, value| *value != 0);
            if status.is_empty() {
                fields.remove("status");
            }
        }
    }
    value
}

/// How a message differs from the recorded one. JSON inside of it is compared by content: Go writes fields in the order
/// in which its types declare them.
pub(crate) fn messages(got: &str, want: &str) -> Option<String> {
    (!is_like(&canonical(got), &canonical(want))).then(|| format!("says {got:?}, want {want:?}"))
}

/// Whether texts are the same, but for an address that Kueue prints in place of a number.
fn is_like(got: &str, want: &str) -> bool {
    let Some((before, after)) = want.split_once("<pointer>") else { return got == want };
    let number = got.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    number.is_some_and(|number| number.parse::<i64>().is_ok())
}

fn canonical(message: &str) -> String {
    let mut result = String::new();
    let mut rest = message;
    while let Some(at) = rest.find("value: ").map(|at| at + "value: ".len()) {
        let (before, after) = rest.split_at(at);
        result.push_str(before);
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                result.push_str(&compact(&value).to_string());
                rest = &after[values.byte_offset()..];
            }
            _ => rest = after,
        }
    }
    result + rest
}
