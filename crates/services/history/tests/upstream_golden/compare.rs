//! Compares answers with recorded ones.

use base64::Engine as _;
use serde_json::Value;

use crate::http::Answer;

/// How an answer differs from the recorded one.
pub(crate) fn difference(recorded: &Value, answer: &Answer, cookies: &[(String, String)]) -> Option<String> {
    let status = recorded["status"].as_u64().unwrap_or_default();
    if u64::from(answer.status) != status {
        return Some(format!("status {} instead of {status}: {}", answer.status, short(&answer.text())));
    }
    for (name, expected) in recorded["headers"].as_object().into_iter().flatten() {
        if name == "Set-Cookie" {
            let expected: Vec<&str> =
                expected.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if answer.all(name) != expected {
                return Some(format!("cookies {:?} instead of {expected:?}", answer.all(name)));
            }
            continue;
        }
        let expected = expected.as_str().unwrap_or_default();
        let actual = answer.header(name).unwrap_or_default();
        if !matches(expected, actual) {
            return Some(format!("header {name}: {actual:?} instead of {expected:?}"));
        }
    }
    if recorded["cookies_reissued"] == true {
        let names = ["cluster_name", "cluster_namespace", "session_name", "owner_kind", "owner_name"];
        let expected: Vec<String> = names
            .iter()
            .map(|name| {
                let value = cookies.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str());
                format!("{name}={}; Path=/; Max-Age=600", value.unwrap_or_default())
            })
            .collect();
        if answer.all("Set-Cookie") != expected {
            return Some(format!("cookies {:?} instead of {expected:?}", answer.all("Set-Cookie")));
        }
    } else if recorded["headers"].get("Set-Cookie").is_none() && !answer.all("Set-Cookie").is_empty() {
        return Some("cookies instead of none".to_owned());
    }
    body(recorded, answer)
}

fn body(recorded: &Value, answer: &Answer) -> Option<String> {
    if recorded.get("body").is_some() {
        return None;
    }
    if let Some(expected) = recorded.get("base64").and_then(Value::as_str) {
        let expected = base64::engine::general_purpose::STANDARD.decode(expected).expect("base64");
        return (expected != answer.body).then(|| "other bytes".to_owned());
    }
    if let Some(expected) = recorded.get("text").and_then(Value::as_str) {
        let actual = answer.text();
        return (!matches(expected, &actual))
            .then(|| format!("text {:?} instead of {:?}", short(&actual), short(expected)));
    }
    let Some(expected) = recorded.get("json") else {
        return (!answer.body.is_empty())
            .then(|| format!("body {:?} instead of none", short(&answer.text())));
    };
    let actual: Value = match serde_json::from_slice(&answer.body) {
        Ok(actual) => actual,
        Err(error) => return Some(format!("no JSON ({error}): {}", short(&answer.text()))),
    };
    let is_indented = answer.body.contains(&b'\n');
    if let Some(style) = recorded.get("style").and_then(Value::as_str)
        && (style == "indented") != is_indented
    {
        return Some(format!("the JSON is not {style}"));
    }
    let (mut expected, mut actual) = (expected.clone(), actual);
    if recorded["unordered"] == true {
        sort(&mut expected);
        sort(&mut actual);
    }
    if recorded["demand_lines_in_any_order"] == true {
        sort_demands(&mut expected);
        sort_demands(&mut actual);
    }
    differs(&expected, &actual)
}

/// Sorts all lists.
fn sort(value: &mut Value) {
    match value {
        Value::Array(elements) => {
            elements.iter_mut().for_each(sort);
            elements.sort_by_cached_key(normal);
        }
        Value::Object(members) => members.values_mut().for_each(sort),
        _ => {}
    }
}

/// A text in which equal numbers are spelled alike.
fn normal(value: &Value) -> String {
    match value {
        Value::Number(number) => format!("{:?}", number.as_f64()),
        Value::Array(elements) => elements.iter().map(normal).collect::<Vec<_>>().join(","),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| format!("{name}:{}", normal(value)))
            .collect::<Vec<_>>()
            .join(","),
        other => other.to_string(),
    }
}

fn sort_demands(answer: &mut Value) {
    let Some(status) = answer.pointer_mut("/data/clusterStatus") else { return };
    let text = status.as_str().unwrap_or_default().to_owned();
    if let Some((before, demands)) = text.split_once("Pending Demands:\n") {
        let mut lines: Vec<&str> = demands.lines().collect();
        lines.sort_unstable();
        *status = Value::String(format!("{before}Pending Demands:\n{}\n", lines.join("\n")));
    }
}

pub(crate) fn differs(expected: &Value, actual: &Value) -> Option<String> {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            if let Some(name) = actual.keys().find(|name| !expected.contains_key(*name)) {
                return Some(format!("has .{name} {}", short(&actual[name].to_string())));
            }
            expected.iter().find_map(|(name, expected)| match actual.get(name) {
                None => Some(format!("lacks .{name} {}", short(&expected.to_string()))),
                Some(actual) => differs(expected, actual).map(|path| format!(".{name}{path}")),
            })
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(index, (left, right))| {
                differs(left, right).map(|path| format!("[{index}]{path}"))
            })
        }
        // The decoder may be off by the last bit.
        (Value::Number(left), Value::Number(right))
            if left
                .as_f64()
                .zip(right.as_f64())
                .is_some_and(|(left, right)| (left - right).abs() <= left.abs() * 4.0 * f64::EPSILON) =>
        {
            None
        }
        // The recording spells some identifiers of digits without quotes.
        (Value::Number(left), Value::String(right))
            if right.starts_with('0') && left.as_f64() == right.parse().ok() =>
        {
            None
        }
        (Value::String(marker), Value::Number(_)) if marker.starts_with("<created") => None,
        (Value::String(left), Value::String(right)) if matches(left, right) => None,
        (left, right) if left == right => None,
        (left, right) => {
            Some(format!(" {} instead of {}", short(&right.to_string()), short(&left.to_string())))
        }
    }
}

/// Whether a text is the recorded one, whose changing parts are markers.
fn matches(recorded: &str, actual: &str) -> bool {
    if !recorded.contains('<') || recorded == actual {
        return recorded == actual;
    }
    let markers = [
        ("<created:YYYY-MM-DD HH:MM:SS \\+0000 UTC>", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC"),
        ("<now:YYYY-MM-DD_HH-MM-SS>", r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"),
        ("<dashboard port>", r"\d+"),
        ("<k8s port>", r"\d+"),
    ];
    let mut pattern = regex::escape(recorded);
    for (marker, replacement) in markers {
        pattern = pattern.replace(&regex::escape(marker).replace("\\\\\\+", "\\+"), replacement);
        pattern = pattern.replace(marker, replacement);
    }
    pattern = pattern.replace("<created:YYYY\\-MM\\-DD HH:MM:SS \\+0000 UTC>", markers[0].1);
    pattern = pattern.replace("<now:YYYY\\-MM\\-DD_HH\\-MM\\-SS>", markers[1].1);
    regex::Regex::new(&format!("(?s)^{pattern}$")).is_ok_and(|pattern| pattern.is_match(actual))
}

pub(crate) fn short(text: &str) -> String {
    text.chars().take(300).collect()
}
