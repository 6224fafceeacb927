//! The PostgreSQL database that the operator runs for a registry.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use quintet_controller::{ApiKind, ObjectKey};
use serde_json::{Map, Value, json};

use super::Inputs;
use crate::credentials::CredentialsRequest;
use crate::managed::Desired;
use crate::modelregistry::effective::{DATABASE, POSTGRES_PORT, USER, is_generated};
use crate::names::{Part, REGISTRY, RegistryNames, pod_labels};
use crate::objects::{
    Home, Timing, database_requirements, ingress_policy, probe, resources, restricted, restricted_pod,
    secret_variable,
};

const STORAGE: &str = "postgres-storage";

/// User and password of the database.
pub(in crate::modelregistry) fn credentials(name: &str, home: &Home<'_>) -> CredentialsRequest {
    CredentialsRequest {
        key: ObjectKey::new(home.namespace, &RegistryNames(name).credentials()),
        labels: Map::new(),
        owner: home.owner.clone(),
        values: [("username".to_owned(), USER.to_owned())].into(),
        password_key: "password".to_owned(),
        completes: false,
    }
}

/// The objects, if the operator runs the database. If it no longer does, they stay until the registry goes: they hold
/// the data.
pub(super) fn objects(inputs: &Inputs<'_>) -> Vec<Desired> {
    if !is_generated(inputs.spec) {
        return Vec::new();
    }
    let name = inputs.names().database();
    let pods = pod_labels(inputs.name, REGISTRY, &name);
    let from = json!([{ "podSelector": { "matchLabels": inputs.pods() } }]);
    let policy = ingress_policy(&metadata(inputs, &name), &pods, &from, POSTGRES_PORT);
    let service = json!({
        "metadata": metadata(inputs, &name),
        "spec": {
            "type": "ClusterIP",
            "selector": { "app": inputs.name, "app.kubernetes.io/name": name },
            "ports": [{ "port": POSTGRES_PORT, "targetPort": POSTGRES_PORT, "protocol": "TCP" }],
        },
    });
    let claim = json!({
        "metadata": metadata(inputs, &inputs.names().storage()),
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "5Gi" } } },
    });
    vec![
        // Claims cannot shrink, and users may have grown it.
        Desired::create_only(ApiKind::of::<PersistentVolumeClaim>(), claim),
        Desired::managed(ApiKind::of::<Deployment>(), deployment(inputs, &name, &pods)),
        Desired::managed(ApiKind::of::<Service>(), service),
        Desired::managed(ApiKind::of::<NetworkPolicy>(), policy),
    ]
}

fn metadata(inputs: &Inputs<'_>, name: &str) -> Value {
    let app = inputs.names().database();
    let part = Part { app: &app, component: "model-registry-postgres", role: "database", whole: REGISTRY };
    inputs.home.metadata(name, &part.labels(&app))
}

fn deployment(inputs: &Inputs<'_>, name: &str, pods: &Value) -> Value {
    json!({
        "metadata": metadata(inputs, name),
        "spec": {
            "replicas": 1,
            // The volume can be mounted by one pod at a time.
            "strategy": { "type": "Recreate", "rollingUpdate": null },
            "selector": { "matchLabels": pods },
            "template": {
                "metadata": { "labels": pods },
                "spec": {
                    "securityContext": restricted_pod(),
                    "containers": [container(inputs)],
                    "volumes": [{
                        "name": STORAGE, "persistentVolumeClaim": { "claimName": inputs.names().storage() },
                    }],
                },
            },
        },
    })
}

fn container(inputs: &Inputs<'_>) -> Value {
    let image = inputs.spec.postgres.as_ref().and_then(|postgres| postgres.image.as_deref());
    let secret = inputs.names().credentials();
    let check = |arguments: &[&str], delay| {
        let command = [&["/usr/libexec/check-container"], arguments].concat();
        let timing = Timing { delay, period: 10, timeout: 5, failures: 3 };
        probe(json!({ "exec": { "command": command } }), timing)
    };
    json!({
        "name": "postgres",
        "image": image,
        "env": [
            { "name": "POSTGRESQL_DATABASE", "value": DATABASE },
            secret_variable("POSTGRESQL_USER", &secret, "username"),
            secret_variable("POSTGRESQL_PASSWORD", &secret, "password"),
        ],
        "ports": [{ "containerPort": POSTGRES_PORT, "protocol": "TCP" }],
        "readinessProbe": check(&[], 5),
        "livenessProbe": check(&["--live"], 30),
        "resources": resources(&database_requirements()),
        "securityContext": restricted(),
        "volumeMounts": [{ "name": STORAGE, "mountPath": "/var/lib/pgsql/data" }],
    })
}
