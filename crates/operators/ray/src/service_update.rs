//! How a Service of a RayJob or RayService moves from one cluster to another.

use k8s_openapi::api::core::v1::Service;
use quintet_controller::{Action, ApiKind, cache::Entry};
use serde_json::{Value, json};

use crate::{labels, watches::ServiceView};

/// The cluster whose pods a Service selects.
pub(crate) fn selected_cluster(service: &ServiceView) -> Option<&str> {
    service.selector.get(labels::CLUSTER).map(String::as_str)
}

/// Makes `live` be like `wanted` if it selects another cluster; otherwise it is left alone. Addresses are
/// given once and kept.
pub(crate) fn to_select(live: &Entry<ServiceView>, wanted: &Service) -> Option<Action> {
    let wanted_selector = wanted.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    if live.object.selector.get(labels::CLUSTER) == wanted_selector.and_then(|all| all.get(labels::CLUSTER)) {
        return None;
    }
    let mut spec = serde_json::to_value(&wanted.spec).unwrap_or_default();
    if let Value::Object(fields) = &mut spec {
        for given in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            fields.remove(given);
        }
    }
    // A merge keeps what it does not name.
    for key in live.object.selector.keys() {
        if spec.pointer("/selector").is_some_and(|wanted| wanted.get(key).is_none()) {
            spec["selector"][key] = Value::Null;
        }
    }
    let patch = json!({ "metadata": { "resourceVersion": live.version.to_string() }, "spec": spec });
    Some(Action::merge(ApiKind::of::<Service>(), live.key.clone(), patch))
}
