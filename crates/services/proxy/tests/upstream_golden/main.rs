//! The proxy against recorded exchanges of upstream's.
//!
//! `QUINTET_GOLDEN=DIR cargo test -p quintet-proxy --test upstream_golden -- --nocapture`
//! sends the requests of all cases in `DIR`, or in its folder `ray-api-proxy`, to a proxy in front of a stand-in for the Kubernetes API, and compares the
//! responses and what the stand-in got. It prints a line per difference and ends with the counts, in exchanges.
#![expect(clippy::disallowed_methods, reason = "tasks of a test end with it")]
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod case;
mod compare;
mod deliberate;
mod run;
#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;

use case::Case;
use run::Counts;

/// Names the folder with recorded cases.
const DIRECTORY: &str = "QUINTET_GOLDEN";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_answers_as_recorded() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        println!("golden: skipped, {DIRECTORY} names no folder");
        return;
    };
    support::use_tls();
    let folder = directory.join("ray-api-proxy");
    let cases = Case::read_all(if folder.is_dir() { &folder } else { &directory });
    assert!(!cases.is_empty(), "no cases in {DIRECTORY}");
    // Retries take their time, so the cases run side by side.
    let cases: Vec<_> = cases.into_iter().map(|case| tokio::spawn(run::run(case))).collect();
    let mut total = Counts::default();
    for case in cases {
        let (counts, lines) = case.await.expect("the case runs");
        for line in lines {
            println!("{line}");
        }
        total += counts;
    }
    println!("golden: {total}");
    assert_eq!((total.differ, total.unsupported), (0, 0), "the proxy differs from what was recorded");
}
