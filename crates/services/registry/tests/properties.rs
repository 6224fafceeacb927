//! What holds for any requests.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use quintet_registry_server::{Location, Server};
use serde_json::{Value, json};
use support::http::{Request, Response, send};
use support::server::Running;

const BASE: &str = "/api/model_registry/v1alpha3";

async fn request(address: SocketAddr, method: &str, path: &str, body: Option<Vec<u8>>) -> Response {
    let request = Request { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body };
    send(address, &request).await.expect("a response")
}

async fn create(address: SocketAddr, name: &str) -> String {
    let body = json!({ "name": name }).to_string().into_bytes();
    let response = request(address, "POST", &format!("{BASE}/registered_models"), Some(body)).await;
    assert_eq!(response.status, 201, "{}", response.text());
    let created: Value = serde_json::from_slice(&response.body).expect("a model");
    created["id"].as_str().expect("an id").to_owned()
}

/// Reads all pages of a list and returns the ids in order.
async fn walk(address: SocketAddr, order: &str, size: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut token = String::new();
    loop {
        let token_parameter = token.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let path =
            format!("{BASE}/registered_models?pageSize={size}&{order}&nextPageToken={token_parameter}");
        let response = request(address, "GET", &path, None).await;
        let page: Value = serde_json::from_slice(&response.body).expect("a page");
        let items = page["items"].as_array().expect("items");
        ids.extend(items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()));
        page["nextPageToken"].as_str().expect("a token").clone_into(&mut token);
        if token.is_empty() {
            return ids;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_neither_lose_nor_repeat_entities_while_others_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(&Location::Sqlite(directory.path().join("registry"))).await;
    let address = server.address;
    let mut there = BTreeSet::new();
    for index in 0..40 {
        there.insert(create(address, &format!("before-{index}")).await);
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..2 {
        let is_done = is_done.clone();
        writers.spawn(async move {
            for index in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    return index;
                }
                create(address, &format!("during-{writer}-{index}")).await;
            }
            unreachable!("the loop ends by returning")
        });
    }
    let orders = [
        "orderBy=ID",
        "orderBy=CREATE_TIME",
        "orderBy=ID&sortOrder=DESC",
        "orderBy=CREATE_TIME&sortOrder=DESC",
    ];
    for order in orders {
        let ids = walk(address, order, 7).await;
        let distinct: BTreeSet<String> = ids.iter().cloned().collect();
        assert_eq!(distinct.len(), ids.len(), "{order}: an entity is repeated");
        assert!(there.is_subset(&distinct), "{order}: an entity is lost");
    }
    is_done.store(true, Ordering::Relaxed);
    let written: usize = writers.join_all().await.into_iter().sum();
    assert!(written > 0, "nothing was written meanwhile");
}

#[tokio::test]
async fn the_alpha_api_announces_its_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let location = Location::Sqlite(directory.path().join("registry"));
    let server = Server::default().with_alpha_sunset("2027-03-01".parse().expect("a day"));
    let server = Running::start_as(server, &location).await;
    let alpha = request(server.address, "GET", &format!("{BASE}/registered_models"), None).await;
    assert_eq!(alpha.header("deprecation"), Some("true"));
    assert_eq!(alpha.header("sunset"), Some("Mon, 01 Mar 2027 00:00:00 GMT"));
    assert_eq!(alpha.header("link"), Some("</api/model_registry/v1/>; rel=\"successor-version\""));
    let stable = request(server.address, "GET", "/api/model_registry/v1/registered_models", None).await;
    assert_eq!(stable.header("sunset"), None);
}

const PATHS: [&str; 24] = [
    "/registered_models",
    "/registered_models/1",
    "/registered_models/1/versions",
    "/registered_model",
    "/model_versions",
    "/model_versions/2",
    "/model_versions/2/artifacts",
    "/model_version",
    "/artifacts",
    "/artifacts/1",
    "/artifact",
    "/model_artifacts",
    "/model_artifacts/1",
    "/model_artifact",
    "/serving_environments",
    "/serving_environments/3/inference_services",
    "/inference_services/4",
    "/inference_services/4/serves",
    "/experiments",
    "/experiments/5/experiment_runs",
    "/experiment_runs",
    "/experiment_runs/6/artifacts",
    "/experiment_runs/6/metric_history",
    "/experiment_runs/metric_history",
];
const PARAMETERS: [&str; 9] = [
    "name",
    "externalId",
    "parentResourceId",
    "filterQuery",
    "pageSize",
    "orderBy",
    "sortOrder",
    "nextPageToken",
    "artifactType",
];
const VALUES: [&str; 16] = [
    "1",
    "-1",
    "x",
    "",
    "%25",
    "%27",
    "a%5C",
    "DESC",
    "CREATE_TIME",
    "MTox",
    "MTo5OTk5OTk5OTk5OTk5OTk5",
    "metric",
    "id%20LIKE%20%22%5C%5C%22",
    "name%20%3D%20%22%5C%5C%22%20OR%20step%20%3E%201.5",
    "c%20%3D%201e300",
    "value%20IN%20(1%2C2)",
];
const FIELDS: [&str; 14] = [
    "name",
    "id",
    "externalId",
    "description",
    "state",
    "registeredModelId",
    "servingEnvironmentId",
    "experimentId",
    "modelVersionId",
    "artifactType",
    "value",
    "step",
    "customProperties",
    "language",
];

fn json_value() -> impl Strategy<Value = Value> {
    let texts = [
        "",
        "1",
        "2",
        "3",
        "5",
        "6",
        "a",
        "LIVE",
        "metric",
        "model-artifact",
        "parameter",
        "doc-artifact",
        "ü\u{10ffff}",
    ];
    let property = json!({"p": {"metadataType": "MetadataStructValue", "struct_value": "e30="}});
    prop_oneof![
        6 => select(texts.to_vec()).prop_map(|text| json!(text)),
        1 => Just(json!("n".repeat(300))),
        1 => any::<f64>().prop_map(|number| json!(number)),
        1 => any::<i64>().prop_map(|number| json!(number)),
        1 => Just(json!(null)),
        1 => Just(json!([])),
        2 => Just(property),
        1 => Just(json!({"p": {"metadataType": "MetadataIntValue", "int_value": "99999999999"}})),
    ]
}

fn any_request() -> impl Strategy<Value = (&'static str, String, Option<Vec<u8>>)> {
    let query = proptest::collection::vec((select(&PARAMETERS[..]), select(&VALUES[..])), 0..4);
    let fields = proptest::collection::btree_map(select(&FIELDS[..]), json_value(), 0..7);
    let body = prop_oneof![
        8 => fields.prop_map(|fields| json!(fields).to_string().into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ];
    (select(&["GET", "POST", "PATCH"][..]), select(&PATHS[..]), query, body).prop_map(
        |(method, path, query, body)| {
            let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
            (method, format!("{BASE}{path}?{}", query.join("&")), (method != "GET").then_some(body))
        },
    )
}

/// Names that are too long are the one mistake that upstream answers with 500.
fn is_expected(response: &Response) -> bool {
    response.status < 500 || response.text().contains("value too long for type character varying(255)")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_makes_the_server_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(&Location::Sqlite(directory.path().join("registry"))).await;
    let address = server.address;
    let setup = [
        ("/registered_models", json!({"name": "m"})),
        ("/model_versions", json!({"name": "v", "registeredModelId": "1"})),
        ("/serving_environments", json!({"name": "s"})),
        ("/inference_services", json!({"name": "i", "registeredModelId": "1", "servingEnvironmentId": "3"})),
        ("/experiments", json!({"name": "e"})),
        ("/experiment_runs", json!({"name": "r", "experimentId": "5"})),
    ];
    for (path, body) in setup {
        let response =
            request(address, "POST", &format!("{BASE}{path}"), Some(body.to_string().into_bytes())).await;
        assert_eq!(response.status, 201, "{path}: {}", response.text());
    }
    let handle = tokio::runtime::Handle::current();
    let mut runner = TestRunner::new(Config { cases: 1500, ..Config::default() });
    tokio::task::spawn_blocking(move || {
        runner.run(&any_request(), |(method, path, body)| {
            let response = handle.block_on(request(address, method, &path, body));
            prop_assert!(
                is_expected(&response),
                "{} {}: {} {}",
                method,
                path,
                response.status,
                response.text()
            );
            Ok(())
        })
    })
    .await
    .expect("it runs")
    .expect("the server copes");
}
