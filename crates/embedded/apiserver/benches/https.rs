//! Requests per second over HTTPS, as clients see them: `cargo bench -p quintet-apiserver`.
//!
//! Every client has a connection of its own and waits for each answer. Clients share the machine with the server.
#![expect(clippy::disallowed_methods, reason = "tasks of a test or benchmark end with it")]

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use quintet_apiserver::{Cluster, Settings, server::certificates::Authority};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::json;

type Error = Box<dyn std::error::Error + Send + Sync>;

const ROUND: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let path = std::env::temp_dir().join(format!("quintet-bench-{}", std::process::id()));
    say("store      what                     clients   per second");
    for (name, data_dir) in [("in memory", None), ("durable", Some(path.clone()))] {
        let began = Instant::now();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let cluster = Cluster::start(Settings { data_dir, address, converter: None }).await?;
        say(&format!("{name}: ready after {:?}, resident {} MB", began.elapsed(), resident()));
        let tls = tls(cluster.authority())?;
        for clients in [1, 64] {
            run(name, "create", clients, &cluster, &tls, move |client, count| {
                post(&format!("c{clients}-{client}-{count}"))
            })
            .await?;
            run(name, "get", clients, &cluster, &tls, move |client, _| {
                bare("GET", &format!("{MAPS}/c{clients}-{client}-0"))
            })
            .await?;
            run(name, "merge patch", clients, &cluster, &tls, move |client, count| {
                patch(
                    "application/merge-patch+json",
                    &format!("c{clients}-{client}-0"),
                    &json!({"data": {"n": count.to_string()}}),
                )
            })
            .await?;
            run(name, "server-side apply", clients, &cluster, &tls, move |client, count| {
                let name = format!("c{clients}-{client}-0");
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": count.to_string()}});
                patch("application/apply-patch+yaml", &format!("{name}?fieldManager=bench&force=true"), &object)
            })
            .await?;
        }
        say(&format!(
            "{name}: {} objects, resident {} MB",
            cluster.api().store().count("core/configmaps"),
            resident()
        ));
        cluster.stop().await;
    }
    let _ = std::fs::remove_dir_all(path);
    Ok(())
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
}

/// Resident memory of this process, clients included.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn bare(method: &str, path: &str) -> Result<Request<Full<Bytes>>, http::Error> {
    Request::builder().method(method).uri(path).header("host", "localhost").body(Full::default())
}

fn post(name: &str) -> Result<Request<Full<Bytes>>, http::Error> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"payload": "x".repeat(900)}});
    let request = Request::post(MAPS).header("host", "localhost").header("content-type", "application/json");
    request.body(Full::new(object.to_string().into()))
}

fn patch(kind: &str, name: &str, patch: &serde_json::Value) -> Result<Request<Full<Bytes>>, http::Error> {
    let request =
        Request::patch(format!("{MAPS}/{name}")).header("host", "localhost").header("content-type", kind);
    request.body(Full::new(patch.to_string().into()))
}

fn tls(authority: &Authority) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes())?)?;
    let (certificate, key) = authority.client("bench", "system:masters")?;
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    Ok(Arc::new(config))
}

async fn connect(cluster: &Cluster, tls: &Arc<ClientConfig>) -> Result<SendRequest<Full<Bytes>>, Error> {
    let stream = tokio::net::TcpStream::connect(cluster.address()).await?;
    stream.set_nodelay(true)?;
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(tls));
    let stream = connector.connect(ServerName::try_from("localhost")?, stream).await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn run(
    store: &str,
    what: &str,
    clients: u64,
    cluster: &Cluster,
    tls: &Arc<ClientConfig>,
    request: impl Fn(u64, u64) -> Result<Request<Full<Bytes>>, http::Error> + Copy + Send + 'static,
) -> Result<(), Error> {
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    let mut senders = Vec::new();
    for _ in 0..clients {
        senders.push(connect(cluster, tls).await?);
    }
    let began = Instant::now();
    for (client, mut sender) in (0..clients).zip(senders) {
        let done = Arc::clone(&done);
        tasks.spawn(async move {
            let mut count = 0;
            while began.elapsed() < ROUND {
                let response = sender.send_request(request(client, count)?).await?;
                let code = response.status();
                let body = response.into_body().collect().await?.to_bytes();
                if !code.is_success() {
                    return Err(Error::from(format!("{code}: {}", String::from_utf8_lossy(&body))));
                }
                done.fetch_add(1, Ordering::Relaxed);
                count += 1;
            }
            Ok(())
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    say(&format!("{store:10} {what:24} {clients:7} {rate:12.0}"));
    Ok(())
}
