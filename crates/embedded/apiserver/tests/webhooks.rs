//! Admission webhooks over HTTPS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    clippy::similar_names,
    reason = "a test that cannot go on has failed"
)]

mod support;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use support::{api, backend::Backend, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A webhook that labels everything at `/label`, refuses everything at `/deny` and talks nonsense elsewhere.
fn answer(request: &Request<Bytes>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let review: Value = serde_json::from_slice(request.body()).unwrap();
    let uid = &review["request"]["uid"];
    let response = match path {
        "/label" => {
            assert!(review["request"]["object"]["metadata"].get("uid").is_none(), "creates have no uid yet");
            let patch =
                json!([{"op": "add", "path": "/metadata/labels", "value": {"hooked": "yes"}}]).to_string();
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch), "warnings": ["labelled"]})
        }
        "/deny" => json!({"uid": uid, "allowed": false, "status": {"message": "no such luck"}}),
        _ => json!({"uid": "wrong", "allowed": true}),
    };
    let review =
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Response::new(Full::new(review.to_string().into()))
}

/// Starts the webhook; its address and who vouches for it.
async fn start() -> (String, String) {
    let backend = Backend::start(&["localhost"], |request| answer(&request)).await;
    (format!("https://localhost:{}", backend.address.port()), backend.ca)
}

fn configuration(kind: &str, hook: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "test"}, "webhooks": [hook]})
}

fn hook(url: &str, ca: &str, path: &str) -> Value {
    json!({"name": "hook.example.com", "clientConfig": {"url": format!("{url}{path}"), "caBundle": ca},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "scope": "*"}],
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 5,
        "matchConditions": [{"name": "not-free", "expression": "object.metadata.name != 'free'"}]})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test]
async fn mutating_webhooks_change_objects() {
    let (url, ca) = start().await;
    let api = api().await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    send(&api, "POST", hooks, configuration("MutatingWebhookConfiguration", hook(&url, &ca, "/label")))
        .await
        .expect(201);
    let reply = send(&api, "POST", MAPS, config_map("a")).await;
    assert_eq!(reply.warnings(), ["299 - \"labelled\""]);
    assert_eq!(reply.expect(201)["metadata"]["labels"]["hooked"], "yes");
    let free = send(&api, "POST", MAPS, config_map("free")).await.expect(201);
    assert!(free["metadata"].get("labels").is_none(), "the condition does not hold");
}

#[tokio::test]
async fn validating_webhooks_refuse() {
    let (url, ca) = start().await;
    let api = api().await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    send(&api, "POST", hooks, configuration("ValidatingWebhookConfiguration", hook(&url, &ca, "/deny")))
        .await
        .expect(201);
    let reply = send(&api, "POST", MAPS, config_map("a")).await;
    assert_eq!(
        (reply.code, reply.message()),
        (400, "admission webhook \"hook.example.com\" denied the request: no such luck")
    );
    send(&api, "POST", MAPS, config_map("free")).await.expect(201);

    send(&api, "DELETE", &format!("{hooks}/test"), None).await.expect(200);
    let mut broken = hook(&url, &ca, "/nonsense");
    send(&api, "POST", hooks, configuration("ValidatingWebhookConfiguration", broken.clone()))
        .await
        .expect(201);
    let reply = send(&api, "POST", MAPS, config_map("a")).await;
    assert_eq!(reply.code, 500);
    assert!(reply.message().starts_with("Internal error occurred: failed calling webhook \"hook.example.com\": received invalid webhook response: expected response.uid="), "{}", reply.message());

    send(&api, "DELETE", &format!("{hooks}/test"), None).await.expect(200);
    broken["failurePolicy"] = "Ignore".into();
    broken["clientConfig"]["url"] = "https://localhost:1/nobody".into();
    send(&api, "POST", hooks, configuration("ValidatingWebhookConfiguration", broken)).await.expect(201);
    send(&api, "POST", MAPS, config_map("a")).await.expect(201);
}

#[tokio::test]
async fn webhooks_of_this_process_are_called_without_a_connection() {
    let api = api().await;
    let webhook: quintet_apiserver::InProcessWebhook = std::sync::Arc::new(|path, review, _limit| {
        Box::pin(async move {
            if path == "/broken" {
                return Err("it is broken".to_owned());
            }
            let request = Request::post(path).body(Bytes::from(review.to_string())).unwrap();
            let body = http_body_util::BodyExt::collect(answer(&request).into_body()).await.unwrap();
            Ok(serde_json::from_slice(&body.to_bytes()).unwrap())
        })
    });
    api.answer_webhooks("quintet-system", "webhooks", Some(webhook));
    let hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let at = |path: &str| {
        let mut hook = hook("", "", path);
        hook["clientConfig"] =
            json!({"service": {"namespace": "quintet-system", "name": "webhooks", "path": path}});
        configuration("MutatingWebhookConfiguration", hook)
    };
    send(&api, "POST", hooks, at("/label")).await.expect(201);
    let labelled = send(&api, "POST", MAPS, config_map("a")).await.expect(201);
    assert_eq!(labelled["metadata"]["labels"]["hooked"], "yes");

    send(&api, "DELETE", &format!("{hooks}/test"), None).await.expect(200);
    send(&api, "POST", hooks, at("/broken")).await.expect(201);
    let reply = send(&api, "POST", MAPS, config_map("b")).await;
    let expected = "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: it is broken";
    assert_eq!((reply.code, reply.message()), (500, expected));
}

#[tokio::test]
async fn a_client_decides_how_long_it_waits() {
    // Connections are accepted, and never answered.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let api = api().await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let mut slow = hook(&url, "", "/");
    slow["clientConfig"].as_object_mut().unwrap().remove("caBundle");
    slow["timeoutSeconds"] = 30.into();
    send(&api, "POST", hooks, configuration("ValidatingWebhookConfiguration", slow)).await.expect(201);
    let began = std::time::Instant::now();
    let reply = send(&api, "POST", &format!("{MAPS}?timeout=300ms"), config_map("a")).await;
    assert_eq!((reply.code, reply.body["reason"].as_str()), (504, Some("Timeout")));
    assert!(began.elapsed() < std::time::Duration::from_secs(5));
    let reply = send(&api, "POST", &format!("{MAPS}?timeout=soon"), config_map("a")).await;
    assert!(
        reply.code == 400 && reply.message().starts_with("invalid timeout specified"),
        "{}",
        reply.message()
    );
}

#[tokio::test]
async fn a_bundle_with_the_serving_certificate_itself_is_trusted() {
    let constrained = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    for is_ca in [rcgen::IsCa::NoCa, rcgen::IsCa::ExplicitNoCa, constrained] {
        let shown = format!("{is_ca:?}");
        let backend = Backend::self_signed(&["localhost"], is_ca, None, |request| answer(&request)).await;
        let url = format!("https://localhost:{}", backend.address.port());
        let api = api().await;
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        let hook = configuration("MutatingWebhookConfiguration", hook(&url, &backend.ca, "/label"));
        send(&api, "POST", path, hook).await.expect(201);
        let made = send(&api, "POST", MAPS, config_map("a")).await.expect(201);
        assert_eq!(made["metadata"]["labels"]["hooked"], "yes", "{shown}");
    }
}

#[tokio::test]
async fn a_trusted_certificate_must_still_be_for_the_server() {
    let backend =
        Backend::self_signed(&["elsewhere"], rcgen::IsCa::NoCa, None, |request| answer(&request)).await;
    let api = api().await;
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let url = format!("https://localhost:{}", backend.address.port());
    let hook = configuration("MutatingWebhookConfiguration", hook(&url, &backend.ca, "/label"));
    send(&api, "POST", path, hook).await.expect(201);
    send(&api, "POST", MAPS, config_map("a")).await.expect(500);
}

#[tokio::test]
async fn the_path_of_a_webhook_is_cleaned() {
    let (url, ca) = start().await;
    let api = api().await;
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let hook = configuration("MutatingWebhookConfiguration", hook(&url, &ca, "//x/.././label/"));
    send(&api, "POST", path, hook).await.expect(201);
    let made = send(&api, "POST", MAPS, config_map("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"]["hooked"], "yes");
}
