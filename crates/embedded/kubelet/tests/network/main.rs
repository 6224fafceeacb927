//! Pods in networks of their own. These tests need root.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

/// Skips a test where namespaces cannot be made.
macro_rules! needs_root {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: namespaces need root");
            return;
        }
    };
}

mod bridge;
mod names;
mod platforms;
mod services;
mod support;
