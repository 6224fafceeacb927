//! Objects as the Go operator leaves them are taken over: only what is wrong with its garbage collection is written, and no
//! pod is touched.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quintet_api::mlflow::MLflow;
use quintet_golden::{ObjectId, Setting, World, simulate, template};
use quintet_mlflow::mlflow::{Bundles, OptionalApis, preview};
use quintet_mlflow::settings::Settings;
use serde_json::{Value, json};

const NAMESPACE: &str = "opendatahub";

fn setting() -> Setting {
    let variables = [("MLFLOW_IMAGE", "mlflow:3"), ("POD_NAMESPACE", NAMESPACE)];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Setting { variables, ..Setting::default() }
}

/// An MLflow that the Go operator has migrated and that serves; its objects were applied by the manager
/// `mlflow-operator`. It writes `status.conditions` in an order of its own.
async fn leave(world: &World) {
    let spec = json!({
        "backendStoreUri": "sqlite:////mlflow/mlflow.db", "serveArtifacts": true, "storage": {},
        "garbageCollection": {"schedule": "0 1 * * *"},
    });
    let manifest = json!({
        "apiVersion": "mlflow.opendatahub.io/v1", "kind": "MLflow", "metadata": {"name": "mlflow"}, "spec": spec,
    });
    world.create(&manifest).await.unwrap();
    let stored = world.get(&ObjectId::of(&manifest)).await.unwrap().unwrap();
    let mlflow: MLflow = serde_json::from_value(stored).unwrap();
    let settings = Settings { image: Some("mlflow:3".to_owned()), ..Settings::default() };
    for mut object in preview(&mlflow, &settings, OptionalApis::default(), &Bundles::default()).unwrap() {
        as_upstream(&mut object);
        let is_job = object["kind"] == "Job";
        let code = if is_job || object["kind"] == "PersistentVolumeClaim" {
            world.create(&object).await.unwrap().code
        } else {
            world.apply(&object, None, "mlflow-operator").await.unwrap().code
        };
        assert!(code < 300, "{code} for {object}");
        let status = match object["kind"].as_str() {
            Some("Job") => json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}),
            Some("Deployment") => json!({"replicas": 1, "readyReplicas": 1, "observedGeneration": 1}),
            _ => continue,
        };
        world.patch(&ObjectId::of(&object), Some("status"), &json!({"status": status})).await.unwrap();
    }
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
               "lastTransitionTime": "2025-12-31T00:00:00Z"})
    };
    let mut migration = condition(
        "Migration",
        "True",
        "MigrationSucceeded",
        "Migration for generation 1 completed successfully",
    );
    migration["observedGeneration"] = json!(1);
    let status = json!({
        "version": "3.14.0",
        "address": {"url": "https://mlflow.opendatahub.svc:8443/mlflow"},
        "conditions": [
            migration,
            condition("Progressing", "False", "ReconcileComplete", "MLflow reconciliation completed successfully"),
            condition("Available", "True", "DeploymentReady", "MLflow deployment is ready and available"),
        ],
    });
    world.patch(&ObjectId::of(&manifest), Some("status"), &json!({"status": status})).await.unwrap();
}

/// The garbage collection of the Go operator finds neither namespaces nor the server's path.
fn as_upstream(object: &mut Value) {
    if object["kind"] == "ClusterRoleBinding" && object["metadata"]["name"] == "mlflow" {
        let subjects = object["subjects"].as_array_mut().unwrap();
        subjects.retain(|subject| subject["name"] != "mlflow-gc-sa");
    }
    let pod = "/spec/jobTemplate/spec/template/spec/containers/0/env";
    for variable in object.pointer_mut(pod).and_then(Value::as_array_mut).into_iter().flatten() {
        if variable["name"] == "MLFLOW_TRACKING_URI" {
            variable["value"] = json!("https://mlflow.opendatahub.svc:8443");
        }
    }
}

/// Whether the object is written when it is taken over.
fn is_corrected(id: &str) -> bool {
    matches!(id, "ClusterRoleBinding mlflow" | "CronJob opendatahub/mlflow-gc")
}

/// What must stay the same: identity and version of every object.
async fn versions(world: &World) -> BTreeMap<String, (Value, Value)> {
    let objects = world.objects().await.unwrap().into_iter();
    let version =
        |object: &Value| (object["metadata"]["uid"].clone(), object["metadata"]["resourceVersion"].clone());
    let kept = objects.filter(|(id, _)| !is_corrected(&id.to_string()));
    kept.map(|(id, object)| (id.to_string(), version(&object))).collect()
}

#[test]
fn of_what_the_go_operator_left_only_its_garbage_collection_is_corrected() {
    simulate(async {
        let component = quintet_mlflow::component();
        let template = template(&component, &[]).await?;
        let mut world = World::new(&template, 1, &[NAMESPACE.to_owned()]).await?;
        leave(&world).await;
        world.grant_to(&component, &setting()).await?;
        let before = versions(&world).await;
        let writes = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&writes);
        world.start(&component, &setting()).await?;
        world.faults().decide(move |met| {
            if !matches!(met.verb, "get" | "list" | "watch") {
                seen.lock().unwrap().push(format!("{} {} {}", met.verb, met.resource, met.name));
            }
            None
        });
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(versions(&world).await, before);
        let writes = writes.lock().unwrap().clone();
        assert_eq!(writes, ["patch clusterrolebindings mlflow", "patch cronjobs mlflow-gc"]);
        world.stop().await;
        Ok(())
    })
    .unwrap();
}
