//! Servers that accept connections and never respond: requests to them end all the same.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::json;
use support::{api, send};
use tokio::net::TcpListener;

/// A server that lets clients connect, and says nothing: no handshake ever ends.
async fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn publish(api: &quintet_apiserver::Api, name: &str, port: u16) {
    let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"name": "tls", "port": 443}]}});
    send(api, "POST", "/api/v1/namespaces/default/services", service).await.expect(201);
    let endpoints = json!({"metadata": {"name": name}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}],
        "ports": [{"name": "tls", "port": port}]}]});
    send(api, "POST", "/api/v1/namespaces/default/endpoints", endpoints).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn a_proxied_request_to_a_silent_server_ends() {
    let (_listener, port) = silent().await;
    let api = api().await;
    publish(&api, "web", port).await;
    let reply = send(&api, "GET", "/api/v1/namespaces/default/services/https:web:tls/proxy/x", None).await;
    let message = format!("error trying to reach service: dial tcp 127.0.0.1:{port}: i/o timeout");
    assert_eq!((reply.code, reply.message()), (503, message.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_request_for_an_aggregated_api_on_a_silent_server_ends() {
    let (_listener, port) = silent().await;
    let api = api().await;
    publish(&api, "extension", port).await;
    let service = json!({"metadata": {"name": "v1.silent.ex.io"}, "spec": {"group": "silent.ex.io", "version": "v1",
        "groupPriorityMinimum": 100, "versionPriority": 10, "insecureSkipTLSVerify": true,
        "service": {"namespace": "default", "name": "extension"}}});
    send(&api, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", service).await.expect(201);
    let reply = send(&api, "GET", "/apis/silent.ex.io/v1/things", None).await;
    assert_eq!(reply.code, 503);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_silent_fails_within_its_timeout() {
    let (_listener, port) = silent().await;
    let api = api().await;
    let hook = json!({"metadata": {"name": "silent"}, "webhooks": [{"name": "silent.example.com",
        "clientConfig": {"url": format!("https://localhost:{port}/")}, "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 3,
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    send(&api, "POST", hooks, hook).await.expect(201);
    let began = tokio::time::Instant::now();
    let secret = json!({"metadata": {"name": "s"}});
    let reply = send(&api, "POST", "/api/v1/namespaces/default/secrets", secret).await;
    assert_eq!(reply.code, 500);
    assert!(reply.message().contains("context deadline exceeded"), "{}", reply.message());
    assert!(began.elapsed().as_secs() <= 4, "{:?}", began.elapsed());
}
