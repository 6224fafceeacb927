//! The Gateway and HTTPRoute that split traffic between two clusters.

use quintet_api::{
    owners::controller_reference,
    ray::v1::{RayCluster, RayService},
};
use quintet_controller::{Action, ApiKind, ObjectKey, cache::Entry, plan::PatchKind};
use serde_json::{Value, json};

use super::events;
use crate::{k8s_service, names};

/// Gateways of the Gateway API.
pub(super) fn gateway_kind() -> ApiKind {
    kind("Gateway", "gateways")
}

/// HTTPRoutes of the Gateway API.
pub(super) fn route_kind() -> ApiKind {
    kind("HTTPRoute", "httproutes")
}

fn kind(kind: &'static str, plural: &'static str) -> ApiKind {
    ApiKind::namespaced("gateway.networking.k8s.io", "v1", kind, plural)
}

/// The name of a service's Gateway.
pub(super) fn gateway_name(service: &str) -> String {
    format!("{service}-gateway")
}

/// The name of a service's HTTPRoute.
pub(super) fn route_name(service: &str) -> String {
    format!("{service}-httproute")
}

/// A cluster and its share of the traffic.
#[derive(Clone, Copy)]
pub(super) struct Backend<'a> {
    /// The cluster.
    pub cluster: &'a RayCluster,
    /// Its share in percent.
    pub weight: i32,
}

fn metadata(service: &RayService, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": service.metadata.namespace,
        "ownerReferences": controller_reference(service).map(|owner| vec![owner]),
    })
}

fn name_of(service: &RayService) -> &str {
    service.metadata.name.as_deref().unwrap_or_default()
}

/// The Gateway of a service.
pub(super) fn gateway(service: &RayService) -> Value {
    let strategy = service.spec.upgrade_strategy.as_ref();
    let options = strategy.and_then(|strategy| strategy.cluster_upgrade_options.as_ref());
    json!({
        "metadata": metadata(service, &gateway_name(name_of(service))),
        "spec": {
            "gatewayClassName": options.map(|options| &options.gateway_class_name),
            "listeners": [{ "name": "http", "protocol": "HTTP", "port": 80 }],
        },
    })
}

/// The HTTPRoute of a service, to these clusters.
pub(super) fn route(service: &RayService, backends: &[Backend<'_>]) -> Value {
    let namespace = &service.metadata.namespace;
    let backend = |backend: &Backend<'_>| {
        let cluster = backend.cluster;
        let port =
            k8s_service::head_port(&cluster.spec, k8s_service::SERVE).unwrap_or(k8s_service::SERVE_PORT);
        json!({
            "name": names::serve_service(cluster.metadata.name.as_deref().unwrap_or_default()),
            "namespace": namespace,
            "port": port,
            "weight": backend.weight,
        })
    };
    json!({
        "metadata": metadata(service, &route_name(name_of(service))),
        "spec": {
            "parentRefs": [{ "name": gateway_name(name_of(service)), "namespace": namespace }],
            "rules": [{
                "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                "backendRefs": backends.iter().map(backend).collect::<Vec<_>>(),
            }],
        },
    })
}

/// Whether an object was made for the service. Users may well have chosen the same name for their own routing.
pub(super) fn is_ours(object: &Value, service: &Entry<RayService>) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| {
        owner.get("controller").and_then(Value::as_bool) == Some(true)
            && owner.get("uid").and_then(Value::as_str) == Some(service.uid.as_str())
    })
}

/// Makes an object be there as wanted; `None` if it is. Only what we manage is compared, since others fill in
/// the rest.
pub(super) fn ensure(kind: ApiKind, live: Option<&Entry<Value>>, wanted: &Value) -> Option<super::Step> {
    let Some(live) = live else {
        let text = |path: &str| wanted.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let key = ObjectKey::new(text("/metadata/namespace"), text("/metadata/name"));
        let created = events::created_routing(&kind.kind, &key);
        return Some(Action::create(kind, wanted).with_event(created));
    };
    if managed(&live.object) == managed(wanted) {
        return None;
    }
    let patch = json!([
        { "op": "replace", "path": "/metadata/resourceVersion", "value": live.version.to_string() },
        { "op": "replace", "path": "/spec", "value": wanted.get("spec") },
    ]);
    let updated = events::updated_routing(&kind.kind, &live.key);
    let action =
        Action::Patch { kind, key: live.key.clone(), subresource: None, patch_kind: PatchKind::Json, patch };
    Some(action.with_event(updated))
}

/// The fields that are ours.
fn managed(object: &Value) -> Value {
    let only = |list: Option<&Value>, fields: &[&str]| -> Vec<Value> {
        let items = list.and_then(Value::as_array).into_iter().flatten();
        let pick = |item: &Value| {
            let pairs = fields
                .iter()
                .map(|field| ((*field).to_owned(), item.get(*field).cloned().unwrap_or_default()));
            Value::Object(pairs.collect())
        };
        items.map(pick).collect()
    };
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let rules = spec.get("rules").and_then(Value::as_array).into_iter().flatten().map(|rule| {
        json!({
            "matches": rule.get("matches"),
            "filters": rule.get("filters"),
            "backendRefs": only(rule.get("backendRefs"), &["name", "namespace", "weight", "port"]),
        })
    });
    json!({
        "gatewayClassName": spec.get("gatewayClassName"),
        "listeners": only(spec.get("listeners"), &["name", "protocol", "port"]),
        "hostnames": spec.get("hostnames"),
        "parentRefs": only(spec.get("parentRefs"), &["name", "namespace"]),
        "rules": rules.collect::<Vec<_>>(),
    })
}

/// Whether the Gateway takes requests.
pub(super) fn gateway_is_ready(gateway: &Value) -> bool {
    let conditions = gateway.pointer("/status/conditions");
    holds(conditions, "Accepted") && holds(conditions, "Programmed")
}

/// Whether the Gateway knows the route and finds its backends.
pub(super) fn route_is_ready(route: &Value, gateway: &str) -> bool {
    let parents = route.pointer("/status/parents").and_then(Value::as_array).into_iter().flatten();
    let mut of_gateway =
        parents.filter(|parent| parent.pointer("/parentRef/name").and_then(Value::as_str) == Some(gateway));
    of_gateway.any(|parent| {
        let conditions = parent.get("conditions");
        holds(conditions, "Accepted") && holds(conditions, "ResolvedRefs")
    })
}

fn holds(conditions: Option<&Value>, type_: &str) -> bool {
    let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| {
        let is = |field: &str, value: &str| condition.get(field).and_then(Value::as_str) == Some(value);
        is("type", type_) && is("status", "True")
    })
}
