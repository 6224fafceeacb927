//! The Deployment of the operator.

use quintet_api::config::Process;
use serde_json::{Value, json};

use super::{Ports, labels, metadata};
use crate::names::NAME;

/// Any user but root; the image needs no particular one.
const USER: i64 = 65532;

/// The names of the container's own ports.
pub(crate) const CONTAINER_PORTS: [&str; 3] = ["webhook", "metrics", "health"];

/// The Deployment, without the arguments of its container.
pub(super) fn deployment(
    namespace: &str,
    image: &str,
    replicas: u32,
    process: &Process,
    ports: &Ports,
) -> Value {
    let container_ports = CONTAINER_PORTS
        .into_iter()
        .zip([Some(process.webhook.port), ports.metrics, ports.health])
        .filter_map(|(name, port)| Some(json!({ "name": name, "containerPort": port? })));
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(namespace, NAME),
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": USER, "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": NAME, "image": image,
                        "ports": container_ports.collect::<Vec<Value>>(),
                        "resources": { "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "1Gi" } },
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    });
    if ports.health.is_some() {
        let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "health" } });
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["livenessProbe"] = probe("/healthz");
        container["readinessProbe"] = probe("/readyz");
    }
    if !process.leader_election.leader_elect {
        // The old pod must have gone before the new one writes.
        deployment["spec"]["strategy"] = json!({ "type": "Recreate" });
    }
    deployment
}
