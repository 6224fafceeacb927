//! Webhooks over real HTTPS.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use quintet_controller::webhook::{
    Admission, CertificateManagerSettings, Certificates, Mutation, Routes, Verdict, WebhookServer,
    WebhookSettings,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

/// A process that serves webhooks, and the CA that the API server trusts.
struct Https {
    process: Process,
    address: SocketAddr,
    ca: String,
}

impl Https {
    async fn start() -> Self {
        let server = api_server(1);
        create_all(&server);
        let process = Process::bare(&server, 1, None);
        let certificates =
            start(&process, CertificateManagerSettings { period: Duration::from_millis(20), ..settings() });
        let listen = WebhookSettings::new("127.0.0.1:0".parse().unwrap());
        let https = WebhookServer::bind(listen).await.unwrap();
        let address = https.address();
        https.serve(routes(), certificates.clone(), &process.tasks).unwrap();
        while certificates.missing().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ca = bundle(&server, &validating(), "/webhooks/0/clientConfig/caBundle");
        Self { process, address, ca }
    }
}

fn routes() -> Routes {
    Routes::new()
        .validate("/validate", |admission: Admission<ConfigMap>| {
            match admission.object.data.as_ref().and_then(|data| data.get("colour")) {
                Some(colour) if colour == "black" => Verdict::deny("data.colour: black is not a colour"),
                Some(_) => Verdict::allow(),
                None => Verdict::allow().warn("data.colour: not set"),
            }
        })
        .mutate("/mutate", |mut admission: Admission<ConfigMap>| {
            let data = admission.object.data.get_or_insert_default();
            data.entry("colour".to_owned()).or_insert_with(|| "red".to_owned());
            Mutation::to(admission.object)
        })
        .convert("/convert", |mut object, version| {
            object["apiVersion"] = version.into();
            if object["spec"]["bad"] == true { Err("spec.bad: is true".to_owned()) } else { Ok(object) }
        })
        .validate("/panic", |_: Admission<ConfigMap>| -> Verdict { panic!("as told") })
        .validate("/slow", |_: Admission<ConfigMap>| std::future::pending::<Verdict>())
}

/// A TLS connection that trusts `ca` only.
async fn connect(
    address: SocketAddr,
    ca: &str,
    protocol: &str,
) -> Result<TlsStream<TcpStream>, std::io::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(NAME).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// One request over TLS, trusting `ca` only.
async fn post(
    address: SocketAddr,
    ca: &str,
    path: &str,
    body: &str,
) -> Result<(u16, String), std::io::Error> {
    let mut stream = connect(address, ca, "http/1.1").await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    // A server that refuses early may not read it all.
    let _ = stream.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

#[tokio::test]
async fn requests_are_handled_over_https() {
    let Https { process, address, ca } = Https::start().await;
    let ask = async |path: &str, body: &str| {
        let (code, body) = post(address, &ca, path, body).await.unwrap();
        (code, serde_json::from_str::<Value>(&body).unwrap_or(Value::String(body)))
    };

    let (code, answer) = ask("/validate", &review(&json!({"data": {"colour": "black"}})).to_string()).await;
    assert_eq!((code, &answer["response"]["uid"]), (200, &json!("q")));
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["message"], "data.colour: black is not a colour");
    let (_, answer) = ask("/validate", &review(&json!({})).to_string()).await;
    assert_eq!(
        answer["response"],
        json!({"uid": "q", "allowed": true, "warnings": ["data.colour: not set"]})
    );
    let (_, answer) = ask("/validate", &review(&json!({"data": 7})).to_string()).await;
    assert_eq!(answer["response"]["allowed"], false, "{answer}");

    let object = json!({"metadata": {"name": "a"}, "unknown": {"kept": true}});
    let (_, answer) = ask("/mutate", &review(&object).to_string()).await;
    let patch: ByteString = serde_json::from_value(answer["response"]["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch.0).unwrap();
    assert_eq!(patch, json!([{"op": "add", "path": "/data", "value": {"colour": "red"}}]));
    let (_, answer) = ask("/mutate", &review(&json!({"data": {"colour": "blue"}})).to_string()).await;
    assert_eq!(answer["response"], json!({"uid": "q", "allowed": true}));

    let convert = |bad: bool| {
        let objects =
            json!([{"apiVersion": "g/v1", "spec": {"bad": bad}}, {"apiVersion": "g/v2", "spec": {}}]);
        json!({"request": {"uid": "c", "desiredAPIVersion": "g/v2", "objects": objects}}).to_string()
    };
    let (_, answer) = ask("/convert", &convert(false)).await;
    assert_eq!(answer["response"]["result"]["status"], "Success", "{answer}");
    assert_eq!(answer["response"]["convertedObjects"][0]["apiVersion"], "g/v2");
    let (_, answer) = ask("/convert", &convert(true)).await;
    assert_eq!(answer["response"]["result"], json!({"status": "Failure", "message": "spec.bad: is true"}));

    assert_eq!(ask("/panic", &review(&json!({})).to_string()).await.0, 500);
    assert_eq!(ask("/validate", "garbage").await.0, 400);
    assert_eq!(ask("/nowhere", "{}").await.0, 404);
    assert_eq!(ask("/validate", &" ".repeat(33 * 1024 * 1024)).await.0, 413);
    assert_eq!(ask("/validate", &review(&json!({})).to_string()).await.0, 200, "and it goes on");

    let stranger =
        Certificates::issue(&[NAME.to_owned()], process.clock.now(), Duration::from_hours(1), "").unwrap();
    assert!(post(address, &stranger.ca, "/validate", "{}").await.is_err());
    process.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_port_in_use_is_reported_in_one_line() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = WebhookSettings::new(taken.local_addr().unwrap());
    let error = WebhookServer::bind(listen).await.unwrap_err().to_string();
    assert!(error.contains("in use") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn idle_connections_do_not_keep_the_api_server_from_its_webhooks() {
    let Https { process, address, ca } = Https::start().await;
    // More connections than the server allows: HTTP/1 without a request, HTTP/2 after its preface, and ones that
    // never begin their handshake.
    let (mut http1, mut http2, mut half_open) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..540 {
        let opened = tokio::time::timeout(Duration::from_secs(2), async {
            match number % 3 {
                0 => http1.push(connect(address, &ca, "http/1.1").await.unwrap()),
                1 => {
                    let stream = TokioIo::new(connect(address, &ca, "h2").await.unwrap());
                    let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
                    let (sender, connection) =
                        client.handshake::<_, http_body_util::Empty<Bytes>>(stream).await.unwrap();
                    process.tasks.spawn("client", async move { drop(connection.await) });
                    http2.push(sender);
                }
                _ => half_open.push(TcpStream::connect(address).await.unwrap()),
            }
        });
        if opened.await.is_err() {
            break;
        }
    }
    let started = Instant::now();
    let body = review(&json!({})).to_string();
    let answer = tokio::time::timeout(Duration::from_secs(2), post(address, &ca, "/validate", &body)).await;
    assert_eq!(answer.expect("a webhook request waits behind idle connections").unwrap().0, 200);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    drop((http1, http2, half_open));
    process.stop().await;
}

#[tokio::test]
async fn a_slow_handler_is_answered_before_the_api_server_gives_up() {
    let Https { process, address, ca } = Https::start().await;
    let started = Instant::now();
    let body = review(&json!({})).to_string();
    let (code, text) = post(address, &ca, "/slow?timeout=1s", &body).await.unwrap();
    let elapsed = started.elapsed();
    assert!(elapsed > Duration::from_millis(800) && elapsed < Duration::from_secs(1), "{elapsed:?}");
    assert_eq!(code, 500);
    assert!(text.contains("the webhook at /slow did not finish within"), "{text}");
    process.stop().await;
}
