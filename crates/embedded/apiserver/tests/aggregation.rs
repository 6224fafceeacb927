//! APIServices: what this server registers of itself, and requests that another server answers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::Arc;

use http::Response;
use http_body_util::Full;
use quintet_apiserver::{Api, Store, server::certificates::FrontProxy};
use serde_json::{Value, json};
use support::{api, backend::Backend, eventually, send, send_as};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

async fn condition(api: &Api, name: &str) -> (String, String, String) {
    let service = send(api, "GET", &format!("{SERVICES}/{name}"), None).await.expect(200);
    let condition = &service["status"]["conditions"][0];
    let part = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    (part("status"), part("reason"), part("message"))
}

#[tokio::test]
async fn what_is_served_here_is_registered() {
    let api = api().await;
    let list = send(&api, "GET", SERVICES, None).await.expect(200);
    let named = |name: &str| {
        let items = list["items"].as_array().unwrap();
        items.iter().find(|item| item["metadata"]["name"] == name).unwrap_or(&Value::Null)
    };
    assert_eq!(
        named("v1.")["spec"],
        json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1})
    );
    assert_eq!(named("v2.autoscaling")["spec"]["versionPriority"], 30);
    assert_eq!(
        named("v1.apps")["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"],
        "onstart"
    );
    let local = ("True".to_owned(), "Local".to_owned(), "Local APIServices are always available".to_owned());
    assert_eq!(condition(&api, "v1.apps").await, local);

    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"}, "spec": {"group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, "POST", definitions, definition).await.expect(201);
    let custom = send(&api, "GET", &format!("{SERVICES}/v1.ex.io"), None).await.expect(200);
    assert_eq!(custom["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(
        (&custom["spec"]["groupPriorityMinimum"], &custom["spec"]["versionPriority"]),
        (&json!(1000), &json!(100))
    );
    // One that a person removed comes back, and one whose definition has gone goes.
    send(&api, "DELETE", &format!("{SERVICES}/v1.apps"), None).await.expect(200);
    assert_eq!(condition(&api, "v1.apps").await, local);
    send(&api, "DELETE", &format!("{definitions}/widgets.ex.io"), None).await.expect(200);
    eventually(async || send(&api, "GET", &format!("{SERVICES}/v1.ex.io"), None).await.code == 404).await;
}

#[tokio::test]
async fn another_server_answers_for_its_group() {
    let backend = Backend::start(&["metrics.other.svc"], |request| {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = match request.uri().path() {
            "/apis/metrics.ex.io/v1" => json!({"kind": "APIResourceList", "groupVersion": "metrics.ex.io/v1", "resources": [
                {"name": "loads", "singularName": "load", "namespaced": true, "kind": "Load", "verbs": ["get", "list"]},
                {"name": "loads/status", "singularName": "", "namespaced": true, "kind": "Load", "verbs": ["get"]}]}),
            path => json!({"path": path, "query": request.uri().query(), "user": header("x-remote-user"),
                "group": header("x-remote-group"), "forged": header("x-remote-extra-a"), "host": header("host"),
                "authorization": header("authorization"), "body": String::from_utf8_lossy(request.body())}),
        };
        Response::new(Full::new(body.to_string().into()))
    })
    .await;
    let api = api().await;
    let service = json!({"metadata": {"name": "v1.metrics.ex.io"}, "spec": {"group": "metrics.ex.io", "version": "v1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "caBundle": backend.ca,
        "service": {"namespace": "other", "name": "metrics"}}});
    send(&api, "POST", SERVICES, service).await.expect(201);
    let name = "v1.metrics.ex.io";
    let (status, reason, _) = condition(&api, name).await;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ServiceNotFound"));
    let path = "/apis/metrics.ex.io/v1/namespaces/a/loads/b?x=1";
    let refused = send(&api, "GET", path, None).await;
    assert_eq!((refused.code, &refused.bytes[..]), (503, &b"service unavailable\n"[..]));

    send(&api, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await.expect(201);
    let ports = json!({"metadata": {"name": "metrics"}, "spec": {"ports": [{"port": 443}]}});
    send(&api, "POST", "/api/v1/namespaces/other/services", ports).await.expect(201);
    eventually(async || condition(&api, name).await.1 == "MissingEndpoints").await;
    let slice = json!({"metadata": {"name": "metrics-1", "labels": {"kubernetes.io/service-name": "metrics"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": backend.address.port()}]});
    send(&api, "POST", "/apis/discovery.k8s.io/v1/namespaces/other/endpointslices", slice).await.expect(201);
    eventually(async || {
        condition(&api, name).await == ("True".into(), "Passed".into(), "all checks passed".into())
    })
    .await;

    let request = http::Request::post(path)
        .header("authorization", "Bearer secret")
        .header("x-remote-user", "somebody-else")
        .header("x-remote-extra-a", "forged");
    let answer = send_as(&api, support::admin(), request.body("hello".into()).unwrap()).await.expect(200);
    assert_eq!(
        answer,
        json!({"path": "/apis/metrics.ex.io/v1/namespaces/a/loads/b", "query": "x=1", "user": "admin",
            "group": "system:masters", "forged": null, "host": "metrics.other.svc", "authorization": null, "body": "hello"})
    );
    let group = send(&api, "GET", "/apis/metrics.ex.io", None).await.expect(200);
    assert_eq!(group["preferredVersion"]["groupVersion"], "metrics.ex.io/v1");
    let aggregated = http::Request::get("/apis")
        .header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        .body(bytes::Bytes::new());
    let groups = send_as(&api, support::admin(), aggregated.unwrap()).await.expect(200);
    let last = groups["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["metadata"]["name"], "metrics.ex.io");
    assert_eq!(last["versions"][0]["resources"][0]["subresources"][0]["subresource"], "status");

    let wrong = Backend::start(&["metrics.other.svc"], |_| Response::new(Full::default())).await;
    let untrusted = json!({"spec": {"caBundle": wrong.ca}});
    support::send_typed(
        &api,
        "PATCH",
        &format!("{SERVICES}/{name}"),
        "application/merge-patch+json",
        untrusted,
    )
    .await
    .expect(200);
    assert_eq!(condition(&api, name).await.1, "FailedDiscoveryCheck", "certificates are checked");
    assert_eq!(send(&api, "GET", path, None).await.code, 503);
}

#[tokio::test]
async fn other_servers_know_this_one_by_its_client_certificate() {
    let proxy = Arc::new(FrontProxy::generate().unwrap());
    let api = support::api_of(Store::in_memory(), |parts| parts.front_proxy = Some(Arc::clone(&proxy))).await;
    let settings = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let settings = send(&api, "GET", settings, None).await.expect(200);
    let told = |key: &str| settings["data"][key].as_str().unwrap_or_default().to_owned();
    assert_eq!(told("requestheader-allowed-names"), "[\"front-proxy-client\"]");
    assert_eq!(told("requestheader-username-headers"), "[\"X-Remote-User\"]");
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/extension-apiserver-authentication-reader";
    send(&api, "GET", role, None).await.expect(200);

    // A server that accepts only this authority.
    let ca = told("requestheader-client-ca-file");
    let backend = Backend::self_signed(&["metrics.default.svc"], rcgen::IsCa::NoCa, Some(&ca), |request| {
        let user = request.headers().get("x-remote-user").and_then(|user| user.to_str().ok());
        let list = json!({"kind": "APIResourceList", "groupVersion": "metrics.ex.io/v1", "resources": [], "user": user});
        Response::new(Full::new(list.to_string().into()))
    })
    .await;
    let ports = json!({"metadata": {"name": "metrics"}, "spec": {"ports": [{"port": 443}]}});
    send(&api, "POST", "/api/v1/namespaces/default/services", ports).await.expect(201);
    let slice = json!({"metadata": {"name": "metrics-1", "labels": {"kubernetes.io/service-name": "metrics"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": backend.address.port()}]});
    send(&api, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice)
        .await
        .expect(201);
    let service = json!({"metadata": {"name": "v1.metrics.ex.io"}, "spec": {"group": "metrics.ex.io", "version": "v1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "caBundle": backend.ca,
        "service": {"namespace": "default", "name": "metrics"}}});
    send(&api, "POST", SERVICES, service).await.expect(201);
    eventually(async || condition(&api, "v1.metrics.ex.io").await.1 == "Passed").await;
    let answer = send(&api, "GET", "/apis/metrics.ex.io/v1/loads", None).await.expect(200);
    assert_eq!(answer["user"], "admin");
}
