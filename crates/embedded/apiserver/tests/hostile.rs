//! Hostile requests: each gets a proper response.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

mod support;

use bytes::Bytes;
use http::Request;
use proptest::prelude::*;
use support::{admin, api, send_as};

fn request(method: &str, path: &str, content_type: &str, body: impl Into<Bytes>) -> Request<Bytes> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(body.into())
        .unwrap()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn bad_bodies_get_a_status() {
    let api = api().await;
    let deep = format!("{{\"metadata\":{}1{}}}", "{\"a\":".repeat(5000), "}".repeat(5000));
    let bodies: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"nonsense".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"\"text\"".to_vec(),
        b"{\"metadata\":".to_vec(),
        vec![0xff; 100],
        b"{\"metadata\":{\"name\":\"\xff\xfe\"}}".to_vec(),
        b"{\"metadata\":7}".to_vec(),
        b"{\"metadata\":{\"name\":[]}}".to_vec(),
        b"{\"metadata\":{\"labels\":{\"a\":1}}}".to_vec(),
        b"{\"metadata\":{\"name\":\"x\"},\"data\":[]}".to_vec(),
        b"k8s\0garbage".to_vec(),
        deep.into_bytes(),
        vec![b' '; 4 << 20],
    ];
    let kinds = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/html"];
    let patches = [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];
    for body in &bodies {
        for kind in kinds {
            for (method, path) in [("POST", MAPS.to_owned()), ("PUT", format!("{MAPS}/kube-root-ca.crt"))] {
                let reply = send_as(&api, admin(), request(method, &path, kind, body.clone())).await;
                assert!((400..600).contains(&reply.code), "{method} {kind} {body:?}: {}", reply.code);
                assert_eq!(reply.body["kind"], "Status");
            }
        }
        for kind in patches {
            let path = format!("{MAPS}/kube-root-ca.crt?fieldManager=x");
            let reply = send_as(&api, admin(), request("PATCH", &path, kind, body.clone())).await;
            assert!(reply.body["kind"].is_string(), "{kind} {:?}", String::from_utf8_lossy(&reply.bytes));
        }
        let reply = send_as(
            &api,
            admin(),
            request("DELETE", &format!("{MAPS}/none"), "application/json", body.clone()),
        )
        .await;
        assert_eq!(reply.body["kind"], "Status");
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,8}".prop_map(Into::into),
    ];
    let key = prop_oneof![
        Just("metadata".to_owned()),
        Just("spec".to_owned()),
        Just("name".to_owned()),
        Just("labels".to_owned()),
        Just("finalizers".to_owned()),
        Just("ownerReferences".to_owned()),
        Just("containers".to_owned()),
        Just("managedFields".to_owned()),
        Just("$patch".to_owned()),
        Just("op".to_owned()),
        Just("path".to_owned()),
        ".{0,6}"
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("api".to_owned()),
        Just("apis".to_owned()),
        Just("v1".to_owned()),
        Just("namespaces".to_owned()),
        Just("default".to_owned()),
        Just("pods".to_owned()),
        Just("apps".to_owned()),
        Just("deployments".to_owned()),
        Just("status".to_owned()),
        Just("scale".to_owned()),
        Just("log".to_owned()),
        Just("watch".to_owned()),
        Just("%2f".to_owned()),
        Just("%ff".to_owned()),
        Just("openapi".to_owned()),
        Just("v3".to_owned()),
        "[a-z0-9.%-]{0,6}"
    ];
    let parts = prop::collection::vec(part, 0..8);
    (parts, "(\\?[a-zA-Z]{0,10}=[a-z0-9%,=!]{0,8})?")
        .prop_map(|(parts, query)| format!("/{}{query}", parts.join("/")))
}

#[test]
fn no_request_does_harm() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api = runtime.block_on(api());
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
    let kind = prop::sample::select(vec![
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ]);
    let fixed = prop::sample::select(vec![
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/x",
        "/apis/apps/v1/namespaces/default/deployments",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt?fieldManager=m",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt?force=true&fieldManager=m",
    ])
    .prop_map(str::to_owned);
    let strategy = (method, prop_oneof![path(), fixed], kind, json());
    proptest!(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() }, |((method, path, kind, body) in strategy)| {
        // A watch has no end to wait for.
        prop_assume!(!path.contains("watch") );
        let Ok(uri) = path.parse::<http::Uri>() else { return Ok(()) };
        let request = Request::builder().method(method).uri(uri).header("content-type", kind).body(Bytes::from(body.to_string()));
        let Ok(request) = request else { return Ok(()) };
        let reply = runtime.block_on(send_as(&api, admin(), request));
        prop_assert!((200..600).contains(&reply.code));
        if reply.code >= 400 && reply.code != 404 && method != "HEAD" {
            prop_assert_eq!(reply.body["kind"].as_str(), Some("Status"), "{} {}", method, path);
        }
    });
}
