//! How a Service of a RayJob or RayService moves from one cluster to another.

use k8s_openapi::api::core::v1::Service;
use quintet_controller::{Action, ApiKind, Event, cache::Entry};
use serde_json::{Value, json};

use super::events;
use crate::{labels, watches::ServiceView};

/// The cluster whose pods a Service selects.
pub(crate) fn selected_cluster(service: &ServiceView) -> Option<&str> {
    service.selector.get(labels::CLUSTER).map(String::as_str)
}

/// Why a Service of the right name is not that of the root with this UID, if it is not: it was made for something
/// else, whose requests must not be led elsewhere.
pub(crate) fn refuse_foreign(live: &Entry<ServiceView>, root: &str) -> Result<(), Event> {
    let controller = live.object.controller.as_deref();
    if controller == Some(root) {
        return Ok(());
    }
    let given = |name: &str| live.object.labels.get(name).cloned().unwrap_or_default();
    let owner = match (given(labels::ORIGIN_KIND), given(labels::ORIGIN_NAME), given(labels::CLUSTER)) {
        (kind, name, _) if !kind.is_empty() && !name.is_empty() => format!("{kind} {name}"),
        (_, _, cluster) if !cluster.is_empty() => format!("RayCluster {cluster}"),
        _ => controller
            .map_or_else(|| "no object of Ray".to_owned(), |uid| format!("the object with UID {uid}")),
    };
    let cause = format!("it belongs to {owner} and is left alone; rename one of the two");
    Err(events::failed_to_update(&live.key, &cause))
}

/// Makes `live` be like `wanted` if it selects another cluster; otherwise it is left alone. Addresses are
/// given once and kept.
pub(crate) fn to_select<C>(live: &Entry<ServiceView>, wanted: &Service) -> Option<Action<C>> {
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
