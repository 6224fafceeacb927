//! What clients and programs of users may send or store: paths that lead elsewhere, damaged events, choices that are over.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use quintet_history::{History, HistoryOptions, Store};
use tempfile::TempDir;

const SESSION: &str = "session_2026-01-01_09-30-00_123456_1";

const COOKIES: &str =
    "cluster_name=demo; cluster_namespace=default; session_name=session_2026-01-01_09-30-00_123456_1";

/// The response to a request, with its head.
fn get(address: SocketAddr, path: &str, cookies: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\nAccept: */*\r\nCookie: {cookies}\r\n\r\n")
        .expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    String::from_utf8_lossy(&response).into_owned()
}

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status")
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    std::fs::write(path, content).expect("a file");
}

/// A server of one session, in a directory beside a file that is secret.
async fn start() -> (TempDir, SocketAddr) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    write(&root.join("secret"), b"the secret");
    let bucket = root.join("bucket");
    write(&bucket.join(format!("cluster-metadata/raycluster/default_demo/{SESSION}")), b"");
    let session = bucket.join(format!("cluster-history/raycluster/default/demo/{SESSION}"));
    write(&session.join("a1/logs/raylet.out"), b"a log\n");
    std::os::unix::fs::symlink(root.join("secret"), session.join("a1/logs/link.log")).expect("a link");

    let task = |id: &str| {
        format!(
            r#"{{"eventType":"TASK_DEFINITION_EVENT","taskDefinitionEvent":{{"taskId":"{id}","taskName":"{id}"}}}}"#
        )
    };
    let events = session.join("a1/job_events/01000000");
    let deep = format!(r#"{{"eventType":"X","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let long = format!(r#"{{"eventType":"X","x":"{}"}}"#, "x".repeat(8 << 20));
    let lines =
        [&task("aa01"), "null", "[]", "{", "\u{0}\u{1}", &deep, &long, r#"{"eventType":7}"#, &task("aa02")];
    write(&events.join("a1-2026-01-01-09-1.jsonl"), lines.join("\n").as_bytes());
    write(&events.join("a1-2026-01-01-09-2.jsonl.gz"), b"\x1f\x8b\x08 this is no gzip");
    write(&events.join("a1-2026-01-01-09-3.jsonl"), &[0xff; 4096]);
    write(&events.join("a1-2026-01-01-09-4.jsonl"), format!("[{}, {{", task("aa03")).as_bytes());

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let history = History::new(Store::directory(&bucket, ""), None, HistoryOptions::default());
    #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
    tokio::spawn(history.expect("a server").serve(listener, std::future::pending()));
    (directory, address)
}

fn enter(address: SocketAddr) {
    let entered = get(address, &format!("/enter_cluster/default/raycluster/demo/{SESSION}"), "");
    assert_eq!(status(&entered), 200, "{entered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_that_lead_elsewhere_are_refused() {
    let (_directory, address) = start().await;
    enter(address);
    let up = "../../../../../../../../secret";
    let encoded = "..%2f..%2f..%2f..%2f..%2f..%2f..%2f..%2fsecret";
    for (path, expected) in [
        (format!("/api/v0/logs/file?node_id=a1&filename={up}"), 400),
        (format!("/api/v0/logs/file?node_id=a1&filename={encoded}"), 400),
        ("/api/v0/logs/file?node_id=a1&filename=/etc/passwd".to_owned(), 400),
        (format!("/api/v0/logs/file?node_id={encoded}&filename=x"), 400),
        ("/api/v0/logs?node_id=..".to_owned(), 400),
        ("/api/v0/logs?node_id=a1&glob=../../../*".to_owned(), 400),
        ("/api/v0/logs?node_id=a1&glob=/etc/*".to_owned(), 400),
        // A link that a program of a user has left.
        ("/api/v0/logs/file?node_id=a1&filename=link.log".to_owned(), 500),
        (format!("/enter_cluster/default/raycluster/demo/{encoded}"), 404),
        (format!("/{encoded}"), 404),
        (format!("/api/{encoded}"), 404),
    ] {
        let response = get(address, &path, COOKIES);
        assert!(!response.contains("the secret"), "{path}: {response}");
        assert_eq!(status(&response), expected, "{path}: {response}");
    }
    for cookies in [
        COOKIES.replace("=demo", "=../demo"),
        COOKIES.replace("=default", "=.."),
        COOKIES.replace(SESSION, "../../x"),
        COOKIES.replace(SESSION, ""),
        format!("{COOKIES}; owner_kind=rayjob; owner_name=../x"),
        format!("{COOKIES}; owner_kind=../x; owner_name=y"),
    ] {
        let response = get(address, "/api/v0/tasks", &cookies);
        assert_eq!(status(&response), 400, "{cookies}: {response}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_events_do_not_hide_the_others() {
    let (_directory, address) = start().await;
    enter(address);
    let tasks = get(address, "/api/v0/tasks", COOKIES);
    for id in ["aa01", "aa02"] {
        assert!(tasks.contains(&format!(r#""name":"{id}""#)), "{id}: {tasks}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_that_are_over_say_what_to_do() {
    let (_directory, address) = start().await;
    let expired = get(address, "/api/v0/tasks", "");
    assert!(status(&expired) == 400 && expired.contains("Cluster Cookie not found"), "{expired}");
    let not_loaded = get(address, "/api/v0/tasks", COOKIES);
    assert!(status(&not_loaded) == 503 && not_loaded.contains("reload via /enter_cluster"), "{not_loaded}");
    for path in [
        "/enter_cluster/default/raycluster/none",
        "/enter_cluster/default/rayjob/demo",
        "/enter_cluster/default/raycluster/demo/session_2000-01-01_00-00-00_000000_1",
    ] {
        assert_eq!(status(&get(address, path, "")), 404, "{path}");
    }
}
