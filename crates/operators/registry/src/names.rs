//! Names, labels and annotations of what is made for registries and the catalog, all as upstream's.

use serde_json::{Map, Value, json};

/// Who made an object, in its label [`CREATED_BY`]. Objects without it are not ours.
pub(crate) const OPERATOR: &str = "model-registry-operator";
/// The label of everything that the operator makes.
pub(crate) const CREATED_BY: &str = "app.kubernetes.io/created-by";
/// The namespace of the owner, on objects outside of namespaces.
pub(crate) const OWNER_NAMESPACE: &str = "modelregistry.opendatahub.io/namespace";
/// The component of registries: the label `component` of their objects and pods.
pub(crate) const REGISTRY: &str = "model-registry";
/// The name of the catalog's objects, and their component.
pub(crate) const CATALOG: &str = "model-catalog";
/// The only name that a Catalog may have.
pub(crate) const THE_CATALOG: &str = "catalog";
/// The catalog's database.
pub(crate) const CATALOG_DATABASE: &str = "model-catalog-postgres";
/// The label of ConfigMaps with further sources of the catalog.
pub(crate) const CATALOG_SOURCE: &str = "opendatahub.io/catalog-source";
/// The key of sources in a ConfigMap.
pub(crate) const SOURCES_KEY: &str = "sources.yaml";
/// The only Auth of the platform that counts.
pub(crate) const AUTH: &str = "auth";

/// Finalizer of a ModelRegistry.
pub(crate) const REGISTRY_FINALIZER: &str = "modelregistry.opendatahub.io/finalizer";
/// Finalizer of a Catalog.
pub(crate) const CATALOG_FINALIZER: &str = "catalog.aihub.opendatahub.io/finalizer";
/// Finalizer of an AIHub.
pub(crate) const AIHUB_FINALIZER: &str = "aihub.opendatahub.io/finalizer";

/// By this annotation of a Service OpenShift issues its certificate.
pub(crate) const SERVING_CERT: &str = "service.beta.openshift.io/serving-cert-secret-name";
/// Where dashboards find the address of a server.
pub(crate) const EXTERNAL_ADDRESS: &str = "routing.opendatahub.io/external-address-rest";
/// What people call an object.
pub(crate) const DISPLAY_NAME: &str = "openshift.io/display-name";
/// What an object is for.
pub(crate) const DESCRIPTION: &str = "openshift.io/description";

/// The port that serves without the proxy.
pub(crate) const HTTP_PORT: &str = "http-api";
/// The port that the proxy serves.
pub(crate) const HTTPS_PORT: &str = "https-api";

/// The permission of HTTPRoutes to name Services of a namespace.
pub(crate) const REFERENCE_GRANT: &str = "allow-gateway-httproutes";
/// The ClusterRole that lets the proxy ask about its callers.
pub(crate) const AUTH_DELEGATOR: &str = "system:auth-delegator";

/// Names of the objects of one registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegistryNames<'a>(pub(crate) &'a str);

impl RegistryNames<'_> {
    pub(crate) fn user_role(self) -> String {
        format!("registry-user-{}", self.0)
    }

    pub(crate) fn users(self) -> String {
        format!("{}-users", self.0)
    }

    pub(crate) fn http_route(self) -> String {
        format!("{}-http", self.0)
    }

    pub(crate) fn https_route(self) -> String {
        format!("{}-https", self.0)
    }

    pub(crate) fn https_policy(self) -> String {
        format!("{}-https-route", self.0)
    }

    pub(crate) fn gateway_route(self) -> String {
        format!("model-registry-{}", self.0)
    }

    pub(crate) fn database(self) -> String {
        format!("{}-postgres", self.0)
    }

    pub(crate) fn credentials(self) -> String {
        format!("{}-postgres-credentials", self.0)
    }

    pub(crate) fn storage(self) -> String {
        format!("{}-postgres-storage", self.0)
    }
}

/// The ConfigMap of a server's proxy.
pub(crate) fn proxy_config(server: &str) -> String {
    format!("{server}-kube-rbac-proxy-config")
}

/// The Secret with the certificate of a server's proxy, unless the user names another.
pub(crate) fn proxy_certificate(server: &str) -> String {
    format!("{server}-kube-rbac-proxy")
}

/// The ClusterRoleBinding of a server's proxy.
pub(crate) fn auth_delegator(server: &str) -> String {
    format!("{server}-auth-delegator")
}

/// What tells the objects of one server from those of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// `app` and `app.kubernetes.io/name`.
    pub(crate) app: &'a str,
    /// `component`.
    pub(crate) component: &'a str,
    /// `app.kubernetes.io/component`.
    pub(crate) role: &'a str,
    /// `app.kubernetes.io/part-of`.
    pub(crate) whole: &'a str,
}

impl Part<'_> {
    /// The labels of its object `instance`.
    pub(crate) fn labels(self, instance: &str) -> Map<String, Value> {
        let labels = json!({
            "app": self.app,
            "component": self.component,
            "app.kubernetes.io/name": self.app,
            "app.kubernetes.io/instance": instance,
            "app.kubernetes.io/component": self.role,
            "app.kubernetes.io/created-by": OPERATOR,
            "app.kubernetes.io/part-of": self.whole,
            "app.kubernetes.io/managed-by": OPERATOR,
        });
        labels.as_object().cloned().unwrap_or_default()
    }
}

/// The labels of pods of a server, by which its Service selects them.
pub(crate) fn pod_labels(app: &str, component: &str, name: &str) -> Value {
    json!({ "app": app, "component": component, "app.kubernetes.io/name": name })
}
