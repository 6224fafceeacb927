//! Runs decision vectors: JSON tables of cases with objects in and decisions out.
//!
//! The directory comes from `QUINTET_VECTORS`; every `<area>/<table>.json` in it is run. Prints the ids
//! that differ, then counts per table, then one line with the totals.

#![expect(clippy::print_stdout, reason = "the report is the product of this target")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]
#![expect(unreachable_pub, reason = "modules of one test binary")]

mod cache;
mod case;
mod cohorts;
mod compare;
mod flavors;
mod objects;
mod preemption;
mod resources;
mod schedule;
mod scripts;
mod tas;
mod util;
mod workload;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use case::{Case, Verdict};
use serde_json::Value;

fn main() -> ExitCode {
    let Some(directory) = std::env::var_os("QUINTET_VECTORS") else {
        println!("vectors: QUINTET_VECTORS is not set, nothing to run");
        return ExitCode::SUCCESS;
    };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let mut files = Vec::new();
    collect(Path::new(&directory), &mut files);
    files.sort();
    std::panic::set_hook(Box::new(|_| {}));

    let mut tables: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("vector files can be read");
        let Ok(table) = serde_json::from_str::<Value>(&text) else {
            println!("{}: not JSON", file.display());
            continue;
        };
        let Some(cases) = table["cases"].as_array() else {
            continue;
        };
        let name = table["table"].as_str().unwrap_or("").to_owned();
        let counts = tables.entry(name.clone()).or_default();
        for raw in cases {
            let case = Case::new(&table, raw);
            let id = format!("{name}/{}", case.id);
            if only.as_ref().is_some_and(|only| !id.contains(only.as_str())) {
                continue;
            }
            let verdict = catch_unwind(AssertUnwindSafe(|| run(&case)))
                .unwrap_or_else(|panic| Verdict::Differs(format!("panic: {}", describe(panic.as_ref()))));
            match verdict {
                Verdict::Same => counts[0] += 1,
                Verdict::Unsupported => counts[2] += 1,
                Verdict::Differs(how) => {
                    counts[1] += 1;
                    println!("{id}: {how}");
                }
            }
        }
    }
    let mut totals = [0; 3];
    for (table, counts) in &tables {
        let [passed, failed, unsupported] = counts;
        if counts.iter().sum::<usize>() > 0 {
            println!("{table}: {passed} passed, {failed} failed, {unsupported} unsupported");
        }
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    println!("vectors: {} passed, {} failed, {} unsupported", totals[0], totals[1], totals[2]);
    if totals[1] == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the vector directory can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
}

fn describe(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

fn run(case: &Case<'_>) -> Verdict {
    match case.op() {
        "schedule" => schedule::schedule(case),
        "scheduleSteps" => schedule::steps(case),
        op if schedule::OPS.contains(&op) => schedule::single(case),
        op if preemption::OPS.contains(&op) => preemption::run(case),
        op if flavors::OPS.contains(&op) => flavors::run(case),
        op if cache::OPS.contains(&op) => cache::run(case),
        op if cohorts::OPS.contains(&op) => cohorts::run(case),
        op if tas::OPS.contains(&op) => tas::run(case),
        op if resources::OPS.contains(&op) => resources::run(case),
        op if workload::OPS.contains(&op) => workload::run(case),
        op if util::OPS.contains(&op) => util::run(case),
        "script" => scripts::run(case),
        _ => Verdict::Unsupported,
    }
}
