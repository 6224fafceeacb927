//! The text of a simulation report.

#![allow(clippy::unwrap_used, reason = "a test may stop where it is wrong")]

use quintet_queue_engine::simulate::simulate;

fn plan(quota: &str, request: &str) -> String {
    format!(
        "
cohorts:
- className: team
  count: 1
  queuesSets:
  - {{className: research, count: 1, nominalQuota: {quota}, workloadsSets: [
      {{count: 3, creationIntervalMs: 1000, workloads: [{{className: job, runtimeMs: 4000, request: {request}}}]}}]}}
"
    )
}

#[test]
fn the_report_has_wait_times_and_utilization() {
    let report = simulate(&plan("1", "1")).unwrap();
    // They arrive at 1, 2 and 3 s and run one after another; the next is flushed a second after an end.
    assert_eq!(report.classes["job"].waits, [0.0, 4.0, 8.0]);
    let text = report.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "15.0 s of virtual time");
    assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>().join(" "), "job 3 3 0 4.0 s 4.0 s 8.0 s");
    let plot = lines.last().unwrap();
    assert!(plot.starts_with("research    80 %  |    #"), "{plot}");
}

#[test]
fn workloads_that_never_fit_are_named() {
    let text = simulate(&plan("1", "2")).unwrap().text();
    assert!(text.contains("3 of job never ran: they do not fit"), "{text}");
}

#[test]
fn errors_name_the_field_and_its_owner() {
    let error = |yaml: &str| simulate(yaml).unwrap_err().to_string();
    assert_eq!(
        error(&plan("1x", "1")),
        "nominalQuota of research is \"1x\", which is not a quantity such as 20 or 500m"
    );
    assert!(error("cohorts: []").contains("no workloads"), "{}", error("cohorts: []"));
    let misspelt = error("cohorts:\n- className: a\n  count: 1\n  queueSets: []\n");
    assert!(misspelt.contains("queueSets") && misspelt.contains("queuesSets"), "{misspelt}");
    assert_eq!(misspelt.lines().count(), 1);
}
