//! Why claims cannot be counted, worded as field errors of Kubernetes.

use std::collections::BTreeSet;
use std::fmt;

use quintet_cel::quoted;

use super::selector::Selector;

/// What is wrong with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Where, below the claim.
    path: String,
    /// The kind of error.
    kind: String,
    detail: String,
}

impl Problem {
    /// A value is wrong.
    pub(super) fn invalid(path: String, value: &str, detail: impl Into<String>) -> Self {
        Self { path, kind: format!("Invalid value: {value}"), detail: detail.into() }
    }

    /// A value is wrong and not shown.
    pub(super) fn null(path: String, detail: impl Into<String>) -> Self {
        Self::invalid(path, "null", detail)
    }

    /// It may be well as soon as other objects change.
    pub(super) fn internal(path: String, detail: impl Into<String>) -> Self {
        Self { path, kind: "Internal error".to_owned(), detail: detail.into() }
    }

    /// Selectors that cannot be compiled.
    pub(super) fn of_selectors(selectors: &[Selector], path: &str, context: &str) -> Vec<Self> {
        let wrong = |(index, selector): (usize, &Selector)| {
            let path = format!("{path}[{index}].cel.expression");
            let detail = format!("{context}: {}", selector.error()?);
            Some(Self::invalid(path, &quoted(selector.text()), detail))
        };
        selectors.iter().enumerate().filter_map(wrong).collect()
    }

    /// The same as an error of a claim; `prefix` is put before what is wrong.
    pub(super) fn of_claim(&self, claim: &str, prefix: &str) -> String {
        format!("{claim}.{}: {}: {prefix}{}", self.path, self.kind, self.detail)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.path, self.kind, self.detail)
    }
}

/// Several errors as one, each of them once.
pub(super) fn joined(errors: &[String]) -> String {
    let mut said = BTreeSet::new();
    let distinct: Vec<&str> = errors.iter().map(String::as_str).filter(|error| said.insert(*error)).collect();
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
