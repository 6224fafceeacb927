//! Counts exchanges by what came of them.

use std::fmt;

use serde::Deserialize;

/// A difference that is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// A pattern of the case's name.
    #[serde(default)]
    case: String,
    /// A pattern of what was asked.
    #[serde(default)]
    request: String,
    /// A pattern of the difference, as it is printed.
    #[serde(default)]
    difference: String,
    #[expect(dead_code, reason = "for the reader of the list")]
    reason: String,
}

pub(crate) struct Counts {
    exceptions: Vec<Exception>,
    equal: usize,
    deliberate: usize,
    pub(crate) differ: usize,
    pub(crate) unsupported: usize,
}

impl Counts {
    pub(crate) fn new() -> Self {
        let exceptions = serde_saphyr::from_str(include_str!("../upstream_differences.yaml"))
            .expect("the list of differences");
        Self { exceptions, equal: 0, deliberate: 0, differ: 0, unsupported: 0 }
    }

    pub(crate) fn total(&self) -> usize {
        self.equal + self.deliberate + self.differ + self.unsupported
    }

    /// Notes something that this test cannot do.
    pub(crate) fn cannot(&mut self, case: &str, what: &str) {
        self.unsupported += 1;
        println!("{case}: this test cannot do: {what}");
    }

    pub(crate) fn add(&mut self, case: &str, request: &str, difference: Option<String>) {
        let Some(difference) = difference else {
            self.equal += 1;
            return;
        };
        let matches =
            |pattern: &str, text: &str| regex::Regex::new(pattern).expect("a pattern").is_match(text);
        let is_meant = self.exceptions.iter().any(|it| {
            matches(&it.case, case) && matches(&it.request, request) && matches(&it.difference, &difference)
        });
        if is_meant {
            self.deliberate += 1;
        } else {
            self.differ += 1;
            let request: String = request.chars().take(160).collect();
            println!("{case}: {request}: {difference}");
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { equal, deliberate, differ, unsupported, .. } = self;
        write!(
            formatter,
            "{equal} equal, {deliberate} deliberate, {differ} differ, {unsupported} unsupported"
        )
    }
}
