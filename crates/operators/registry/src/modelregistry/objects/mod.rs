//! The objects of a registry, as pure functions of its spec, the settings and what the cluster serves.

mod database;
mod postgres;
mod server;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use quintet_api::modelregistry::v1beta1::{KubeRbacProxyConfig, ModelRegistrySpec, RestSpec, RouteState};
use quintet_controller::{ApiKind, ObjectKey};
use serde_json::{Map, Value, json};

use super::effective::has_https_route;
use crate::kinds;
use crate::managed::{Desired, OptionalApis};
use crate::names::{
    DESCRIPTION, DISPLAY_NAME, EXTERNAL_ADDRESS, HTTP_PORT, HTTPS_PORT, Part, REFERENCE_GRANT, REGISTRY,
    RegistryNames, SERVING_CERT, auth_delegator, pod_labels, proxy_certificate, proxy_config,
};
use crate::objects::{self, Home, Proxy};
use crate::settings::{Gateway, Settings};

pub(super) use postgres::credentials;
pub(super) use server::CONTAINER as SERVER;

/// What the objects of a registry follow from.
pub(super) struct Inputs<'a> {
    pub(super) name: &'a str,
    pub(super) home: Home<'a>,
    pub(super) annotations: Option<&'a BTreeMap<String, String>>,
    /// The spec as users have written it.
    pub(super) stored: &'a ModelRegistrySpec,
    /// The same with what the operator fills in.
    pub(super) spec: &'a ModelRegistrySpec,
    /// That with the connection to a database that the operator runs.
    pub(super) connected: &'a ModelRegistrySpec,
    pub(super) settings: &'a Settings,
    pub(super) apis: OptionalApis,
}

impl<'a> Inputs<'a> {
    pub(super) fn names(&self) -> RegistryNames<'a> {
        RegistryNames(self.name)
    }

    /// The labels of an object.
    fn labels(&self, instance: &str) -> Map<String, Value> {
        let part = Part { app: self.name, component: REGISTRY, role: REGISTRY, whole: REGISTRY };
        part.labels(instance)
    }

    fn metadata(&self, name: &str, instance: &str) -> Value {
        self.home.metadata(name, &self.labels(instance))
    }

    /// The labels of the server's pods.
    fn pods(&self) -> Value {
        pod_labels(self.name, REGISTRY, self.name)
    }

    fn rest(&self) -> RestSpec {
        self.spec.rest.clone().unwrap_or_default()
    }

    fn proxy(&self) -> Option<&'a KubeRbacProxyConfig> {
        self.spec.kube_rbac_proxy.as_ref()
    }

    fn rest_port(&self) -> i32 {
        self.rest().port.unwrap_or(8080)
    }

    /// The port of the Service.
    fn port(&self) -> i32 {
        self.proxy().map_or_else(|| self.rest_port(), proxy_port)
    }

    /// The Gateway, if the cluster has what is needed to use it.
    fn gateway(&self) -> Option<&'a Gateway> {
        self.settings.gateway.as_ref().filter(|_| self.apis.routes && self.apis.gateway)
    }
}

fn proxy_port(proxy: &KubeRbacProxyConfig) -> i32 {
    proxy.port.unwrap_or(8443)
}

/// The database that the operator runs, if it does.
pub(super) fn database(inputs: &Inputs<'_>) -> Vec<Desired> {
    postgres::objects(inputs)
}

/// All other objects, in the order in which they are made.
pub(super) fn objects(inputs: &Inputs<'_>) -> Vec<Desired> {
    let names = inputs.names();
    let mut all = vec![
        Desired::managed(
            ApiKind::of::<ServiceAccount>(),
            json!({ "metadata": inputs.metadata(inputs.name, inputs.name) }),
        ),
        Desired::managed(ApiKind::of::<Service>(), service(inputs)),
        Desired::managed(ApiKind::of::<Deployment>(), server::deployment(inputs)),
        Desired::managed(ApiKind::of::<Role>(), role(inputs)),
    ];
    if inputs.apis.routes {
        let users = names.users();
        if inputs.apis.groups {
            // Its members are up to administrators.
            let metadata = json!({ "name": users, "labels": inputs.labels(&users) });
            all.push(Desired::managed(kinds::group(), json!({ "metadata": metadata })));
        }
        let metadata = inputs.metadata(&users, &users);
        let binding = objects::group_binding(&metadata, &names.user_role(), &[users]);
        all.push(Desired::managed(ApiKind::of::<RoleBinding>(), binding));
        all.extend(gateway_objects(inputs));
        all.push(http_route(inputs));
    }
    all.extend(proxy_objects(inputs));
    all
}

fn service(inputs: &Inputs<'_>) -> Value {
    let mut metadata = inputs.metadata(inputs.name, inputs.name);
    metadata["annotations"] = service_annotations(inputs);
    let (name, protocol) = if inputs.proxy().is_some() { (HTTPS_PORT, "https") } else { (HTTP_PORT, "http") };
    let port = inputs.port();
    json!({
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": inputs.pods(),
            "ports": [{
                "name": name, "port": port, "targetPort": port, "protocol": "TCP", "appProtocol": protocol,
            }],
        },
    })
}

/// Annotations of the Service; `null` for those that it must not have.
fn service_annotations(inputs: &Inputs<'_>) -> Value {
    let copied = |name: &str| inputs.annotations.and_then(|annotations| annotations.get(name));
    let stored = inputs.stored.kube_rbac_proxy.as_ref();
    let needs_certificate = stored.is_some_and(|proxy| proxy.tls_certificate_secret.is_none());
    let address = inputs.proxy().and_then(|proxy| match &inputs.settings.gateway {
        Some(gateway) => Some(format!("{}/model-registry/{}", gateway.domain, inputs.name)),
        None if has_https_route(inputs.spec) => {
            let host = external_host(inputs.name, inputs.spec);
            Some(format!("{host}:{}", proxy.route_port.unwrap_or(443)))
        }
        None => None,
    });
    json!({
        DISPLAY_NAME: copied(DISPLAY_NAME),
        DESCRIPTION: copied(DESCRIPTION),
        SERVING_CERT: needs_certificate.then(|| proxy_certificate(inputs.name)),
        EXTERNAL_ADDRESS: address,
    })
}

/// The host name by which a registry is reached from outside.
pub(super) fn external_host(name: &str, spec: &ModelRegistrySpec) -> String {
    let domain = spec.kube_rbac_proxy.as_ref().and_then(|proxy| proxy.domain.as_deref());
    format!("{name}-rest.{}", domain.unwrap_or_default())
}

fn role(inputs: &Inputs<'_>) -> Value {
    let name = inputs.names().user_role();
    let mut metadata = inputs.metadata(&name, &name);
    metadata["annotations"] = json!({
        DISPLAY_NAME: format!("Registry User {}", inputs.name),
        DESCRIPTION: format!("Can access Model Registry {}", inputs.name),
    });
    json!({ "metadata": metadata, "rules": objects::reader_rules(inputs.name) })
}

fn gateway_objects(inputs: &Inputs<'_>) -> Vec<Desired> {
    let Some(gateway) = inputs.gateway() else { return Vec::new() };
    let name = inputs.names().gateway_route();
    let service = json!({
        "name": inputs.name, "namespace": inputs.home.namespace, "port": inputs.port(),
    });
    let prefix = format!("/model-registry/{}/", inputs.name);
    let labels = inputs.labels(&name);
    vec![
        objects::reference_grant(inputs.home.namespace, inputs.settings),
        objects::http_route((&name, labels), (&prefix, &service), gateway, inputs.settings),
    ]
}

/// The Route to the server without its proxy.
fn http_route(inputs: &Inputs<'_>) -> Desired {
    let name = inputs.names().http_route();
    let route = json!({
        "metadata": inputs.metadata(&name, &name),
        "spec": {
            "port": { "targetPort": HTTP_PORT },
            "to": { "kind": "Service", "name": inputs.name },
        },
    });
    let is_wanted = inputs.rest().service_route == Some(RouteState::Enabled);
    Desired::managed_if(is_wanted, kinds::route(), route)
}

fn proxy_objects(inputs: &Inputs<'_>) -> Vec<Desired> {
    let names = inputs.names();
    let (name, namespace) = (inputs.name, inputs.home.namespace);
    let mut all = Vec::new();
    let config = json!({
        "metadata": inputs.metadata(&proxy_config(name), name), "data": Proxy::config(name, namespace),
    });
    let kind = ApiKind::of::<ConfigMap>();
    all.push(if inputs.proxy().is_some() {
        // Users may change what callers have to be allowed.
        Desired::create_only(kind, config)
    } else {
        Desired::absent(kind, &ObjectKey::new(namespace, &proxy_config(name)))
    });
    let delegator = inputs.labels(&auth_delegator(name));
    all.push(objects::auth_delegator(name, namespace, delegator, inputs.proxy().is_some()));
    if inputs.apis.routes {
        let is_routed = has_https_route(inputs.spec);
        let route = inputs.metadata(&names.https_route(), &names.https_route());
        let host = external_host(name, inputs.spec);
        all.push(objects::https_route(&route, name, &host, is_routed));
        let policy = inputs.metadata(&names.https_policy(), &names.https_policy());
        all.push(objects::https_policy(&policy, &inputs.pods(), inputs.port(), is_routed));
    }
    all
}

/// Objects of the catalog that registries of old versions had.
pub(super) fn legacy(namespace: &str, name: &str) -> Vec<(ApiKind, ObjectKey)> {
    let key = |suffix: &str| ObjectKey::new(namespace, &format!("{name}-catalog{suffix}"));
    vec![
        (ApiKind::of::<Deployment>(), key("")),
        (ApiKind::of::<Service>(), key("")),
        (kinds::route(), key("-https")),
        (ApiKind::of::<NetworkPolicy>(), key("-https-route")),
    ]
}

/// Everything that may exist for a registry.
pub(super) fn inventory(namespace: &str, name: &str, settings: &Settings) -> Vec<(ApiKind, ObjectKey)> {
    let names = RegistryNames(name);
    let here = |name: &str| ObjectKey::new(namespace, name);
    let mut all = vec![
        (ApiKind::of::<ServiceAccount>(), here(name)),
        (ApiKind::of::<Service>(), here(name)),
        (ApiKind::of::<Endpoints>(), here(name)),
        (ApiKind::of::<Deployment>(), here(name)),
        (ApiKind::of::<Role>(), here(&names.user_role())),
        (ApiKind::of::<RoleBinding>(), here(&names.users())),
        (ApiKind::of::<ConfigMap>(), here(&proxy_config(name))),
        (ApiKind::of::<ClusterRoleBinding>(), ObjectKey::cluster(&auth_delegator(name))),
        (ApiKind::of::<NetworkPolicy>(), here(&names.https_policy())),
        (ApiKind::of::<PersistentVolumeClaim>(), here(&names.storage())),
        (ApiKind::of::<Deployment>(), here(&names.database())),
        (ApiKind::of::<Service>(), here(&names.database())),
        (ApiKind::of::<NetworkPolicy>(), here(&names.database())),
        (kinds::route(), here(&names.http_route())),
        (kinds::route(), here(&names.https_route())),
        (kinds::group(), ObjectKey::cluster(&names.users())),
        (kinds::reference_grant(), here(REFERENCE_GRANT)),
        (kinds::http_route(), ObjectKey::new(&settings.http_route_namespace, &names.gateway_route())),
    ];
    all.extend(legacy(namespace, name));
    all
}
