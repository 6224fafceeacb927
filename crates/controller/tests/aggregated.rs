//! An aggregated API behind the embedded API server: its front proxy, tokens, and what users may do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use http::{Request, StatusCode, request::Parts};
use kube::{Client, Config, client::Body};
use quintet_apiserver::{Caller, Cluster, Settings};
use quintet_controller::ObjectKey;
use quintet_controller::aggregated::{Access, ApiHandler, ApiServer, StatusError, json_response};
use quintet_controller::api::{Api, ApiSettings};
use quintet_controller::clock::Clock;
use quintet_controller::limiter::Limiter;
use quintet_controller::metrics::{Metrics, MetricsRegistry};
use quintet_controller::tasks::Tasks;
use quintet_controller::webhook::{CertificateManager, CertificateManagerSettings, Publication};
use serde_json::{Value, json};

const GROUP: &str = "things.example.com";
const THING: &str = "/apis/things.example.com/v1/things/a";

fn handler() -> ApiHandler {
    Arc::new(|parts: Parts| {
        async move {
            match parts.uri.path() {
                "/apis/things.example.com/v1" => {
                    let thing = json!({ "name": "things", "singularName": "thing", "namespaced": false,
                        "kind": "Thing", "verbs": ["get"] });
                    let list = json!({ "kind": "APIResourceList", "apiVersion": "v1",
                        "groupVersion": "things.example.com/v1", "resources": [thing] });
                    json_response(StatusCode::OK, &list)
                }
                THING => {
                    json_response(StatusCode::OK, &json!({ "kind": "Thing", "query": parts.uri.query() }))
                }
                _ => StatusError::no_resource().response(),
            }
        }
        .boxed()
    })
}

/// The code and the body of a response.
async fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let request = Request::post(path).header("content-type", "application/json");
    client.request(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap()
}

/// Binds a user or service account to a role that may get things.
async fn allow(client: &Client, name: &str, subject: Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    create(
        client,
        &format!("{rbac}/clusterroles"),
        &json!({ "metadata": { "name": name }, "rules": [
        { "apiGroups": [GROUP], "resources": ["things"], "verbs": ["get"] }] }),
    )
    .await;
    create(
        client,
        &format!("{rbac}/clusterrolebindings"),
        &json!({ "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [subject] }),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_authenticated_and_authorized_by_the_api_server() {
    let settings = Settings {
        data_dir: None,
        address: "127.0.0.1:0".parse().unwrap(),
        converter: None,
        disabled_controllers: BTreeSet::new(),
    };
    let cluster = Cluster::start(settings).await.unwrap();
    let admin = cluster.api().admin_client();
    let (tasks, clock) = (Tasks::new(), Clock::system());
    let metrics = Metrics::register(&MetricsRegistry::new());
    let api = Api::new(admin.clone(), Limiter::none(), ApiSettings::default(), metrics);
    let server = ApiServer::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let port = server.address().port();
    let certificates = CertificateManagerSettings {
        api_services: vec![ObjectKey::new("default", "things")],
        retry: Duration::from_millis(100),
        ..CertificateManagerSettings::own(
            ObjectKey::new("default", "certificates"),
            ObjectKey::new("default", "webhooks"),
            vec![Publication::Aggregated(format!("v1.{GROUP}"))],
        )
    };
    let certificates = CertificateManager::start(api.clone(), clock, certificates, &tasks);
    server.serve("things", handler(), Access::start(api, &tasks), certificates, &tasks).unwrap();

    create(
        &admin,
        "/api/v1/namespaces/default/services",
        &json!({ "metadata": { "name": "things" }, "spec": { "ports": [{ "port": 443 }] } }),
    )
    .await;
    create(&admin, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        &json!({ "metadata": { "name": "things", "labels": { "kubernetes.io/service-name": "things" } },
            "addressType": "IPv4", "endpoints": [{ "addresses": ["127.0.0.1"] }], "ports": [{ "port": port }] })).await;
    create(
        &admin,
        "/apis/apiregistration.k8s.io/v1/apiservices",
        &json!({ "metadata": { "name": format!("v1.{GROUP}") }, "spec": { "group": GROUP, "version": "v1",
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "namespace": "default", "name": "things", "port": 443 } } }),
    )
    .await;
    let started = Instant::now();
    while get(&admin, THING, &[]).await.0 != 200 {
        assert!(started.elapsed() < Duration::from_mins(1), "{:?}", get(&admin, THING, &[]).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (_, thing) = get(&admin, &format!("{THING}?limit=1"), &[]).await;
    assert_eq!(thing, json!({ "kind": "Thing", "query": "limit=1" }));
    assert_eq!(get(&admin, "/apis/things.example.com/v1/others", &[]).await.0, 404);

    // The front proxy says who it is, and the API server what they may.
    let ann = cluster.api().client(Caller::known("ann", ["system:authenticated".to_owned()]));
    assert_eq!(get(&ann, THING, &[]).await.0, 403);
    allow(&admin, "ann", json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann" }))
        .await;
    assert_eq!(get(&ann, THING, &[]).await.0, 200);

    // Past the API server: tokens are reviewed, and headers of strangers are not believed.
    let direct = |token: Option<&str>| {
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        Client::try_from(config).unwrap()
    };
    let (code, refused) =
        get(&direct(None), THING, &[("x-remote-user", "ann"), ("x-remote-group", "system:masters")]).await;
    assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")), "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("User \"system:anonymous\" cannot get"),
        "{refused}"
    );
    assert_eq!(get(&direct(Some("wrong")), THING, &[]).await.0, 401);
    create(&admin, "/api/v1/namespaces/default/serviceaccounts", &json!({ "metadata": { "name": "robot" } }))
        .await;
    let issued =
        create(&admin, "/api/v1/namespaces/default/serviceaccounts/robot/token", &json!({ "spec": {} }))
            .await;
    let robot = direct(issued["status"]["token"].as_str());
    let (code, refused) = get(&robot, THING, &[]).await;
    assert_eq!(code, 403, "{refused}");
    allow(&admin, "robot", json!({ "kind": "ServiceAccount", "name": "robot", "namespace": "default" }))
        .await;
    assert_eq!(get(&robot, THING, &[]).await.0, 200);
    assert_eq!(get(&direct(None), "/healthz", &[]).await.0, 404, "allowed, and the handler has none");

    tasks.stop();
    cluster.stop().await;
}
