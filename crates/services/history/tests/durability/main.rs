//! A collector that is killed under load, and a storage that is away or killed: no acknowledged event is lost.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod both;
mod s3;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quintet_history::{Collector, CollectorSettings, StorageConfig};

const CHILD: &str = "QUINTET_HISTORY_TEST_CHILD";
const STORE: &str = "QUINTET_HISTORY_TEST_STORE";
const SESSION: &str = "session_2026-01-01_09-30-00_123456_1";

/// Not a test of its own: the collector or the storage that others start as a process.
#[test]
fn child() {
    if let Some(root) = std::env::var_os(STORE).map(PathBuf::from) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        announce(&root.join("store-address"), listener.local_addr().expect("an address"));
        s3::serve(&listener, root.join("bucket"));
    }
    let Some(root) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let flag = |name: &str| match name {
            "ray-cluster-name" => Some("demo".to_owned()),
            "event-rotation-interval" => Some("1ms".to_owned()),
            _ => None,
        };
        let settings = CollectorSettings::read(flag, |name| std::env::var(name).ok()).expect("settings");
        let backend = std::env::var("STORAGE_BACKEND").unwrap_or_else(|_| "local".to_owned());
        let directory = Some(root.join("bucket"));
        let storage = StorageConfig { backend, directory, ..StorageConfig::default() };
        let store = storage.open().expect("a storage");
        let collector = Collector::start(settings, store).await.expect("a collector");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        announce(&root.join("address"), address);
        collector.run(Some(listener), std::future::pending()).await;
    });
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
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// A collector in a process of its own, killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes an address for those who wait for it, whole.
fn announce(path: &Path, address: SocketAddr) {
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, address.to_string()).expect("a file");
    std::fs::rename(temporary, path).expect("a file");
}

/// Starts this program again, and waits until it has announced where it listens.
fn spawn(root: &Path, file: &str, command: &mut Command) -> (Running, SocketAddr) {
    let path = root.join(file);
    let _ = std::fs::remove_file(&path);
    let child = command.args(["--exact", "child"]).stdout(Stdio::null()).spawn().expect("a process");
    let running = Running(child);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < deadline, "{file} is not announced");
        if let Some(address) = std::fs::read_to_string(&path).ok().and_then(|it| it.parse().ok()) {
            return (running, address);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(root: &Path, dashboard: SocketAddr, variables: &[(&str, String)]) -> (Running, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .env(CHILD, root)
        .env("POD_IP", "10.0.0.1")
        .env("FQ_RAY_IP", format!("http://{dashboard}"))
        .env("RAY_TMP_ROOT", root.join("ray"))
        .env("RAY_COLLECTOR_EVENT_DATA_DIR", root.join("event-data"));
    for (name, value) in variables {
        command.env(name, value);
    }
    spawn(root, "address", &mut command)
}

/// Makes Ray's directory, with a raylet that accepts connections.
fn prepare(root: &Path) -> UnixListener {
    let sockets = root.join("ray").join(SESSION).join("sockets");
    std::fs::create_dir_all(&sockets).expect("a directory");
    std::fs::create_dir_all(root.join("bucket")).expect("a directory");
    std::os::unix::fs::symlink(root.join("ray").join(SESSION), root.join("ray/session_latest"))
        .expect("a link");
    UnixListener::bind(sockets.join("raylet")).expect("a socket")
}

/// Sends one event; whether it was acknowledged.
fn send(address: SocketAddr, number: usize) -> bool {
    let body = format!(
        r#"[{{"eventId":"{number}","timestamp":"2026-01-01T00:00:00Z","sessionName":"{SESSION}","taskDefinitionEvent":{{"jobId":"AQAAAA=="}}}}]"#
    );
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let sent = write!(
        stream,
        "POST /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    sent.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

/// All event files below a directory.
fn found(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.append(&mut found(&path));
        } else if path.extension().is_some_and(|it| it == "jsonl") {
            files.push(path);
        }
    }
    files
}

/// The numbers of all events that are stored.
fn stored(directory: &Path) -> Vec<usize> {
    let texts = found(directory).into_iter().map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let number = |line: &str| line.split("\"eventId\":\"").nth(1)?.split('"').next()?.parse().ok();
    texts.flat_map(|text| text.lines().filter_map(number).collect::<Vec<usize>>()).collect()
}

#[test]
fn no_acknowledged_event_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let _raylet = prepare(root);
    let dashboard = dashboard();
    // The storage is away at first: a file is where its directory should be.
    std::fs::write(root.join("bucket/cluster-history"), "").expect("a file");
    let mut acknowledged = Vec::new();
    let mut number = 0;
    for round in 0..3 {
        let (running, address) = start(root, dashboard, &[]);
        if round == 2 {
            std::fs::remove_file(root.join("bucket/cluster-history")).expect("removed");
        }
        // It is killed while requests are being sent, once it has acknowledged some.
        let (enough, is_enough) = std::sync::mpsc::sync_channel(1);
        let killer = std::thread::spawn(move || {
            let _ = is_enough.recv_timeout(Duration::from_secs(30));
            drop(running);
        });
        let before = acknowledged.len();
        while !killer.is_finished() {
            number += 1;
            if send(address, number) {
                acknowledged.push(number);
            }
            if acknowledged.len() == before + 20 {
                let _ = enough.try_send(());
            }
        }
        killer.join().expect("killed");
        assert!(acknowledged.len() >= before + 20, "the collector acknowledges no events");
    }
    // A last run stores everything that is left.
    let _running = start(root, dashboard, &[]);
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let mut stored = stored(&root.join("bucket"));
        if acknowledged.iter().all(|number| stored.contains(number)) {
            let count = stored.len();
            stored.sort_unstable();
            stored.dedup();
            assert_eq!(stored.len(), count, "an event is stored twice");
            break;
        }
        assert!(Instant::now() < deadline, "events are missing: {} of {}", stored.len(), acknowledged.len());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Compressed, the events go on under another name: it has to be known when the storage is back.
#[test]
fn compressed_events_are_stored_when_the_storage_is_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let _raylet = prepare(root);
    std::fs::write(root.join("bucket/cluster-history"), "").expect("a file");
    let compressed = [("RAY_COLLECTOR_EVENT_COMPRESSION_ENABLED", "true".to_owned())];
    let (_running, address) = start(root, dashboard(), &compressed);
    assert!((0..5).all(|number| send(address, number)));
    let wait = |what: &str, is_there: &dyn Fn(&Path) -> bool, place: &str| {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is_there(&root.join(place)) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let has_compressed = |place: &Path| names(place).iter().any(|name| name.ends_with(".jsonl.gz"));
    wait("events are not compressed", &has_compressed, "event-data");
    std::fs::remove_file(root.join("bucket/cluster-history")).expect("removed");
    wait("events are not stored", &has_compressed, "bucket");
    wait("stored events stay", &|place| names(place).is_empty(), "event-data");
}

/// The names of all files below a directory.
fn names(directory: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            all.append(&mut names(&entry.path()));
        } else {
            all.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    all
}
