//! JSON bodies, with the fields that they have more than once.

use std::collections::HashSet;

use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::tracked::{Noted, Tracked};

/// No more fields are reported, as in Kubernetes: a body can have very many, at very long paths.
const REPORTED_AT_MOST: usize = 100;
const PATH_AT_MOST: usize = 1024;

fn track(bytes: &[u8], note: &mut dyn FnMut(Noted<'_>)) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Tracked::<String>::document(note).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads JSON; fields that are given twice are named.
pub(super) fn parse(bytes: &[u8], duplicates: Option<&mut Vec<String>>) -> Result<Value, serde_json::Error> {
    let Some(duplicates) = duplicates else { return serde_json::from_slice(bytes) };
    track(bytes, &mut |noted| {
        if noted.is_duplicate && duplicates.len() < REPORTED_AT_MOST {
            let path: String = noted.path.to_string().chars().take(PATH_AT_MOST).collect();
            if !duplicates.contains(&path) {
                duplicates.push(path);
            }
        }
    })
}

/// What is wrong with the fields of a body that was read before, in the order of the body: Kubernetes finds fields
/// that a built-in kind does not have, and those that are there already, while it reads.
pub(super) fn in_document_order(bytes: &[u8], unknown: &[String]) -> Vec<String> {
    let unknown: HashSet<&str> = unknown.iter().map(String::as_str).collect();
    let mut complaints = Vec::new();
    // It was read before, so that it can be read now.
    let _ = track(bytes, &mut |noted| {
        let path: String = noted.path.to_string().chars().take(PATH_AT_MOST).collect();
        let complaint = match (unknown.contains(path.as_str()), noted.is_duplicate) {
            (true, _) => super::unknown_field(&path),
            (false, true) => super::duplicate(&path),
            (false, false) => return,
        };
        if complaints.len() < REPORTED_AT_MOST && !complaints.contains(&complaint) {
            complaints.push(complaint);
        }
    });
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_named() {
        let mut duplicates = Vec::new();
        let value = parse(br#"{"a":{"b":1,"b":2},"l":[{"x":1,"x":2}]}"#, Some(&mut duplicates)).unwrap();
        assert_eq!(duplicates, ["a.b", "l[0].x"]);
        assert_eq!(value["a"]["b"], 2);
    }

    #[test]
    fn complaints_are_in_the_order_of_the_body() {
        let body = br#"{"z":1,"spec":{"bogus":"a","replicas":2,"replicas":3,"replicas":4},"other":1}"#;
        let unknown = ["other".to_owned(), "spec.bogus".to_owned(), "z".to_owned()];
        let complaints = in_document_order(body, &unknown);
        let expected = [
            "unknown field \"z\"",
            "unknown field \"spec.bogus\"",
            "duplicate field \"spec.replicas\"",
            "unknown field \"other\"",
        ];
        assert_eq!(complaints, expected);
    }

    #[test]
    fn deep_bodies_are_refused() {
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes(), Some(&mut Vec::new())).is_err());
        assert!(parse(deep.as_bytes(), None).is_err());
    }
}
