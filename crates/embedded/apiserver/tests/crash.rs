//! Acknowledged writes survive `kill -9`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use quintet_apiserver::store::{Expect, Put, Store, Write};
use serde_json::json;

/// Set in the process that is killed.
const CHILD: &str = "QUINTET_CRASH_TEST_DIRECTORY";
const ROUNDS: usize = 50;
const WRITERS: usize = 16;

/// Writes as fast as it can and tells every write that was answered, until it is killed.
#[test]
fn writer() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Store::open(Path::new(&path)).unwrap());
        let start = store.version();
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                for count in 0_u64.. {
                    let key = format!("default/w{writer}-{start}-{count}");
                    let object = json!({"metadata": {"name": key, "labels": {"n": count.to_string()}}, "data": {"x": "y".repeat(500)}});
                    let write = Write {
                        bucket: "core/configmaps".into(),
                        key: key.as_str().into(),
                        expect: Expect::Absent,
                        put: Some(Put::new("v1".into(), &object, 0)),
                        parents: Vec::new(),
                    };
                    let entry = store.write(write).await.unwrap();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "@ {} {key}", entry.rv).unwrap();
                    out.flush().unwrap();
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    });
}

#[test]
fn nothing_that_was_answered_is_lost() {
    let path = std::env::temp_dir().join(format!("quintet-crash-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let mut answered: Vec<(u64, String)> = Vec::new();
    let mut newest = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["writer", "--exact", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let before = answered.len();
        // Different rounds die at different moments.
        let wanted = 20 + round * 7 % 60;
        while answered.len() < before + wanted {
            let line = lines.next().expect("the writer writes").unwrap();
            answered.extend(parse(&line));
        }
        child.kill().unwrap();
        // What was told before the kill counts, too.
        answered.extend(lines.map_while(Result::ok).filter_map(|line| parse(&line)));
        child.wait().unwrap();
        let store = Store::open(&path).unwrap();
        for (rv, key) in &answered[before..] {
            assert!(*rv > newest, "resource versions only grow");
            let entry = store.get("core/configmaps", key).unwrap_or_else(|| panic!("{key} is lost"));
            assert_eq!(entry.rv, *rv);
        }
        assert!(store.version() >= answered.iter().map(|(rv, _)| *rv).max().unwrap());
        newest = store.version();
    }
    let store = Store::open(&path).unwrap();
    for (rv, key) in &answered {
        assert_eq!(store.get("core/configmaps", key).map(|entry| entry.rv), Some(*rv), "{key}");
    }
    drop(store);
    std::fs::remove_dir_all(path).unwrap();
}

fn parse(line: &str) -> Option<(u64, String)> {
    // The harness may have written before the first line.
    let (_, told) = line.split_once("@ ")?;
    let (rv, key) = told.split_once(' ')?;
    Some((rv.parse().ok()?, key.to_owned()))
}
