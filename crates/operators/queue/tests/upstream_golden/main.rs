//! Compares decisions with recordings of Kueue: webhook decisions, conversions, and lifecycles on the embedded API.
//!
//! The directory comes from `QUINTET_GOLDEN`; every `*.yaml` in it is a case. Prints a line per difference, then the totals.
//! Cases of parts that do not exist yet are counted as unsupported.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code whose report is its product"
)]

mod acts;
mod admission;
#[path = "../bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;
mod canonical;
mod compare;
mod job_webhooks;
mod lifecycle;
mod metrics;
mod startup;
mod visibility;

use std::path::Path;

use quintet_api::conversion::convert;
use serde_json::Value;

/// Where Quintet decides otherwise on purpose. `*` stands for the kinds or variants that are recorded alike.
const DELIBERATE: &[(&str, &str)] = &[
    (
        "elastic-job",
        "a slice has the pod template of the one before, not that of the running Job, and loses its finalizer when \
            it has ended",
    ),
    ("job-zero-parallelism", "the Job controller of the test does not complete a suspended Job of no pods"),
    ("jobset", "the recorded state lasts for less than the steps of the comparison"),
    ("localqueue-hold", "the count of pending Workloads follows at once when a LocalQueue is stopped"),
    (
        "manage-all-unselected-namespace",
        "the namespace of the recording has a label that the recording does not show",
    ),
    (
        "pod-group-deleted-while-pending",
        "a Workload that waits for replacement pods is not queued, and not counted",
    ),
    ("podsready-recovery-timeout", "the recorded state lasts for less than the steps of the comparison"),
    (
        "sched-reclaim-newest-first",
        "in how many steps victims are preempted depends on when the others have stopped",
    ),
    (
        "sched-within-lowest-priority-first",
        "in how many steps victims are preempted depends on when the others have stopped",
    ),
    ("tas-node-tainted", "the recorded program replaces the pod once more when it has moved"),
    ("webhook-manage-all-*-owner-missing", "denials have the code 403"),
    ("webhook-manage-all-*-unselected", "jobs in namespaces that are not managed are left alone"),
    (
        "gates-concurrent-admission",
        "a variant that migrates is evicted once, and not at every attempt until its job has stopped",
    ),
    ("fair-sharing-preemption", "which of several equal Workloads is preempted depends on their uids"),
    ("job-max-exec-time", "DeactivationTarget is removed after the deactivation, and not set again"),
    (
        "startup-gates-in-both-places",
        "gates of the command line are added to those of the file, for all operators of the process",
    ),
    ("gates-pending-reasons", "the random end of a pod's name is part of its prefix"),
    ("job-long-name", "the random end of a pod's name is part of its prefix"),
    ("check-rejected", "a Workload that was deactivated by Kueue is queued again when it is activated"),
    ("clusterqueue-deleted-in-use", "which of two reasons a waiting Workload has is a matter of chance"),
    (
        "clusterqueue-holdanddrain",
        "whether a waiting Workload says that its queue is inactive is a matter of chance",
    ),
    ("conversion-cohort-up-parent", "an unknown field passes through; the API server has pruned it before"),
    (
        "conversion-multikueuecluster-down-*",
        "locationType is the default of the schema, which refuses an empty one",
    ),
];

/// Where conversion keeps what an older version has no field for. Kueue drops it.
const NEWER_FIELDS: &str = "/metadata/annotations/api.quintet.dev~1newer-fields";

enum Outcome {
    Equal,
    Deliberate(&'static str),
    Differs(String),
    Unsupported(String),
}

impl Outcome {
    fn of(difference: Option<String>) -> Self {
        difference.map_or(Self::Equal, Self::Differs)
    }
}

#[test]
fn decisions_conversions_and_lifecycles_equal_those_of_upstream() {
    quintet_golden::simulate(async {
        compare_all().await;
        Ok(())
    })
    .unwrap();
}

async fn compare_all() {
    let Some(directory) = std::env::var_os("QUINTET_GOLDEN") else {
        println!("golden: QUINTET_GOLDEN is not set, nothing to compare");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(Path::new(&directory))
        .expect("the directory can be read")
        .map(|entry| entry.expect("the directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let [mut equal, mut deliberate, mut differ, mut unsupported] = [0; 4];
    let template = bed::kueue_template().await;
    // Says how deliberate differences differ, too.
    let is_verbose = std::env::var_os("QUINTET_GOLDEN_VERBOSE").is_some();
    // One case, or those whose names begin alike.
    let only = std::env::var("QUINTET_GOLDEN_CASE").unwrap_or_default();
    files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&only)));
    for file in files {
        // `n` is a text, as in YAML 1.2, which the recordings are written in.
        let text = std::fs::read_to_string(&file).expect("a case can be read");
        let case: Value =
            serde_saphyr::from_str_with_options(&text, serde_saphyr::options! { strict_booleans: true })
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = case["case"].as_str().expect("a case has a name").to_owned();
        let outcome = match run(&case, &template).await {
            Outcome::Differs(how) => match DELIBERATE.iter().find(|(known, _)| is_like(&name, known)) {
                Some((_, why)) if is_verbose => {
                    println!("{name}: {how}");
                    Outcome::Deliberate(why)
                }
                Some((_, why)) => Outcome::Deliberate(why),
                None => Outcome::Differs(how),
            },
            other => other,
        };
        match outcome {
            Outcome::Equal => equal += 1,
            Outcome::Unsupported(what) => {
                unsupported += 1;
                println!("{name}: unsupported: {what}");
            }
            Outcome::Deliberate(why) => {
                deliberate += 1;
                println!("{name}: deliberate: {why}");
            }
            Outcome::Differs(how) => {
                differ += 1;
                println!("{name}: {how}");
            }
        }
    }
    println!("golden: {equal} equal, {deliberate} deliberate, {differ} differ, {unsupported} unsupported");
    assert_eq!(differ, 0);
}

fn is_like(name: &str, pattern: &str) -> bool {
    let Some((begin, end)) = pattern.split_once('*') else { return name == pattern };
    name.strip_prefix(begin).is_some_and(|rest| rest.ends_with(end))
}

async fn run(case: &Value, template: &quintet_golden::Api) -> Outcome {
    if case["steps"].is_array() {
        return match lifecycle::compare(case, template).await {
            Ok(found) if found.is_empty() => Outcome::Equal,
            Ok(found) => Outcome::Differs(format!("\n    {}", found.join("\n    "))),
            Err(missing) => Outcome::Unsupported(missing),
        };
    }
    if case["conversion"].is_object() {
        return conversion(&case["conversion"]);
    }
    if case["startup"].is_object() {
        return match startup::compare(&case["startup"]) {
            Ok(difference) => Outcome::of(difference),
            Err(missing) => Outcome::Unsupported(missing),
        };
    }
    if !case["metrics"].is_null() {
        return match metrics::families(case, template).await {
            Ok(found) if found.is_empty() => Outcome::Equal,
            Ok(found) => Outcome::Differs(found.join("; ")),
            Err(missing) => Outcome::Unsupported(missing),
        };
    }
    let input = &case["webhook"]["input"];
    let is_own_kind =
        input["apiVersion"].as_str().is_some_and(|version| version.starts_with("kueue.x-k8s.io/"));
    if !is_own_kind {
        return match job_webhooks::compare(case, template).await {
            Ok(found) if found.is_empty() => Outcome::Equal,
            Ok(found) => Outcome::Differs(found.join("; ")),
            Err(missing) => Outcome::Unsupported(missing),
        };
    }
    let gates = serde_json::from_value(case["environment"]["feature gates"].clone()).unwrap_or_default();
    Outcome::of(admission::compare(&case["webhook"], &gates).await)
}

fn conversion(conversion: &Value) -> Outcome {
    let to = conversion["to"].as_str().expect("a version to convert to");
    let output = match convert(conversion["input"].clone(), to) {
        Ok(output) => output,
        Err(error) => return Outcome::Differs(format!("cannot convert: {error}")),
    };
    let keeps_more = output.pointer(NEWER_FIELDS).is_some();
    let difference = compare::objects(&output, &conversion["output"]);
    match difference {
        None if keeps_more => {
            Outcome::Deliberate("fields that the older version lacks are kept in an annotation")
        }
        difference => Outcome::of(difference),
    }
}
