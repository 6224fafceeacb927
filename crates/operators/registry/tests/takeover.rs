//! Objects as the Go operator leaves them are taken over without a write, and no pod is touched.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quintet_golden::{ObjectId, Setting, World, simulate, template};
use quintet_registry::settings::Settings;
use quintet_registry::{OptionalApis, catalog, modelregistry};
use serde_json::{Value, json};

const NAMESPACE: &str = "registries";
const PLAIN: OptionalApis = OptionalApis { routes: false, groups: false, gateway: false };

fn registry() -> Value {
    json!({
        "apiVersion": "modelregistry.opendatahub.io/v1beta1", "kind": "ModelRegistry",
        "metadata": {
            "name": "models", "namespace": NAMESPACE, "finalizers": ["modelregistry.opendatahub.io/finalizer"],
        },
        "spec": {"rest": {}, "grpc": {}, "kubeRBACProxy": {}, "postgres": {"generateDeployment": true}},
    })
}

fn the_catalog() -> Value {
    json!({
        "apiVersion": "aihub.opendatahub.io/v1alpha1", "kind": "Catalog",
        "metadata": {
            "name": "catalog", "namespace": NAMESPACE, "finalizers": ["catalog.aihub.opendatahub.io/finalizer"],
        },
        "spec": {"resources": {}, "database": {"volume": {}}},
    })
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
           "lastTransitionTime": "2025-12-31T00:00:00Z"})
}

fn registry_status() -> Value {
    let unavailable = "Deployment is unavailable: ";
    let hosts = ["models-rest.", "models.registries.svc.cluster.local", "models.registries", "models"];
    let defaults = concat!(
        r#"{"kubeRBACProxy":{"image":"quay.io/openshift/origin-kube-rbac-proxy:latest","#,
        r#""tlsCertificateSecret":{"key":"tls.crt","name":"models-kube-rbac-proxy"},"#,
        r#""tlsKeySecret":{"key":"tls.key","name":"models-kube-rbac-proxy"}},"#,
        r#""postgres":{"database":"model_registry","generateDeployment":null,"host":"models-postgres","#,
        r#""passwordSecret":{"key":"password","name":"models-postgres-credentials"},"sslMode":null,"username":"modelregistry"},"#,
        r#""rest":{"image":"quay.io/opendatahub/model-registry:latest","#,
        r#""resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"256Mi"}}}}"#
    );
    json!({
        "hosts": hosts, "hostsStr": hosts.join(","), "specDefaults": defaults,
        "conditions": [
            condition("Progressing", "False", "CreatedDeployment", "Deployment was successfully created"),
            condition("KubeRBACProxyAvailable", "False", "ResourcesUnavailable", unavailable),
            condition("Available", "False", "DeploymentUnavailable", unavailable),
        ],
    })
}

async fn create(world: &World, object: &Value) -> Value {
    let answer = world.create(object).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?} {object}");
    world.get(&ObjectId::of(object)).await.unwrap().unwrap()
}

/// Makes an object as the Go operator does: with its memory of what it has applied.
async fn make(world: &World, mut object: Value) {
    object["metadata"]["annotations"]["banzaicloud.com/last-applied"] = "UEsDBBQ".into();
    create(world, &object).await;
}

async fn leave(world: &World) {
    let settings = Settings::default();
    let stored = create(world, &registry()).await;
    let uid = stored["metadata"]["uid"].clone();
    for object in modelregistry::preview(&serde_json::from_value(stored).unwrap(), &settings, PLAIN, "") {
        make(world, object).await;
    }
    let owner = json!([{"apiVersion": "modelregistry.opendatahub.io/v1beta1", "kind": "ModelRegistry",
                        "name": "models", "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
    let secret = |name: &str| json!({"name": name, "namespace": NAMESPACE, "ownerReferences": owner});
    let credentials = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": secret("models-postgres-credentials"),
        "stringData": {"username": "modelregistry", "password": "p"},
    });
    make(world, credentials).await;
    world
        .patch(&ObjectId::of(&registry()), Some("status"), &json!({"status": registry_status()}))
        .await
        .unwrap();
    let stored = create(world, &the_catalog()).await;
    let catalog = serde_json::from_value(stored.clone()).unwrap();
    let objects = catalog::preview(&catalog, &settings, PLAIN, "", (&[], &[]));
    let database = objects.iter().find(|object| object["metadata"]["name"] == "model-catalog-postgres");
    let mut metadata = database.unwrap()["metadata"].clone();
    metadata["annotations"] = json!({});
    let credentials = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
        "stringData": {"database-name": "n", "database-user": "u", "database-password": "p"},
    });
    make(world, credentials).await;
    for object in objects {
        make(world, object).await;
    }
    let available = condition("Available", "False", "DeploymentUnavailable", "Deployment is unavailable: ");
    let status = json!({"status": {"observedGeneration": 1, "conditions": [available]}});
    world.patch(&ObjectId::of(&the_catalog()), Some("status"), &status).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "models-1", "namespace": NAMESPACE,
                     "labels": {"app": "models", "component": "model-registry", "app.kubernetes.io/name": "models"}},
        "spec": {"containers": [{"name": "rest-container", "image": "i"}]},
    });
    create(world, &pod).await;
}

/// What must stay the same: identity and version of every object.
async fn versions(world: &World) -> BTreeMap<String, (Value, Value)> {
    let objects = world.objects().await.unwrap().into_iter();
    let version =
        |object: &Value| (object["metadata"]["uid"].clone(), object["metadata"]["resourceVersion"].clone());
    objects.map(|(id, object)| (id.to_string(), version(&object))).collect()
}

#[test]
fn what_the_go_operator_left_is_not_written() {
    simulate(async {
        let component = quintet_registry::component();
        let template = template(&component, &[]).await?;
        let mut world = World::new(&template, 1, &[NAMESPACE.to_owned()]).await?;
        leave(&world).await;
        world.grant_to(&component, &Setting::default()).await?;
        let before = versions(&world).await;
        let writes = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&writes);
        world.start(&component, &Setting::default()).await?;
        world.faults().decide(move |met| {
            if !matches!(met.verb, "get" | "list" | "watch") {
                seen.lock().unwrap().push(format!("{} {} {}", met.verb, met.resource, met.name));
            }
            None
        });
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(writes.lock().unwrap().clone(), Vec::<String>::new());
        assert_eq!(versions(&world).await, before);
        world.stop().await;
        Ok(())
    })
    .unwrap();
}
