//! Plans are pure: the modules of operators and workload controllers that decide mention no client, clock, rng or environment.
//!
//! The trait keeps a controller's own fields out of `plan`; this keeps out what could be reached in other ways.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::path::{Path, PathBuf};

/// Modules in which decisions are made: files of these names, and everything in folders of these names.
const PURE: [&str; 5] = ["plan", "status", "objects", "validation", "conditions"];

/// Modules inside of pure ones that are not: handlers of requests, and tests.
const IMPURE: [&str; 2] = ["webhook", "tests"];

/// What a decision must not reach for. A time or a name that it needs is part of the observed state.
const FORBIDDEN: [&str; 17] = [
    "kube::Client",
    "kube::Api",
    "quintet_controller::api::Api",
    "Runtime",
    "Cache<",
    "tokio",
    "async fn",
    "Clock",
    "Timestamp::now",
    "Zoned::now",
    "SystemTime",
    "Instant",
    "Rng",
    "rand::",
    "std::env",
    "std::fs",
    "Mutex",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn is_pure(path: &Path) -> bool {
    let modules: Vec<_> =
        path.iter().map(|part| Path::new(part).file_stem().unwrap().to_str().unwrap()).collect();
    let is_in = |names: &[&str]| modules.iter().any(|module| names.contains(module));
    is_in(&PURE) && !is_in(&IMPURE) && !modules.iter().any(|module| module.ends_with("_tests"))
}

/// The lines of a file that are compiled into the product.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| *line != "mod tests {");
    lines.map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
}

/// Whether a line mentions a name, and not only a longer one that begins or ends with it.
fn mentions(line: &str, name: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_joined =
        |inner: Option<char>, outer: Option<char>| inner.is_some_and(is_word) && outer.is_some_and(is_word);
    line.match_indices(name).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        !is_joined(name.chars().next(), before.chars().next_back())
            && !is_joined(name.chars().last(), after.chars().next())
    })
}

#[test]
fn names_are_found_as_whole_words() {
    assert!(mentions("let a: Runtime = x", "Runtime") && mentions("use tokio::time;", "tokio"));
    assert!(mentions("let a = rand::random()", "rand::") && mentions("c: Cache<Pod>", "Cache<"));
    assert!(!mentions("failed to unmarshal RuntimeEnvYAML", "Runtime") && !mentions("MyInstant", "Instant"));
}

#[test]
fn modules_that_decide_mention_no_client_clock_or_rng() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut all = Vec::new();
    for operator in std::fs::read_dir(crates.join("operators")).unwrap() {
        let source = operator.unwrap().path().join("src");
        if source.is_dir() {
            files(&source, &mut all);
        }
    }
    files(&crates.join("embedded/controllers/src"), &mut all);
    let pure: Vec<_> = all.iter().filter(|path| is_pure(path.strip_prefix(&crates).unwrap())).collect();
    assert!(pure.len() > 10, "the plan modules moved: {pure:?}");
    let mut wrong = Vec::new();
    for path in pure {
        let text = std::fs::read_to_string(path).unwrap();
        for (number, line) in code(&text) {
            wrong.extend(
                FORBIDDEN
                    .iter()
                    .filter(|word| mentions(line, word))
                    .map(|word| format!("{}:{number} mentions {word}: {}", path.display(), line.trim())),
            );
        }
    }
    assert!(wrong.is_empty(), "observe it instead, and make it part of Observed:\n{}", wrong.join("\n"));
}
