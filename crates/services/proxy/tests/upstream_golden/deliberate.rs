//! Differences that are meant.

use serde::Deserialize;

/// A difference that is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exception {
    /// A pattern of the request: method, blank, path and query, then its headers.
    #[serde(default)]
    request: String,
    /// A pattern of the difference, as it is printed.
    #[serde(default)]
    difference: String,
    #[expect(dead_code, reason = "for the reader of the list")]
    reason: String,
}

/// Reads the list.
pub(crate) fn read() -> Vec<Exception> {
    serde_saphyr::from_str(include_str!("../upstream_differences.yaml")).expect("the list of differences")
}

impl Exception {
    pub(crate) fn covers(&self, request: &str, difference: &str) -> bool {
        let matches =
            |pattern: &str, text: &str| regex::Regex::new(pattern).expect("a pattern").is_match(text);
        matches(&self.request, request) && matches(&self.difference, difference)
    }
}
