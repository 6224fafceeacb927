//! Who may reach the server, and what its pods may reach.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quintet_controller::Action;

use super::{Inputs, apply, metadata};
use crate::names::{MIGRATION, MLFLOW, PORT};

/// DNS, also on the port of OpenShift's.
const DNS: &[(&str, i32)] = &[("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353)];
/// HTTPS, the Kubernetes API, and other servers like this one.
const HTTPS: &[(&str, i32)] = &[("TCP", 443), ("TCP", 6443), ("TCP", 8443)];
/// The usual ports of S3 servers.
const S3: &[(&str, i32)] = &[("TCP", 9000), ("TCP", 8333), ("TCP", 8334)];
const POSTGRESQL: (&str, i32) = ("TCP", 5432);
const MYSQL: (&str, i32) = ("TCP", 3306);

/// The policy of all pods of the MLflow.
pub(super) fn server(inputs: &Inputs<'_>) -> Action {
    let own = inputs.mlflow.spec.network_policy_egress_rules.as_deref().unwrap_or_default();
    let egress = if own.is_empty() {
        [DNS, HTTPS, &[POSTGRESQL], &[MYSQL], S3].map(to_anywhere).to_vec()
    } else {
        own.to_vec()
    };
    let everybody = [
        NetworkPolicyPeer { pod_selector: Some(LabelSelector::default()), ..NetworkPolicyPeer::default() },
        NetworkPolicyPeer {
            namespace_selector: Some(LabelSelector::default()),
            ..NetworkPolicyPeer::default()
        },
    ];
    let ingress =
        NetworkPolicyIngressRule { from: Some(everybody.to_vec()), ports: Some(vec![port(&("TCP", PORT))]) };
    apply(&NetworkPolicy {
        metadata: metadata(inputs, MLFLOW, MLFLOW),
        spec: Some(policy(inputs, ("app.kubernetes.io/instance", MLFLOW), Some(vec![ingress]), egress)),
    })
}

/// The policy of migration pods, which accept no connections. The policy above selects them, too, and policies add up.
pub(super) fn migration(inputs: &Inputs<'_>) -> Action {
    let mut metadata = metadata(inputs, MIGRATION, MLFLOW);
    metadata.labels = Some([("component".to_owned(), MIGRATION.to_owned())].into());
    let egress = [DNS, &[POSTGRESQL, MYSQL]].map(to_anywhere).to_vec();
    let spec = Some(policy(inputs, ("component", MIGRATION), None, egress));
    apply(&NetworkPolicy { metadata, spec })
}

fn policy(
    inputs: &Inputs<'_>,
    (label, value): (&str, &str),
    ingress: Option<Vec<NetworkPolicyIngressRule>>,
    mut egress: Vec<NetworkPolicyEgressRule>,
) -> NetworkPolicySpec {
    egress.extend(inputs.mlflow.spec.network_policy_additional_egress_rules.iter().flatten().cloned());
    let selected = [(label.to_owned(), value.to_owned())].into();
    NetworkPolicySpec {
        pod_selector: Some(LabelSelector { match_labels: Some(selected), ..LabelSelector::default() }),
        policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
        ingress,
        egress: Some(egress),
    }
}

fn to_anywhere(ports: &[(&str, i32)]) -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule { ports: Some(ports.iter().map(port).collect()), to: None }
}

fn port((protocol, number): &(&str, i32)) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some((*protocol).to_owned()),
        port: Some(IntOrString::Int(*number)),
        end_port: None,
    }
}
