//! Who reaches the pods of a RayCluster. The NetworkPolicies of Ray's own controller are another feature, with names of
//! their own.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{Action, ApiKind};
use serde_json::{Value, json};

use super::{apply, metadata};
use crate::raycluster::names::Names;
use crate::raycluster::secrets::SecretRequest;

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
const CLIENT: u16 = 10001;
const DASHBOARD: u16 = 8265;
const METRICS: u16 = 8080;
const OAUTH_PROXY: u16 = 8443;

/// The pods of the cluster, as peers.
fn own_pods(cluster: &str) -> Value {
    json!({"podSelector": {"matchLabels": {"ray.io/cluster": cluster}}})
}

fn in_namespaces(names: &[String]) -> Value {
    json!({"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "In", "values": names}]})
}

fn ports(ports: &[u16]) -> Vec<Value> {
    ports.iter().map(|port| json!({"port": port, "protocol": "TCP"})).collect()
}

fn selecting(names: &Names<'_>, node_type: &str) -> Value {
    json!({"matchLabels": {"ray.io/cluster": names.cluster, "ray.io/node-type": node_type}})
}

/// Workers are reached by their cluster only.
pub(in crate::raycluster) fn workers_policy(cluster: &RayCluster) -> Action<SecretRequest> {
    let names = Names::of(cluster);
    let policy = json!({
        "metadata": metadata(cluster, &names.workers_policy()),
        "spec": {
            "podSelector": selecting(&names, "worker"),
            "ingress": [{"from": [own_pods(names.cluster)]}],
        },
    });
    apply(ApiKind::of::<NetworkPolicy>(), &policy)
}

/// The head is reached by its cluster, its namespace, the operator of Ray, monitoring, and by what authenticates itself.
pub(in crate::raycluster) fn head_policy(
    cluster: &RayCluster,
    operator_namespaces: &[String],
    has_mtls: bool,
) -> Action<SecretRequest> {
    let names = Names::of(cluster);
    let operator = json!({
        "namespaceSelector": in_namespaces(operator_namespaces),
        "podSelector": {"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}},
    });
    let monitoring = json!({"namespaceSelector": in_namespaces(&["openshift-monitoring".to_owned()])});
    let authenticated: &[u16] = if has_mtls { &[OAUTH_PROXY, CLIENT] } else { &[OAUTH_PROXY] };
    let policy = json!({
        "metadata": metadata(cluster, &names.head_policy()),
        "spec": {
            "podSelector": selecting(&names, "head"),
            "ingress": [
                {"from": [own_pods(names.cluster)]},
                {"from": [{"podSelector": {}}], "ports": ports(&[CLIENT, DASHBOARD])},
                {"from": [operator], "ports": ports(&[DASHBOARD, CLIENT])},
                {"from": [monitoring], "ports": ports(&[METRICS])},
                {"ports": ports(authenticated)},
            ],
        },
    });
    apply(ApiKind::of::<NetworkPolicy>(), &policy)
}
