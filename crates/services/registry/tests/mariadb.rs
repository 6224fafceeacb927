//! The registry on MariaDB, where it is installed.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
mod support;

use std::net::SocketAddr;

use quintet_registry_server::Server;
use serde_json::{Value, json};
use support::http::{Request, send};
use support::mariadb::MariaDb;
use support::server::Running;

async fn request(address: SocketAddr, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let request = Request {
        method: method.to_owned(),
        path: format!("/api/model_registry/v1{path}"),
        headers: Vec::new(),
        body: body.map(|body| body.to_string().into_bytes()),
    };
    let response = send(address, &request).await.expect("a response");
    (response.status, serde_json::from_slice(&response.body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_runs_on_mariadb() {
    let Some(mariadb) = MariaDb::start() else {
        println!("skipped: MariaDB is not installed");
        return;
    };
    let location = mariadb.create("mr");

    // Replicas may start together on an empty database.
    let replicas: Vec<Server> = (0..4).map(|_| Server::default()).collect();
    let opened =
        futures::future::join_all(replicas.iter().map(|server| server.open_database(&location))).await;
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    assert_eq!(mariadb.query("mr", "SELECT version, dirty FROM schema_migrations"), ["21\t0"]);
    assert_eq!(mariadb.query("mr", "SELECT COUNT(*), COUNT(DISTINCT name) FROM Type"), ["22\t22"]);

    // Names differ as they do on PostgreSQL: in case, accents and blanks at the end.
    let server = Running::start(&location).await;
    for name in ["model", "Model", "mödel", "model "] {
        let (status, body) =
            request(server.address, "POST", "/registered_models", Some(json!({"name": name}))).await;
        assert_eq!(status, 201, "{name}: {body}");
    }
    let (status, _) =
        request(server.address, "POST", "/registered_models", Some(json!({"name": "model"}))).await;
    assert_eq!(status, 409);
    let (_, found) = request(server.address, "GET", "/registered_model?name=Model", None).await;
    assert_eq!(found["name"], "Model");
    let (_, listed) =
        request(server.address, "GET", "/registered_models?filterQuery=name%20ILIKE%20%22MODEL%22", None)
            .await;
    assert_eq!(listed["size"], 2, "{listed}");

    // Values of every type come back, also large ones and those beyond the basic plane.
    let large = "é🦀".repeat(100_000);
    let properties = json!({
        "s": {"metadataType": "MetadataStringValue", "string_value": large},
        "i": {"metadataType": "MetadataIntValue", "int_value": "-2147483648"},
        "d": {"metadataType": "MetadataDoubleValue", "double_value": -1.5},
        "b": {"metadataType": "MetadataBoolValue", "bool_value": false},
    });
    let body = json!({"name": "typed", "customProperties": properties});
    let (_, created) = request(server.address, "POST", "/registered_models", Some(body)).await;
    let path = format!("/registered_models/{}", created["id"].as_str().expect("an id"));
    let (_, read) = request(server.address, "GET", &path, None).await;
    assert_eq!(read, created);
    assert_eq!(read["customProperties"], properties);

    // Connections that the server has closed are not used again.
    let connections = mariadb.query("", "SELECT id FROM information_schema.processlist WHERE user = 'mr'");
    for connection in &connections {
        mariadb.run("", &format!("KILL {connection}"));
    }
    assert!(!connections.is_empty());
    assert_eq!(request(server.address, "GET", &path, None).await.0, 200);
}
