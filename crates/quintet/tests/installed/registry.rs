//! Model registries and the catalog on a cluster whose nodes are simulated.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{Bed, MLFLOW, TEAM};

const API: &str = "modelregistry.opendatahub.io/v1beta1";
const REGISTRY: (&str, &str, &str, &str) = (API, "ModelRegistry", TEAM, "models");
const CATALOG_API: &str = "aihub.opendatahub.io/v1alpha1";
const CATALOG: (&str, &str, &str, &str) = (CATALOG_API, "Catalog", TEAM, "catalog");
const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub(crate) async fn check(bed: &Bed) {
    rejects_what_upstream_rejects(bed).await;
    bed.create(TEAM, &registry(&json!({ "rest": {}, "postgres": { "generateDeployment": true } })))
        .await
        .unwrap();
    becomes_available(bed).await;
    rejects_a_second_one_of_the_name(bed).await;
    repairs_what_is_changed(bed).await;
    gets_a_proxy(bed).await;
    has_a_catalog(bed).await;
    goes_with_everything(bed).await;
}

fn registry(spec: &Value) -> Value {
    json!({ "apiVersion": API, "kind": "ModelRegistry", "metadata": { "name": "models" }, "spec": spec })
}

fn has(kind: &'static str, status: &'static str, reason: &'static str) -> impl Fn(&Value) -> bool {
    move |object| {
        let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let condition = conditions.iter().find(|condition| condition["type"] == kind);
        condition.is_some_and(|it| it["status"] == status && it["reason"] == reason)
    }
}

async fn is_rejected(bed: &Bed, namespace: &str, object: &Value, why: &str) {
    let error = bed.create(namespace, object).await.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

async fn rejects_what_upstream_rejects(bed: &Bed) {
    let databaseless = registry(&json!({ "rest": {} }));
    is_rejected(bed, TEAM, &databaseless, "required one of `postgres` or `mysql` database").await;
    let another = json!({ "apiVersion": CATALOG_API, "kind": "Catalog", "metadata": { "name": "another" } });
    is_rejected(bed, TEAM, &another, "catalog").await;
}

async fn becomes_available(bed: &Bed) {
    bed.until(REGISTRY, has("Available", "True", "DeploymentAvailable")).await;
    for (api_version, kind, name) in [
        ("apps/v1", "Deployment", "models"),
        ("v1", "Service", "models"),
        ("v1", "ServiceAccount", "models"),
        (RBAC, "Role", "registry-user-models"),
        ("apps/v1", "Deployment", "models-postgres"),
        ("v1", "Service", "models-postgres"),
        ("networking.k8s.io/v1", "NetworkPolicy", "models-postgres"),
        ("v1", "Secret", "models-postgres-credentials"),
        ("v1", "PersistentVolumeClaim", "models-postgres-storage"),
    ] {
        bed.until((api_version, kind, TEAM, name), |_| true).await;
    }
}

/// Names are unique in the cluster.
async fn rejects_a_second_one_of_the_name(bed: &Bed) {
    let second = registry(&json!({ "rest": {}, "postgres": { "generateDeployment": true } }));
    is_rejected(bed, MLFLOW, &second, "registry named models already exists in namespace").await;
}

async fn repairs_what_is_changed(bed: &Bed) {
    let services = bed.objects("v1", "Service", TEAM);
    let before = services.get("models").await.unwrap().metadata.uid;
    services.delete("models", &DeleteParams::default()).await.unwrap();
    bed.until(("v1", "Service", TEAM, "models"), |new| new["metadata"]["uid"] != json!(before)).await;
    let deployments = bed.objects("apps/v1", "Deployment", TEAM);
    let scaled = json!({ "spec": { "replicas": 3 } });
    deployments.patch("models", &PatchParams::default(), &Patch::Merge(&scaled)).await.unwrap();
    bed.until(("apps/v1", "Deployment", TEAM, "models"), |one| one["spec"]["replicas"] == 1).await;
}

/// Its ServiceAccount may ask who callers are, which the operator grants.
async fn gets_a_proxy(bed: &Bed) {
    let proxied = json!({ "spec": { "kubeRBACProxy": {} } });
    let registries = bed.objects(API, "ModelRegistry", TEAM);
    registries.patch("models", &PatchParams::default(), &Patch::Merge(&proxied)).await.unwrap();
    bed.until(("v1", "ConfigMap", TEAM, "models-kube-rbac-proxy-config"), |_| true).await;
    bed.until((RBAC, "ClusterRoleBinding", "", "models-auth-delegator"), |_| true).await;
    bed.until(REGISTRY, has("KubeRBACProxyAvailable", "True", "ResourcesAvailable")).await;
}

/// Its administrators get rights that the operator has to hold.
async fn has_a_catalog(bed: &Bed) {
    let catalog = json!({ "apiVersion": CATALOG_API, "kind": "Catalog", "metadata": { "name": "catalog" } });
    bed.create(TEAM, &catalog).await.unwrap();
    bed.until(CATALOG, has("Available", "True", "DeploymentAvailable")).await;
    for (api_version, kind, name) in [
        ("apps/v1", "Deployment", "model-catalog-postgres"),
        ("v1", "ConfigMap", "default-catalog-sources"),
        ("v1", "ConfigMap", "model-catalog-sources"),
        (RBAC, "RoleBinding", "model-catalog-authenticated"),
        (RBAC, "Role", "model-catalog-admin"),
    ] {
        bed.until((api_version, kind, TEAM, name), |_| true).await;
    }
}

async fn goes_with_everything(bed: &Bed) {
    bed.objects(API, "ModelRegistry", TEAM).delete("models", &DeleteParams::default()).await.unwrap();
    bed.objects(CATALOG_API, "Catalog", TEAM).delete("catalog", &DeleteParams::default()).await.unwrap();
    for object in [
        REGISTRY,
        CATALOG,
        ("apps/v1", "Deployment", TEAM, "models"),
        ("apps/v1", "Deployment", TEAM, "model-catalog"),
        ("v1", "Secret", TEAM, "models-postgres-credentials"),
        (RBAC, "ClusterRoleBinding", "", "models-auth-delegator"),
        (RBAC, "ClusterRoleBinding", "", "model-catalog-auth-delegator"),
    ] {
        bed.gone(object).await;
    }
}
