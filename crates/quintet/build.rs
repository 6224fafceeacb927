//! Records in the program which commit it is built from.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=QUINTET_COMMIT");
    let given = std::env::var("QUINTET_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo:rustc-env=QUINTET_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // The log of HEAD changes with every commit and checkout. Cargo would rerun this for a file that is not there.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// What git prints; `None` without git or outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
