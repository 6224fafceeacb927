//! Host ports: ports of the node that lead to one pod.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use k8s_openapi::api::core::v1 as core;
use quintet_controller::ObjectKey;

use super::{Clients, Frontend, NodeAddresses, Protocol, ServiceProxy, Unavailable};

/// A port of the node that leads to a port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// The only address it is served at, if the pod names one.
    address: Option<IpAddr>,
    protocol: Protocol,
    number: u16,
    container_port: u16,
}

/// The host ports that the containers of a pod ask for. Protocols that are not served are left out.
pub(crate) fn host_ports(pod: &core::Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    containers.flat_map(|container| container.ports.iter().flatten()).filter_map(host_port).collect()
}

fn host_port(port: &core::ContainerPort) -> Option<HostPort> {
    let address = port.host_ip.as_ref().and_then(|address| address.parse::<IpAddr>().ok());
    Some(HostPort {
        address: address.filter(|address| !address.is_unspecified()),
        protocol: Protocol::parse(port.protocol.as_deref())?,
        number: u16::try_from(port.host_port?).ok().filter(|number| *number > 0)?,
        container_port: u16::try_from(port.container_port).ok()?,
    })
}

/// Serves the host ports of all pods.
#[derive(Debug)]
pub(crate) struct HostPorts {
    node: NodeAddresses,
    proxy: ServiceProxy,
}

impl HostPorts {
    pub(crate) fn new(node: NodeAddresses, proxy: ServiceProxy) -> Self {
        Self { node, proxy }
    }

    /// Opens the host ports of a pod, all or none.
    pub(crate) async fn open(
        &mut self,
        pod: &str,
        target: Ipv4Addr,
        ports: &[HostPort],
    ) -> Result<(), String> {
        let key = ObjectKey::cluster(pod);
        let unavailable = self.proxy.serve(&key, frontends(&self.node, target, ports), None).await;
        let Some(Unavailable { frontend, why }) = unavailable.into_iter().next() else { return Ok(()) };
        self.close(pod).await;
        let (address, protocol) = (frontend.address, frontend.protocol.label().to_uppercase());
        Err(format!(
            "cannot listen at {address} ({protocol}) for a hostPort: {why}; stop the program that uses the port, or \
             set another hostPort"
        ))
    }

    /// Closes the host ports of a pod, if it has some.
    pub(crate) async fn close(&mut self, pod: &str) {
        self.proxy.serve(&ObjectKey::cluster(pod), BTreeMap::new(), None).await;
    }

    /// Waits until all connections have ended, after the proxy was stopped.
    pub(crate) async fn ended(&self) {
        self.proxy.ended().await;
    }
}

/// Where host ports are served: at the addresses of node ports, unless the pod names one.
fn frontends(
    node: &NodeAddresses,
    target: Ipv4Addr,
    ports: &[HostPort],
) -> BTreeMap<Frontend, Vec<SocketAddrV4>> {
    let mut frontends = BTreeMap::new();
    for port in ports {
        let mut add = |clients, address: IpAddr| {
            let frontend =
                Frontend { clients, protocol: port.protocol, address: SocketAddr::new(address, port.number) };
            frontends.insert(frontend, vec![SocketAddrV4::new(target, port.container_port)]);
        };
        if let Some(address) = port.address {
            add(Clients::Host, address);
            continue;
        }
        add(Clients::Host, node.host);
        if !node.host.is_unspecified() && node.host != IpAddr::V4(node.gateway) {
            add(Clients::Node, node.gateway.into());
        }
    }
    // A pod that shares the network of the machine listens there itself.
    frontends.retain(|frontend, targets| {
        targets.iter().all(|target| target.port() != frontend.address.port() || *target.ip() != node.gateway)
    });
    frontends
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(host: &str) -> NodeAddresses {
        NodeAddresses {
            bridge: Some("qnt-1".into()),
            gateway: Ipv4Addr::new(10, 244, 0, 1),
            host: host.parse().unwrap(),
            name: "node".into(),
        }
    }

    fn ports(ports: &serde_json::Value) -> Vec<HostPort> {
        let pod = json!({ "spec": { "containers": [{ "name": "c", "ports": ports }] } });
        host_ports(&serde_json::from_value(pod).unwrap())
    }

    fn served(host: &str, target: &str, wanted: &serde_json::Value) -> Vec<String> {
        let frontends = frontends(&node(host), target.parse().unwrap(), &ports(wanted));
        frontends
            .iter()
            .map(|(frontend, targets)| format!("{} -> {}", frontend.address, targets[0]))
            .collect()
    }

    #[test]
    fn host_ports_are_served_where_node_ports_are() {
        let wanted = json!([{ "containerPort": 80, "hostPort": 8080 }, { "containerPort": 81 }]);
        assert_eq!(
            served("127.0.0.1", "10.244.0.5", &wanted),
            ["10.244.0.1:8080 -> 10.244.0.5:80", "127.0.0.1:8080 -> 10.244.0.5:80"]
        );
        assert_eq!(served("0.0.0.0", "10.244.0.5", &wanted), ["0.0.0.0:8080 -> 10.244.0.5:80"]);
    }

    #[test]
    fn a_host_ip_is_the_only_address() {
        let wanted = json!([{ "containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.2" }]);
        assert_eq!(served("0.0.0.0", "10.244.0.5", &wanted), ["127.0.0.2:8080 -> 10.244.0.5:80"]);
    }

    #[test]
    fn a_pod_in_the_network_of_the_machine_listens_itself() {
        let wanted = json!([
            { "containerPort": 80, "hostPort": 80 }, { "containerPort": 81, "hostPort": 8081, "protocol": "SCTP" },
        ]);
        assert_eq!(served("10.244.0.1", "10.244.0.1", &wanted), [""; 0]);
    }
}
