//! How users reach a RayCluster: Routes and the OAuth proxy on OpenShift, Ingresses elsewhere.

use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{Action, ApiKind};
use serde_json::json;

use super::{apply, metadata, route_kind};
use crate::raycluster::names::{CLUSTER_NAME, CLUSTER_NAMESPACE, Names};
use crate::raycluster::secrets::SecretRequest;

type Apply = Action<SecretRequest>;

pub(in crate::raycluster) fn dashboard_route(cluster: &RayCluster) -> Apply {
    let names = Names::of(cluster);
    let route = json!({
        "metadata": metadata(cluster, &names.dashboard()),
        "spec": {
            "to": {"kind": "Service", "name": names.oauth_service()},
            "port": {"targetPort": "oauth-proxy"},
            "tls": {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "Redirect"},
        },
    });
    apply(route_kind(), &route)
}

pub(in crate::raycluster) fn client_route(cluster: &RayCluster) -> Apply {
    let names = Names::of(cluster);
    let route = json!({
        "metadata": metadata(cluster, &names.client()),
        "spec": {
            "to": {"kind": "Service", "name": names.head_service(), "weight": 100},
            "port": {"targetPort": "client"},
            "tls": {"termination": "passthrough"},
        },
    });
    apply(route_kind(), &route)
}

pub(in crate::raycluster) fn oauth_service(cluster: &RayCluster) -> Apply {
    let names = Names::of(cluster);
    let mut metadata = metadata(cluster, &names.oauth_service());
    metadata["annotations"] =
        json!({"service.beta.openshift.io/serving-cert-secret-name": names.serving_certificate()});
    let service = json!({
        "metadata": metadata,
        "spec": {
            "ports": [{"name": "oauth-proxy", "port": 443, "targetPort": "oauth-proxy", "protocol": "TCP"}],
            "selector": {"ray.io/cluster": names.cluster, "ray.io/node-type": "head"},
        },
    });
    apply(ApiKind::of::<Service>(), &service)
}

pub(in crate::raycluster) fn service_account(cluster: &RayCluster) -> Apply {
    let names = Names::of(cluster);
    // The order of fields is that of OpenShift's own type: the text is compared.
    let reference = format!(
        "{{\"kind\":\"OAuthRedirectReference\",\"apiVersion\":\"v1\",\"reference\":{{\"kind\":\"Route\",\"name\":\"{}\"}}}}",
        names.dashboard()
    );
    let mut metadata = metadata(cluster, &names.oauth_service_account());
    metadata["annotations"] =
        json!({"serviceaccounts.openshift.io/oauth-redirectreference.first": reference});
    apply(ApiKind::of::<ServiceAccount>(), &json!({"metadata": metadata}))
}

/// The proxy asks the API server who users are. It is in no namespace, so it cannot have an owner in one.
pub(in crate::raycluster) fn role_binding(cluster: &RayCluster) -> Apply {
    let names = Names::of(cluster);
    let binding = json!({
        "metadata": {
            "name": names.role_binding(),
            "labels": {CLUSTER_NAME: names.cluster, CLUSTER_NAMESPACE: names.namespace},
        },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": names.oauth_service_account(), "namespace": names.namespace},
        ],
    });
    apply(ApiKind::of::<ClusterRoleBinding>(), &binding)
}

pub(in crate::raycluster) fn dashboard_ingress(cluster: &RayCluster, domain: &str) -> Apply {
    let names = Names::of(cluster);
    let backend = json!({"service": {"name": names.head_service(), "port": {"name": "dashboard"}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let ingress = json!({
        "metadata": metadata(cluster, &names.dashboard()),
        "spec": {"rules": [{"host": names.host(&names.dashboard(), domain), "http": {"paths": [path]}}]},
    });
    apply(ApiKind::of::<Ingress>(), &ingress)
}

/// Ray's client protocol is TLS, which nginx passes through.
pub(in crate::raycluster) fn client_ingress(cluster: &RayCluster, domain: &str) -> Apply {
    let names = Names::of(cluster);
    let mut metadata = metadata(cluster, &names.client());
    metadata["annotations"] = json!({
        "nginx.ingress.kubernetes.io/rewrite-target": "/",
        "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
        "nginx.ingress.kubernetes.io/ssl-redirect": "true",
    });
    let backend = json!({"service": {"name": names.head_service(), "port": {"number": 10001}}});
    let path = json!({"path": "/", "pathType": "ImplementationSpecific", "backend": backend});
    let ingress = json!({
        "metadata": metadata,
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{"host": names.host(&names.client(), domain), "http": {"paths": [path]}}],
        },
    });
    apply(ApiKind::of::<Ingress>(), &ingress)
}
