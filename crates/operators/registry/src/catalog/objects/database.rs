//! The catalog's database. It is a cache of the sources, and has no volume that lasts.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ResourceRequirements, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use quintet_controller::{ApiKind, ObjectKey};
use serde_json::{Value, json};

use super::{Inputs, labels, pods};
use crate::credentials::CredentialsRequest;
use crate::managed::Desired;
use crate::names::{CATALOG, CATALOG_DATABASE, pod_labels};
use crate::objects::{
    Home, Timing, canonical, database_requirements, ingress_policy, probe, resources, secret_variable,
};
use crate::settings::Settings;

const PORT: i32 = 5432;
const DATA: &str = "postgres-data";

/// User and password of the database. A Secret that exists is completed.
pub(in crate::catalog) fn credentials(home: &Home<'_>, settings: &Settings) -> CredentialsRequest {
    let values = [
        ("database-name".to_owned(), settings.catalog_database.clone()),
        ("database-user".to_owned(), settings.catalog_user.clone()),
    ];
    CredentialsRequest {
        key: ObjectKey::new(home.namespace, CATALOG_DATABASE),
        labels: labels(CATALOG_DATABASE),
        owner: home.owner.clone(),
        values: values.into(),
        password_key: "database-password".to_owned(),
        completes: true,
    }
}

pub(super) fn objects(inputs: &Inputs<'_>) -> Vec<Desired> {
    let selected = pod_labels(CATALOG, CATALOG, CATALOG_DATABASE);
    let from = json!([{ "podSelector": { "matchLabels": pods() } }]);
    let policy = ingress_policy(&metadata(inputs), &selected, &from, PORT);
    vec![
        Desired::managed(ApiKind::of::<Deployment>(), deployment(inputs)),
        Desired::managed(ApiKind::of::<Service>(), service(inputs)),
        Desired::managed(ApiKind::of::<NetworkPolicy>(), policy),
    ]
}

fn metadata(inputs: &Inputs<'_>) -> Value {
    inputs.home.metadata(CATALOG_DATABASE, &labels(CATALOG_DATABASE))
}

fn service(inputs: &Inputs<'_>) -> Value {
    let mut metadata = metadata(inputs);
    let address = r#"postgres://{.spec.clusterIP}:{.spec.ports[?(@.name=="postgresql")].port}"#;
    metadata["annotations"] = json!({ "template.openshift.io/expose-uri": address });
    json!({
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": { "app": CATALOG, "app.kubernetes.io/name": CATALOG_DATABASE },
            "ports": [{
                "name": "postgresql", "port": PORT, "targetPort": PORT, "protocol": "TCP", "appProtocol": "tcp",
            }],
        },
    })
}

fn deployment(inputs: &Inputs<'_>) -> Value {
    let mut metadata = metadata(inputs);
    metadata["annotations"] = json!({ "template.alpha.openshift.io/wait-for-ready": "true" });
    let selected = pod_labels(CATALOG, CATALOG, CATALOG_DATABASE);
    let mut pod_labels = selected.clone();
    pod_labels["sidecar.istio.io/inject"] = "false".into();
    let volume = inputs.spec.database.as_ref().and_then(|database| database.volume.as_ref());
    let limit = volume.and_then(|volume| volume.size_limit.as_ref());
    let limit = limit.map_or_else(|| "5Gi".to_owned(), canonical);
    json!({
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": { "type": "Recreate", "rollingUpdate": null },
            "selector": { "matchLabels": selected },
            "template": {
                "metadata": { "labels": pod_labels },
                "spec": {
                    "containers": [container(inputs)],
                    "volumes": [{ "name": DATA, "emptyDir": { "sizeLimit": limit } }],
                },
            },
        },
    })
}

fn container(inputs: &Inputs<'_>) -> Value {
    let wanted = inputs.spec.resources.as_ref().and_then(|resources| resources.postgres.clone());
    let variable = |name: &str, key: &str| secret_variable(name, CATALOG_DATABASE, key);
    let check = |script: &str, delay, timeout| {
        let exec = json!({ "exec": { "command": ["bash", "-c", script] } });
        probe(exec, Timing { delay, period: 10, timeout, failures: 3 })
    };
    json!({
        "name": "postgresql",
        "image": inputs.settings.postgres_image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            variable("POSTGRESQL_USER", "database-user"),
            variable("POSTGRESQL_PASSWORD", "database-password"),
            variable("POSTGRESQL_DATABASE", "database-name"),
        ],
        "ports": [{ "containerPort": PORT, "protocol": "TCP" }],
        "livenessProbe": check("/usr/bin/pg_isready -U $POSTGRESQL_USER -d $POSTGRESQL_DATABASE", 30, 2),
        "readinessProbe":
            check("psql -w -U $POSTGRESQL_USER -d $POSTGRESQL_DATABASE -c 'SELECT 1'", 10, 5),
        "resources": resources(&requirements(wanted)),
        "securityContext": { "capabilities": {}, "privileged": false },
        "volumeMounts": [{ "name": DATA, "mountPath": "/var/lib/pgsql/data" }],
    })
}

/// What users want, if they say any amount.
fn requirements(wanted: Option<ResourceRequirements>) -> ResourceRequirements {
    let has_amounts = |it: &ResourceRequirements| {
        [&it.requests, &it.limits].into_iter().flatten().any(|amounts| !amounts.is_empty())
    };
    wanted.filter(has_amounts).unwrap_or_else(database_requirements)
}

#[cfg(test)]
mod tests {
    use quintet_api::aihub::Catalog;

    use super::*;
    use crate::managed::OptionalApis;

    #[test]
    fn the_database_gets_what_the_spec_says_and_else_the_default() {
        let of = |spec: Value| {
            let catalog = json!({
                "apiVersion": "aihub.opendatahub.io/v1alpha1", "kind": "Catalog",
                "metadata": {"name": "catalog", "namespace": "n"}, "spec": spec,
            });
            let catalog: Catalog = serde_json::from_value(catalog).unwrap();
            let objects = crate::catalog::preview(
                &catalog,
                &Settings::default(),
                OptionalApis::default(),
                "",
                (&[], &[]),
            );
            let is_it =
                |it: &&Value| it["kind"] == "Deployment" && it["metadata"]["name"] == CATALOG_DATABASE;
            let pod = objects.iter().find(is_it).unwrap()["spec"]["template"]["spec"].clone();
            let limit = pod["volumes"][0]["emptyDir"]["sizeLimit"].clone();
            (limit, pod["containers"][0]["resources"]["requests"]["cpu"].clone())
        };
        let cases = [
            (json!({}), ("5Gi", "250m")),
            (json!({"resources": {"postgres": {}}}), ("5Gi", "250m")),
            (json!({"resources": {"postgres": {"requests": {"cpu": "1000m"}}}}), ("5Gi", "1")),
            (json!({"database": {"volume": {"sizeLimit": "1024Mi"}}}), ("1Gi", "250m")),
        ];
        for (spec, (limit, cpu)) in cases {
            assert_eq!(of(spec.clone()), (json!(limit), json!(cpu)), "{spec}");
        }
    }
}
