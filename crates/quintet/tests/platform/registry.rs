//! The real servers behind a ModelRegistry.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::queue::condition;
use crate::support::Platform;

/// The last client with the API v1alpha3 and experiments, and the newest.
const CLIENTS: [&str; 2] = ["0.3.14", "0.3.18"];
/// What the client does, in the tests of the server, too.
const PROGRAM: &str = include_str!("../../../services/registry/tests/python_client/client.py");
/// The image of PostgreSQL, which is that of this machine.
const POSTGRESQL: &str = "quay.io/sclorg/postgresql-16-c10s:latest";
const REGISTRY: (&str, &str, &str) = ("modelregistry.opendatahub.io/v1beta1", "ModelRegistry", "models");
/// How long a registry may take to be available. Its probes alone take ten seconds, and its Deployment has to be
/// available for five.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// The same where its database is made first, whose probes come every ten seconds, too.
const STARTS_WITH_DATABASE_WITHIN: Duration = Duration::from_mins(1);

fn client_image(version: &str) -> String {
    format!("model-registry-client:{version}")
}

/// Why registries cannot be tested here.
pub(crate) async fn obstacle(platform: &Platform) -> Option<String> {
    if !std::path::Path::new("/usr/lib/postgresql").exists() {
        return Some("there is no PostgreSQL".to_owned());
    }
    for version in CLIENTS {
        let obstacle = platform.image_obstacle(&client_image(version)).await;
        if obstacle.is_some() {
            return obstacle;
        }
    }
    None
}

/// Applies a registry and waits until it is available, which may not take long.
async fn starts(platform: &Platform, postgres: Value, within: Duration) {
    let began = Instant::now();
    let (api_version, kind, name) = REGISTRY;
    platform
        .apply(&json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name },
            "spec": { "rest": {}, "postgres": postgres } }))
        .await;
    is_available(platform).await;
    println!("available after {:.1} s", began.elapsed().as_secs_f32());
    assert!(began.elapsed() <= within, "it is available after {:?}", began.elapsed());
}

async fn is_available(platform: &Platform) {
    let is_available = |registry: &Value| condition(registry, "Available")["status"] == "True";
    platform.wait(REGISTRY, "available", is_available).await;
}

/// Runs a program with a client in a pod; it reaches the registry by its Service.
async fn run_client(platform: &Platform, name: &str, version: &str, program: &str) -> String {
    let host = format!("http://{}.{}.svc", REGISTRY.2, platform.namespace());
    let container = json!({ "name": "main", "image": client_image(version),
        "command": ["python", "-c", program, host, "8080"],
        "resources": { "requests": { "cpu": "200m", "memory": "128Mi" } } });
    let spec = json!({ "restartPolicy": "Never", "containers": [container] });
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec }))
        .await;
    let is_over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let over = platform.wait(("v1", "Pod", name), "over", is_over).await;
    let log = platform.log(name, None).await;
    assert_eq!(over["status"]["phase"], "Succeeded", "{log}");
    log
}

/// A database that the registry finds by its name.
async fn run_postgresql(platform: &Platform) {
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "database" },
            "stringData": { "password": "secret" } }))
        .await;
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let container = json!({ "name": "main", "image": POSTGRESQL,
        "env": [variable("POSTGRESQL_USER", "registry"), variable("POSTGRESQL_PASSWORD", "secret"),
            variable("POSTGRESQL_DATABASE", "models")],
        "readinessProbe": { "exec": { "command": ["/usr/libexec/check-container"] }, "periodSeconds": 1 },
        "resources": { "requests": { "cpu": "200m", "memory": "256Mi" } } });
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "database", "labels": { "app": "database" } }, "spec": { "containers": [container] } }))
        .await;
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "database" },
            "spec": { "selector": { "app": "database" }, "ports": [{ "port": 5432 }] } }))
        .await;
    let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    platform.wait(("v1", "Pod", "database"), "ready", is_ready).await;
}

pub(crate) async fn a_registry_serves_the_python_client(platform: &Platform) {
    run_postgresql(platform).await;
    let postgres = json!({ "host": "database", "database": "models", "username": "registry",
        "passwordSecret": { "name": "database", "key": "password" } });
    starts(platform, postgres, STARTS_WITHIN).await;
    let said = run_client(platform, "newest", CLIENTS[1], PROGRAM).await;
    assert!(said.contains("the client is content"), "{said}");
}

pub(crate) async fn a_registry_with_a_generated_database_serves_the_python_client(platform: &Platform) {
    starts(platform, json!({ "generateDeployment": true }), STARTS_WITH_DATABASE_WITHIN).await;
    let said = run_client(platform, "older", CLIENTS[0], PROGRAM).await;
    assert!(said.contains("the client is content"), "{said}");
}
