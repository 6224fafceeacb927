//! Differences that are meant.

use serde::Deserialize;

use crate::matching::matches_glob;

/// The list of an operator.
pub(crate) struct Deliberate(Vec<Exception>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// The case; `*` stands for any text.
    case: String,
    /// What differs; `*` stands for any text.
    difference: String,
    /// Why it is meant.
    reason: String,
}

impl Deliberate {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text)
            .map(Self)
            .map_err(|error| format!("the list of deliberate differences: {error}"))
    }

    /// Why a difference is meant, if it is.
    pub(crate) fn reason(&mut self, case: &str, difference: &str) -> Option<&str> {
        let is_meant =
            |one: &&Exception| matches_glob(&one.case, case) && matches_glob(&one.difference, difference);
        self.0.iter().find(is_meant).map(|one| one.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_meant_if_case_and_text_are_listed() {
        let list = "[{case: 'drift*', difference: '*: gone *', reason: it is repaired}]";
        let mut deliberate = Deliberate::read(list).unwrap();
        assert_eq!(deliberate.reason("drift-two", "a: gone b"), Some("it is repaired"));
        assert_eq!(deliberate.reason("other", "a: gone b"), None);
        assert_eq!(deliberate.reason("drift", "a: new b"), None);
    }
}
