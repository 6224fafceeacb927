//! The ServiceMonitor, by which Prometheus finds the server's metrics.

use quintet_controller::Action;
use serde_json::json;

use super::{Inputs, metadata};
use crate::names::{MANAGER, MLFLOW, PORT_NAME, SERVICE_MONITOR};
use crate::watches::service_monitor_kind;

/// The ServiceMonitor, if the cluster serves the kind.
pub(super) fn service_monitor(inputs: &Inputs<'_>) -> Option<Action> {
    let tls = if inputs.apis.console_links {
        json!({
            "ca": { "configMap": { "name": "openshift-service-ca.crt", "key": "service-ca.crt" } },
            "serverName": format!("mlflow.{}.svc", inputs.settings.namespace),
        })
    } else {
        json!({ "insecureSkipVerify": true })
    };
    let monitor = json!({
        "metadata": metadata(inputs, SERVICE_MONITOR, MLFLOW),
        "spec": {
            "selector": { "matchLabels": { "app": MLFLOW } },
            "endpoints": [{ "path": "/metrics", "port": PORT_NAME, "scheme": "https", "tlsConfig": tls }],
        },
    });
    inputs.apis.service_monitors.then(|| Action::apply(service_monitor_kind(), MANAGER, &monitor))
}
