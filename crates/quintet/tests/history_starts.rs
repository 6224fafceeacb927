//! Starts of `quintet history-server` with good and bad flags, against recorded ones of KubeRay's history server.
//!
//! `QUINTET_GOLDEN=DIR cargo test -p quintet --test history_starts -- --nocapture` replays `start-failures/starts.yaml` in `DIR`,
//! or in its folder `ray-history`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

const KUBECONFIG: &str = "apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
";

/// Starts whose messages are meant to differ, with the reason.
const DELIBERATE: &[(&str, &str)] = &[
    ("missing kubeconfig", "the words of our system and client"),
    ("no kubeconfig outside a cluster", "ours says which flags help"),
    ("missing configuration file", "the words of our system"),
    ("unknown flag", "the words of our command line"),
    ("bad duration", "the words of our command line"),
];

/// The exit code and the message of a start that fails; `None` if it serves.
fn start(flags: &[String], variables: &Value) -> Option<(i32, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
    command.args(["history-server", "--port", "0"]).args(flags);
    command.env_clear().env("HOME", "/nonexistent").env("AWS_EC2_METADATA_DISABLED", "true");
    for (name, value) in variables.as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap());
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.contains("is at http://") {
        child.kill().unwrap();
        child.wait().unwrap();
        return None;
    }
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    Some((child.wait().unwrap().code().unwrap(), message))
}

#[test]
fn it_starts_with_the_flags_with_which_upstream_does() {
    let Some(directory) = std::env::var_os("QUINTET_GOLDEN").map(PathBuf::from) else {
        println!("golden: skipped, QUINTET_GOLDEN names no folder");
        return;
    };
    let folders = [directory.clone(), directory.join("ray-history")];
    let texts =
        folders.iter().filter_map(|it| std::fs::read_to_string(it.join("start-failures/starts.yaml")).ok());
    let kubeconfig = std::env::temp_dir().join(format!("quintet-starts-{}", std::process::id()));
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let (mut equal, mut deliberate, mut differ) = (0, 0, 0);
    for text in texts {
        let case: Value = serde_saphyr::from_str(&text).unwrap();
        for expected in case["starts"].as_array().unwrap() {
            let name = expected["name"].as_str().unwrap();
            let flags = expected["flags"].as_array().unwrap().iter().map(|flag| {
                flag.as_str().unwrap().replace("<kubeconfig>", &kubeconfig.display().to_string())
            });
            let found = start(&flags.collect::<Vec<_>>(), &expected["env"]);
            let code = found.as_ref().map(|(code, _)| i64::from(*code));
            let message =
                expected["fatal"][0].as_str().or_else(|| expected["usage"].as_str()).unwrap_or_default();
            let is_same_text = found.as_ref().is_none_or(|(_, text)| text.contains(message));
            if code == expected["exit_code"].as_i64() && is_same_text {
                equal += 1;
            } else if code == expected["exit_code"].as_i64() && DELIBERATE.iter().any(|(it, _)| *it == name) {
                deliberate += 1;
            } else {
                println!("{name}: {found:?} instead of {expected}");
                differ += 1;
            }
        }
    }
    std::fs::remove_file(kubeconfig).unwrap();
    println!("golden: {equal} equal, {deliberate} deliberate, {differ} differ, 0 unsupported");
    assert_eq!(differ, 0, "starts differ from the recorded ones");
}
