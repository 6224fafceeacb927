//! The history server and the collector against recorded behaviour of upstream's.
//!
//! `QUINTET_GOLDEN=DIR cargo test -p quintet-history --test upstream_golden -- --nocapture` replays the cases in `DIR`
//! (or in its folders `ray-history` and `ray-collector`) and compares. It prints a line per difference and ends with the
//! counts, in exchanges. Starts of the command with good and bad flags are compared by the test `history_starts` of the binary.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the differences are the result")]
#![expect(clippy::disallowed_methods, reason = "tasks of a test end with it")]

mod collectors;
mod compare;
mod counts;
mod http;
mod sessions;
mod stand_ins;

use std::path::{Path, PathBuf};

use counts::Counts;
use serde_json::Value;

/// Names the folder with recorded cases.
const DIRECTORY: &str = "QUINTET_GOLDEN";

/// Runs only cases whose names hold this.
const ONLY: &str = "QUINTET_GOLDEN_CASE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behaviour_is_as_recorded() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        println!("golden: skipped, {DIRECTORY} names no folder");
        return;
    };
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut counts = Counts::new();
    for folder in [directory.clone(), directory.join("ray-history")] {
        for case in entries(&folder).into_iter().filter(|it| name(it).contains(&only)) {
            if case.join("exchanges.yaml").is_file() {
                sessions::run(&case, &mut counts).await;
            }
        }
    }
    for folder in [directory.clone(), directory.join("ray-collector")] {
        for case in entries(&folder).into_iter().filter(|it| name(it).contains(&only)) {
            if case.extension().is_some_and(|it| it == "yaml") {
                collectors::run(&case, &mut counts).await;
            }
        }
    }
    assert!(counts.total() > 0, "no cases in {DIRECTORY}");
    println!("golden: {counts}");
    assert_eq!(counts.unsupported, 0, "cases need what this test cannot do");
    assert_eq!(counts.differ, 0, "behaviour differs from the recorded one");
}

/// Reads a recording, however large. Plain `y` and `n` are text.
fn read(text: &str) -> Value {
    let options = serde_saphyr::options! { strict_booleans: true, budget: None };
    serde_saphyr::from_str_with_options(text, options).expect("a case")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
