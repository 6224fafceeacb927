//! Collector and history server with every kind of object storage, as processes with the variables that users set.
//!
//! The servers come from package indexes: moto for S3 and for OSS, which speaks its API, an emulator of Google Cloud Storage,
//! and Azurite. Where one cannot be installed, its case says so.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what is skipped is said")]

mod emulators;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use emulators::{Emulator, Running};
use quintet_history::{Collector, CollectorSettings, History, HistoryOptions, StorageConfig};

/// Which of the two programs this process is.
const CHILD: &str = "QUINTET_HISTORY_TEST_CHILD";
/// The directory of a case.
const ROOT: &str = "QUINTET_HISTORY_TEST_ROOT";
const SESSION: &str = "session_2026-01-01_09-30-00_123456_1";

/// Not a test of its own: the programs that cases start as processes.
#[test]
fn child() {
    let Ok(program) = std::env::var(CHILD) else { return };
    let root = PathBuf::from(std::env::var_os(ROOT).expect("a directory"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let variable = |name: &str| std::env::var(name).ok();
        let storage = StorageConfig {
            backend: variable("STORAGE_BACKEND").expect("a back end"),
            root: "log".to_owned(),
            ..StorageConfig::default()
        };
        let store = storage.open().expect("a storage");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let mut terminated =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("a signal");
        let stop = async {
            terminated.recv().await;
        };
        let announce = || {
            std::fs::write(root.join("new"), address).expect("a file");
            std::fs::rename(root.join("new"), root.join("address")).expect("a file");
        };
        if program == "history" {
            let history = History::new(store, None, HistoryOptions::default()).expect("a server");
            announce();
            history.serve(listener, stop).await;
        } else {
            let settings = CollectorSettings::read(|_| None, variable).expect("settings");
            let collector = Collector::start(settings, store).await.expect("a collector");
            announce();
            collector.run(Some(listener), stop).await;
        }
    });
}

fn start(program: &str, root: &Path, variables: &[(&str, String)]) -> (Running, SocketAddr) {
    let _ = std::fs::remove_file(root.join("address"));
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child"]).stdout(Stdio::null()).env(CHILD, program).env(ROOT, root);
    for (name, value) in variables {
        command.env(name, value);
    }
    let running = Running(command.spawn().expect("a process"));
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        assert!(Instant::now() < deadline, "{program} does not start");
        let address = std::fs::read_to_string(root.join("address")).ok().and_then(|it| it.parse().ok());
        if let Some(address) = address {
            return (running, address);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
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

/// Sends a request; status line and body of the response.
fn request(address: SocketAddr, head: &str, body: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let length = body.len();
    // Bodies of HTTP/1.0 are not chunked.
    write!(stream, "{head}\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}").expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    let end = response.windows(4).position(|it| it == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&response[..end]).into_owned();
    (head.lines().next().unwrap_or_default().to_owned(), response[end + 4..].to_vec())
}

fn get(address: SocketAddr, path: &str) -> (String, String) {
    let cookies = format!("Cookie: cluster_name=demo; cluster_namespace=default; session_name={SESSION}");
    let (status, body) = request(address, &format!("GET {path} HTTP/1.0\r\nAccept: */*\r\n{cookies}"), "");
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// What a collector stores with these variables, a history server with the same ones reads.
fn what_is_stored_is_read(variables: &[(&str, String)]) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let logs = root.join("ray").join(SESSION).join("logs");
    // Larger than what is read at once.
    let large: Vec<String> = (0..400_000).map(|line| format!("line {line}\n")).collect();
    let large = large.concat();
    for (name, content) in
        [("raylet.out", large.as_str()), ("events/event_RAYLET.log", ""), ("a b+%&é.log", "odd name")]
    {
        let path = logs.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("a log");
    }
    let sockets = root.join("ray").join(SESSION).join("sockets");
    std::fs::create_dir_all(&sockets).expect("a directory");
    let _raylet = UnixListener::bind(sockets.join("raylet")).expect("a socket");
    std::os::unix::fs::symlink(root.join("ray").join(SESSION), root.join("ray/session_latest"))
        .expect("a link");

    let mut all = vec![
        ("POD_IP", "10.0.0.1".to_owned()),
        ("RAY_ROLE", "Head".to_owned()),
        ("RAY_CLUSTER_NAME", "demo".to_owned()),
        ("RAY_TMP_ROOT", root.join("ray").display().to_string()),
        ("RAY_COLLECTOR_EVENT_DATA_DIR", root.join("event-data").display().to_string()),
    ];
    let dashboard = format!("http://{}", dashboard());
    all.extend([("FQ_RAY_IP", dashboard.clone()), ("RAY_DASHBOARD_ADDRESS", dashboard)]);
    all.extend(variables.iter().cloned());
    let (mut collector, address) = start("collector", root, &all);
    let event = format!(
        r#"[{{"eventType":"TASK_DEFINITION_EVENT","timestamp":"2026-01-01T00:00:00Z","sessionName":"{SESSION}","taskDefinitionEvent":{{"taskId":"abcd","taskName":"first","jobId":"AQAAAA=="}}}}]"#
    );
    let head = "POST /v1/events HTTP/1.0\r\nContent-Type: application/json";
    assert_eq!(request(address, head, &event).0, "HTTP/1.0 200 OK");
    let pid = collector.0.id().to_string();
    assert!(Command::new("kill").arg(pid).status().expect("kill").success());
    assert!(collector.0.wait().expect("a child").success(), "the collector ends well");

    let (_history, address) = start("history", root, variables);
    let (_, clusters) = get(address, "/clusters");
    assert!(clusters.contains(SESSION), "{clusters}");
    let (status, entered) = get(address, "/enter_cluster/default/raycluster/demo");
    assert_eq!(status, "HTTP/1.0 200 OK", "{entered}");
    let (_, tasks) = get(address, "/api/v0/tasks");
    assert!(tasks.contains(r#""name":"first""#), "{tasks}");
    let (_, names) = get(address, "/api/v0/logs?node_id=a1");
    assert!(names.contains("events/") && names.contains("raylet.out"), "{names}");
    let (_, names) = get(address, "/api/v0/logs?node_id=a1&glob=**/*.log");
    assert!(names.contains("events/event_RAYLET.log"), "{names}");
    let log = |rest: &str| get(address, &format!("/api/v0/logs/file?node_id=a1&filename={rest}"));
    assert!(log("raylet.out&lines=-1").1 == large, "a log is read as it was written");
    assert_eq!(log("raylet.out&lines=2").1, "line 399998\nline 399999");
    assert_eq!(log("a%20b%2B%25%26%C3%A9.log").1, "odd name");
    assert_eq!(log("events/event_RAYLET.log"), ("HTTP/1.0 200 OK".to_owned(), String::new()));
    assert_eq!(log("none.log").0, "HTTP/1.0 404 Not Found");
}

/// An emulator, unless it cannot be installed here.
fn started(emulator: &Emulator) -> Option<(Running, SocketAddr)> {
    match emulator.start() {
        Ok(started) => Some(started),
        Err(reason) => {
            println!("skipped: the server cannot be installed: {reason}");
            None
        }
    }
}

#[test]
fn s3_keeps_sessions() {
    let Some((_server, address)) = started(&Emulator::Moto) else { return };
    what_is_stored_is_read(&[
        ("STORAGE_BACKEND", "s3".to_owned()),
        ("S3_ENDPOINT", format!("http://{address}")),
        ("S3_REGION", "us-east-1".to_owned()),
        ("S3FORCE_PATH_STYLE", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
    ]);
}

#[test]
fn aliyun_oss_keeps_sessions() {
    let Some((_server, address)) = started(&Emulator::Moto) else { return };
    assert!(request(address, "PUT /history HTTP/1.0", "").0.ends_with("200 OK"));
    what_is_stored_is_read(&[
        ("STORAGE_BACKEND", "aliyunoss".to_owned()),
        ("OSS_ENDPOINT", format!("http://{address}")),
        ("OSS_REGION", "cn-hangzhou".to_owned()),
        ("OSS_BUCKET", "history".to_owned()),
        ("ALIBABA_CLOUD_ACCESS_KEY_ID", "key".to_owned()),
        ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "secret".to_owned()),
    ]);
}

#[test]
fn google_cloud_storage_keeps_sessions() {
    let Some((_server, address)) = started(&Emulator::Gcs) else { return };
    what_is_stored_is_read(&[
        ("STORAGE_BACKEND", "gcs".to_owned()),
        ("STORAGE_EMULATOR_HOST", format!("http://{address}")),
        ("GCS_BUCKET", "history".to_owned()),
    ]);
}

#[test]
fn azure_blob_storage_keeps_sessions() {
    let Some((_server, address)) = started(&Emulator::Azurite) else { return };
    let key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    let connection = format!(
        "AccountName=devstoreaccount1;AccountKey={key};BlobEndpoint=http://{address}/devstoreaccount1"
    );
    what_is_stored_is_read(&[
        ("STORAGE_BACKEND", "azureblob".to_owned()),
        ("AZURE_STORAGE_CONTAINER", "history".to_owned()),
        ("AZURE_STORAGE_CONNECTION_STRING", connection),
    ]);
}
