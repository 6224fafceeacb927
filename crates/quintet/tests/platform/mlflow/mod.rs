//! The real MLflow server behind an MLflow.

mod programs;
mod server;

use serde_json::{Value, json};

use crate::support::{Platform, eventually};
pub(crate) use server::NAMESPACE;
use server::{OLDER, SUPPORTED, Server};

/// Why MLflow cannot be tested here.
pub(crate) async fn obstacle(platform: &Platform) -> Option<String> {
    platform.image_obstacle(&server::image(SUPPORTED)).await
}

/// A database file and artifacts on a volume.
fn sqlite() -> Value {
    json!({
        "storage": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        "backendStoreUri": "sqlite:////mlflow/mlflow.db",
        "artifactsDestination": "file:///mlflow/artifacts", "serveArtifacts": true,
    })
}

/// PostgreSQL of this machine, and artifacts that the server keeps in S3.
fn postgresql_and_s3() -> Value {
    json!({
        "backendStoreUriFrom": { "name": "database", "key": "uri" },
        "artifactsDestination": "s3://artifacts/mlflow", "serveArtifacts": true,
        "envFrom": [{ "secretRef": { "name": "s3" } }],
        "env": [{ "name": "MLFLOW_S3_ENDPOINT_URL", "value": "http://s3.opendatahub.svc.cluster.local:9000" }],
    })
}

/// What is logged can be read, also by the next pod.
async fn keeps_what_is_logged(server: &Server<'_>) {
    let logged = server.client("logs", programs::LOG).await;
    assert!(logged.contains("logged a run, a model and an artifact"), "{logged}");
    server.restart().await;
    let read = server.client("reads", programs::READ).await;
    assert!(read.contains("{'depth': '3'} [0.5, 0.25] a note [2, 4]"), "{read}");
}

pub(crate) async fn a_server_keeps_runs_and_models_over_a_restart(platform: &Platform) {
    let server = Server::new(platform).await;
    server.apply(sqlite()).await;
    let mlflow = server.is_available().await;
    assert_eq!(mlflow["status"]["version"], SUPPORTED);
    keeps_what_is_logged(&server).await;
    let refused = server.client("stranger", programs::WITHOUT_RIGHTS).await;
    assert!(
        refused.contains("may not create experiments.mlflow.kubeflow.org in namespace default"),
        "{refused}"
    );
}

pub(crate) async fn a_server_with_postgresql_and_s3_keeps_runs_and_models(platform: &Platform) {
    let server = Server::new(platform).await;
    server.run_postgresql(programs::OWN_DATABASE).await;
    server.run_s3().await;
    server.apply(postgresql_and_s3()).await;
    server.is_available().await;
    keeps_what_is_logged(&server).await;
    let stored = server.s3_objects().await;
    assert!(stored.contains("notes/note.txt") && stored.contains("MLmodel"), "{stored}");
}

pub(crate) async fn a_database_of_an_older_mlflow_is_migrated(platform: &Platform) {
    let server = Server::new(platform).await;
    server.run_postgresql(programs::OWN_DATABASE).await;
    server.run_s3().await;
    server.install(&server::image(OLDER)).await;
    let older = server.program_of("older", OLDER, programs::LOG_WITHOUT_SERVER).await;
    assert!(older.contains(&format!("logged with {OLDER}")), "{older}");
    let before = server.schema().await;
    server.apply(postgresql_and_s3()).await;
    let mlflow = server.is_available().await;
    assert_eq!(mlflow["status"]["version"], SUPPORTED);
    assert_ne!(server.schema().await, before, "the schema is that of another version");
    // What was logged before there were workspaces is in this one.
    server.allow_clients_in("default").await;
    let read = server.client("reads", programs::READ_OLDER).await;
    assert!(read.contains(&format!("{{'logged_with': '{OLDER}'}}")), "{read}");
}

pub(crate) async fn an_image_of_another_version_is_reported_until_it_is_replaced(platform: &Platform) {
    let server = Server::new(platform).await;
    server.install(&server::image(OLDER)).await;
    let mut spec = sqlite();
    spec["image"] = json!({ "image": server::image(OLDER) });
    server.apply(spec).await;
    let failed = server.has_condition("Migration", "False", "MigrationFailed").await;
    let message = server::condition(&failed, "Migration")["message"].to_string();
    assert!(message.contains("force-migrate annotation"), "{message}");
    // Not without the annotation, as the message says.
    server.patch(json!({ "spec": { "image": { "image": server::image(SUPPORTED) } } })).await;
    server
        .patch(json!({ "metadata": { "annotations": { "mlflow.opendatahub.io/force-migrate": "" } } }))
        .await;
    let mlflow = server.is_available().await;
    assert_eq!(mlflow["metadata"]["annotations"]["mlflow.opendatahub.io/force-migrate"], Value::Null);
    assert_eq!(mlflow["status"]["version"], SUPPORTED);
}

pub(crate) async fn a_migration_that_the_database_refuses_is_retried(platform: &Platform) {
    let server = Server::new(platform).await;
    server.run_postgresql(programs::FOREIGN_DATABASE).await;
    server.run_s3().await;
    server.apply(postgresql_and_s3()).await;
    server.has_condition("Migration", "Unknown", "MigrationRetrying").await;
    server.psql(programs::ALLOW_TABLES).await;
    server.is_available().await;
}

pub(crate) async fn garbage_collection_deletes_what_users_have_deleted(platform: &Platform) {
    let server = Server::new(platform).await;
    let mut spec = sqlite();
    // The image of the task has to trust the certificate of the server.
    spec["caBundleConfigMap"] = json!({ "name": server::CA });
    spec["garbageCollection"] =
        json!({ "schedule": "* * * * *", "resources": { "limits": { "memory": "1Gi" } } });
    server.apply(spec).await;
    server.is_available().await;
    let deleted = server.client("deletes", programs::DELETE_A_RUN).await;
    let runs: Value = serde_json::from_str(deleted.lines().last().unwrap()).unwrap();
    let (kept, deleted) = (runs["kept"].as_str().unwrap(), runs["deleted"].as_str().unwrap());
    eventually("the artifacts of the deleted run to go", async || {
        let files = server.files().await;
        assert!(files.contains(kept), "{files}");
        (!files.contains(deleted)).then_some(())
    })
    .await;
    let program = programs::FIND_RUNS.replace("RUNS", &json!([kept, deleted]).to_string());
    let found = server.client("finds", &program).await;
    assert!(found.contains("['active', 'RESOURCE_DOES_NOT_EXIST']"), "{found}");
}
