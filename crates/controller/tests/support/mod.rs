//! What the tests share: a small Kubernetes API in memory, a controller, and a process to run it in.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on says so by panicking"
)]

pub mod faults;
pub mod garden;
pub mod process;
pub mod seats;
pub mod server;
pub mod store;

use std::{future::Future, time::Duration};

/// Runs a test in simulated time.
pub fn simulate<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = runtime.block_on(async {
        tokio::time::timeout(Duration::from_hours(2 * 365 * 24), test).await.expect("the test does not end")
    });
    runtime.shutdown_background();
    result
}
