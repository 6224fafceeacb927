//! Compares what came with what is recorded.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::case;
use crate::support::http::Response;
use crate::support::kubernetes::Seen;

/// Headers of single connections, and those that change.
const IGNORED_IN_RESPONSES: [&str; 4] = ["connection", "content-length", "date", "transfer-encoding"];
const IGNORED_IN_REQUESTS: [&str; 4] = ["accept-encoding", "connection", "content-length", "host"];

/// How a response differs from the recorded one.
pub(crate) fn response(recorded: &case::Response, ours: &Response) -> Option<String> {
    if recorded.status != ours.status {
        return Some(format!("status {} instead of {}: {}", ours.status, recorded.status, ours.text()));
    }
    let ours_headers = joined(&ours.headers, &IGNORED_IN_RESPONSES);
    if let Some(difference) = headers(&recorded.headers, &ours_headers, &IGNORED_IN_RESPONSES) {
        return Some(format!("headers {difference}"));
    }
    if recorded.empty {
        return (!ours.body.is_empty()).then(|| format!("body {:?} instead of none", ours.text()));
    }
    if let Some(text) = &recorded.text {
        return (*text != ours.text()).then(|| format!("body {:?} instead of {text:?}", ours.text()));
    }
    let json = recorded.json.as_ref()?;
    let body = serde_json::from_slice(&ours.body).unwrap_or_else(|_| Value::from(ours.text()));
    value("body", json, &body)
}

/// How the requests that the Kubernetes API got differ from the recorded ones. Equal ones in a row are retries.
pub(crate) fn requests(recorded: &[case::Saw], ours: &[Seen], port: u16) -> Option<String> {
    let mut groups: Vec<(&Seen, usize)> = Vec::new();
    for seen in ours {
        match groups.last_mut() {
            Some((last, times)) if *last == seen => *times += 1,
            _ => groups.push((seen, 1)),
        }
    }
    if groups.len() != recorded.len() {
        let uris: Vec<_> = groups.iter().map(|(seen, _)| format!("{} {}", seen.method, seen.uri)).collect();
        return Some(format!("kubernetes saw {uris:?} instead of {} requests", recorded.len()));
    }
    let mut all = recorded.iter().zip(groups);
    all.find_map(|(recorded, (seen, times))| request(recorded, seen, times, port))
        .map(|difference| format!("kubernetes saw {difference}"))
}

fn request(recorded: &case::Saw, ours: &Seen, times: usize, port: u16) -> Option<String> {
    let line = |method: &str, uri: &str| format!("{method} {uri}");
    let (theirs, line) = (line(&recorded.method, &recorded.uri), line(&ours.method, &ours.uri));
    if theirs != line {
        return Some(format!("{line} instead of {theirs}"));
    }
    if times != recorded.times {
        return Some(format!("{line} {times} times instead of {}", recorded.times));
    }
    let host = recorded.host.replace("<proxy port>", &port.to_string());
    if host != ours.host() {
        return Some(format!("host {} instead of {host}", ours.host()));
    }
    if let Some(difference) =
        headers(&recorded.headers, &joined(&ours.headers, &IGNORED_IN_REQUESTS), &IGNORED_IN_REQUESTS)
    {
        return Some(format!("headers {difference}"));
    }
    let text = String::from_utf8_lossy(&ours.body);
    match (&recorded.json, &recorded.body) {
        (Some(json), _) => {
            value("body", json, &serde_json::from_slice(&ours.body).unwrap_or_else(|_| Value::from(&*text)))
        }
        (None, Some(body)) => (*body != text).then(|| format!("body {text:?} instead of {body:?}")),
        (None, None) => (!text.is_empty()).then(|| format!("body {text:?} instead of none")),
    }
}

/// Headers by name, in lower case; several values are a list.
fn joined(headers: &[(String, String)], ignored: &[&str]) -> BTreeMap<String, String> {
    let mut joined: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let name = name.to_lowercase();
        if !ignored.contains(&name.as_str()) {
            joined
                .entry(name)
                .and_modify(|all| *all = format!("{all}, {value}"))
                .or_insert_with(|| value.clone());
        }
    }
    joined
}

fn headers(
    recorded: &Map<String, Value>,
    ours: &BTreeMap<String, String>,
    ignored: &[&str],
) -> Option<String> {
    let mut expected = BTreeMap::new();
    for (name, value) in recorded {
        let value = match value {
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        expected.insert(name.to_lowercase(), value);
    }
    expected.retain(|name, _| !ignored.contains(&name.as_str()));
    for (name, value) in &expected {
        match ours.get(name) {
            None => return Some(format!("{name}: {value} is missing")),
            Some(other) if other != value => return Some(format!("{name}: {other} instead of {value}")),
            Some(_) => {}
        }
    }
    let extra = ours.iter().find(|(name, _)| !expected.contains_key(*name));
    extra.map(|(name, value)| format!("{name}: {value} is not recorded"))
}

/// How a value differs. Numbers are compared as floats, which is what upstream makes of all of them.
fn value(place: &str, recorded: &Value, ours: &Value) -> Option<String> {
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            let mut names = recorded.keys().chain(ours.keys());
            names.find_map(|name| match (recorded.get(name), ours.get(name)) {
                (Some(recorded), Some(ours)) => value(&format!("{place}.{name}"), recorded, ours),
                (None, Some(ours)) => Some(format!("{place}.{name}: {ours} is not recorded")),
                (recorded, None) => Some(format!("{place}.{name}: {recorded:?} is missing")),
            })
        }
        (Value::Array(recorded), Value::Array(ours)) if recorded.len() == ours.len() => {
            let mut both = recorded.iter().zip(ours).enumerate();
            both.find_map(|(index, (recorded, ours))| value(&format!("{place}[{index}]"), recorded, ours))
        }
        (Value::Number(recorded), Value::Number(ours)) if recorded.as_f64() == ours.as_f64() => None,
        _ if recorded == ours => None,
        _ => Some(format!("{place}: {ours} instead of {recorded}")),
    }
}
