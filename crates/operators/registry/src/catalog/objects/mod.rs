//! The objects of the catalog, as pure functions of its spec, the settings and what the cluster serves.

mod database;
mod server;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use quintet_api::aihub::CatalogSpec;
use quintet_controller::{ApiKind, ObjectKey};
use serde_json::{Map, Value, json};

use crate::kinds;
use crate::managed::{Desired, OptionalApis};
use crate::names::{
    CATALOG, CATALOG_DATABASE, DESCRIPTION, DISPLAY_NAME, EXTERNAL_ADDRESS, HTTPS_PORT, Part,
    REFERENCE_GRANT, SERVING_CERT, SOURCES_KEY, auth_delegator, pod_labels, proxy_certificate, proxy_config,
};
use crate::objects::{self, Home, Proxy};
use crate::settings::Settings;

pub(super) use database::credentials;

/// Sources that every catalog has.
const DEFAULT_SOURCES: &str = "default-catalog-sources";
/// The former name of these.
const FORMER_SOURCES: &str = "model-catalog-default-sources";
/// Role and RoleBinding of users and administrators.
const AUTHENTICATED: &str = "model-catalog-authenticated";
const ADMIN: &str = "model-catalog-admin";
const ADMIN_BINDING: &str = "model-catalog-admin-binding";
const HTTPS_ROUTE: &str = "model-catalog-https";
const HTTPS_POLICY: &str = "model-catalog-https-route";
/// The port of the proxy.
const PORT: i32 = 8443;

/// ConfigMaps in which users name further sources, and what they begin with.
pub(super) const USER_SOURCES: [(&str, &str); 3] = [
    ("model-catalog-sources", "catalogs: []"),
    ("mcp-catalog-sources", "mcp_catalogs: []"),
    ("agent-catalog-sources", "agent_catalogs: []"),
];

/// What the objects of the catalog follow from.
pub(super) struct Inputs<'a> {
    pub(super) home: Home<'a>,
    pub(super) spec: &'a CatalogSpec,
    pub(super) settings: &'a Settings,
    pub(super) apis: OptionalApis,
    /// The domain of Routes, or empty.
    pub(super) domain: &'a str,
    /// ConfigMaps with further sources, in order.
    pub(super) labelled_sources: &'a [String],
    /// ConfigMaps that were among them.
    pub(super) removed_sources: &'a [String],
    /// Groups of administrators.
    pub(super) admin_groups: &'a [String],
}

impl Inputs<'_> {
    fn metadata(&self, name: &str) -> Value {
        self.home.metadata(name, &labels(CATALOG))
    }

    fn annotated(&self, name: &str, display_name: &str, description: &str) -> Value {
        let mut metadata = self.metadata(name);
        metadata["annotations"] = json!({ DISPLAY_NAME: display_name, DESCRIPTION: description });
        metadata
    }
}

/// The labels of an object of a component.
fn labels(component: &str) -> Map<String, Value> {
    Part { app: CATALOG, component, role: component, whole: CATALOG }.labels(CATALOG)
}

/// The labels of the server's pods.
fn pods() -> Value {
    pod_labels(CATALOG, CATALOG, CATALOG)
}

/// All objects, in the order in which they are made.
pub(super) fn objects(inputs: &Inputs<'_>) -> Vec<Desired> {
    let here = |name: &str| ObjectKey::new(inputs.home.namespace, name);
    let sources = json!({
        "metadata": inputs.metadata(DEFAULT_SOURCES),
        "data": { SOURCES_KEY: include_str!("default_sources.yaml") },
    });
    let mut all = vec![
        Desired::managed(ApiKind::of::<ServiceAccount>(), json!({ "metadata": inputs.metadata(CATALOG) })),
        Desired::managed(ApiKind::of::<ConfigMap>(), sources),
        Desired::absent(ApiKind::of::<ConfigMap>(), &here(FORMER_SOURCES)),
    ];
    all.extend([
        Desired::managed(ApiKind::of::<Deployment>(), server::deployment(inputs)),
        Desired::managed(ApiKind::of::<Service>(), service(inputs)),
    ]);
    all.extend(roles(inputs));
    // The database was once on a volume of its own.
    all.push(Desired::absent(ApiKind::of::<PersistentVolumeClaim>(), &here(CATALOG_DATABASE)));
    if !inputs.settings.skip_catalog_database {
        all.extend(database::objects(inputs));
    }
    all.extend(routes(inputs));
    let config = json!({
        "metadata": inputs.metadata(&proxy_config(CATALOG)),
        "data": Proxy::config(CATALOG, inputs.home.namespace),
    });
    all.push(Desired::managed(ApiKind::of::<ConfigMap>(), config));
    all.push(objects::auth_delegator(CATALOG, inputs.home.namespace, labels(CATALOG), true));
    all
}

/// A ConfigMap in which users name sources. It has no owner, and so outlives the catalog.
pub(super) fn user_sources(namespace: &str, name: &str, text: &str) -> Desired {
    let metadata = json!({ "name": name, "namespace": namespace, "labels": labels(CATALOG) });
    let sources = json!({ "metadata": metadata, "data": { SOURCES_KEY: text } });
    Desired::create_only(ApiKind::of::<ConfigMap>(), sources)
}

fn service(inputs: &Inputs<'_>) -> Value {
    let address = match &inputs.settings.gateway {
        Some(gateway) => format!("{}/catalog", gateway.domain),
        None => format!("{CATALOG}.{}:443", inputs.domain),
    };
    let mut metadata = inputs.metadata(CATALOG);
    metadata["annotations"] = json!({ SERVING_CERT: proxy_certificate(CATALOG), EXTERNAL_ADDRESS: address });
    json!({
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": pods(),
            "ports": [{
                "name": HTTPS_PORT, "port": PORT, "targetPort": PORT, "protocol": "TCP", "appProtocol": "https",
            }],
        },
    })
}

/// Everybody who is known may read the catalog; administrators may change its sources.
fn roles(inputs: &Inputs<'_>) -> Vec<Desired> {
    let reader = json!({
        "metadata": inputs.annotated(CATALOG, "Model catalog User", "Can access model catalog"),
        "rules": objects::reader_rules(CATALOG),
    });
    let everybody = ["system:authenticated".to_owned()];
    let reader_binding = objects::group_binding(&inputs.metadata(AUTHENTICATED), CATALOG, &everybody);
    let description = "Admin access to model catalog ConfigMaps and Secrets";
    let admin = json!({
        "metadata": inputs.annotated(ADMIN, "Model Catalog Admin", description),
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps", "secrets"],
            "verbs": ["get", "list", "watch", "update", "patch"],
        }],
    });
    let description = "Binds admin groups to model catalog admin role";
    let metadata = inputs.annotated(ADMIN_BINDING, "Model Catalog Admin Binding", description);
    let admin_binding = objects::group_binding(&metadata, ADMIN, inputs.admin_groups);
    let has_admins = !inputs.admin_groups.is_empty();
    vec![
        Desired::managed(ApiKind::of::<Role>(), reader),
        Desired::managed(ApiKind::of::<RoleBinding>(), reader_binding),
        Desired::managed(ApiKind::of::<Role>(), admin),
        Desired::managed_if(has_admins, ApiKind::of::<RoleBinding>(), admin_binding),
    ]
}

/// How the catalog is reached from outside, on OpenShift.
fn routes(inputs: &Inputs<'_>) -> Vec<Desired> {
    if !inputs.apis.routes {
        return Vec::new();
    }
    let mut all = Vec::new();
    if let Some(gateway) = inputs.settings.gateway.as_ref().filter(|_| inputs.apis.gateway) {
        all.push(objects::reference_grant(inputs.home.namespace, inputs.settings));
        let service = json!({ "name": CATALOG, "namespace": inputs.home.namespace, "port": PORT });
        let route = (CATALOG, labels(CATALOG));
        all.push(objects::http_route(route, ("/catalog/", &service), gateway, inputs.settings));
    }
    let host = format!("{CATALOG}.{}", inputs.domain);
    all.push(objects::https_route(&inputs.metadata(HTTPS_ROUTE), CATALOG, &host, true));
    all.push(objects::https_policy(&inputs.metadata(HTTPS_POLICY), &pods(), PORT, true));
    all
}

/// What has no owner, or has to go before the rest.
pub(super) fn unowned(namespace: &str, settings: &Settings) -> Vec<(ApiKind, ObjectKey)> {
    vec![
        (ApiKind::of::<ConfigMap>(), ObjectKey::new(namespace, &proxy_config(CATALOG))),
        (ApiKind::of::<ClusterRoleBinding>(), ObjectKey::cluster(&auth_delegator(CATALOG))),
        (kinds::http_route(), ObjectKey::new(&settings.http_route_namespace, CATALOG)),
    ]
}

/// Everything that may exist for the catalog, but for the sources of users.
pub(super) fn inventory(namespace: &str, settings: &Settings) -> Vec<(ApiKind, ObjectKey)> {
    let here = |name: &str| ObjectKey::new(namespace, name);
    let mut all = vec![
        (ApiKind::of::<ServiceAccount>(), here(CATALOG)),
        (ApiKind::of::<ConfigMap>(), here(DEFAULT_SOURCES)),
        (ApiKind::of::<ConfigMap>(), here(FORMER_SOURCES)),
        (ApiKind::of::<Deployment>(), here(CATALOG)),
        (ApiKind::of::<Endpoints>(), here(CATALOG)),
        (ApiKind::of::<Service>(), here(CATALOG)),
        (ApiKind::of::<Role>(), here(CATALOG)),
        (ApiKind::of::<Role>(), here(ADMIN)),
        (ApiKind::of::<RoleBinding>(), here(AUTHENTICATED)),
        (ApiKind::of::<RoleBinding>(), here(ADMIN_BINDING)),
        (ApiKind::of::<PersistentVolumeClaim>(), here(CATALOG_DATABASE)),
        (ApiKind::of::<Deployment>(), here(CATALOG_DATABASE)),
        (ApiKind::of::<Service>(), here(CATALOG_DATABASE)),
        (ApiKind::of::<NetworkPolicy>(), here(CATALOG_DATABASE)),
        (ApiKind::of::<NetworkPolicy>(), here(HTTPS_POLICY)),
        (kinds::route(), here(HTTPS_ROUTE)),
        (kinds::reference_grant(), here(REFERENCE_GRANT)),
    ];
    all.extend(unowned(namespace, settings));
    all
}
