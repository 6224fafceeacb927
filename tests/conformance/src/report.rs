//! What was found out.

use serde::{Deserialize, Serialize};

use crate::Case;

/// The result of one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// What part of the API it is about.
    pub area: String,
    /// The promise.
    pub promise: String,
    /// Why it is not kept; `None` if it is.
    pub broken: Option<String>,
}

impl Outcome {
    pub(crate) fn of(case: Case, result: anyhow::Result<()>) -> Self {
        Self {
            area: case.area.to_owned(),
            promise: case.promise.to_owned(),
            broken: result.err().map(|error| format!("{error:#}")),
        }
    }
}

/// The results of all cases.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What the cluster says it is.
    pub version: String,
    /// One per case, in the order of the suite.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// The promises that are not kept.
    pub fn broken(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.broken.is_some())
    }

    /// The results for people; the last line counts them.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for Outcome { area, promise, broken } in &self.outcomes {
            let mark = if broken.is_some() { "BROKEN" } else { "kept" };
            lines.push(format!("{mark:<7} {area:<16} {promise}"));
            lines.extend(broken.iter().map(|why| format!("        {}", why.replace('\n', "\n        "))));
        }
        let broken = self.broken().count();
        lines.push(format!("conformance: {} passed, {broken} failed\n", self.outcomes.len() - broken));
        lines.join("\n")
    }
}
