//! YAML bodies (and so JSON), with the keys that they have more than once.

use std::fmt::Write as _;

use serde::de::DeserializeSeed as _;
use serde_json::Value;
use serde_saphyr::{Spanned, options::DuplicateKeyPolicy};

use super::tracked::{Noted, Tracked};
use crate::status::Failure;

/// As deep as JSON may be stored.
const DEPTH: usize = 120;
/// The YAML parser takes up to 32 KB for each level, which is more than threads usually have.
const STACK: usize = 8 << 20;
/// No more keys are reported: a body can have very many.
const REPORTED_AT_MOST: usize = 100;

/// A document that was read. The last of several values of a key counts, as in Kubernetes.
pub(crate) struct Yaml {
    pub(crate) value: Value,
    /// Lines and keys that were there already.
    duplicates: Vec<(u64, String)>,
}

impl Yaml {
    /// Reads YAML.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let mut repeated = Vec::new();
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
            && let Ok(value) = super::json::parse(bytes, Some(&mut repeated))
            && repeated.is_empty()
        {
            return Ok(Self { value, duplicates: Vec::new() });
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Failure::bad_request("error decoding YAML: the body is not UTF-8"))?;
        let parse = || {
            let options = serde_saphyr::options! {
                budget: serde_saphyr::budget! { max_depth: DEPTH },
                duplicate_keys: DuplicateKeyPolicy::LastWins,
            };
            let mut duplicates = Vec::new();
            let mut note = |noted: Noted<'_>| {
                if noted.is_duplicate && duplicates.len() < REPORTED_AT_MOST {
                    duplicates.push((noted.line, noted.key.to_owned()));
                }
            };
            let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
                Tracked::<Spanned<String>>::document(&mut note).deserialize(deserializer)
            });
            read.map(|value| Self { value, duplicates }).map_err(|error| error.to_string())
        };
        let parsed = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("yaml".into()).stack_size(STACK);
            thread.spawn_scoped(scope, parse).map(std::thread::ScopedJoinHandle::join)
        });
        let Ok(Ok(parsed)) = parsed else { return Err(Failure::internal("the YAML could not be read")) };
        parsed.map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))
    }

    /// What Go's strict decoder says of the keys that are there more than once.
    pub(crate) fn duplicate_keys(&self) -> Option<String> {
        if self.duplicates.is_empty() {
            return None;
        }
        let mut text = "error converting YAML to JSON: yaml: unmarshal errors:".to_owned();
        for (line, key) in &self.duplicates {
            let _ = write!(text, "\n  line {line}: key {key:?} already set in map");
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_there_already_are_named_with_their_lines() {
        let yaml =
            Yaml::parse(b"\nkind: A\nspec:\n  foo: 1\n  foo: 2\n  list:\n  - a: 1\n    a: 2\n").unwrap();
        assert_eq!(yaml.value, serde_json::json!({"kind": "A", "spec": {"foo": 2, "list": [{"a": 2}]}}));
        let expected = "error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key \"foo\" already set in map\n  line 8: key \"a\" already set in map";
        assert_eq!(yaml.duplicate_keys().as_deref(), Some(expected));
        let yaml = Yaml::parse(b"{\"a\": 1,\n\"a\": null}").unwrap();
        assert_eq!(yaml.value, serde_json::json!({"a": null}));
        assert_eq!(yaml.duplicates, [(2, "a".to_owned())]);
        assert!(Yaml::parse(b"a: 1\nb: [true, 1.5, null, text]").unwrap().duplicate_keys().is_none());
    }

    #[test]
    fn deep_bodies_are_refused() {
        assert!(Yaml::parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
