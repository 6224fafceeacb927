//! Requests per second and latency of a registry with many models.
//!
//! `cargo bench -p quintet-registry-server` uses a SQLite file in a temporary directory. Set `QUINTET_BENCH_DSN` to the DSN
//! of an empty PostgreSQL or MySQL database to use that instead, `QUINTET_BENCH_MODELS` for another number of models (100,000)
//! and `QUINTET_BENCH_CLIENTS` for another number of clients (64). Client and server share the processors.
#![expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark fails by panicking, and prints")]
#![expect(clippy::disallowed_methods, reason = "tasks of a benchmark end with it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use quintet_registry_server::{Location, Server};
use tokio::net::{TcpListener, TcpStream};

const BASE: &str = "/api/model_registry/v1";

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` only builds it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let location = match std::env::var("QUINTET_BENCH_DSN") {
        Ok(dsn) if dsn.contains(")/") => Location::mysql(&dsn).expect("a DSN"),
        Ok(dsn) => Location::postgres(&dsn).expect("a DSN"),
        Err(_) => Location::Sqlite(directory.path().join("registry")),
    };
    let server = Server::default();
    server.open_database(&location).await.expect("the database opens");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(server.serve(listener, std::future::pending()));

    let models = number("QUINTET_BENCH_MODELS", 100_000);
    let clients = number("QUINTET_BENCH_CLIENTS", 64);
    let reads = models.min(20_000);
    println!("{models} models with a version each, {clients} clients");
    measure("create model", address, clients, models, |index| {
        let properties = format!(
            r#"{{"team": {{"metadataType": "MetadataStringValue", "string_value": "t{}"}}}}"#,
            index % 100
        );
        let body =
            format!(r#"{{"name": "model-{index}", "owner": "ann", "customProperties": {properties}}}"#);
        ("POST", format!("{BASE}/registered_models"), body)
    })
    .await;
    measure("create version", address, clients, models, |index| {
        let body = format!(r#"{{"name": "1", "registeredModelId": "{}", "author": "ann"}}"#, index + 1);
        ("POST", format!("{BASE}/model_versions"), body)
    })
    .await;
    let spread = move |index: usize| index * 7919 % models;
    measure("get", address, clients, reads, move |index| {
        ("GET", format!("{BASE}/registered_models/{}", spread(index) + 1), String::new())
    })
    .await;
    measure("find", address, clients, reads, move |index| {
        ("GET", format!("{BASE}/registered_model?name=model-{}", spread(index)), String::new())
    })
    .await;
    measure("list page of 20", address, clients, reads / 4, move |index| {
        use base64::Engine;
        let id = spread(index) + 1;
        let token =
            base64::engine::general_purpose::STANDARD.encode(format!("{id}:{id}")).replace('=', "%3D");
        ("GET", format!("{BASE}/registered_models?pageSize=20&nextPageToken={token}"), String::new())
    })
    .await;
    measure("filter, page of 20", address, clients, reads / 4, |index| {
        let query = format!("team%20%3D%20%22t{}%22%20AND%20owner%20%3D%20%22ann%22", index % 100);
        ("GET", format!("{BASE}/registered_models?pageSize=20&filterQuery={query}"), String::new())
    })
    .await;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("VmRSS: unknown");
    println!("memory of server and clients: {}", memory.trim_start_matches("VmRSS:").trim());
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("an option");
    let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    sender
}

async fn measure(
    what: &str,
    address: SocketAddr,
    clients: usize,
    requests: usize,
    request: impl Fn(usize) -> (&'static str, String, String) + Send + Sync + 'static,
) {
    let (next, request) = (Arc::new(AtomicUsize::new(0)), Arc::new(request));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (next, request) = (next.clone(), request.clone());
        tasks.spawn(async move {
            let mut sender = connect(address).await;
            let mut latencies = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= requests {
                    return latencies;
                }
                let (method, path, body) = request(index);
                let request = http::Request::builder().method(method).uri(path).header("host", "registry");
                let request = request.body(Full::new(Bytes::from(body))).expect("a request");
                let sent = Instant::now();
                let response = sender.send_request(request).await.expect("a response");
                let status = response.status();
                let body = response.into_body().collect().await.expect("a body").to_bytes();
                assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
                latencies.push(sent.elapsed());
            }
        });
    }
    let mut latencies: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
    let elapsed = started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    let count = u32::try_from(requests).map_or(f64::INFINITY, f64::from);
    println!("{what}: {:.0}/s, p99 {:.1} ms", count / elapsed, p99.as_secs_f64() * 1000.0);
}
