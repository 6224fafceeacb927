//! Webhooks: certificates in simulated time, and answers over real HTTPS.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use quintet_controller::{
    ObjectKey,
    webhook::{
        CertificateSource, Certificates, Keeper, KeeperSettings, Publication, Routes, Verdict, WebhookServer,
        WebhookSettings,
    },
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use support::{process::Process, server::Server, simulate, store::Place};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const NAME: &str = "quintet-webhooks.quintet.svc";
const GROUP: &str = "admissionregistration.k8s.io/v1";

fn validating() -> Place {
    (format!("{GROUP}/validatingwebhookconfigurations"), String::new(), "quintet".to_owned())
}

fn crd() -> Place {
    (
        "apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        String::new(),
        "gardens.test.quintet.dev".to_owned(),
    )
}

fn prepare(server: &Server) {
    server.serve(GROUP, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false);
    server.serve(GROUP, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false);
    server.serve("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false);
}

fn apply_manifests(server: &Server) {
    let webhooks = json!([{"name": "a", "clientConfig": {"service": {}}}, {"name": "b", "clientConfig": {}}]);
    let mutating = (format!("{GROUP}/mutatingwebhookconfigurations"), String::new(), "quintet".to_owned());
    for place in [validating(), mutating] {
        server.store(|store| store.create(&place, json!({"metadata": {}, "webhooks": webhooks})).unwrap());
    }
    let spec = json!({"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {}}}}});
    server.store(|store| store.create(&crd(), json!({"metadata": {}, "spec": spec})).unwrap());
}

fn settings() -> KeeperSettings {
    let publications = vec![
        Publication::Validating("quintet".to_owned()),
        Publication::Mutating("quintet".to_owned()),
        Publication::Conversion("gardens.test.quintet.dev".to_owned()),
    ];
    KeeperSettings {
        period: Duration::from_hours(6),
        ..KeeperSettings::own(ObjectKey::new("default", "certs"), vec![NAME.to_owned()], publications)
    }
}

fn bundle(server: &Server, place: &Place, path: &str) -> String {
    let object = server.store(|store| store.objects[place].clone());
    let bytes: ByteString = serde_json::from_value(object.pointer(path).unwrap().clone()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

#[test]
fn replicas_share_one_certificate_publish_it_and_renew_it_without_a_gap() {
    for seed in 0..1 {
        simulate(async {
            let server = Server::new(seed);
            prepare(&server);
            let processes: Vec<_> = (0..3).map(|_| Process::bare(&server, seed, None)).collect();
            let keepers: Vec<_> = processes
                .iter()
                .map(|p| Keeper::start(p.api.clone(), p.clock.clone(), settings(), &p.tasks))
                .collect();
            tokio::time::sleep(Duration::from_mins(1)).await;
            let missing = keepers[0].missing().unwrap();
            assert!(
                missing.contains("ValidatingWebhookConfiguration") && missing.contains("apply the manifests")
            );
            apply_manifests(&server);
            tokio::time::sleep(Duration::from_mins(1)).await;
            let first = keepers[0].served().unwrap();
            assert!(keepers.iter().all(|keeper| keeper.missing().is_none()));
            assert!(keepers.iter().all(|keeper| keeper.served().as_ref() == Some(&first)));
            for path in ["/webhooks/0/clientConfig/caBundle", "/webhooks/1/clientConfig/caBundle"] {
                assert_eq!(bundle(&server, &validating(), path), first.ca);
            }
            assert_eq!(bundle(&server, &crd(), "/spec/conversion/webhook/clientConfig/caBundle"), first.ca);
            server.take_writes();
            tokio::time::sleep(Duration::from_hours(240 * 24)).await;
            assert!(server.take_writes().is_empty(), "nothing to do");

            // Two thirds of a year are over. At every moment of the change-over every replica is trusted.
            for _ in 0..(10 * 24 * 2) {
                tokio::time::sleep(Duration::from_mins(30)).await;
                let published = bundle(&server, &validating(), "/webhooks/1/clientConfig/caBundle");
                for (keeper, process) in keepers.iter().zip(&processes) {
                    keeper.served().unwrap().verify(&published, NAME, process.clock.now()).unwrap();
                }
            }
            let second = keepers[0].served().unwrap();
            assert_ne!(second, first);
            assert!(keepers.iter().all(|keeper| keeper.served().as_ref() == Some(&second)));
            assert!(
                second.ca.contains(first.newest_authority()),
                "the old one stays trusted until it expires"
            );
            for process in processes {
                process.stop().await;
            }
        });
    }
}

#[test]
fn somebody_elses_certificates_are_taken_and_reloaded() {
    simulate(async {
        let server = Server::new(1);
        prepare(&server);
        apply_manifests(&server);
        let process = Process::bare(&server, 1, None);
        let directory = temporary_directory("somebody-else");
        let write = |certificates: &Certificates| {
            std::fs::write(directory.join("tls.crt"), &certificates.certificate).unwrap();
            std::fs::write(directory.join("tls.key"), &certificates.key).unwrap();
        };
        let publish = |ca: &str| {
            server
                .store(|store| {
                    store.update(&validating(), false, |object| {
                        for webhook in object["webhooks"].as_array_mut().unwrap() {
                            webhook["clientConfig"]["caBundle"] = json!(ByteString(ca.as_bytes().to_vec()));
                        }
                        Ok(())
                    })
                })
                .unwrap();
        };
        let make = || {
            Certificates::make(&[NAME.to_owned()], process.clock.now(), Duration::from_hours(48), "").unwrap()
        };
        let settings = KeeperSettings {
            source: CertificateSource::Directory(directory.clone()),
            publications: vec![Publication::Validating("quintet".to_owned())],
            period: Duration::from_secs(10),
            ..settings()
        };
        let keeper = Keeper::start(process.api.clone(), process.clock.clone(), settings, &process.tasks);
        let soon = || tokio::time::sleep(Duration::from_secs(30));
        soon().await;
        assert!(keeper.missing().unwrap().contains("tls.crt"), "{:?}", keeper.missing());
        let first = make();
        write(&first);
        soon().await;
        let missing = keeper.missing().unwrap();
        assert!(missing.contains("cannot trust webhooks by ValidatingWebhookConfiguration"), "{missing}");
        publish(&first.ca);
        soon().await;
        assert_eq!(keeper.missing(), None);
        // Half a pair must not be served.
        let second = make();
        std::fs::write(directory.join("tls.crt"), &second.certificate).unwrap();
        soon().await;
        assert!(keeper.missing().unwrap().contains("does not fit"), "{:?}", keeper.missing());
        assert_eq!(keeper.served().unwrap().key, first.key);
        write(&second);
        publish(&second.ca);
        soon().await;
        assert_eq!((keeper.missing(), keeper.served().unwrap().key), (None, second.key));
        process.stop().await;
        std::fs::remove_dir_all(directory).unwrap();
    });
}

fn temporary_directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("quintet-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn routes() -> Routes {
    Routes::new()
        .validate(
            "/validate",
            |admission: &quintet_controller::webhook::Admission<ConfigMap>| match admission
                .object
                .data
                .as_ref()
                .and_then(|data| data.get("colour"))
            {
                Some(colour) if colour == "black" => Verdict::deny("data.colour: black is no colour"),
                Some(_) => Verdict::allow(),
                None => Verdict::allow().warn("data.colour: not set"),
            },
        )
        .mutate("/mutate", |admission: &mut quintet_controller::webhook::Admission<ConfigMap>| {
            let data = admission.object.data.get_or_insert_default();
            data.entry("colour".to_owned()).or_insert_with(|| "red".to_owned());
        })
        .convert("/convert", |mut object, version| {
            object["apiVersion"] = version.into();
            if object["spec"]["bad"] == true { Err("spec.bad: it is".to_owned()) } else { Ok(object) }
        })
        .validate("/panic", |_: &quintet_controller::webhook::Admission<ConfigMap>| panic!("as told"))
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

fn review(object: &Value) -> String {
    json!({"kind": "AdmissionReview", "request": {"uid": "q", "operation": "CREATE", "name": "a", "object": object}}).to_string()
}

#[tokio::test]
async fn questions_are_answered_over_https() {
    let server = Server::new(1);
    prepare(&server);
    apply_manifests(&server);
    let process = Process::bare(&server, 1, None);
    let settings = KeeperSettings { period: Duration::from_millis(20), ..settings() };
    let keeper = Keeper::start(process.api.clone(), process.clock.clone(), settings, &process.tasks);
    let listen = WebhookSettings::new("127.0.0.1:0".parse().unwrap());
    let https = WebhookServer::bind(listen).await.unwrap();
    let address = https.address();
    https.serve(routes(), keeper.clone(), &process.tasks).unwrap();
    while keeper.missing().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ca = bundle(&server, &validating(), "/webhooks/0/clientConfig/caBundle");
    let ask = async |path: &str, body: &str| {
        let (code, body) = post(address, &ca, path, body).await.unwrap();
        (code, serde_json::from_str::<Value>(&body).unwrap_or(Value::String(body)))
    };

    let (code, answer) = ask("/validate", &review(&json!({"data": {"colour": "black"}}))).await;
    assert_eq!((code, &answer["response"]["uid"]), (200, &json!("q")));
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["message"], "data.colour: black is no colour");
    let (_, answer) = ask("/validate", &review(&json!({}))).await;
    assert_eq!(
        answer["response"],
        json!({"uid": "q", "allowed": true, "warnings": ["data.colour: not set"]})
    );
    let (_, answer) = ask("/validate", &review(&json!({"data": 7}))).await;
    assert_eq!(answer["response"]["allowed"], false, "{answer}");

    let object = json!({"metadata": {"name": "a"}, "unknown": {"kept": true}});
    let (_, answer) = ask("/mutate", &review(&object)).await;
    let patch: ByteString = serde_json::from_value(answer["response"]["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch.0).unwrap();
    assert_eq!(patch, json!([{"op": "add", "path": "/data", "value": {"colour": "red"}}]));
    let (_, answer) = ask("/mutate", &review(&json!({"data": {"colour": "blue"}}))).await;
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
    assert_eq!(answer["response"]["result"], json!({"status": "Failure", "message": "spec.bad: it is"}));

    assert_eq!(ask("/panic", &review(&json!({}))).await.0, 500);
    assert_eq!(ask("/validate", "garbage").await.0, 400);
    assert_eq!(ask("/nowhere", "{}").await.0, 404);
    assert_eq!(ask("/validate", &" ".repeat(33 * 1024 * 1024)).await.0, 413);
    assert_eq!(ask("/validate", &review(&json!({}))).await.0, 200, "and it goes on");

    let stranger =
        Certificates::make(&[NAME.to_owned()], process.clock.now(), Duration::from_hours(1), "").unwrap();
    assert!(post(address, &stranger.ca, "/validate", "{}").await.is_err());
    process.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_port_in_use_is_said_in_one_line() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = WebhookSettings::new(taken.local_addr().unwrap());
    let error = WebhookServer::bind(listen).await.unwrap_err().to_string();
    assert!(error.contains("in use") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn idle_connections_do_not_keep_the_api_server_from_its_webhooks() {
    let server = Server::new(1);
    prepare(&server);
    apply_manifests(&server);
    let process = Process::bare(&server, 1, None);
    let settings = KeeperSettings { period: Duration::from_millis(20), ..settings() };
    let keeper = Keeper::start(process.api.clone(), process.clock.clone(), settings, &process.tasks);
    let https = WebhookServer::bind(WebhookSettings::new("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = https.address();
    https.serve(routes(), keeper.clone(), &process.tasks).unwrap();
    while keeper.missing().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ca = bundle(&server, &validating(), "/webhooks/0/clientConfig/caBundle");
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
    let body = review(&json!({}));
    let answer = tokio::time::timeout(Duration::from_secs(2), post(address, &ca, "/validate", &body)).await;
    assert_eq!(answer.expect("a webhook request waits behind idle connections").unwrap().0, 200);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    drop((http1, http2, half_open));
    process.stop().await;
}
