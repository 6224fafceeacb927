//! Connections: who gets in when others take all that they can.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "support/process.rs"]
mod process;

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use process::ServerProcess;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

const IDLE: usize = 10_000;
/// Fewer files than idle connections: the limit of many systems.
const FILES: u32 = 4096;

#[test]
fn server_process() {
    process::serve_if_asked(async |_| {});
}

/// A request on a new connection: the whole response.
async fn send(server: &ServerProcess, connector: &TlsConnector, line: &str, body: &str) -> String {
    let mut stream = server.connect(connector).await.unwrap();
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_administrator_is_served_while_ten_thousand_connections_are_idle() {
    let files = quintet_foundation::files::raise_limit();
    assert!(files > IDLE as u64 + 1000, "the test needs {IDLE} open files, and may have {files}");
    let server = ServerProcess::start(FILES);
    let (admin, anonymous) = (server.connector(true), server.connector(false));
    let mut watch = server.connect(&admin).await.unwrap();
    let head = b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    watch.write_all(head).await.unwrap();
    let connecting = stream::iter(0..IDLE).map(|_| {
        let connected = tokio::time::timeout(Duration::from_mins(1), server.connect(&anonymous));
        async { connected.await.expect("connections are accepted") }
    });
    let idle: Vec<_> = connecting.buffer_unordered(64).try_collect().await.unwrap();
    assert_eq!(idle.len(), IDLE);
    for _ in 0..5 {
        let started = Instant::now();
        let response = send(&server, &admin, "GET /api/v1/namespaces/default", "").await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
    let created =
        send(&server, &admin, "POST /api/v1/namespaces", r#"{"metadata":{"name":"made-later"}}"#).await;
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let mut events = String::new();
    while !events.contains("made-later") {
        let mut piece = [0; 4096];
        let length = watch.read(&mut piece).await.unwrap();
        assert!(length > 0, "the watch of the administrator was closed: {events}");
        events += &String::from_utf8_lossy(&piece[..length]);
    }
    let response = send(&server, &anonymous, "GET /readyz", "").await;
    assert!(response.starts_with("HTTP/1.1 200"), "others get in, too: {response}");
}
