//! The Deployment of the catalog server.

use serde_json::{Value, json};

use super::{DEFAULT_SOURCES, Inputs, PORT, USER_SOURCES, pods};
use crate::drift::absent;
use crate::names::{CATALOG, CATALOG_DATABASE, HTTP_PORT, proxy_certificate};
use crate::objects::{
    Certificate, Proxy, Timing, probe, resources, restricted, restricted_pod, secret_variable,
    server_requirements,
};

const CATALOG_DATA: (&str, &str) = ("catalog-data", "/shared-data");
const BENCHMARK_DATA: (&str, &str) = ("benchmark-data", "/shared-benchmark-data");
/// The port of the server.
const SERVER_PORT: i32 = 8080;

/// A volume with sources, and the ConfigMap in it.
struct Sources {
    volume: String,
    config_map: String,
    path: String,
}

pub(super) fn deployment(inputs: &Inputs<'_>) -> Value {
    let certificate = proxy_certificate(CATALOG);
    let proxy = Proxy {
        server: CATALOG,
        image: &inputs.settings.proxy_image,
        port: PORT,
        upstream: SERVER_PORT,
        certificate: Certificate::Together(&certificate),
    };
    let mut volumes: Vec<_> =
        user_sources().chain([default_sources()]).map(|sources| volume(&sources)).collect();
    volumes.extend([CATALOG_DATA, BENCHMARK_DATA].map(|(name, _)| json!({ "name": name, "emptyDir": {} })));
    volumes.extend(labelled_sources(inputs).map(|sources| volume(&sources)));
    volumes.extend(proxy.volumes());
    volumes.extend(inputs.removed_sources.iter().map(|name| absent("name", &format!("labeled-{name}"))));
    json!({
        "metadata": inputs.metadata(CATALOG),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "selector": { "matchLabels": pods() },
            "template": {
                "metadata": {
                    "labels": pods(),
                    "annotations": { "openshift.io/required-scc": "restricted-v2" },
                },
                "spec": {
                    "serviceAccountName": CATALOG,
                    "securityContext": restricted_pod(),
                    "initContainers": init_containers(inputs),
                    "containers": [container(inputs), proxy.container()],
                    "volumes": volumes,
                },
            },
        },
    })
}

/// Copies models and benchmarks from images.
fn init_containers(inputs: &Inputs<'_>) -> Value {
    let copy = |name: &str, image: &str, script: &str, (volume, path): (&str, &str)| {
        json!({
            "name": name,
            "image": image,
            "command": ["/bin/sh", "-c", script],
            "securityContext": restricted(),
            "volumeMounts": [{ "name": volume, "mountPath": path }],
        })
    };
    let models = "cp /app/data/*.yaml /shared-data/";
    // Benchmarks are a bonus.
    let benchmarks = "cp -r /app/benchmarks/* /shared-benchmark-data/ || true";
    let settings = inputs.settings;
    json!([
        copy("catalog-data-init", &settings.metadata_image, models, CATALOG_DATA),
        copy("benchmark-data-init", &settings.performance_image, benchmarks, BENCHMARK_DATA),
    ])
}

fn container(inputs: &Inputs<'_>) -> Value {
    let wanted = inputs.spec.resources.as_ref().and_then(|resources| resources.catalog.clone());
    let path = |sources: Sources| format!("--catalogs-path={}/sources.yaml", sources.path);
    let sources = std::iter::once(default_sources()).chain(user_sources()).chain(labelled_sources(inputs));
    let mut arguments = vec![format!("--listen=0.0.0.0:{SERVER_PORT}")];
    arguments.extend(sources.map(path));
    arguments.push(format!("--performance-metrics={}", BENCHMARK_DATA.1));
    let variable = |name: &str, key: &str| secret_variable(name, CATALOG_DATABASE, key);
    let timing = |delay| Timing { delay, period: 5, timeout: 2, failures: 3 };
    json!({
        "name": "catalog",
        "image": inputs.settings.rest_image,
        "command": ["/model-registry", "catalog"],
        "args": arguments,
        "env": [
            { "name": "PGHOST", "value": CATALOG_DATABASE },
            variable("PGDATABASE", "database-name"),
            variable("PGUSER", "database-user"),
            variable("PGPASSWORD", "database-password"),
        ],
        "ports": [{ "name": HTTP_PORT, "containerPort": SERVER_PORT, "protocol": "TCP" }],
        "livenessProbe": probe(json!({ "tcpSocket": { "port": HTTP_PORT } }), timing(30)),
        "readinessProbe": probe(json!({ "httpGet": { "path": "/readyz", "port": HTTP_PORT } }), timing(3)),
        "resources": resources(&wanted.unwrap_or_else(server_requirements)),
        "securityContext": restricted(),
        "volumeMounts": mounts(inputs),
    })
}

fn mounts(inputs: &Inputs<'_>) -> Vec<Value> {
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let of_sources = |sources: Sources| mount(&sources.volume, &sources.path);
    let mut mounts: Vec<_> = user_sources().chain([default_sources()]).map(of_sources).collect();
    mounts.extend([CATALOG_DATA, BENCHMARK_DATA].map(|(name, path)| mount(name, path)));
    mounts.extend(labelled_sources(inputs).map(of_sources));
    let removed = inputs.removed_sources.iter().map(|name| absent("mountPath", &labelled_path(name)));
    mounts.extend(removed);
    mounts
}

fn default_sources() -> Sources {
    Sources {
        volume: "default-sources".to_owned(),
        config_map: DEFAULT_SOURCES.to_owned(),
        path: "/data/default-sources".to_owned(),
    }
}

fn user_sources() -> impl Iterator<Item = Sources> {
    let volumes = ["user-model-sources", "user-mcp-sources", "user-agent-sources"];
    volumes.into_iter().zip(USER_SOURCES).map(|(volume, (config_map, _))| Sources {
        volume: volume.to_owned(),
        config_map: config_map.to_owned(),
        path: format!("/data/{volume}"),
    })
}

fn labelled_sources<'a>(inputs: &'a Inputs<'_>) -> impl Iterator<Item = Sources> + 'a {
    inputs.labelled_sources.iter().map(|name| Sources {
        volume: format!("labeled-{name}"),
        config_map: name.clone(),
        path: labelled_path(name),
    })
}

fn labelled_path(name: &str) -> String {
    format!("/data/labeled-sources/{name}")
}

fn volume(sources: &Sources) -> Value {
    json!({ "name": sources.volume, "configMap": { "name": sources.config_map } })
}
