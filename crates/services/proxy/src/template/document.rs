//! The body of a request as a document: JSON, or YAML as Kubernetes' Go libraries read it.

use std::fmt;

use http::header::{self, HeaderMap};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

/// As deep as a document may be; JSON has the same limit.
const DEPTH: usize = 120;

/// The YAML parser takes up to 32 KB for each level, which is more than threads usually have.
const STACK: usize = 8 << 20;

/// The body is neither JSON nor YAML, or not an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Failed to convert request body to Golang map object")]
pub(crate) struct Unreadable;

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    /// There is nothing in it that a template could apply to: forward the body as it is.
    Opaque,
    /// An object with an object in `spec`.
    Resource(Value),
}

#[derive(Clone, Copy)]
enum Format {
    Json,
    Yaml,
}

/// Content types that browsers send to other origins without a preflight request.
const SIMPLE_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

impl Document {
    /// Reads the body of a request with these headers.
    pub(crate) async fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Unreadable> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        // Web pages of any origin may send these without asking, with parameters that name another type.
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if SIMPLE_TYPES.iter().any(|simple| essence.eq_ignore_ascii_case(simple)) {
            return Err(Unreadable);
        }
        // Upstream compares no more than this.
        let format = if content_type.contains("application/json") {
            Format::Json
        } else if content_type.contains("application/yaml") {
            Format::Yaml
        } else {
            return Err(Unreadable);
        };
        // As in Go, what is not UTF-8 is replaced.
        let text = String::from_utf8_lossy(body);
        let value = match format {
            Format::Json => serde_json::from_str(&text).map_err(|_| Unreadable)?,
            Format::Yaml => yaml(first_document(&text).to_owned()).await?,
        };
        match value {
            Value::Object(object) if object.get("spec").is_some_and(Value::is_object) => {
                Ok(Self::Resource(with_plain_numbers(Value::Object(object))))
            }
            Value::Object(_) | Value::Null => Ok(Self::Opaque),
            _ => Err(Unreadable),
        }
    }
}

/// Reads YAML on a thread of its own, which has the stack for it.
async fn yaml(text: String) -> Result<Value, Unreadable> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("yaml".to_owned()).stack_size(STACK);
    let read = move || {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_depth: DEPTH },
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            legacy_octal_numbers: true,
        };
        let read = serde_saphyr::from_str_with_options::<Option<Node>>(&text, options);
        // The caller may have gone.
        let _ = sender.send(read.map(|node| node.map_or(Value::Null, |node| node.0)));
    };
    thread.spawn(read).map_err(|_| Unreadable)?;
    let read = receiver.await.map_err(|_| Unreadable)?;
    read.map_err(|error| {
        tracing::debug!(%error, "a body is not YAML");
        Unreadable
    })
}

/// The text of the first of several YAML documents. A marker at the beginning of a line is one wherever it is.
fn first_document(text: &str) -> &str {
    let is_marker = |line: &str, marker: &str| {
        let rest = line.strip_prefix(marker);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let mut has_begun = false;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let is_content = !line.trim().is_empty() && !line.starts_with(['#', '%']);
        if has_begun && (is_marker(line, "---") || is_marker(line, "...")) {
            return &text[..end];
        }
        has_begun |= is_content;
        end += line.len();
    }
    text
}

/// Whole numbers without a fraction: Go encodes the float 1.0 as 1, and so does an API server expect integers.
fn with_plain_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(plain(number)),
        Value::Array(values) => values.into_iter().map(with_plain_numbers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, with_plain_numbers(value))).collect()
        }
        value => value,
    }
}

fn plain(number: Number) -> Number {
    /// Up to here floats are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within 53 bits")]
            let whole = float as i64;
            whole.into()
        }
        _ => number,
    }
}

/// A YAML node. Unlike `serde_json::Value` it takes keys by their type: `on` is the key `true`, as in Go.
struct Node(Value);

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor).map(Node)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a YAML node")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // JSON has no NaN and no infinity.
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number of JSON"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Node(value)) = sequence.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((Node(key), Node(value))) = mapping.next_entry()? {
            let key = match with_plain_numbers(key) {
                Value::String(key) => key,
                key @ (Value::Bool(_) | Value::Number(_)) => key.to_string(),
                _ => return Err(serde::de::Error::custom("keys must be texts, numbers or booleans")),
            };
            fields.insert(key, value);
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn read(content_type: &str, body: &str) -> Result<Document, Unreadable> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        Document::read(&headers, body.as_bytes()).await
    }

    async fn from_yaml(body: &str) -> Value {
        match read("application/yaml", body).await {
            Ok(Document::Resource(value)) => value["spec"].clone(),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn types_that_pages_of_any_origin_may_send_are_refused() {
        for content_type in ["text/plain; a=application/json", "Multipart/Form-Data; a=application/json"] {
            assert_eq!(read(content_type, r#"{"spec": {}}"#).await, Err(Unreadable), "{content_type}");
        }
    }

    #[tokio::test]
    async fn the_content_type_is_compared_as_a_part_with_regard_to_case() {
        let resource = Ok(Document::Resource(json!({"spec": {}})));
        for content_type in ["application/json", "application/json; charset=utf-8", "xapplication/jsonx"] {
            assert_eq!(read(content_type, r#"{"spec": {}}"#).await, resource, "{content_type}");
        }
        assert_eq!(read("application/yaml", "spec: {}").await, resource);
        for content_type in ["", "text/yaml", "APPLICATION/JSON", "application/vnd.kubernetes.protobuf"] {
            assert_eq!(read(content_type, r#"{"spec": {}}"#).await, Err(Unreadable), "{content_type}");
        }
    }

    #[tokio::test]
    async fn what_has_no_spec_is_forwarded_and_what_is_no_object_refused() {
        for body in ["{}", "null", r#"{"spec": 1}"#, r#"{"spec": null}"#] {
            assert_eq!(read("application/json", body).await, Ok(Document::Opaque), "{body}");
        }
        for body in ["", "[]", "1", "{", "{} {}", r#"{"a": }"#] {
            assert_eq!(read("application/json", body).await, Err(Unreadable), "{body}");
        }
        for body in ["", "# nothing", "~", "a: 1"] {
            assert_eq!(read("application/yaml", body).await, Ok(Document::Opaque), "{body}");
        }
        for body in ["a: [", "- a", "text", "? [a]\n: b"] {
            assert_eq!(read("application/yaml", body).await, Err(Unreadable), "{body}");
        }
    }

    #[tokio::test]
    async fn yaml_is_that_of_version_1_1() {
        let spec =
            from_yaml("spec: {rayVersion: 2.10, on: yes, m: 'no', 1: 0o17, o: 017, h: 0x1F, z: ~}").await;
        assert_eq!(
            spec,
            json!({"rayVersion": 2.1, "true": true, "m": "no", "1": 15, "o": 15, "h": 31, "z": null})
        );
        let merged = from_yaml("base: &b {x: 1}\nspec: {<<: *b, z: 2, z: 3}").await;
        assert_eq!(merged, json!({"x": 1, "z": 3}));
        assert_eq!(from_yaml("spec: {t: 2001-01-01, q: \"1\"}").await, json!({"t": "2001-01-01", "q": "1"}));
    }

    #[tokio::test]
    async fn the_first_document_counts() {
        for body in [
            "spec: {a: 1}\n---\nspec: {a: 2}\n",
            "---\nspec: {a: 1}\n---\nspec: {a: 2}\n",
            "# one\n%YAML 1.1\n---\nspec: {a: 1}\n...\nrubbish: [",
            "--- {spec: {a: 1}}\n--- {spec: {a: 2}}\n",
        ] {
            assert_eq!(from_yaml(body).await, json!({"a": 1}), "{body}");
        }
        assert_eq!(from_yaml("spec:\n  text: |\n    ---x\n   \n  b: '---'\n").await["b"], json!("---"));
    }

    #[tokio::test]
    async fn whole_numbers_have_no_fraction_and_large_ones_stay_exact() {
        let body = r#"{"spec": {"f": 1.0, "g": 1.5, "e": 2e3, "big": 12345678901234567890, "neg": -0.0}}"#;
        let Ok(Document::Resource(value)) = read("application/json", body).await else { panic!("readable") };
        let expected = r#"{"big":12345678901234567890,"e":2000,"f":1,"g":1.5,"neg":0}"#;
        assert_eq!(value["spec"].to_string(), expected);
    }

    #[tokio::test]
    async fn deep_and_exploding_documents_are_refused() {
        assert_eq!(read("application/json", &"[".repeat(100_000)).await, Err(Unreadable));
        assert_eq!(read("application/yaml", &"[".repeat(100_000)).await, Err(Unreadable));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            use fmt::Write as _;
            let before = format!("*a{}", level - 1);
            writeln!(bomb, "a{level}: &a{level} [{}]", vec![before; 10].join(", ")).unwrap();
        }
        assert_eq!(read("application/yaml", &bomb).await, Err(Unreadable));
    }
}
