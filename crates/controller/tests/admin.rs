//! Health, readiness, metrics and debug state over real HTTP.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{net::SocketAddr, time::Duration};

use jiff::Timestamp;
use quintet_controller::{
    admin::{Admin, AdminComponent},
    clock::Clock,
    index::{Index, IndexSettings, IndexSetup, Write, WriteOutcome},
};
use serde_json::{Value, json};
use support::{process::Process, server::Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn admin(process: &Process) -> Admin {
    Admin {
        components: vec![
            AdminComponent { name: "demo", has_controllers: true },
            AdminComponent { name: "silent", has_controllers: false },
        ],
        registry: process.registry.clone(),
        runtime: process.runtime.clone(),
        leadership: process.leadership.clone(),
        certificates: None,
        api: process.api.clone(),
        tasks: process.tasks.clone(),
    }
}

/// An index that has nothing to decide.
struct Idle;

impl Index for Idle {
    type Event = ();
    type Decision = ();
    const NAME: &'static str = "idle";

    fn apply(&mut self, (): (), _: Timestamp) {}

    fn decide(&mut self, _: Timestamp, _: usize) -> Vec<Write<()>> {
        Vec::new()
    }

    fn outcome(&mut self, (): (), _: WriteOutcome, _: Timestamp) {}

    fn empty(&self) -> Self {
        Self
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

#[tokio::test]
async fn debug_state_shows_indexes() {
    let server = Server::new(1);
    let process = Process::start(&server, 1, None);
    let capacity = 7;
    let settings = IndexSettings { capacity, ..IndexSettings::default() };
    let _handle = IndexSetup::new(&process.runtime, &Clock::system(), settings, Idle).start();
    let state = admin(&process).state();
    assert_eq!(state["indexes"], json!([{"index": "idle", "outstanding": 0, "room": capacity, "lanes": []}]));
    process.stop().await;
}

#[tokio::test]
async fn health_readiness_metrics_and_debug_state_are_served() {
    let server = Server::new(1);
    server.store(|store| store.served.remove("test.quintet.dev/v1/gardens"));
    let process = Process::start(&server, 1, None);
    let listener = quintet_controller::admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    admin(&process).serve(listener);
    assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
    let missing = "the cluster does not serve Garden.test.quintet.dev: install its CRD\n";
    while get(address, "/readyz").await != (503, missing.to_owned()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    process.stop().await;

    server.serve("test.quintet.dev/v1", "gardens", "Garden", true);
    let garden = ("test.quintet.dev/v1/gardens".to_owned(), "default".to_owned(), "rose".to_owned());
    let object = json!({"metadata": {}, "spec": {"plants": 2, "colour": "red"}});
    server.store(|store| store.create(&garden, object).unwrap());
    let process = Process::start(&server, 1, None);
    let listener = quintet_controller::admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    admin(&process).serve(listener);
    server.until("grown", |store| store.objects[&garden]["status"]["grown"] == 2).await;
    assert_eq!(get(address, "/readyz").await, (200, "ok\n".to_owned()));
    let (_, verbose) = get(address, "/readyz?verbose").await;
    assert!(verbose.starts_with("ok\ncomponent demo\ncomponent silent: no controllers yet\n"), "{verbose}");
    while !process.runtime.queue().is_idle() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (code, state) = get(address, "/debug/state").await;
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(code, 200);
    assert_eq!(state["watches"][0]["kind"], "Garden.test.quintet.dev");
    assert_eq!((&state["watches"][0]["objects"], &state["watches"][1]["objects"]), (&json!(1), &json!(3)));
    assert_eq!(state["watches"][0]["phase"], "watching");
    assert_eq!(state["queues"][0]["name"], "gardener");
    assert_eq!(state["queues"][0]["ready"], 0);
    assert_eq!(state["lease"]["leading"], true);
    let recorded = "quintet_events_total{result=\"recorded\"} 1";
    while !get(address, "/metrics").await.1.contains(recorded) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (_, metrics) = get(address, "/metrics").await;
    for name in [
        "controller_runtime_reconcile_total{controller=\"gardener\",result=\"success\"}",
        "workqueue_depth{name=\"gardener\",controller=\"gardener\"} 0",
        "quintet_api_requests_total{verb=\"apply\",result=\"ok\"} 2",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    process.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}
