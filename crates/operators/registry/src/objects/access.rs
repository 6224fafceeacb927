//! Who may reach a server: roles, Routes and NetworkPolicies.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use quintet_controller::ApiKind;
use serde_json::{Map, Value, json};

use super::ingress_policy;
use crate::kinds;
use crate::managed::Desired;
use crate::names::{AUTH_DELEGATOR, HTTPS_PORT, OWNER_NAMESPACE, auth_delegator as delegator_name};

pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// What lets somebody through the proxy of a server.
pub(crate) fn reader_rules(server: &str) -> Value {
    let rule = |resource: &str| json!({ "apiGroups": [""], "resources": [resource], "resourceNames": [server], "verbs": ["get"] });
    json!([rule("services"), rule("endpoints")])
}

/// Lets the proxy of a server ask about its callers. It has no namespace, and so no owner.
pub(crate) fn auth_delegator(
    server: &str,
    namespace: &str,
    mut labels: Map<String, Value>,
    is_wanted: bool,
) -> Desired {
    labels.insert(OWNER_NAMESPACE.to_owned(), namespace.into());
    let binding = json!({
        "metadata": { "name": delegator_name(server), "labels": labels },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": AUTH_DELEGATOR },
        "subjects": [{ "kind": "ServiceAccount", "name": server, "namespace": namespace }],
    });
    Desired::managed_if(is_wanted, ApiKind::of::<ClusterRoleBinding>(), binding)
}

/// The Route to a proxy, which encrypts again.
pub(crate) fn https_route(metadata: &Value, server: &str, host: &str, is_wanted: bool) -> Desired {
    let route = json!({
        "metadata": metadata,
        "spec": {
            "host": host,
            "port": { "targetPort": HTTPS_PORT },
            "tls": { "termination": "reencrypt" },
            "to": { "kind": "Service", "name": server },
            "wildcardPolicy": "None",
        },
    });
    Desired::managed_if(is_wanted, kinds::route(), route)
}

/// Lets OpenShift's router and namespaces of the platform reach a proxy.
pub(crate) fn https_policy(metadata: &Value, pods: &Value, port: i32, is_wanted: bool) -> Desired {
    let namespaces =
        |label: &str, value: &str| json!({ "namespaceSelector": { "matchLabels": { label: value } } });
    let from = json!([
        namespaces("network.openshift.io/policy-group", "ingress"),
        namespaces("opendatahub.io/generated-namespace", "true"),
    ]);
    let policy = ingress_policy(metadata, pods, &from, port);
    Desired::managed_if(is_wanted, ApiKind::of::<NetworkPolicy>(), policy)
}

/// A RoleBinding of a Role to groups.
pub(crate) fn group_binding(metadata: &Value, role: &str, groups: &[String]) -> Value {
    let subject = |group: &String| json!({ "apiGroup": RBAC, "kind": "Group", "name": group });
    json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": role },
        "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
    })
}
