//! The service proxy: listens at the cluster IPs and node ports of Services, and connects to their endpoints.
//!
//! It works in user space, so that it needs neither netfilter nor privileges beyond those that a network namespace
//! gives: all cluster IPs are local addresses of the node. A port without endpoints has no listener, so connections
//! to it are refused. Endpoints see the address of the node, not that of the client.
//!
//! Every cluster IP has two listeners, one for pods (on the bridge) and one for this machine (on `lo`), so that two
//! platforms can serve the same cluster IPs to their own pods; this machine reaches those of the first one.

mod backends;
mod host_ports;
mod tcp;
mod udp;
mod view;

#[cfg(test)]
mod tests;

pub(super) use host_ports::{HostPorts, host_ports};
pub(super) use view::{Protocol, Reach, SERVICE_NAME, ServicePort, ServiceView, Target};

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use quintet_controller::ObjectKey;
use quintet_controller::tasks::Tasks;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::sockets::{self, Device, HostSockets};
use backends::Backends;

/// Connections to all Services at a time; each takes two file descriptors.
const CONNECTIONS: usize = 8192;

/// Where clients of a frontend are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Clients {
    /// Pods, which come by the bridge.
    Pods,
    /// Programs of this machine, which use cluster IPs.
    Machine,
    /// Users of a node port at the address of the node.
    Node,
    /// Users of a node port at the address of the machine.
    Host,
}

/// An address that a Service is served at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Frontend {
    pub clients: Clients,
    pub protocol: Protocol,
    pub address: SocketAddr,
}

/// A frontend that cannot be served.
#[derive(Debug)]
pub(super) struct Unavailable {
    pub frontend: Frontend,
    pub why: io::Error,
}

/// Where a node serves Services.
#[derive(Clone, Debug)]
pub(super) struct NodeAddresses {
    /// The interface that pods come by; `None` if they share the network of the machine.
    pub bridge: Option<String>,
    /// The address of the node, on the bridge if there is one.
    pub gateway: Ipv4Addr,
    /// The address of this machine that node ports are served at.
    pub host: IpAddr,
    /// The name of the node.
    pub name: String,
}

impl NodeAddresses {
    /// The frontends of a Service, with the endpoints of each; those without endpoints are left out.
    pub(super) fn frontends(&self, service: &ServiceView) -> BTreeMap<Frontend, Vec<SocketAddrV4>> {
        let mut frontends = BTreeMap::new();
        let node = |is_local: bool| is_local.then_some(self.name.as_str());
        for port in &service.ports {
            let mut add = |clients, address: IpAddr, number: u16, backends: &Vec<SocketAddrV4>| {
                let address = SocketAddr::new(address, number);
                frontends.insert(Frontend { clients, protocol: port.protocol, address }, backends.clone());
            };
            if let Reach::ClusterIp(address) = &service.reach {
                let backends = service.backends(port, node(service.is_internal_local));
                add(Clients::Pods, (*address).into(), port.port, &backends);
                if self.bridge.is_some() {
                    add(Clients::Machine, (*address).into(), port.port, &backends);
                }
            }
            if let Some(number) = port.node_port {
                let backends = service.backends(port, node(service.is_external_local));
                add(Clients::Host, self.host, number, &backends);
                if !self.host.is_unspecified() && self.host != IpAddr::V4(self.gateway) {
                    add(Clients::Node, self.gateway.into(), number, &backends);
                }
            }
        }
        frontends.retain(|_, backends| !backends.is_empty());
        frontends
    }
}

/// What all connections share.
#[derive(Debug)]
struct Limits {
    connections: Arc<Semaphore>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Running {
    backends: Arc<Backends>,
    stop: CancellationToken,
    listener: JoinHandle<()>,
}

/// The listeners of all Services.
#[derive(Debug)]
pub(super) struct ServiceProxy {
    node: NodeAddresses,
    machine: HostSockets,
    limits: Arc<Limits>,
    services: BTreeMap<ObjectKey, BTreeMap<Frontend, Running>>,
}

impl ServiceProxy {
    /// Serves nothing yet; connections end at `stop`.
    pub(super) fn new(node: NodeAddresses, machine: HostSockets, stop: CancellationToken) -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        let limits = Arc::new(Limits { connections, tracker: TaskTracker::new(), stop });
        Self { node, machine, limits, services: BTreeMap::new() }
    }

    /// Lets the machine reach a port of the node's own network at the same address.
    pub(super) fn publish(address: SocketAddrV4, machine: &HostSockets, tasks: &Tasks) -> io::Result<()> {
        let listener = machine.listen(address.into())?;
        let backends = Arc::new(Backends::default());
        backends.set(vec![address], None);
        let limits = Arc::new(Limits {
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            tracker: TaskTracker::new(),
            stop: tasks.stop_token(),
        });
        let stop = tasks.stop_token();
        tasks.spawn(format!("port {}", address.port()), async move {
            tcp::serve(listener, backends, Arc::clone(&limits), stop).await;
            limits.tracker.close();
            limits.tracker.wait().await;
        });
        Ok(())
    }

    /// Serves a Service as it is now; connections that are open go on. Returns what cannot be served.
    pub(super) async fn update(
        &mut self,
        key: &ObjectKey,
        service: Option<&ServiceView>,
    ) -> Vec<Unavailable> {
        let wanted = service.map(|service| self.node.frontends(service)).unwrap_or_default();
        let affinity = service.and_then(|service| service.affinity);
        self.serve(key, wanted, affinity).await
    }

    /// Serves these frontends, and no others of the same key. Returns what cannot be served.
    async fn serve(
        &mut self,
        key: &ObjectKey,
        wanted: BTreeMap<Frontend, Vec<SocketAddrV4>>,
        affinity: Option<Duration>,
    ) -> Vec<Unavailable> {
        let mut running = self.services.remove(key).unwrap_or_default();
        let outdated: Vec<Frontend> =
            running.keys().filter(|frontend| !wanted.contains_key(frontend)).copied().collect();
        for frontend in outdated {
            if let Some(Running { stop, listener, .. }) = running.remove(&frontend) {
                stop.cancel();
                // Another Service may get the address next: it has to be free by then.
                let _ = listener.await;
            }
        }
        let mut unavailable = Vec::new();
        for (frontend, endpoints) in wanted {
            if let Some(running) = running.get(&frontend) {
                running.backends.set(endpoints, affinity);
                continue;
            }
            let backends = Arc::new(Backends::default());
            backends.set(endpoints, affinity);
            match self.open(frontend, backends) {
                Ok(opened) => drop(running.insert(frontend, opened)),
                Err(why) => unavailable.push(Unavailable { frontend, why }),
            }
        }
        if !running.is_empty() {
            self.services.insert(key.clone(), running);
        }
        unavailable
    }

    /// Waits until all connections have ended, after `stop`.
    pub(super) async fn ended(&self) {
        self.limits.tracker.close();
        self.limits.tracker.wait().await;
    }

    fn open(&self, frontend: Frontend, backends: Arc<Backends>) -> io::Result<Running> {
        let address = frontend.address;
        let device = match frontend.clients {
            Clients::Pods => self.node.bridge.as_deref().map_or(Device::Any, Device::Named),
            Clients::Machine => Device::Named("lo"),
            Clients::Node | Clients::Host => Device::Any,
        };
        let is_host = frontend.clients == Clients::Host;
        let (limits, stop) = (Arc::clone(&self.limits), self.limits.stop.child_token());
        let (shared, stopped) = (Arc::clone(&backends), stop.clone());
        let listener = match frontend.protocol {
            Protocol::Tcp => {
                let listener =
                    if is_host { self.machine.listen(address)? } else { sockets::listen(address, device)? };
                self.limits.tracker.spawn(tcp::serve(listener, shared, limits, stopped))
            }
            Protocol::Udp => {
                let socket =
                    if is_host { self.machine.receive(address)? } else { sockets::receive(address, device)? };
                self.limits.tracker.spawn(udp::serve(socket, shared, limits, stopped))
            }
        };
        Ok(Running { backends, stop, listener })
    }
}
