//! The HTTPRoute, by which the server is reached through the platform's Gateway.

use quintet_api::mlflow::MLflow;
use quintet_controller::Action;
use serde_json::json;

use super::owners;
use crate::names::{MANAGER, MLFLOW, PORT};
use crate::settings::Settings;
use crate::watches::http_route_kind;

/// Where the Gateway is.
const GATEWAY_NAMESPACE: &str = "openshift-ingress";

/// The HTTPRoute. OpenAI-compatible clients use `/v1` below the prefix, which the server has at its root.
pub(in crate::mlflow) fn http_route(mlflow: &MLflow, settings: &Settings) -> Action {
    let backends = json!([{ "name": MLFLOW, "port": PORT, "weight": 1 }]);
    let prefix = |path: &str| json!([{ "path": { "type": "PathPrefix", "value": path } }]);
    let rewrite = json!([{
        "type": "URLRewrite",
        "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/v1" } },
    }]);
    let route = json!({
        "metadata": {
            "name": MLFLOW,
            "namespace": settings.namespace,
            "labels": { "app": MLFLOW },
            "ownerReferences": owners(mlflow),
        },
        "spec": {
            "parentRefs": [{ "name": settings.gateway_name, "namespace": GATEWAY_NAMESPACE }],
            "rules": [
                { "matches": prefix("/mlflow/v1"), "filters": rewrite, "backendRefs": backends },
                { "matches": prefix("/mlflow"), "backendRefs": backends },
            ],
        },
    });
    Action::apply(http_route_kind(), MANAGER, &route)
}
