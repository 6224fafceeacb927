//! Collector and storage are killed in turn while Ray sends events, some of them twice.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use quintet_history::{History, HistoryOptions, Store};
use serde_json::{Value, json};

use crate::{Running, SESSION, STORE, dashboard, prepare, spawn};

/// Clients that send at the same time.
const SENDERS: usize = 4;

/// Events that each round acknowledges before something is killed.
const PER_ROUND: usize = 300;

/// Events of one request.
const BATCH: usize = 5;

/// The definition of a task and its one transition.
fn events(task: usize) -> [Value; 2] {
    let id = base64::engine::general_purpose::STANDARD.encode(format!("{task:024}"));
    let event = |kind: &str, name: &str, payload: Value| {
        json!({ "eventId": format!("{kind}-{task}"), "eventType": kind, "timestamp": "2026-01-01T00:00:00Z",
            "sessionName": SESSION, name: payload })
    };
    let transition = json!({ "state": "FINISHED", "timestamp": "2026-01-01T00:00:01Z" });
    [
        event("TASK_DEFINITION_EVENT", "taskDefinitionEvent", json!({ "taskId": id, "jobId": "AQAAAA==" })),
        event(
            "TASK_LIFECYCLE_EVENT",
            "taskLifecycleEvent",
            json!({ "taskId": id, "jobId": "AQAAAA==", "stateTransitions": [transition] }),
        ),
    ]
}

/// Sends a request; the response, if there is one.
fn request(address: SocketAddr, head: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    Some(response)
}

/// What is acknowledged, and what happens to it.
struct Load {
    collector: RwLock<SocketAddr>,
    next: AtomicUsize,
    acknowledged: Mutex<BTreeSet<usize>>,
    is_over: AtomicBool,
}

impl Load {
    /// Sends batches, each again until it is acknowledged, and every fifth one once more.
    fn send(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
            let tasks = first..first + BATCH;
            let batch: Value = tasks.clone().flat_map(events).collect();
            let batch = batch.to_string();
            let mut wanted = if (first / BATCH).is_multiple_of(5) { 2 } else { 1 };
            while wanted > 0 && !self.is_over.load(Ordering::Relaxed) {
                let address = *self.collector.read().expect("not poisoned");
                let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/json";
                if request(address, head, &batch).is_some_and(|it| it.starts_with("HTTP/1.1 200")) {
                    wanted -= 1;
                    self.acknowledged.lock().expect("not poisoned").extend(tasks.clone());
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("not poisoned").len()
    }
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start_store(root: &Path) -> (Running, SocketAddr) {
    spawn(
        root,
        "store-address",
        Command::new(std::env::current_exe().expect("this program")).env(STORE, root),
    )
}

/// All tasks that a history server shows, with their transitions.
fn shown(bucket: &Path) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let history = History::new(Store::directory(bucket, ""), None, HistoryOptions::default());
    runtime.spawn(history.expect("a server").serve(listener, std::future::pending()));
    let entered = format!("GET /enter_cluster/default/raycluster/demo/{SESSION} HTTP/1.1");
    let entered = request(address, &entered, "").expect("a response");
    assert!(entered.starts_with("HTTP/1.1 200"), "{entered}");
    let cookies = format!("Cookie: cluster_name=demo; cluster_namespace=default; session_name={SESSION}");
    let tasks = format!("GET /api/v0/tasks?detail=1&limit=10000 HTTP/1.1\r\n{cookies}");
    let tasks = request(address, &tasks, "").expect("a response");
    let (_, body) = tasks.split_once("\r\n\r\n").expect("a body");
    let tasks: Value = serde_json::from_str(body).expect("JSON");
    tasks["data"]["result"]["result"].as_array().expect("rows").clone()
}

#[test]
fn no_event_is_lost_or_shown_twice_when_collector_and_storage_are_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let _raylet = prepare(root);
    let dashboard = dashboard();
    let (mut store, mut place) = start_store(root);
    let start = |place: SocketAddr| {
        let variables = [
            ("RAY_ROLE", "Head".to_owned()),
            ("RAY_DASHBOARD_ADDRESS", format!("http://{dashboard}")),
            ("STORAGE_BACKEND", "s3".to_owned()),
            ("S3_ENDPOINT", format!("http://{place}")),
            ("S3_BUCKET", "bucket".to_owned()),
            ("S3FORCE_PATH_STYLE", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ];
        crate::start(root, dashboard, &variables)
    };
    let (mut collector, address) = start(place);
    let load = Load {
        collector: RwLock::new(address),
        next: AtomicUsize::new(0),
        acknowledged: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let running = std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| load.send());
        }
        for round in 0..6 {
            let before = load.count();
            until("acknowledged events", || load.count() >= before + PER_ROUND);
            if round % 2 == 0 {
                // The storage is away for a while. It comes back elsewhere, as a Service leads to another pod.
                drop(store);
                let before = load.count();
                until("events without the storage", || load.count() >= before + PER_ROUND);
                (store, place) = start_store(root);
            }
            drop(collector);
            let started = start(place);
            collector = started.0;
            *load.collector.write().expect("not poisoned") = started.1;
        }
        load.is_over.store(true, Ordering::Relaxed);
        (collector, store)
    });
    until("the end of all uploads", || crate::found(&root.join("event-data")).is_empty());
    let rows = shown(&root.join("bucket"));
    let ids: BTreeSet<&str> = rows.iter().filter_map(|row| row["task_id"].as_str()).collect();
    assert_eq!(ids.len(), rows.len(), "a task is shown twice");
    let is_whole = |row: &&Value| row["events"].as_array().is_some_and(|it| it.len() == 1);
    let whole: BTreeSet<&str> =
        rows.iter().filter(is_whole).filter_map(|row| row["task_id"].as_str()).collect();
    for task in load.acknowledged.lock().expect("not poisoned").iter() {
        let id: Vec<String> = format!("{task:024}").bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(whole.contains(id.concat().as_str()), "events of task {task} are lost, or shown twice");
    }
    drop(running);
}
