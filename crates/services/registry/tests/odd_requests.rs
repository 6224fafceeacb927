//! Odd requests, with the answers of upstream's server.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
mod support;

use quintet_registry_server::{Location, Server};
use support::http::{Request, Response, send};
use support::server::Running;

const BASE: &str = "/api/model_registry/v1alpha3";

/// The method, the path (below [`BASE`] unless it starts with `/api`) and the body of a request; the status and a part of
/// the answer.
type Exchange = (&'static str, &'static str, &'static str, u16, &'static str);

fn full(path: &str) -> String {
    if path.starts_with("/api") { path.to_owned() } else { format!("{BASE}{path}") }
}

async fn check(exchanges: &[Exchange]) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(&Location::Sqlite(directory.path().join("registry"))).await;
    for (method, path, body, status, part) in exchanges {
        let body = (!body.is_empty()).then(|| body.as_bytes().to_vec());
        let request = Request { method: (*method).to_owned(), path: full(path), headers: Vec::new(), body };
        let response = send(server.address, &request).await.expect("a response");
        let text = response.text();
        assert_eq!(response.status, *status, "{method} {path}: {text}");
        assert!(text.contains(part), "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn repeated_custom_properties_are_joined() {
    let body = r#"{"name":"m","customProperties":{"a":{"metadataType":"MetadataBoolValue","bool_value":true}},
        "customProperties":{"b":{"metadataType":"MetadataIntValue","int_value":"1"}}}"#;
    let both = r#""customProperties":{"a":{"bool_value":true,"metadataType":"MetadataBoolValue"},"b":{"int_value":"1""#;
    check(&[("POST", "/registered_models", body, 201, both)]).await;
}

#[tokio::test]
async fn structures_hold_no_numbers_beyond_doubles() {
    // {"a":1e400}
    let body = r#"{"name":"m","customProperties":{"s":{"metadataType":"MetadataStructValue","struct_value":"eyJhIjoxZTQwMH0="}}}"#;
    let as_text = r#"{"name":"m","customProperties":{"s":{"metadataType":"MetadataStructValue","struct_value":"{\"a\":1e400}"}}}"#;
    check(&[
        (
            "POST",
            "/registered_models",
            body,
            400,
            "(line 1:6): invalid google.protobuf.Value: 1e400 for key s",
        ),
        ("POST", "/registered_models", as_text, 400, "illegal base64 data at input byte 0 for key s"),
        ("GET", "/registered_models", "", 200, r#""size":0"#),
    ])
    .await;
}

#[tokio::test]
async fn names_to_find_are_patterns() {
    let mismatch = "error listing registered models: invalid filter query, type mismatch";
    check(&[
        ("POST", "/registered_models", r#"{"name":"alpha"}"#, 201, ""),
        ("GET", "/registered_model?name=a%5C", "", 400, mismatch),
        ("GET", "/registered_model?name=b%5C", "", 404, "no registered models found"),
        ("GET", "/registered_model?name=alpha%5C", "", 404, "no registered models found"),
        ("POST", "/artifacts", r#"{"artifactType":"doc-artifact","name":"alpha"}"#, 201, ""),
        ("GET", "/artifact?name=a%5C&externalId=x", "", 400, "error listing artifacts: "),
    ])
    .await;
}

#[tokio::test]
async fn only_parameters_that_are_compared_must_be_text() {
    let mismatch = "type mismatch or invalid value";
    check(&[
        ("GET", "/registered_models?name=%FF", "", 200, ""),
        ("GET", "/registered_models?filterQuery=%FF", "", 400, mismatch),
        ("GET", "/registered_models/1/versions?name=%FF", "", 400, mismatch),
        ("GET", "/registered_model?name=x&externalId=%FF", "", 404, "no registered models found"),
        ("GET", "/registered_model?externalId=%FF", "", 400, mismatch),
    ])
    .await;
}

#[tokio::test]
async fn refusals_come_in_upstreams_order() {
    let version = r#"{"name":"v","registeredModelId":"1"}"#;
    check(&[
        ("GET", "/model_versions/x/artifacts?artifactType=bogus", "", 400, "invalid parent resource ID"),
        ("GET", "/model_versions/x/artifacts?artifactType=bogus&pageSize=y", "", 400, "parsing \\\"y\\\""),
        ("GET", "/model_versions/1/artifacts?artifactType=bogus", "", 400, "invalid artifact type bogus"),
        ("POST", "/model_versions", version, 201, r#""id":"1""#),
        ("POST", "/inference_services/+7/serves", r#"{"modelVersionId":"1"}"#, 404, "found for id 7:"),
    ])
    .await;
}

#[tokio::test]
async fn tokens_are_read_as_the_database_reads_numbers() {
    // 1:1 with a blank behind it
    let path = "/registered_models?pageSize=1&nextPageToken=MToxIA%3D%3D";
    check(&[
        ("POST", "/registered_models", r#"{"name":"a"}"#, 201, ""),
        ("POST", "/registered_models", r#"{"name":"b"}"#, 201, ""),
        ("GET", path, "", 200, r#""name":"b""#),
    ])
    .await;
}

#[tokio::test]
async fn missing_ids_go_by_the_names_of_the_version() {
    check(&[
        ("GET", "/registered_models//versions", "", 422, "required field 'registeredmodelId' is zero"),
        (
            "GET",
            "/api/model_registry/v1/registered_models//versions",
            "",
            422,
            "'registered_model_id' is zero",
        ),
        (
            "GET",
            "/api/model_registry/v1/inference_services//model",
            "",
            422,
            "'inference_service_id' is zero",
        ),
        ("GET", "/experiment_runs//artifacts", "", 422, "'experimentrunId' is zero"),
    ])
    .await;
}

#[tokio::test]
async fn methods_of_nobody_are_not_allowed_anywhere() {
    check(&[("FOO", "/nope", "", 405, ""), ("DELETE", "/nope", "", 404, "404 page not found")]).await;
}

/// The answer of a server to a request of a page of `http://a.example`.
async fn answer_to_page(origins: &[&str], method: &str, headers: &[(&str, &str)]) -> Response {
    let directory = tempfile::tempdir().expect("a directory");
    let location = Location::Sqlite(directory.path().join("registry"));
    let origins = origins.iter().map(|it| (*it).to_owned()).collect();
    let server = Running::start_as(Server::default().with_allowed_origins(origins), &location).await;
    let origin = [("Origin", "http://a.example")];
    let headers = origin.iter().chain(headers);
    let headers = headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request =
        Request { method: method.to_owned(), path: full("/registered_models"), headers, body: None };
    send(server.address, &request).await.expect("a response")
}

#[tokio::test]
async fn pages_of_other_origins_learn_what_they_may_send() {
    let allowed = ["http://a.example"];
    let method = ("Access-Control-Request-Method", "POST");
    let names = ("Access-Control-Request-Headers", "content-type,x-csrf-token");
    let preflight = answer_to_page(&allowed, "OPTIONS", &[method, names]).await;
    assert_eq!(preflight.status, 200);
    assert_eq!(preflight.header("access-control-allow-headers"), Some("Content-Type, X-Csrf-Token"));
    let no_preflight = answer_to_page(&allowed, "OPTIONS", &[("Access-Control-Request-Method", "")]).await;
    assert_eq!(no_preflight.status, 405);
    let read = answer_to_page(&allowed, "GET", &[]).await;
    assert_eq!(read.header("access-control-allow-origin"), Some("http://a.example"));
    let head = answer_to_page(&allowed, "HEAD", &[]).await;
    assert_eq!((head.header("access-control-allow-origin"), head.header("vary")), (None, Some("Origin")));
}

#[tokio::test]
async fn an_empty_list_of_origins_names_none() {
    let preflight = answer_to_page(&[""], "OPTIONS", &[("Access-Control-Request-Method", "GET")]).await;
    assert_eq!((preflight.status, preflight.header("vary")), (405, None));
}
