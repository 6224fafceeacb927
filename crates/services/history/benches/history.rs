//! Events per second and memory of the collector; time of a cold load, of answers and of a log of the history server.
//!
//! `cargo bench -p quintet-history`. Set `QUINTET_BENCH_EVENTS` for another number of events (200,000), and
//! `QUINTET_BENCH_LOG_MB` for another size of the log (1024). Clients and servers share the process: its memory is that of
//! all of them.
#![expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark fails by panicking, and prints")]
#![expect(clippy::disallowed_methods, reason = "tasks of a benchmark end with it")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use quintet_history::{Collector, CollectorSettings, History, HistoryOptions, Store};

const SESSION: &str = "session_2026-01-01_09-30-00_123456_1";

/// Connections to the collector, and events of one request, as Ray's aggregator sends them.
const CONNECTIONS: usize = 4;
const BATCH: usize = 1000;

/// Events of one task: a definition and a lifecycle.
const EVENTS_PER_TASK: usize = 2;

/// Requests of each kind; the median counts.
const REPETITIONS: usize = 11;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The most memory that this process has had, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Begins to measure the peak anew.
fn forget_peak() {
    // Without the right to, peaks include what was before.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The events of a task, separated by a comma or a line feed.
fn events(task: usize, separator: char) -> String {
    let mut text = String::new();
    let id = format!("{task:032x}{:016x}", 1);
    let common = format!(
        r#""timestamp":"2026-01-01T09:33:20.000001Z","severity":"INFO","sourceType":"CORE_WORKER","message":"","nodeId":"{:056x}","sessionName":"{SESSION}""#,
        7
    );
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        r#"{{"eventId":"d{task}","eventType":"TASK_DEFINITION_EVENT",{common},"taskDefinitionEvent":{{"taskId":"{id}","taskAttempt":0,"taskType":"NORMAL_TASK","language":"PYTHON","taskFunc":{{"pythonFunctionDescriptor":{{"moduleName":"train","className":"","functionName":"step_{}","functionHash":"ab"}}}},"taskName":"step_{}","requiredResources":{{"CPU":1.0}},"jobId":"01000000","parentTaskId":"{:048x}","serializedRuntimeEnv":"{{}}"}}}}"#,
        task % 50,
        task % 50,
        0xfff
    );
    text.push(separator);
    let _ = write!(
        text,
        r#"{{"eventId":"l{task}","eventType":"TASK_LIFECYCLE_EVENT",{common},"taskLifecycleEvent":{{"taskId":"{id}","taskAttempt":0,"jobId":"01000000","nodeId":"{:056x}","workerId":"{:056x}","workerPid":{},"stateTransitions":[{{"state":"PENDING_ARGS_AVAIL","timestamp":"2026-01-01T09:33:20.1Z"}},{{"state":"RUNNING","timestamp":"2026-01-01T09:33:21.{:06}Z"}},{{"state":"FINISHED","timestamp":"2026-01-01T09:33:22.{:06}Z"}}]}}}}"#,
        7,
        task % 64,
        1000 + task % 64,
        task % 1_000_000,
        task % 1_000_000
    );
    text
}

/// A dashboard that knows one node.
fn dashboard() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let body =
            r#"{"data":{"result":{"result":[{"node_id":"a1","node_ip":"10.0.0.1","state":"ALIVE"}]}}}"#;
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            let _ = write!(reader.get_mut(), "{head}{body}");
        }
    });
    address
}

/// Sends batches one after the other on one connection, until its share is acknowledged.
fn send(address: SocketAddr, tasks: std::ops::Range<usize>) {
    let stream = TcpStream::connect(address).expect("a connection");
    let mut reader = BufReader::new(stream);
    for start in tasks.clone().step_by(BATCH / EVENTS_PER_TASK) {
        let batch = start..(start + BATCH / EVENTS_PER_TASK).min(tasks.end);
        let batch: Vec<String> = batch.map(|task| events(task, ',')).collect();
        let body = format!("[{}]", batch.join(","));
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let stream = reader.get_mut();
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("sent");
        let mut line = String::new();
        reader.read_line(&mut line).expect("a response");
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {}
    }
}

async fn collect(root: &Path, tasks: usize) {
    let sockets = root.join("ray").join(SESSION).join("sockets");
    std::fs::create_dir_all(&sockets).expect("a directory");
    let _raylet = UnixListener::bind(sockets.join("raylet")).expect("a socket");
    std::os::unix::fs::symlink(root.join("ray").join(SESSION), root.join("ray/session_latest"))
        .expect("a link");
    let dashboard = format!("http://{}", dashboard());
    let variable = |name: &str| match name {
        "RAY_CLUSTER_NAME" => Some("demo".to_owned()),
        "POD_IP" => Some("10.0.0.1".to_owned()),
        "FQ_RAY_IP" | "RAY_DASHBOARD_ADDRESS" => Some(dashboard.clone()),
        "RAY_ROLE" => Some("Head".to_owned()),
        "RAY_TMP_ROOT" => Some(root.join("ray").display().to_string()),
        "RAY_COLLECTOR_EVENT_DATA_DIR" => Some(root.join("events").display().to_string()),
        "RAY_COLLECTOR_EVENT_MAX_DISK_MB" => Some("100000".to_owned()),
        _ => None,
    };
    let settings = CollectorSettings::read(|_| None, variable).expect("settings");
    let store = Store::directory(&root.join("bucket"), "");
    let collector = Collector::start(settings, store).await.expect("a collector");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(collector.run(Some(listener), async {
        let _ = stopped.await;
    }));
    let began = Instant::now();
    let senders: Vec<_> = (0..CONNECTIONS)
        .map(|index| {
            let share = index * tasks / CONNECTIONS..(index + 1) * tasks / CONNECTIONS;
            std::thread::spawn(move || send(address, share))
        })
        .collect();
    let joined = tokio::task::spawn_blocking(|| senders.into_iter().all(|it| it.join().is_ok()));
    assert!(joined.await.expect("senders"), "all events are acknowledged");
    let rate = (tasks * EVENTS_PER_TASK) as u128 * 1000 / began.elapsed().as_millis().max(1);
    println!("collector: {rate} events/s, {} MB with its clients", peak());
    stop.send(()).expect("running");
    running.await.expect("it ends");
}

/// Sends a request; how long it takes until the end of the response, and its bytes.
fn get(address: SocketAddr, path: &str) -> (Duration, usize) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).expect("a connection");
    let cookies = format!("cluster_name=demo; cluster_namespace=default; session_name={SESSION}");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\nAccept: */*\r\nCookie: {cookies}\r\n\r\n")
        .expect("sent");
    let (mut piece, mut bytes, mut first) = (vec![0; 256 * 1024], 0, true);
    loop {
        let read = stream.read(&mut piece).expect("a response");
        if read == 0 {
            return (began.elapsed(), bytes);
        }
        assert!(
            !first || piece.starts_with(b"HTTP/1.0 200"),
            "{}",
            String::from_utf8_lossy(&piece[..read.min(300)])
        );
        (bytes, first) = (bytes + read, false);
    }
}

fn median(address: SocketAddr, path: &str) -> (Duration, usize) {
    let mut all: Vec<_> = (0..REPETITIONS).map(|_| get(address, path)).collect();
    all.sort_unstable();
    all[REPETITIONS / 2]
}

async fn answer(root: &Path, log_megabytes: usize) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let store = Store::directory(&root.join("bucket"), "");
    let history = History::new(store, None, HistoryOptions::default()).expect("a server");
    tokio::spawn(history.serve(listener, std::future::pending()));
    forget_peak();
    let measured = tokio::task::spawn_blocking(move || {
        let (time, _) = get(address, &format!("/enter_cluster/default/raycluster/demo/{SESSION}"));
        println!("cold load: {time:?}, {} MB", peak());
        for path in [
            "/api/v0/tasks?detail=1&limit=100",
            "/api/v0/tasks?detail=1&limit=10000",
            "/api/v0/tasks?filter_keys=task_name&filter_predicates=%3D&filter_values=step_7",
            "/api/v0/tasks/summarize",
            "/api/v0/tasks/summarize?summary_by=lineage",
            "/api/v0/logs/file?node_id=a1&filename=large.log",
        ] {
            let (time, bytes) = median(address, path);
            println!("{path}: {time:?}, {bytes} bytes");
        }
        forget_peak();
        let (time, bytes) = get(address, "/api/v0/logs/file?node_id=a1&filename=large.log&lines=-1");
        println!("a log of {log_megabytes} MB: {time:?}, {bytes} bytes, {} MB", peak());
    });
    measured.await.expect("measured");
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` only builds it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let count = number("QUINTET_BENCH_EVENTS", 200_000);
    println!("{count} events of {} bytes", events(0, ',').len() / EVENTS_PER_TASK);
    collect(root, count / EVENTS_PER_TASK).await;
    let megabytes = number("QUINTET_BENCH_LOG_MB", 1024);
    let logs = root.join(format!("bucket/cluster-history/raycluster/default/demo/{SESSION}/a1/logs"));
    std::fs::create_dir_all(&logs).expect("a directory");
    let mut log = BufWriter::new(std::fs::File::create(logs.join("large.log")).expect("a log"));
    let line = format!("{}\n", "x".repeat(127));
    for _ in 0..megabytes * 8192 {
        log.write_all(line.as_bytes()).expect("a line");
    }
    log.flush().expect("a log");
    answer(root, megabytes).await;
}
