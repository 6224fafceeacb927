//! The addresses and ports that a Service leads to, pod by pod.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quintet_controller::cache::Entry;

use super::Observed;
use crate::pod::PodView;

/// A port of a Service as one pod serves it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) protocol: String,
    pub(super) number: i32,
    pub(super) app_protocol: Option<String>,
}

/// A pod that a Service leads to.
pub(super) struct Target<'a> {
    pub(super) pod: &'a Entry<PodView>,
    pub(super) ip: String,
    pub(super) ports: Vec<Port>,
    pub(super) serving: bool,
    pub(super) terminating: bool,
    pub(super) ready: bool,
}

/// Whether a Service leads to pods that are not ready.
pub(super) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// Whether a Service has no address of its own.
pub(super) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// Whether a Service has IPv6 addresses.
pub(super) fn is_ipv6(service: &Service) -> bool {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.as_ref());
    families.and_then(|families| families.first()).is_some_and(|family| family == "IPv6")
}

/// The pods that a Service leads to: those that have an address and have not ended.
pub(super) fn targets(observed: &Observed) -> Vec<Target<'_>> {
    let service = &observed.service.object;
    let publishes_not_ready = publishes_not_ready(service);
    let node_exists =
        |pod: &PodView| pod.spec.node_name.as_ref().is_some_and(|node| observed.nodes.contains_key(node));
    let pods = observed.pods.iter().filter(|pod| !pod.object.is_terminal());
    pods.filter(|pod| publishes_not_ready || node_exists(&pod.object))
        .filter_map(|pod| {
            let ip = address(&pod.object, is_ipv6(service))?;
            let (serving, terminating) = (pod.object.is_ready(), pod.object.is_deleting());
            let ready = publishes_not_ready || (serving && !terminating);
            Some(Target { ports: ports(service, &pod.object), pod, ip, serving, terminating, ready })
        })
        .collect()
}

fn address(pod: &PodView, wants_ipv6: bool) -> Option<String> {
    let all = pod.status.pod_ips.iter().map(|address| &address.ip).chain(&pod.status.pod_ip);
    all.filter(|ip| !ip.is_empty()).find(|ip| ip.contains(':') == wants_ipv6).cloned()
}

/// The ports of a Service on a pod. A named target port that the pod lacks is left out.
fn ports(service: &Service, pod: &PodView) -> Vec<Port> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let mut found: Vec<_> = ports
        .filter_map(|port| {
            Some(Port {
                name: port.name.clone().unwrap_or_default(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                number: target_port(port, pod)?,
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    found.sort();
    found
}

fn target_port(port: &ServicePort, pod: &PodView) -> Option<i32> {
    let name = match &port.target_port {
        None | Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    let mut ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    let of_port = |protocol: &str| if protocol.is_empty() { "TCP".to_owned() } else { protocol.to_owned() };
    ports.find(|one| one.name == *name && of_port(&one.protocol) == protocol).map(|one| one.number)
}
