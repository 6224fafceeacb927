//! The registry on PostgreSQL, where it is installed.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use support::http::{Request, send};
use support::postgres::Postgres;
use support::server::Running;

/// Keys and indexes that upstream's database has after its migration 24, from a recording of its catalogue.
const INDEXES: &str = "Type_pkey Type_external_id_key idx_type_external_id idx_type_name ParentType_pkey \
    TypeProperty_pkey Context_pkey Context_external_id_key Context_type_id_name_key \
    idx_context_create_time_since_epoch idx_context_external_id idx_context_last_update_time_since_epoch \
    idx_context_type_id ContextProperty_pkey idx_context_property_double idx_context_property_int \
    ParentContext_pkey idx_parentcontext_parent_context_id Artifact_pkey Artifact_external_id_key \
    Artifact_type_id_name_key idx_artifact_create_time_since_epoch idx_artifact_external_id \
    idx_artifact_last_update_time_since_epoch idx_artifact_uri ArtifactProperty_pkey \
    idx_artifact_property_artifact_id idx_artifact_property_double idx_artifact_property_int Attribution_pkey \
    Attribution_context_id_artifact_id_key idx_attribution_context_artifact Execution_pkey \
    Execution_external_id_key Execution_type_id_name_key idx_execution_create_time_since_epoch \
    idx_execution_external_id idx_execution_last_update_time_since_epoch ExecutionProperty_pkey \
    idx_execution_property_double idx_execution_property_int Association_pkey \
    Association_context_id_execution_id_key Event_pkey Event_artifact_id_execution_id_type_key \
    idx_event_execution_id idx_event_path_event_id MLMDEnv_pkey schema_migrations_pkey";
const FOREIGN_KEYS: &str = "TypeProperty_type_id_fkey ContextProperty_context_id_fkey \
    ArtifactProperty_artifact_id_fkey Attribution_artifact_id_fkey Attribution_context_id_fkey \
    ExecutionProperty_execution_id_fkey Association_context_id_fkey Association_execution_id_fkey";
/// The ids of upstream's types on PostgreSQL, with their kind.
const TYPES: [&str; 13] = [
    "10|kf.ServeModel|0",
    "11|kf.ModelArtifact|1",
    "12|kf.DocArtifact|1",
    "13|kf.DataSet|1",
    "14|kf.Metric|1",
    "15|kf.Parameter|1",
    "16|kf.MetricHistory|1",
    "17|kf.RegisteredModel|2",
    "18|kf.ModelVersion|2",
    "19|kf.ServingEnvironment|2",
    "20|kf.InferenceService|2",
    "21|kf.Experiment|2",
    "22|kf.ExperimentRun|2",
];

async fn post(address: SocketAddr, path: &str, body: Value) -> Value {
    let request = Request {
        method: "POST".to_owned(),
        path: format!("/api/model_registry/v1{path}"),
        headers: Vec::new(),
        body: Some(body.to_string().into_bytes()),
    };
    let response = send(address, &request).await.expect("a response");
    assert!(response.status < 300, "{path}: {}", response.text());
    serde_json::from_slice(&response.body).expect("an entity")
}

async fn get(address: SocketAddr, path: &str) -> Value {
    let path = format!("/api/model_registry/v1{path}");
    let request = Request { method: "GET".to_owned(), path, headers: Vec::new(), body: None };
    let response = send(address, &request).await.expect("a response");
    serde_json::from_slice(&response.body).expect("JSON")
}

fn names(list: &str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_has_upstreams_schema_and_keeps_what_it_is_given() {
    let Some(postgres) = Postgres::start() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    postgres.run("postgres", "CREATE DATABASE registry");
    let location = postgres.location("registry");
    let server = Running::start(&location).await;
    let found = |query: &str| -> BTreeSet<String> { postgres.query("registry", query).into_iter().collect() };
    assert_eq!(found("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'"), names(INDEXES));
    assert_eq!(found("SELECT conname FROM pg_constraint WHERE contype = 'f'"), names(FOREIGN_KEYS));
    let types = found("SELECT id, name, type_kind FROM \"Type\" WHERE name LIKE 'kf.%'");
    assert_eq!(types, TYPES.iter().map(ToString::to_string).collect());
    let identities = "SELECT count(*) FROM information_schema.columns WHERE identity_generation = 'ALWAYS'";
    assert_eq!(postgres.query("registry", identities), ["7"]);

    let model = json!({"name": "m", "language": ["en"], "customProperties":
        {"st": {"metadataType": "MetadataStructValue", "struct_value": "eyJhIjoxfQ=="}}});
    post(server.address, "/registered_models", model).await;
    post(server.address, "/model_versions", json!({"name": "v", "registeredModelId": "1"})).await;
    post(server.address, "/model_versions/2/artifacts", json!({"artifactType": "doc-artifact", "name": "d"}))
        .await;
    let properties =
        "SELECT name, is_custom_property, string_value FROM \"ContextProperty\" WHERE context_id = 1";
    let expected = [
        "language|f|mlmd-struct::ChQKCGxhbmd1YWdlEggyBgoEGgJlbg==",
        "st|t|mlmd-struct::Cg4KAWESCREAAAAAAADwPw==",
        "state|f|LIVE",
    ];
    assert_eq!(found(properties), expected.iter().map(ToString::to_string).collect());
    assert_eq!(postgres.query("registry", "SELECT * FROM \"ParentContext\""), ["2|1"]);
    assert_eq!(postgres.query("registry", "SELECT context_id, artifact_id FROM \"Attribution\""), ["2|1"]);

    // Another server on the same database serves the same, also when upstream has added its views meanwhile.
    let before = get(server.address, "/registered_models?pageSize=5").await;
    drop(server);
    postgres.run("registry", "UPDATE schema_migrations SET version = 25");
    let server = Running::start(&location).await;
    assert_eq!(get(server.address, "/registered_models?pageSize=5").await, before);
    let found = get(server.address, "/model_versions?filterQuery=name%20%3D%20%22v%22").await;
    assert_eq!(found["size"], 1);
}
