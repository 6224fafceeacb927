//! Errors about fields, in the words of Kubernetes' `field` package.

use serde_json::Value;

/// A value that is longer is cut: templates fill pages.
const VALUE_AT_MOST: usize = 256;

pub(crate) fn forbidden(path: &str, why: &str) -> String {
    format!("{path}: Forbidden: {why}")
}

pub(crate) fn required(path: &str, why: &str) -> String {
    format!("{path}: Required value: {why}")
}

pub(crate) fn invalid(path: &str, value: &Value, why: &str) -> String {
    let mut text = value.to_string();
    if text.len() > VALUE_AT_MOST {
        text.truncate(text.floor_char_boundary(VALUE_AT_MOST));
        text.push('…');
    }
    format!("{path}: Invalid value: {text}: {why}")
}

/// All errors as one message, each once, as an aggregate prints them; `None` if there are none.
pub(crate) fn aggregate(mut errors: Vec<String>) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match errors.len() {
        0 => None,
        1 => errors.into_iter().next(),
        _ => Some(format!("[{}]", errors.join(", "))),
    }
}
