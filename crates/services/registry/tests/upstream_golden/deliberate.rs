//! Differences that are meant.

use serde::Deserialize;

/// A difference that is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exception {
    /// A pattern of the case's name.
    #[serde(default = "anything")]
    case: String,
    /// A pattern of the request: method, blank, path.
    #[serde(default = "anything")]
    request: String,
    /// A pattern of upstream's answer: status, blank, message or body.
    #[serde(default = "anything")]
    upstream: String,
    /// A pattern of our answer.
    #[serde(default = "anything")]
    ours: String,
    /// A pattern of the difference, as it is printed.
    #[serde(default = "anything")]
    difference: String,
    /// Whether later differences in the same case follow from this one.
    #[serde(default)]
    pub(crate) has_consequences: bool,
    #[expect(dead_code, reason = "for the reader of the list")]
    reason: String,
}

fn anything() -> String {
    String::new()
}

/// Reads the list.
pub(crate) fn read() -> Vec<Exception> {
    serde_saphyr::from_str(include_str!("../upstream_differences.yaml")).expect("the list of differences")
}

impl Exception {
    pub(crate) fn covers(
        &self,
        case: &str,
        request: &str,
        upstream: &str,
        ours: &str,
        difference: &str,
    ) -> bool {
        let matches =
            |pattern: &str, text: &str| regex::Regex::new(pattern).expect("a pattern").is_match(text);
        matches(&self.case, case)
            && matches(&self.request, request)
            && matches(&self.upstream, upstream)
            && matches(&self.ours, ours)
            && matches(&self.difference, difference)
    }
}
