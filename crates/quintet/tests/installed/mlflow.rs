//! MLflow on a cluster whose nodes are simulated.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{Bed, CONSOLE_LINK, HTTP_ROUTE, MLFLOW, SERVICE_MONITOR};

const API: &str = "mlflow.opendatahub.io/v1";
const OBJECT: (&str, &str, &str, &str) = (API, "MLflow", "", "mlflow");
const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub(crate) async fn check(bed: &Bed) {
    rejects_what_upstream_rejects(bed).await;
    bed.create("", &mlflow(&minimal())).await.unwrap();
    migrates_and_serves(bed).await;
    repairs_what_is_changed(bed).await;
    takes_up_kinds_that_appear(bed).await;
    reports_a_failed_migration_and_recovers(bed).await;
    has_tasks_while_they_are_wanted(bed).await;
    waits_for_a_bundle(bed).await;
    binds_groups_in_workspaces(bed).await;
    goes_with_everything(bed).await;
    keeps_a_volume(bed).await;
}

fn mlflow(spec: &Value) -> Value {
    json!({ "apiVersion": API, "kind": "MLflow", "metadata": { "name": "mlflow" }, "spec": spec })
}

fn minimal() -> Value {
    json!({ "backendStoreUri": "postgresql://db", "defaultArtifactRoot": "s3://bucket" })
}

fn condition<'a>(mlflow: &'a Value, kind: &str) -> &'a Value {
    let conditions = mlflow["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn has(kind: &'static str, status: &'static str, reason: &'static str) -> impl Fn(&Value) -> bool {
    move |mlflow| {
        let condition = condition(mlflow, kind);
        condition["status"] == status && condition["reason"] == reason
    }
}

async fn patch(bed: &Bed, patch: &Value) {
    let mlflows = bed.objects(API, "MLflow", "");
    mlflows.patch("mlflow", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The name of the migration Job that a condition tells of.
fn job_of(mlflow: &Value) -> String {
    let message = condition(mlflow, "Migration")["message"].as_str().unwrap().to_owned();
    message.split_whitespace().find(|word| word.starts_with("mlflow-mg-")).unwrap().to_owned()
}

async fn succeeds(bed: &Bed, job: &str) {
    let success = json!({ "node.quintet.dev/run-for": "1s" });
    bed.end_pods(MLFLOW, &format!("job-name={job}"), &success).await;
}

/// A Deployment of none until the Job has ended, then the server.
async fn migrates_and_serves(bed: &Bed) {
    let mlflow = bed.until(OBJECT, has("Migration", "Unknown", "MigrationRunning")).await;
    let deployment = ("apps/v1", "Deployment", MLFLOW, "mlflow");
    bed.until(deployment, |deployment| deployment["spec"]["replicas"] == 0).await;
    succeeds(bed, &job_of(&mlflow)).await;
    let mlflow = bed.until(OBJECT, has("Available", "True", "DeploymentReady")).await;
    assert_eq!(mlflow["status"]["version"], "3.14.0", "{mlflow:#}");
    assert_eq!(condition(&mlflow, "Migration")["reason"], "MigrationSucceeded");
    for (api_version, kind, namespace, name) in [
        ("v1", "Service", MLFLOW, "mlflow"),
        ("v1", "ServiceAccount", MLFLOW, "mlflow-sa"),
        ("networking.k8s.io/v1", "NetworkPolicy", MLFLOW, "mlflow"),
        ("networking.k8s.io/v1", "NetworkPolicy", MLFLOW, "mlflow-migration"),
        (RBAC, "ClusterRole", "", "mlflow"),
        (RBAC, "ClusterRoleBinding", "", "mlflow"),
    ] {
        bed.until((api_version, kind, namespace, name), |_| true).await;
    }
}

async fn repairs_what_is_changed(bed: &Bed) {
    let services = bed.objects("v1", "Service", MLFLOW);
    let before = services.get("mlflow").await.unwrap().metadata.uid;
    services.delete("mlflow", &DeleteParams::default()).await.unwrap();
    bed.until(("v1", "Service", MLFLOW, "mlflow"), |new| new["metadata"]["uid"] != json!(before)).await;
    let deployments = bed.objects("apps/v1", "Deployment", MLFLOW);
    let scaled = json!({ "spec": { "replicas": 3 } });
    deployments.patch("mlflow", &PatchParams::default(), &Patch::Merge(&scaled)).await.unwrap();
    bed.until(("apps/v1", "Deployment", MLFLOW, "mlflow"), |one| one["spec"]["replicas"] == 1).await;
}

async fn takes_up_kinds_that_appear(bed: &Bed) {
    for (kind, object) in [
        (HTTP_ROUTE, ("gateway.networking.k8s.io/v1", "HTTPRoute", MLFLOW, "mlflow")),
        (SERVICE_MONITOR, ("monitoring.coreos.com/v1", "ServiceMonitor", MLFLOW, "mlflow-metrics-monitor")),
        (CONSOLE_LINK, ("console.openshift.io/v1", "ConsoleLink", "", "mlflow")),
    ] {
        bed.serve(kind).await;
        bed.until(object, |_| true).await;
    }
}

/// A Job that runs out of time is repeated later, or at once when the user asks for it.
async fn reports_a_failed_migration_and_recovers(bed: &Bed) {
    patch(bed, &json!({ "spec": { "migration": { "mode": "Always" } } })).await;
    let mlflow = bed.until(OBJECT, has("Migration", "Unknown", "MigrationRunning")).await;
    let job = job_of(&mlflow);
    let deadline = json!({ "spec": { "activeDeadlineSeconds": 1 } });
    let jobs = bed.objects("batch/v1", "Job", MLFLOW);
    bed.until(("batch/v1", "Job", MLFLOW, &job), |_| true).await;
    jobs.patch(&job, &PatchParams::default(), &Patch::Merge(&deadline)).await.unwrap();
    let mlflow = bed.until(OBJECT, has("Migration", "Unknown", "MigrationRetrying")).await;
    let message = condition(&mlflow, "Available")["message"].as_str().unwrap();
    assert!(
        message.starts_with("Job was active longer than specified deadline Retrying automatically after "),
        "{message}"
    );
    patch(bed, &json!({ "metadata": { "annotations": { "mlflow.opendatahub.io/force-migrate": "" } } }))
        .await;
    let mlflow = bed.until(OBJECT, has("Migration", "Unknown", "ForceMigrationRunning")).await;
    succeeds(bed, &job_of(&mlflow)).await;
    bed.until(OBJECT, has("Migration", "True", "MigrationSucceeded")).await;
    let mlflow = bed.until(OBJECT, has("Available", "True", "DeploymentReady")).await;
    assert!(mlflow["metadata"]["annotations"].is_null(), "{mlflow:#}");
    patch(bed, &json!({ "spec": { "migration": null } })).await;
}

async fn has_tasks_while_they_are_wanted(bed: &Bed) {
    let archival = json!({ "enabled": true, "location": "s3://traces", "retention": "7d" });
    let tasks = [
        ("batch/v1", "CronJob", MLFLOW, "mlflow-gc"),
        ("v1", "ServiceAccount", MLFLOW, "mlflow-gc-sa"),
        (RBAC, "ClusterRole", "", "mlflow-gc"),
        (RBAC, "ClusterRoleBinding", "", "mlflow-gc"),
        ("batch/v1", "CronJob", MLFLOW, "mlflow-trace-archival"),
        ("v1", "ServiceAccount", MLFLOW, "mlflow-trace-archival-sa"),
        ("v1", "ConfigMap", MLFLOW, "mlflow-trace-archival-config"),
    ];
    let wanted = json!({ "garbageCollection": { "schedule": "0 1 * * *" }, "traceArchival": archival });
    patch(bed, &json!({ "spec": wanted })).await;
    for task in tasks {
        bed.until(task, |_| true).await;
    }
    patch(bed, &json!({ "spec": { "garbageCollection": null, "traceArchival": null } })).await;
    for task in tasks {
        bed.gone(task).await;
    }
}

async fn waits_for_a_bundle(bed: &Bed) {
    patch(bed, &json!({ "spec": { "caBundleConfigMap": { "name": "own-ca" } } })).await;
    bed.until(OBJECT, has("Available", "False", "CABundleConfigMapError")).await;
    let bundle = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "own-ca" },
        "data": { "ca.crt": "" } });
    bed.create(MLFLOW, &bundle).await.unwrap();
    bed.until(OBJECT, has("Available", "True", "DeploymentReady")).await;
    bed.until(("apps/v1", "Deployment", MLFLOW, "mlflow"), |deployment| {
        deployment["spec"]["template"]["spec"]["initContainers"][0]["name"] == "combine-ca-bundles"
    })
    .await;
}

async fn binds_groups_in_workspaces(bed: &Bed) {
    let auth = json!({ "apiVersion": "services.platform.opendatahub.io/v1alpha1", "kind": "Auth",
        "metadata": { "name": "auth" }, "spec": { "adminGroups": ["admins"], "allowedGroups": ["users"] } });
    bed.create("", &auth).await.unwrap();
    let namespaces = bed.objects("v1", "Namespace", "");
    let labels = |value: Value| json!({ "metadata": { "labels": { "opendatahub.io/global-mlflow-workspace": value } } });
    let labelled = labels(json!("mlflow"));
    namespaces.patch(crate::bed::TEAM, &PatchParams::default(), &Patch::Merge(&labelled)).await.unwrap();
    let view = (RBAC, "RoleBinding", crate::bed::TEAM, "odh-group-mlflow-view");
    let edit = (RBAC, "RoleBinding", crate::bed::TEAM, "odh-group-mlflow-edit");
    let found = bed.until(view, |_| true).await;
    assert_eq!(found["subjects"].as_array().unwrap().len(), 2, "{found:#}");
    bed.until(edit, |_| true).await;
    let unlabelled = labels(Value::Null);
    namespaces.patch(crate::bed::TEAM, &PatchParams::default(), &Patch::Merge(&unlabelled)).await.unwrap();
    bed.gone(view).await;
    bed.gone(edit).await;
}

async fn goes_with_everything(bed: &Bed) {
    bed.objects(API, "MLflow", "").delete("mlflow", &DeleteParams::default()).await.unwrap();
    for object in [
        OBJECT,
        ("apps/v1", "Deployment", MLFLOW, "mlflow"),
        ("v1", "Service", MLFLOW, "mlflow"),
        (RBAC, "ClusterRole", "", "mlflow"),
        (RBAC, "ClusterRoleBinding", "", "mlflow"),
    ] {
        bed.gone(object).await;
    }
}

/// A claim is made once, and never changed.
async fn keeps_a_volume(bed: &Bed) {
    let mut spec = minimal();
    spec["storage"] =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    bed.create("", &mlflow(&spec)).await.unwrap();
    let claim = ("v1", "PersistentVolumeClaim", MLFLOW, "mlflow-pvc");
    bed.until(claim, |_| true).await;
    patch(bed, &json!({ "spec": { "storage": { "resources": { "requests": { "storage": "5Gi" } } } } }))
        .await;
    let strategy = |deployment: &Value| deployment["spec"]["strategy"]["type"] == "Recreate";
    bed.until(("apps/v1", "Deployment", MLFLOW, "mlflow"), strategy).await;
    bed.until(claim, |claim| claim["spec"]["resources"]["requests"]["storage"] == "1Gi").await;
    bed.objects(API, "MLflow", "").delete("mlflow", &DeleteParams::default()).await.unwrap();
    bed.gone(OBJECT).await;
}

/// Changes of a valid spec that are rejected, and why: the message of the rule, or the field whose schema it breaks.
fn rejected() -> Vec<(Value, &'static str)> {
    let sqlite = "sqlite:////mlflow/mlflow.db";
    let from = |name: &str, key: &str| json!({ "name": name, "key": key });
    let variable = |name: &str| json!({ "env": [{ "name": name, "value": "true" }] });
    let archival = |archival: Value| json!({ "traceArchival": archival });
    vec![
        (
            json!({ "defaultArtifactRoot": null }),
            "spec: Invalid value: defaultArtifactRoot must be set when serveArtifacts is not true",
        ),
        (
            json!({ "defaultArtifactRoot": "file:///a" }),
            "serveArtifacts must be enabled when defaultArtifactRoot uses file-based storage (file:// prefix)",
        ),
        (json!({ "backendStoreUri": null }), "backendStoreUri or backendStoreUriFrom must be set"),
        (
            json!({ "backendStoreUri": null, "backendStoreUriFrom": from("", "") }),
            "backendStoreUri or backendStoreUriFrom must be set",
        ),
        (
            json!({ "backendStoreUriFrom": from("s", "k") }),
            "backendStoreUri and backendStoreUriFrom are mutually exclusive",
        ),
        (
            json!({ "registryStoreUri": "mysql://r", "registryStoreUriFrom": from("s", "k") }),
            "registryStoreUri and registryStoreUriFrom are mutually exclusive",
        ),
        (
            json!({ "readReplicaBackendStoreUri": "mysql://r", "readReplicaBackendStoreUriFrom": from("s", "k") }),
            "readReplicaBackendStoreUri and readReplicaBackendStoreUriFrom are mutually exclusive",
        ),
        (
            json!({ "registryStoreUriFrom": from("s", "") }),
            "registryStoreUriFrom.name and registryStoreUriFrom.key must be non-empty when registryStoreUriFrom is set",
        ),
        (
            json!({ "readReplicaBackendStoreUriFrom": from("", "k") }),
            "readReplicaBackendStoreUriFrom.name and readReplicaBackendStoreUriFrom.key must be non-empty when \
             readReplicaBackendStoreUriFrom is set",
        ),
        (
            json!({ "backendStoreUri": "http://db" }),
            "backendStoreUri must use a supported SQL metadata store URI scheme",
        ),
        (
            json!({ "registryStoreUri": "http://db" }),
            "registryStoreUri must use a supported SQL metadata store URI scheme",
        ),
        (
            json!({ "readReplicaBackendStoreUri": "postgres://db" }),
            "readReplicaBackendStoreUri must use a supported SQL metadata store URI scheme",
        ),
        (
            json!({ "backendStoreUri": sqlite }),
            "storage must be configured when using file-based backend store (sqlite:// or file:// prefix)",
        ),
        (
            json!({ "registryStoreUri": sqlite }),
            "storage must be configured when using file-based registry store (sqlite:// or file:// prefix)",
        ),
        (
            json!({ "readReplicaBackendStoreUri": sqlite }),
            "storage must be configured when using a file-based read-replica backend store (sqlite:// prefix)",
        ),
        (
            json!({ "artifactsDestination": "file:///a", "serveArtifacts": true }),
            "storage must be configured when artifactsDestination uses file-based storage (file:// prefix)",
        ),
        (
            json!({ "artifactsDestination": "file:///a", "storage": {} }),
            "serveArtifacts must be enabled when artifactsDestination uses file-based storage (file:// prefix)",
        ),
        (
            variable("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE"),
            "setting the MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE environment variable is not allowed",
        ),
        (
            variable("MLFLOW_SERVER_ENABLE_JOB_EXECUTION"),
            "setting the MLFLOW_SERVER_ENABLE_JOB_EXECUTION environment variable is not allowed; the operator manages job \
             execution lifecycle",
        ),
        (
            json!({ "networkPolicyEgressRules": [{}] }),
            "each networkPolicyEgressRules entry must specify at least one port or one destination",
        ),
        (
            json!({ "networkPolicyAdditionalEgressRules": [{}] }),
            "each networkPolicyAdditionalEgressRules entry must specify at least one port or one destination",
        ),
        (
            json!({ "resourceClaims": [{ "name": "c" }] }),
            "each resourceClaims entry must set exactly one non-empty value: resourceClaimName or resourceClaimTemplateName",
        ),
        (
            json!({ "resourceClaims": [{ "name": "c", "resourceClaimName": "a", "resourceClaimTemplateName": "b" }] }),
            "each resourceClaims entry must set exactly one non-empty value",
        ),
        (
            archival(json!({ "location": "file:///t" })),
            "storage must be configured when traceArchival.location uses file-based storage (file:// prefix)",
        ),
        (
            archival(json!({ "enabled": true, "location": "s3://t" })),
            "traceArchival.retention is required when traceArchival.enabled is true",
        ),
        (
            archival(json!({ "enabled": true, "retention": "7d" })),
            "traceArchival.location is required when traceArchival.enabled is true",
        ),
        (
            archival(json!({ "enabled": true, "location": "s3://t", "retention": "7d", "schedule": "" })),
            "traceArchival.schedule is required when traceArchival.enabled is true",
        ),
        (archival(json!({ "retention": "7w" })), "spec.traceArchival.retention in body should match"),
        (
            archival(json!({ "maxTracesPerPass": 0 })),
            "spec.traceArchival.maxTracesPerPass in body should be greater than or equal to 1",
        ),
        (
            json!({ "garbageCollection": { "schedule": "" } }),
            "spec.garbageCollection.schedule in body should be at least 1 chars long",
        ),
        (
            json!({ "garbageCollection": { "schedule": "0 1 * * *", "olderThan": "" } }),
            "spec.garbageCollection.olderThan in body should be at least 1 chars long",
        ),
        (
            json!({ "garbageCollection": { "schedule": "0 1 * * *", "olderThan": "1h2d" } }),
            "spec.garbageCollection.olderThan in body should match",
        ),
        (
            json!({ "caBundleConfigMap": { "name": "" } }),
            "spec.caBundleConfigMap.name in body should be at least 1 chars long",
        ),
        (json!({ "replicas": 0 }), "spec.replicas in body should be greater than or equal to 1"),
        (json!({ "workers": 0 }), "spec.workers in body should be greater than or equal to 1"),
        (
            json!({ "migration": { "mode": "Never" } }),
            "Unsupported value: \"Never\": supported values: \"Automatic\", \"Always\"",
        ),
        (
            json!({ "migration": { "ttlSecondsAfterFinished": 60 } }),
            "spec.migration.ttlSecondsAfterFinished in body should be greater than or equal to 3600",
        ),
        (
            json!({ "image": { "imagePullPolicy": "Sometimes" } }),
            "Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            json!({ "podLabels": { "a": "x".repeat(64) } }),
            "spec.podLabels: Invalid value: label values must be 63 characters or less",
        ),
        (
            json!({ "nodeSelector": { "a": "x".repeat(64) } }),
            "spec.nodeSelector: Invalid value: label values must be 63 characters or less",
        ),
    ]
}

async fn rejects_what_upstream_rejects(bed: &Bed) {
    for (change, reason) in rejected() {
        let mut spec = minimal();
        json_patch(&mut spec, &change);
        let error =
            bed.create("", &mlflow(&spec)).await.map(drop).expect_err(&change.to_string()).to_string();
        assert!(error.contains(reason), "{change}: {error}");
    }
    let mut named = mlflow(&minimal());
    named["metadata"]["name"] = json!("other");
    let error = bed.create("", &named).await.unwrap_err().to_string();
    assert!(error.contains("MLflow resource name must be 'mlflow'"), "{error}");
}

/// Fields of a change replace those of a spec; `null` removes one.
fn json_patch(spec: &mut Value, change: &Value) {
    for (name, value) in change.as_object().unwrap() {
        if value.is_null() {
            spec.as_object_mut().unwrap().remove(name);
        } else {
            spec[name] = value.clone();
        }
    }
}
