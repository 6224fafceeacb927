//! The results on several clusters, side by side.

use std::collections::HashMap;

use crate::Report;

const HEAD: &str = "<!-- Written by `make conformance`; do not edit. -->

# Conformance

What the suite in `tests/conformance` checks, and what it found. `make conformance` runs it again.
";

/// A Markdown page: every promise of the first report, and what became of it on each cluster.
pub fn table(reports: &[Report]) -> String {
    let mut lines = vec![HEAD.to_owned()];
    let results: Vec<HashMap<_, _>> = reports
        .iter()
        .map(|report| {
            report.outcomes.iter().map(|outcome| ((&outcome.area, &outcome.promise), outcome)).collect()
        })
        .collect();
    let count = |report: &Report| {
        let kept = report.outcomes.len() - report.broken().count();
        format!("| {} | {kept} of {} |", report.version, report.outcomes.len())
    };
    lines.push("| cluster | promises kept |\n|---|---|".to_owned());
    lines.extend(reports.iter().map(count));
    let mut area = None;
    for outcome in reports.first().map(|report| report.outcomes.as_slice()).unwrap_or_default() {
        if area != Some(&outcome.area) {
            let versions: Vec<_> = reports.iter().map(|report| report.version.as_str()).collect();
            lines.push(format!("\n## {}\n\n| promise | {} |", outcome.area, versions.join(" | ")));
            lines.push(format!("|---|{}", "---|".repeat(reports.len())));
        }
        area = Some(&outcome.area);
        let marks = results.iter().map(|results| match results.get(&(&outcome.area, &outcome.promise)) {
            Some(outcome) if outcome.broken.is_none() => "kept",
            Some(_) => "**broken**",
            None => "not checked",
        });
        lines.push(format!("| {} | {} |", outcome.promise, marks.collect::<Vec<_>>().join(" | ")));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    #[test]
    fn every_promise_has_a_row_and_every_cluster_a_column() {
        let outcome = |promise: &str, broken: Option<&str>| Outcome {
            area: "patch".to_owned(),
            promise: promise.to_owned(),
            broken: broken.map(ToOwned::to_owned),
        };
        let ours =
            Report { version: "a".into(), outcomes: vec![outcome("x", None), outcome("y", Some("why"))] };
        let theirs = Report { version: "b".into(), outcomes: vec![outcome("x", None)] };
        let page = table(&[ours, theirs]);
        let body = page.strip_prefix(HEAD).expect("the head");
        assert_eq!(
            body,
            "
| cluster | promises kept |
|---|---|
| a | 1 of 2 |
| b | 1 of 1 |

## patch

| promise | a | b |
|---|---|---|
| x | kept | kept |
| y | **broken** | not checked |
"
        );
    }
}
