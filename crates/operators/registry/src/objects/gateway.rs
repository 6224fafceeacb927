//! How a server is reached through the platform's Gateway.

use serde_json::{Map, Value, json};

use crate::kinds;
use crate::managed::Desired;
use crate::names::{OPERATOR, REFERENCE_GRANT, REGISTRY};
use crate::settings::{Gateway, Settings};

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Lets HTTPRoutes of the platform's namespace name Services of this one. All servers in the namespace share it.
pub(crate) fn reference_grant(namespace: &str, settings: &Settings) -> Desired {
    let labels = json!({
        "component": REGISTRY,
        "app.kubernetes.io/component": REGISTRY,
        "app.kubernetes.io/created-by": OPERATOR,
        "app.kubernetes.io/part-of": REGISTRY,
        "app.kubernetes.io/managed-by": OPERATOR,
    });
    let grant = json!({
        "metadata": { "name": REFERENCE_GRANT, "namespace": namespace, "labels": labels },
        "spec": {
            "from": [{ "group": GATEWAY_GROUP, "kind": "HTTPRoute", "namespace": settings.http_route_namespace }],
            "to": [{ "group": "", "kind": "Service" }],
        },
    });
    Desired::create_only(kinds::reference_grant(), grant)
}

/// The HTTPRoute from a path of the Gateway to the root of a server. It is in another namespace, and has no owner.
pub(crate) fn http_route(
    (name, labels): (&str, Map<String, Value>),
    (prefix, service): (&str, &Value),
    gateway: &Gateway,
    settings: &Settings,
) -> Desired {
    let backend = json!({
        "group": "", "kind": "Service", "name": service["name"], "namespace": service["namespace"],
        "port": service["port"], "weight": 1,
    });
    let rewrite = json!({
        "type": "URLRewrite",
        "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } },
    });
    let route = json!({
        "metadata": { "name": name, "namespace": settings.http_route_namespace, "labels": labels },
        "spec": {
            "parentRefs": [{
                "group": GATEWAY_GROUP, "kind": "Gateway", "name": gateway.name, "namespace": gateway.namespace,
            }],
            "rules": [{
                "matches": [{ "path": { "type": "PathPrefix", "value": prefix } }],
                "filters": [rewrite],
                "backendRefs": [backend],
            }],
        },
    });
    Desired::managed(kinds::http_route(), route)
}
