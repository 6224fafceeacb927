//! The results on several clusters, side by side.

use std::collections::HashMap;

use crate::{Outcome, Report};

const HEAD: &str = "<!-- Written by `make conformance`; do not edit. -->

# Conformance

What the suite in `tests/conformance` checks, and what it found. `make conformance` runs it again.

Workloads run on simulated nodes on both clusters, and again as processes of the machine. What only processes can show has tests of its own:
probes, hooks, init containers, sidecars, volumes and streams in `crates/embedded/kubelet/tests/pods`, connections to Services and names in
`crates/embedded/kubelet/tests/network`, both on one platform in `crates/quintet/tests/platform`.
";

/// A Markdown page: every promise of the first report, and what became of it on each cluster. An area has a column for
/// every report that is about it.
pub fn table(reports: &[Report]) -> String {
    let mut lines = vec![HEAD.to_owned()];
    let count = |report: &Report| {
        let kept = report.outcomes.len() - report.broken().count();
        format!("| {} | {kept} of {} |", report.version, report.outcomes.len())
    };
    lines.push("| cluster | promises kept |\n|---|---|".to_owned());
    lines.extend(reports.iter().map(count));
    let outcomes = reports.first().map(|report| report.outcomes.as_slice()).unwrap_or_default();
    for area in outcomes.chunk_by(|one, next| one.area == next.area) {
        lines.extend(section(area, reports));
    }
    lines.join("\n") + "\n"
}

/// One area of the first report.
fn section(area: &[Outcome], reports: &[Report]) -> Vec<String> {
    let Some(Outcome { area: name, .. }) = area.first() else { return Vec::new() };
    let of_area = |report: &'_ Report| -> HashMap<String, bool> {
        let outcomes = report.outcomes.iter().filter(|outcome| outcome.area == *name);
        outcomes.map(|outcome| (outcome.promise.clone(), outcome.broken.is_none())).collect()
    };
    let columns: Vec<(&str, HashMap<String, bool>)> = reports
        .iter()
        .map(|report| (report.version.as_str(), of_area(report)))
        .filter(|(_, results)| !results.is_empty())
        .collect();
    let versions: Vec<_> = columns.iter().map(|(version, _)| *version).collect();
    let mut lines = vec![
        format!("\n## {name}\n\n| promise | {} |", versions.join(" | ")),
        format!("|---|{}", "---|".repeat(columns.len())),
    ];
    for Outcome { promise, .. } in area {
        let marks = columns.iter().map(|(_, results)| match results.get(promise) {
            Some(true) => "kept",
            Some(false) => "**broken**",
            None => "not checked",
        });
        lines.push(format!("| {promise} | {} |", marks.collect::<Vec<_>>().join(" | ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let other = Outcome { area: "other".to_owned(), ..outcome("z", None) };
        let partial = Report { version: "c".into(), outcomes: vec![other] };
        let page = table(&[ours, theirs, partial]);
        let body = page.strip_prefix(HEAD).expect("the head");
        assert_eq!(
            body,
            "
| cluster | promises kept |
|---|---|
| a | 1 of 2 |
| b | 1 of 1 |
| c | 1 of 1 |

## patch

| promise | a | b |
|---|---|---|
| x | kept | kept |
| y | **broken** | not checked |
"
        );
    }
}
