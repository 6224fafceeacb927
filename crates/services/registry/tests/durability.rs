//! A write that was acknowledged survives `kill -9`.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use quintet_registry_server::Location;
use support::http::{Request, send};
use support::server::Running;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Names the database of the process that is killed; how the test starts itself.
const DATABASE: &str = "QUINTET_TEST_REGISTRY";
/// How often the server is killed; `QUINTET_KILLS` asks for another number.
const KILLS: usize = 10;
const CLIENTS: usize = 8;

/// The server process, when the test has started itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the other test"]
async fn server_process() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let server = Running::start(&Location::Sqlite(path.into())).await;
    let address = server.address;
    // On a line of its own: the test harness writes before it.
    println!("\nlistening on {address}");
    std::future::pending::<()>().await;
}

async fn start(database: &Path) -> (Child, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["server_process", "--exact", "--ignored", "--nocapture"]).env(DATABASE, database);
    let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
    while let Some(line) = lines.next_line().await.expect("a line") {
        if let Some(address) = line.strip_prefix("listening on ") {
            return (process, address.parse().expect("an address"));
        }
    }
    panic!("the server did not start");
}

fn create(name: &str) -> Request {
    let path = "/api/model_registry/v1/registered_models".to_owned();
    let body = format!("{{\"name\": \"{name}\", \"owner\": \"ann\"}}").into_bytes();
    Request { method: "POST".to_owned(), path, headers: Vec::new(), body: Some(body) }
}

#[tokio::test]
async fn only_its_user_reads_a_database() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = directory.path().join("registry");
    let server = Running::start(&Location::Sqlite(database)).await;
    send(server.address, &create("m")).await.expect("a response");
    for file in directory.path().read_dir().expect("files") {
        let file = file.expect("a file");
        let mode = file.metadata().expect("a mode").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.path().display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kill_9() {
    let kills = std::env::var("QUINTET_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(KILLS);
    let directory = tempfile::tempdir().expect("a directory");
    let database = directory.path().join("registry");
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let next = Arc::new(AtomicUsize::new(0));
    for round in 0..kills {
        let (mut process, address) = start(&database).await;
        let before = acknowledged.lock().expect("a lock").len();
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let (acknowledged, next) = (acknowledged.clone(), next.clone());
            clients.spawn(async move {
                loop {
                    let name = format!("m{}", next.fetch_add(1, Ordering::Relaxed));
                    // The process is gone when a request fails.
                    let Ok(response) = send(address, &create(&name)).await else { return };
                    assert_eq!(response.status, 201, "{}", response.text());
                    acknowledged.lock().expect("a lock").insert(name);
                }
            });
        }
        // Kill it in the middle of the load, after a number of writes that differs from round to round.
        let enough = before + 20 + round % 7 * 5;
        while acknowledged.lock().expect("a lock").len() < enough {
            tokio::task::yield_now().await;
        }
        process.kill().await.expect("it is killed");
        while let Some(client) = clients.join_next().await {
            client.expect("the client ends");
        }
    }
    let server = Running::start(&Location::Sqlite(database)).await;
    let list = Request { method: "GET".to_owned(), path: create("").path, headers: Vec::new(), body: None };
    let response = send(server.address, &list).await.expect("a response");
    let list: serde_json::Value = serde_json::from_slice(&response.body).expect("a list");
    let items = list["items"].as_array().expect("items");
    // A model is whole: its properties were written with it.
    let stored: BTreeSet<String> = items
        .iter()
        .filter(|item| item["owner"] == "ann" && item["state"] == "LIVE")
        .map(|item| item["name"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(stored.len(), items.len(), "some models lack their properties");
    let acknowledged = acknowledged.lock().expect("a lock");
    let lost: Vec<&String> = acknowledged.difference(&stored).collect();
    assert!(
        lost.is_empty(),
        "{} of {} acknowledged writes are lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    assert!(acknowledged.len() >= kills * 20);
}
