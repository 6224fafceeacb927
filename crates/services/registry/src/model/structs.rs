//! Struct properties: a `google.protobuf.Struct` in base64 behind a marker, in the string column.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::json::{Json, Value};

const MARKER: &str = "mlmd-struct::";
/// Protobuf messages nest at most this deep in common decoders.
const MAX_DEPTH: usize = 100;

/// A list of strings under `key`, as stored.
pub(crate) fn encode_list(key: &str, items: &[String]) -> String {
    let items = items.iter().map(|item| Value::String(item.clone())).collect();
    encode(&[(key.to_owned(), Value::Array(items))])
}

/// The strings of the list under `key`, if `stored` is such a struct.
pub(crate) fn decode_list(key: &str, stored: &str) -> Option<Vec<String>> {
    let Json::Object(mut members) = decode(stored)? else { return None };
    let Some(Json::Array(items)) = members.remove(key) else { return Some(Vec::new()) };
    let texts = items.into_iter().map(|item| match item {
        Json::Text(text) => text,
        _ => String::new(),
    });
    Some(texts.collect())
}

/// The members of a JSON object, as stored.
pub(crate) fn encode(members: &[(String, Value)]) -> String {
    format!("{MARKER}{}", STANDARD.encode(encode_struct(members)))
}

/// The object that was stored, or `None` if `stored` is plain text.
pub(crate) fn decode(stored: &str) -> Option<Json> {
    let bytes = STANDARD.decode(stored.strip_prefix(MARKER)?).ok()?;
    decode_struct(&bytes, 0)
}

fn encode_struct(members: &[(String, Value)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, (key, value)) in members.iter().enumerate() {
        let is_repeated = members.iter().skip(index + 1).any(|(later, _)| later == key);
        if is_repeated {
            continue;
        }
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, key.as_bytes());
        put_bytes(&mut entry, 2, &encode_value(value));
        put_bytes(&mut out, 1, &entry);
    }
    out
}

fn encode_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Null | Value::TooDeep => out.extend([0x08, 0]),
        Value::Number(text) => {
            out.push(0x11);
            out.extend(text.parse::<f64>().unwrap_or(f64::NAN).to_le_bytes());
        }
        Value::String(text) => put_bytes(&mut out, 3, text.as_bytes()),
        Value::Bool(value) => out.extend([0x20, u8::from(*value)]),
        Value::Object(members) => put_bytes(&mut out, 5, &encode_struct(members)),
        Value::Array(items) => {
            let mut list = Vec::new();
            for item in items {
                put_bytes(&mut list, 1, &encode_value(item));
            }
            put_bytes(&mut out, 6, &list);
        }
    }
    out
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or_default());
    out.extend_from_slice(bytes);
}

/// A field of a message: its number, and its content.
enum Content<'a> {
    Varint(u64),
    Fixed([u8; 8]),
    Bytes(&'a [u8]),
}

struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn next(&mut self) -> Option<(u64, Content<'a>)> {
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Varint(self.varint()?),
            1 => Content::Fixed(self.take(8)?.try_into().ok()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Content::Bytes(self.take(length)?)
            }
            _ => return None,
        };
        Some((tag >> 3, content))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }
}

fn decode_struct(bytes: &[u8], depth: usize) -> Option<Json> {
    let mut members = std::collections::BTreeMap::new();
    let mut message = Message(bytes);
    while !message.0.is_empty() {
        let (1, Content::Bytes(entry)) = message.next()? else { return None };
        let mut entry = Message(entry);
        let (mut key, mut value) = (String::new(), Json::Null);
        while !entry.0.is_empty() {
            match entry.next()? {
                (1, Content::Bytes(text)) => key = String::from_utf8(text.to_vec()).ok()?,
                (2, Content::Bytes(inner)) => value = decode_value(inner, depth + 1)?,
                _ => return None,
            }
        }
        members.insert(key, value);
    }
    Some(Json::Object(members))
}

fn decode_value(bytes: &[u8], depth: usize) -> Option<Json> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut message = Message(bytes);
    let mut value = Json::Null;
    while !message.0.is_empty() {
        value = match message.next()? {
            (1, _) => Json::Null,
            (2, Content::Fixed(number)) => Json::Double(f64::from_le_bytes(number)),
            (3, Content::Bytes(text)) => Json::Text(String::from_utf8(text.to_vec()).ok()?),
            (4, Content::Varint(flag)) => Json::Bool(flag != 0),
            (5, Content::Bytes(inner)) => decode_struct(inner, depth)?,
            (6, Content::Bytes(list)) => decode_items(list, depth)?,
            _ => return None,
        };
    }
    Some(value)
}

fn decode_items(bytes: &[u8], depth: usize) -> Option<Json> {
    let mut message = Message(bytes);
    let mut items = Vec::new();
    while !message.0.is_empty() {
        let (1, Content::Bytes(item)) = message.next()? else { return None };
        items.push(decode_value(item, depth + 1)?);
    }
    Some(Json::Array(items))
}

#[cfg(test)]
mod tests {
    use super::{decode, decode_list, encode, encode_list};
    use crate::json::{Value, parse};

    #[test]
    fn stored_bytes_are_those_of_upstream() {
        let list = encode_list("language", &["en".to_owned()]);
        assert_eq!(list, "mlmd-struct::ChQKCGxhbmd1YWdlEggyBgoEGgJlbg==");
        assert_eq!(decode_list("language", &list), Some(vec!["en".to_owned()]));
        let object = encode(&[("a".to_owned(), Value::Number("1".to_owned()))]);
        assert_eq!(object, "mlmd-struct::Cg4KAWESCREAAAAAAADwPw==");
    }

    #[test]
    fn nested_values_survive() {
        let text = r#"{"a":{"b":{"c":[1,2.5,"x",{"y":null}]}},"n":100000000000000000000,"t":true}"#;
        let Ok(Value::Object(members)) = parse(text.as_bytes()) else { panic!("an object") };
        assert_eq!(decode(&encode(&members)).map(|json| json.encode()), Some(text.to_owned()));
    }

    #[test]
    fn plain_text_is_no_struct() {
        assert_eq!(decode("mlmd"), None);
        assert_eq!(decode("mlmd-struct::!"), None);
    }
}
