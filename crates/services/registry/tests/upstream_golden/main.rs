//! The server against recorded answers of upstream's.
//!
//! `QUINTET_GOLDEN=DIR cargo test -p quintet-registry-server --test upstream_golden -- --nocapture`
//! sends the requests of all cases in `DIR` and compares the answers: those of the registry on SQLite, and on
//! PostgreSQL where it is installed, those of the catalog on the files it was recorded with. It prints a line per difference and ends with the counts, in exchanges.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the differences are the result")]

mod case;
mod catalog;
mod databases;
mod deliberate;
mod matching;
mod run;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;

use case::Case;
use databases::Databases;
use run::Counts;

/// Names the folder with recorded cases.
const DIRECTORY: &str = "QUINTET_GOLDEN";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_answers_as_recorded() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        println!("golden: skipped, {DIRECTORY} names no folder");
        return;
    };
    let directory = PathBuf::from(directory);
    let (registry, catalog): (Vec<Case>, Vec<Case>) =
        Case::read_all(&directory).into_iter().partition(|case| case.server.starts_with("registry"));
    assert!(!registry.is_empty() || !catalog.is_empty(), "no cases in {DIRECTORY}");
    let only = std::env::var("QUINTET_GOLDEN_DATABASE").ok();
    let mut total = catalog::run(&catalog, &directory).await;
    println!("golden of the catalog: {total}");
    for databases in Databases::all(only.as_deref()) {
        let mut counts = Counts::default();
        for case in &registry {
            counts += run::run(case, &databases).await;
        }
        println!("golden on {}: {counts}", databases.name());
        total += counts;
    }
    println!("golden: {total}");
    assert_eq!(total.differ, 0, "answers differ from the recorded ones");
}
