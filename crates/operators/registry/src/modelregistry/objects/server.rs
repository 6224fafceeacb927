//! The Deployment of the REST server and its proxy.

use serde_json::{Value, json};

use super::{Inputs, database::Connection, proxy_port};
use crate::names::HTTP_PORT;
use crate::objects::{
    Certificate, Proxy, Timing, probe, resources, restricted, restricted_pod, server_requirements,
};

/// The container of the server.
pub(in crate::modelregistry) const CONTAINER: &str = "rest-container";

pub(super) fn deployment(inputs: &Inputs<'_>) -> Value {
    let connection = Connection::of(inputs.connected);
    let (proxy, proxy_volumes) = match proxy(inputs) {
        Some(proxy) => (proxy.container(), proxy.volumes()),
        None => Proxy::absence(),
    };
    let volumes: Vec<_> = connection.volumes().into_iter().chain(proxy_volumes).collect();
    json!({
        "metadata": inputs.metadata(inputs.name, inputs.name),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "selector": { "matchLabels": inputs.pods() },
            "template": {
                "metadata": {
                    "labels": inputs.pods(),
                    "annotations": { "openshift.io/required-scc": "restricted-v2" },
                },
                "spec": {
                    "serviceAccountName": inputs.name,
                    "securityContext": restricted_pod(),
                    "containers": [container(inputs, &connection), proxy],
                    "volumes": volumes,
                },
            },
        },
    })
}

fn container(inputs: &Inputs<'_>, connection: &Connection) -> Value {
    let rest = inputs.rest();
    let port = inputs.rest_port();
    let mut arguments = vec!["--hostname=0.0.0.0".to_owned(), format!("--port={port}")];
    arguments.extend(connection.arguments.iter().cloned());
    let get = |path: &str, delay, period, failures| {
        let get = json!({ "path": path, "port": HTTP_PORT });
        probe(json!({ "httpGet": get }), Timing { delay, period, timeout: 5, failures })
    };
    json!({
        "name": CONTAINER,
        "image": rest.image,
        "command": ["/model-registry", "proxy"],
        "args": arguments,
        "env": connection.env(),
        "ports": [{ "name": HTTP_PORT, "containerPort": port, "protocol": "TCP" }],
        "startupProbe": get("/readyz/isDirty", 10, 5, 6),
        "livenessProbe": get("/readyz/isDirty", 30, 10, 3),
        "readinessProbe": get("/readyz/health", 5, 10, 3),
        "resources": resources(&rest.resources.unwrap_or_else(server_requirements)),
        "securityContext": restricted(),
        "volumeMounts": connection.mounts(),
    })
}

fn proxy<'a>(inputs: &Inputs<'a>) -> Option<Proxy<'a>> {
    let proxy = inputs.proxy()?;
    let certificate = proxy.tls_certificate_secret.as_ref()?;
    let key = proxy.tls_key_secret.as_ref()?;
    Some(Proxy {
        server: inputs.name,
        image: proxy.image.as_deref().unwrap_or_default(),
        port: proxy_port(proxy),
        upstream: inputs.rest_port(),
        certificate: Certificate::Apart {
            certificate: (&certificate.name, &certificate.key),
            key: (&key.name, &key.key),
        },
    })
}
