//! What the network needs to know of a Service and its EndpointSlices.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::super::service_range::ServiceRange;

/// The label that names the Service of a slice.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// How long a client stays with an endpoint if the Service does not say.
const AFFINITY: Duration = Duration::from_hours(3);

/// A transport protocol that Services are served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// `None` for protocols that are not served.
    pub(crate) fn parse(text: Option<&str>) -> Option<Self> {
        match text.unwrap_or("TCP") {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            _ => None,
        }
    }

    /// As in `_http._tcp`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: Option<u16>,
}

/// A port of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TargetPort {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
}

/// An address that a Service leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub address: Ipv4Addr,
    pub hostname: Option<String>,
    pub node: Option<String>,
    pub is_ready: bool,
    /// It would be ready if it were not being deleted.
    pub is_serving: bool,
    pub ports: Vec<TargetPort>,
}

/// How a Service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By an address of its own.
    ClusterIp(Ipv4Addr),
    /// By the addresses of its endpoints.
    Headless,
    /// It is another name for a host.
    ExternalName(String),
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceView {
    pub reach: Reach,
    pub ports: Vec<ServicePort>,
    pub targets: Vec<Target>,
    /// How long a client stays with the endpoint it was given.
    pub affinity: Option<Duration>,
    /// Cluster IPs lead to endpoints on the node of the client only.
    pub is_internal_local: bool,
    /// Node ports lead to endpoints on the node only.
    pub is_external_local: bool,
}

impl ServiceView {
    /// `None` for a Service that has neither a name nor an address to serve, such as one with an IPv6 address only.
    pub(crate) fn new<'a>(
        service: &core::Service,
        slices: impl IntoIterator<Item = &'a EndpointSlice>,
    ) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let reach = match (spec.type_.as_deref(), spec.cluster_ip.as_deref()) {
            (Some("ExternalName"), _) => Reach::ExternalName(spec.external_name.clone()?),
            (_, Some("None")) => Reach::Headless,
            (_, address) => Reach::ClusterIp(address?.parse().ok()?),
        };
        let publish_not_ready = spec.publish_not_ready_addresses == Some(true);
        let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
            let seconds =
                config.and_then(|config| config.timeout_seconds).and_then(|seconds| seconds.try_into().ok());
            seconds.map_or(AFFINITY, Duration::from_secs)
        });
        Some(Self {
            reach,
            ports: spec.ports.iter().flatten().filter_map(port).collect(),
            targets: slices.into_iter().flat_map(|slice| targets(slice, publish_not_ready)).collect(),
            affinity,
            is_internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            is_external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        })
    }

    /// The same Service where it is served.
    pub(crate) fn served_in(mut self, range: ServiceRange) -> Self {
        if let Reach::ClusterIp(address) = &mut self.reach {
            *address = range.served_at(*address);
        }
        self
    }

    /// The same Service without endpoints on the loopback interface or without a host of their own: a user who may write
    /// endpoints must not reach servers that listen for programs of this machine only.
    pub(crate) fn without_local_targets(mut self) -> Self {
        self.targets.retain(|target| {
            let address = target.address;
            let is_local = address.is_loopback() || address.is_link_local() || address.is_unspecified();
            !is_local && !address.is_multicast() && !address.is_broadcast()
        });
        self
    }

    /// The addresses that connections to a port are spread over: those that are ready, else those that still serve
    /// while they are being deleted. With `node`, only endpoints on that node.
    pub(crate) fn backends(&self, port: &ServicePort, node: Option<&str>) -> Vec<std::net::SocketAddrV4> {
        let on_node = |target: &&Target| node.is_none_or(|node| target.node.as_deref() == Some(node));
        let of = |is_wanted: fn(&Target) -> bool| -> BTreeSet<std::net::SocketAddrV4> {
            let wanted = self.targets.iter().filter(on_node).filter(|target| is_wanted(target));
            wanted.filter_map(|target| target.socket(port)).collect()
        };
        let ready = of(|target| target.is_ready);
        let chosen = if ready.is_empty() { of(|target| target.is_serving) } else { ready };
        chosen.into_iter().collect()
    }
}

impl Target {
    fn socket(&self, port: &ServicePort) -> Option<std::net::SocketAddrV4> {
        let is_same = |own: &&TargetPort| own.name == port.name && own.protocol == port.protocol;
        let own = self.ports.iter().find(is_same)?;
        Some(std::net::SocketAddrV4::new(self.address, own.port))
    }

    /// The label of its own name within the Service.
    pub(crate) fn label(&self) -> String {
        self.hostname.clone().unwrap_or_else(|| self.address.to_string().replace('.', "-"))
    }
}

fn port(port: &core::ServicePort) -> Option<ServicePort> {
    Some(ServicePort {
        name: port.name.clone().unwrap_or_default(),
        protocol: Protocol::parse(port.protocol.as_deref())?,
        port: u16::try_from(port.port).ok()?,
        node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
    })
}

fn targets(slice: &EndpointSlice, publish_not_ready: bool) -> Vec<Target> {
    let ports: Vec<TargetPort> = slice.ports.iter().flatten().filter_map(target_port).collect();
    let endpoints = slice.endpoints.iter().flatten();
    endpoints.filter_map(|endpoint| target(endpoint, &ports, publish_not_ready)).collect()
}

fn target_port(port: &k8s_openapi::api::discovery::v1::EndpointPort) -> Option<TargetPort> {
    Some(TargetPort {
        name: port.name.clone().unwrap_or_default(),
        protocol: Protocol::parse(port.protocol.as_deref())?,
        port: port.port.and_then(|port| u16::try_from(port).ok())?,
    })
}

fn target(endpoint: &Endpoint, ports: &[TargetPort], publish_not_ready: bool) -> Option<Target> {
    let conditions = endpoint.conditions.as_ref();
    // Absent means ready; consumers read `serving` as `ready` where it is absent.
    let is_ready = conditions.and_then(|conditions| conditions.ready) != Some(false);
    let is_serving = conditions.and_then(|conditions| conditions.serving).unwrap_or(is_ready);
    Some(Target {
        // All addresses of an endpoint are the same endpoint: the first is used.
        address: endpoint.addresses.first()?.parse().ok()?,
        hostname: endpoint.hostname.clone().filter(|name| !name.is_empty()),
        node: endpoint.node_name.clone(),
        is_ready: is_ready || publish_not_ready,
        is_serving,
        ports: ports.to_vec(),
    })
}
