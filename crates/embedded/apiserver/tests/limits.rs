//! Limits: nesting, size, time, warnings.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use http::Request;
use quintet_apiserver::{
    Api, Cluster, Settings,
    store::{Expect, Put, Write, WriteError},
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use support::{Disk, api, api_on, eventually, send};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A field of the wire format with bytes in it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(bytes);
    out
}

#[tokio::test]
async fn nesting_is_bounded_in_every_format() {
    let api = api().await;
    // An object in an object in an object, each in an envelope of its own.
    let mut object = Vec::new();
    for _ in 0..20_000 {
        let kind = [field(1, b"apps/v1"), field(2, b"ControllerRevision")].concat();
        let data = if object.is_empty() { Vec::new() } else { field(2, &field(1, &object)) };
        object = [b"k8s\0".to_vec(), field(1, &kind), field(2, &data)].concat();
    }
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let request = Request::post(path).header("content-type", "application/vnd.kubernetes.protobuf");
    let reply = support::send_as(&api, support::admin(), request.body(object.into()).unwrap()).await;
    assert_eq!((reply.code, reply.body["kind"].as_str()), (400, Some("Status")));

    let maps = "/api/v1/namespaces/default/configmaps";
    send(&api, "POST", maps, json!({"metadata": {"name": "m"}, "data": {"a": "b"}})).await.expect(201);
    let patch = |operations: Vec<Value>| {
        support::send_typed(
            &api,
            "PATCH",
            "/api/v1/namespaces/default/configmaps/m",
            "application/json-patch+json",
            json!(operations),
        )
    };
    let doubling =
        (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/data/a{n}")})).collect();
    patch(doubling).await.expect(422);
    let nesting = (0..9000).map(|_| json!({"op": "copy", "from": "/data", "path": "/data/a"})).collect();
    patch(nesting).await.expect(422);
}

#[tokio::test]
async fn numbers_without_end_are_refused() {
    let api = api().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    send(&api, "POST", "/api/v1/namespaces/default/pods", pod).await.expect(201);
    let forever = json!({"gracePeriodSeconds": 9_000_000_000_000_000_000_i64});
    send(&api, "DELETE", "/api/v1/namespaces/default/pods/p", forever).await.expect(400);
    let token = json!({"spec": {"expirationSeconds": 1_000_000_000_000_000_i64}});
    let reply = send(&api, "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", token).await;
    assert!(
        reply.message().ends_with("may not specify a duration larger than 2^32 seconds"),
        "{}",
        reply.message()
    );
}

#[tokio::test]
async fn warnings_have_an_end() {
    let api = api().await;
    let mut map = json!({"metadata": {"name": "m"}});
    for n in 0..50_000 {
        map[format!("unknown{n}")] = json!(1);
    }
    let began = std::time::Instant::now();
    let reply = send(&api, "POST", "/api/v1/namespaces/default/configmaps", map).await;
    assert_eq!(reply.code, 201);
    assert!(reply.warnings().iter().map(|warning| warning.len()).sum::<usize>() < 16 << 10);
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
}

/// The time that creating, patching and applying an object with so many owners takes.
async fn time_with_owners(api: &Api, owners: u32) -> Duration {
    let maps = "/api/v1/namespaces/default/configmaps";
    let references: Vec<Value> = (0..owners)
        .map(|n| json!({"apiVersion": "v1", "kind": "Nothing", "name": "n", "uid": format!("uid-{n}")}))
        .collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "ownerReferences": references}});
    let path = format!("{maps}/m");
    let apply = format!("{path}?fieldManager=x&force=true");
    let began = std::time::Instant::now();
    send(api, "POST", maps, map.clone()).await.expect(201);
    support::send_typed(api, "PATCH", &path, "application/strategic-merge-patch+json", map.clone())
        .await
        .expect(200);
    support::send_typed(api, "PATCH", &apply, "application/apply-patch+yaml", map).await.expect(200);
    let took = began.elapsed();
    send(api, "DELETE", &path, None).await.expect(200);
    took
}

#[tokio::test]
async fn long_lists_take_no_longer_than_they_must() {
    const SHORT: u32 = 400;
    const LONG: u32 = 8_000;
    // Anything quadratic takes up to 20 times as long per item.
    const MOST: u32 = 6;
    let api = api().await;
    let (mut short, mut long) = (Duration::MAX, Duration::MAX);
    // The fastest of several attempts: other load on the machine makes single ones slow.
    for _ in 0..10 {
        short = short.min(time_with_owners(&api, SHORT).await);
        long = long.min(time_with_owners(&api, LONG).await);
        if long / LONG <= short / SHORT * MOST {
            break;
        }
    }
    assert!(long / LONG <= short / SHORT * MOST, "{LONG} owners take {long:?}, {SHORT} take {short:?}");
}

/// Fills the queue of a paused store with writes whose callers give up, until it takes no more. Returns how many.
fn fill_queue(api: &Api, object: &Value) -> usize {
    let queue = |n: usize| {
        let write = Write {
            bucket: "core/configmaps".into(),
            key: format!("default/queued{n}").into(),
            expect: Expect::Absent,
            put: Some(Put::new("v1".into(), object, 0)),
            parents: Vec::new(),
        };
        api.store().write(write).now_or_never()
    };
    (0..100_000).find(|n| matches!(queue(*n), Some(Err(WriteError::Overloaded)))).unwrap()
}

#[tokio::test]
async fn writes_are_rejected_with_retry_after_while_too_many_wait_for_the_disk() {
    let maps = "/api/v1/namespaces/default/configmaps";
    let sizes = [(0, 4000..=4096), (1 << 19, 120..=128)];
    for (size, expected) in sizes {
        let disk = Disk::new(&format!("overload-{size}"));
        let api = api_on(disk.store()).await;
        let pause = api.store().pause_writes();
        let object = json!({"metadata": {"name": "x"}, "data": {"x": "x".repeat(size)}});
        let queued = fill_queue(&api, &object);
        assert!(expected.contains(&queued), "{queued} writes of {size} bytes wait");
        let body = json!({"metadata": {"name": "m"}, "data": {"x": "x".repeat(size)}});
        let rejected = send(&api, "POST", maps, body.clone()).await;
        assert_eq!(rejected.code, 429, "{}", rejected.message());
        assert_eq!(rejected.headers["retry-after"], "1");
        assert_eq!(rejected.body["reason"], "TooManyRequests");
        assert_eq!(send(&api, "GET", maps, None).await.code, 200, "reads go on");
        drop(pause);
        eventually(async || send(&api, "POST", maps, body.clone()).await.code == 201).await;
        let stored = api.store().objects("core/configmaps", "default/queued").len();
        assert_eq!(stored, queued, "what was accepted is stored");
        api.stop().await;
    }
}

#[tokio::test]
async fn what_could_not_be_read_back_is_not_stored() {
    let api = api().await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"},
        "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    send(&api, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        .await
        .expect(201);
    let widgets = "/apis/ex.io/v1/namespaces/default/widgets";
    let deep = (0..121).fold(json!(1), |inner, _| json!({ "a": inner }));
    let mut widget =
        json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "deep": deep});
    let refused = send(&api, "POST", widgets, widget.clone()).await;
    assert!(refused.code == 400 && refused.message().contains("nested too deeply"), "{}", refused.message());
    widget["deep"] = json!("x".repeat(2 << 20));
    send(&api, "POST", widgets, widget).await.expect(201);
    let more = json!({"more": "x".repeat(2 << 20)});
    let path = format!("{widgets}/w");
    support::send_typed(&api, "PATCH", &path, "application/merge-patch+json", more).await.expect(413);
    assert!(send(&api, "GET", &path, None).await.expect(200).get("more").is_none());
}

#[tokio::test]
async fn who_may_not_ask_is_told_so_before_they_have_said_all() {
    let cluster = Cluster::start(Settings::default()).await.unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cluster.authority().certificate.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(cluster.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.unwrap();
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // Nothing of the body is ever sent.
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(4), reading).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    cluster.stop().await;
}
