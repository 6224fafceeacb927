//! The objects around a RayCluster.

mod access;
mod network_policy;
pub(super) mod pods;

use quintet_api::ray::v1::RayCluster;
use quintet_controller::{Action, ApiKind};
use serde_json::{Value, json};

pub(super) use access::{
    client_ingress, client_route, dashboard_ingress, dashboard_route, oauth_service, role_binding,
    service_account,
};
pub(super) use network_policy::{head_policy, workers_policy};

use super::names::{CLUSTER_NAME, CONTROLLER, Names};
use super::secrets::SecretRequest;

/// The Route of OpenShift.
pub(super) fn route_kind() -> ApiKind {
    ApiKind::namespaced("route.openshift.io", "v1", "Route", "routes")
}

/// Metadata of an object that goes with the RayCluster.
fn metadata(cluster: &RayCluster, name: &str) -> Value {
    let names = Names::of(cluster);
    json!({
        "name": name,
        "namespace": names.namespace,
        "labels": {CLUSTER_NAME: names.cluster},
        "ownerReferences": [owner_reference(cluster)],
    })
}

/// The RayCluster as a controller. Unlike most, it does not ask to be deleted after what it owns.
pub(super) fn owner_reference(cluster: &RayCluster) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "controller": true,
        "name": cluster.metadata.name, "uid": cluster.metadata.uid,
    })
}

/// Applies an object in the name of the controller.
fn apply(kind: ApiKind, object: &Value) -> Action<SecretRequest> {
    Action::apply(kind, CONTROLLER, object)
}
