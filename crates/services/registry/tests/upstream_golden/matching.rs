//! Compares answers with recorded ones, whose changing parts are markers.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::case::Answer;
use crate::support::http::Response;

/// What markers stood for so far in a case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bindings {
    bound: BTreeMap<String, String>,
    /// What the ids of an answer belong to: an artifact may have the id of a model by chance.
    pub(crate) scope: &'static str,
    /// Items that are ordered by id, or have equal keys, come in an order that is chance upstream.
    pub(crate) is_unordered: bool,
}

impl Bindings {
    /// The key of a marker; ids inside other text are those of the entity that the text is about.
    fn key(&self, marker: &str, is_inside: bool) -> String {
        match marker.starts_with("<id") {
            true if is_inside => format!("{marker} of the entity"),
            true => format!("{marker} of the {}", self.scope),
            false => marker.to_owned(),
        }
    }
}

static REPEAT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)<repeat '(.*?)' (\d+)>").expect("a pattern"));
static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"<(uuid:\d+|id:\d+|time|later|pointer|random|ms|port|directory)>").expect("a pattern")
});

/// Expands `<repeat 'x' 5>`.
pub(crate) fn expand(text: &str) -> String {
    let expanded = REPEAT.replace_all(text, |found: &regex::Captures<'_>| {
        found[1].repeat(found[2].parse().expect("a number"))
    });
    expanded.into_owned()
}

/// Expands all strings of a value.
pub(crate) fn expand_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(expand(text)),
        Value::Array(items) => items.iter().map(expand_value).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (expand(name), expand_value(value)));
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}

/// How a response differs from a recorded answer.
pub(crate) fn difference(answer: &Answer, response: &Response, bindings: &mut Bindings) -> Option<String> {
    if answer.status != Some(response.status) {
        return Some(format!(
            "status {} instead of {}: {}",
            response.status,
            answer.status.unwrap_or_default(),
            short(&response.text())
        ));
    }
    for (name, expected) in &answer.headers {
        let actual = response.header(name).unwrap_or_default();
        if expected.as_str() != Some(actual) {
            return Some(format!("header {name}: {actual:?} instead of {expected}"));
        }
    }
    if let Some(text) = &answer.text {
        let actual = response.text();
        return (!matches_text(text, &actual, bindings))
            .then(|| format!("text {actual:?} instead of {text:?}"));
    }
    let Some(expected) = &answer.body else {
        let text = response.text();
        return (!text.is_empty()).then(|| format!("body {:?} instead of none", short(&text)));
    };
    if !answer.headers.contains_key("Content-Type")
        && response.header("content-type") != Some("application/json; charset=UTF-8")
    {
        return Some(format!("content type {:?}", response.header("content-type")));
    }
    let actual: Value = match serde_json::from_slice(&response.body) {
        Ok(actual) => actual,
        Err(error) => return Some(format!("the body is no JSON ({error}): {}", short(&response.text()))),
    };
    if let Some(path) = differs(&expand_value(expected), &actual, bindings) {
        return Some(path);
    }
    let raw = answer.raw.as_ref()?;
    let raw = expand(raw);
    (!matches_text(raw.trim_end(), response.text().trim_end(), bindings))
        .then(|| "the JSON is spelled otherwise".to_owned())
}

fn short(text: &str) -> String {
    text.trim_end().chars().take(400).collect()
}

fn differs(expected: &Value, actual: &Value, bindings: &mut Bindings) -> Option<String> {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            let extra = actual.keys().find(|name| !expected.contains_key(*name));
            if let Some(name) = extra {
                return Some(format!("has .{name} {}", short(&actual[name].to_string())));
            }
            expected.iter().find_map(|(name, expected)| match actual.get(name) {
                None => Some(format!("lacks .{name} {}", short(&expected.to_string()))),
                Some(actual) => {
                    let scope = bindings.scope;
                    if name == "tools" {
                        bindings.scope = "tool";
                    }
                    let difference = match (expected.as_array(), actual.as_array()) {
                        (Some(expected), Some(actual)) if name == "items" && bindings.is_unordered => {
                            differs_as_sets(expected, actual, bindings)
                        }
                        _ => differs(expected, actual, bindings),
                    };
                    bindings.scope = scope;
                    difference.map(|path| format!(".{name}{path}"))
                }
            })
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            let pairs = expected.iter().zip(actual).enumerate();
            pairs.into_iter().find_map(|(index, (expected, actual))| {
                differs(expected, actual, bindings).map(|path| format!("[{index}]{path}"))
            })
        }
        (Value::String(expected), Value::String(actual)) if matches_text(expected, actual, bindings) => None,
        (Value::String(marker), Value::Number(_)) if marker == "<ms>" || marker == "<time>" => None,
        // Both are read by a decoder that may be off by the last bit; spelling is compared where it was recorded.
        (Value::Number(expected), Value::Number(actual))
            if expected
                .as_f64()
                .zip(actual.as_f64())
                .is_some_and(|(a, b)| (a - b).abs() <= 4e-16 * a.abs()) =>
        {
            None
        }
        (expected, actual) if expected == actual => None,
        _ => Some(format!(": {} instead of {}", short(&actual.to_string()), short(&expected.to_string()))),
    }
}

/// How two lists differ, whatever their order.
fn differs_as_sets(expected: &[Value], actual: &[Value], bindings: &mut Bindings) -> Option<String> {
    let mut left: Vec<&Value> = actual.iter().collect();
    for one in expected {
        let fits = left.iter().position(|it| {
            let mut bound = bindings.clone();
            let is_it = differs(one, it, &mut bound).is_none();
            if is_it {
                *bindings = bound;
            }
            is_it
        });
        match fits {
            Some(index) => drop(left.swap_remove(index)),
            None => return Some(format!(": lacks {}", short(&one.to_string()))),
        }
    }
    left.first().map(|it| format!(": has {}", short(&it.to_string())))
}

/// Whether text is what was recorded, up to markers and to blanks in JSON.
fn matches_text(expected: &str, actual: &str, bindings: &mut Bindings) -> bool {
    if expected == actual || expected == "<any>" {
        return true;
    }
    if let Some(inner) = expected.strip_prefix("<base64 of ").and_then(|rest| rest.strip_suffix('>')) {
        use base64::Engine;
        let decoded = base64::engine::general_purpose::STANDARD.decode(actual);
        return decoded
            .is_ok_and(|decoded| matches_text(inner, &String::from_utf8_lossy(&decoded), bindings));
    }
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    if parsed(expected).is_some() && parsed(expected) == parsed(actual) {
        return true;
    }
    if matches!(expected, "<time>" | "<later>") && actual.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let mut pattern = String::from("(?s)^");
    let mut names = Vec::new();
    let mut end = 0;
    for found in MARKER.find_iter(expected) {
        pattern.push_str(&regex::escape(&expected[end..found.start()]));
        end = found.end();
        let name = found.as_str();
        let key = bindings.key(name, !expected.starts_with('<'));
        match bindings.bound.get(&key) {
            Some(bound) => pattern.push_str(&regex::escape(bound)),
            None if name.starts_with("<uuid") || name.starts_with("<id") => {
                pattern.push_str("([0-9a-f-]+)");
                names.push(key);
            }
            None if name == "<pointer>" => pattern.push_str("0x[0-9a-f]+"),
            None if name == "<time>" || name == "<later>" => pattern.push_str(r"(?:\d+|[0-9T:.Z-]+)"),
            None => pattern.push_str(".*?"),
        }
    }
    if end == 0 {
        return false;
    }
    pattern.push_str(&regex::escape(&expected[end..]));
    pattern.push('$');
    let Some(found) = Regex::new(&pattern).expect("a pattern").captures(actual) else { return false };
    for (index, name) in names.into_iter().enumerate() {
        bindings.bound.insert(name, found[index + 1].to_owned());
    }
    true
}
