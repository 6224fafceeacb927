//! The network of pods: a bridge on the machine, and for every pod an address and a pair of interfaces.
//!
//! ```text
//!   pod ── eth0 ═ veth ═ bridge ── routes of the machine
//!                          │
//!                          ├── cluster IPs: local addresses of the machine
//!                          └── name server of the cluster
//! ```
//!
//! Each data directory has a bridge of its own with a subnet that was free, so that several platforms run on one
//! machine. The kernel knows which pod has which address (the alias of its interface), so a restarted kubelet finds
//! all of them again.

mod addresses;
mod bridge;
mod cluster_dns;
mod dns;
mod error;
mod host;
mod netlink;
mod outside;
mod resolv_conf;
pub mod rootless;
mod service_range;
mod services;
mod sockets;
mod watch;

pub use addresses::{Addresses, NoAddressLeft, Subnet};
pub use bridge::Bridge;
pub use error::NetworkError;
pub use sockets::HostSockets;

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use parking_lot::{Mutex, RwLock};
use quintet_controller::tasks::Tasks;
use tokio::sync::oneshot;

use crate::pod::names::Resolver;
use dns::{NameServer, Zone};
use host::Changes;
use rootless::{NameFiles, Placement};
use service_range::ServiceRange;
use services::{HostPorts, NodeAddresses, ServiceProxy};
use watch::Watches;

/// How long a stop waits for the parts of the network.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// What ordinary users cannot have, in sentences for them.
const PRIVATE_LIMITATIONS: [&str; 2] = [
    "pods reach other machines by TCP only, and their names by the cluster's name server",
    "this machine reaches pods by node ports and port-forward, not by cluster IPs or the addresses of pods",
];

/// How the network is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the platform keeps its data; each has a network of its own.
    pub data_directory: PathBuf,
    /// The name of the node.
    pub node: String,
    /// The `resolv.conf` that says who answers questions about other names than those of the cluster, if it is not
    /// that of the machine.
    pub resolv_conf: Option<PathBuf>,
    /// The address of this machine where node ports are served, besides the bridge: loopback by default, so that
    /// only this machine reaches them.
    pub host_address: IpAddr,
    /// Where the platform runs, as [`rootless::enter`] says.
    pub placement: Placement,
}

impl Settings {
    /// The network of a data directory, and of the node that runs there.
    pub fn new(data_directory: &Path, node: &str) -> Self {
        Self {
            data_directory: data_directory.to_owned(),
            node: node.to_owned(),
            resolv_conf: None,
            host_address: Ipv4Addr::LOCALHOST.into(),
            placement: Placement::default(),
        }
    }
}

/// The running network of the node.
#[derive(Clone, Debug)]
pub struct Network(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fabric: Fabric,
    services: ServiceRange,
    names: NameServer,
    host_ports: tokio::sync::Mutex<HostPorts>,
    machine: HostSockets,
    is_private: bool,
    limitations: Vec<String>,
    tasks: Tasks,
}

/// How pods are connected.
#[derive(Debug)]
enum Fabric {
    /// By a bridge; every pod has an address of its own.
    Bridge(Bridge, Mutex<Addresses>),
    /// They share the network of the machine, and this address of it.
    Host(Ipv4Addr),
}

impl Fabric {
    /// The address of the node.
    fn node_address(&self) -> Ipv4Addr {
        match self {
            Self::Bridge(bridge, _) => bridge.subnet().gateway(),
            Self::Host(address) => *address,
        }
    }

    fn bridge(&self) -> Option<&Bridge> {
        match self {
            Self::Bridge(bridge, _) => Some(bridge),
            Self::Host(_) => None,
        }
    }
}

impl Network {
    /// Sets up the network, or takes over that of an earlier run with the pods that are still connected. Returns when
    /// all Services that exist are served.
    pub async fn start(client: kube::Client, settings: Settings) -> Result<Self, NetworkError> {
        host::raise_file_limit();
        let tasks = Tasks::new();
        let stop_on_error = tasks.stop_token().drop_guard();
        let mut services = ServiceRange::read(&client).await?;
        let mut limitations = Vec::new();
        let placement = &settings.placement;
        let name_server = services.served_at(services.name_server());
        let fabric = match placement {
            Placement::Machine { .. } => {
                let fabric = open_bridge(&settings, services, false).await?;
                if let Some(bridge) = fabric.bridge() {
                    limitations.extend(limitation(outside::masquerade(bridge, name_server).await));
                }
                fabric
            }
            Placement::Private(_) => {
                let fabric = open_bridge(&settings, services, true).await?;
                limitations.extend(PRIVATE_LIMITATIONS.map(str::to_owned));
                if let Some(bridge) = fabric.bridge() {
                    let machine = placement.sockets();
                    let reachable = (services.served(), name_server);
                    let redirected = outside::redirect(bridge, reachable, machine, &tasks).await;
                    limitations.extend(limitation(redirected));
                }
                fabric
            }
            Placement::HostNetwork { why } => {
                services = services.on_loopback()?;
                limitations.push(format!(
                    "pods share the network of this machine, and only one of them can listen at a port: {why}"
                ));
                limitations.push(format!(
                    "Services are served at {}, and below 1024 only if this machine allows it",
                    services.served()
                ));
                Fabric::Host(host::primary_address())
            }
        };
        let machine = placement.sockets();
        let gateway = fabric.node_address();
        let name_server = services.served_at(services.name_server());
        cluster_dns::publish(&client, services.name_server(), gateway).await?;

        let ranges = fabric.bridge().map(Bridge::subnet).into_iter().chain([services.served()]).collect();
        let zone = Arc::new(RwLock::new(Zone::new(ranges)));
        let own = vec![name_server.into(), gateway.into()];
        let of_machine =
            || placement.names().map_or_else(|| "/etc/resolv.conf".into(), NameFiles::of_machine);
        let resolv_conf = settings.resolv_conf.clone().unwrap_or_else(of_machine);
        let names =
            NameServer::new(Arc::clone(&zone), &resolv_conf, own, machine.clone(), tasks.stop_token());
        match (cluster_dns::serve(&names, name_server, fabric.bridge()), &fabric) {
            (Ok(()), _) => {}
            (Err(error), Fabric::Host(_)) => {
                limitations.push(format!("pods cannot resolve names of the cluster: {error}"));
            }
            (Err(error), Fabric::Bridge(..)) => return Err(error),
        }
        if let Some(names) = placement.names() {
            // Not that of the Service: on the machine itself, the platform that was started first has it.
            names.resolve_by(gateway)?;
        }
        let watches = Watches::begin(client, &tasks)
            .map_err(|error| NetworkError::because("watch Services and their endpoints", error))?;
        let node = NodeAddresses {
            bridge: fabric.bridge().map(|bridge| bridge.name().to_owned()),
            gateway,
            host: settings.host_address,
            name: settings.node,
        };
        let proxy = ServiceProxy::new(node.clone(), machine.clone(), tasks.stop_token());
        let host_ports = ServiceProxy::new(node.clone(), machine.clone(), tasks.stop_token());
        let host_ports = tokio::sync::Mutex::new(HostPorts::new(node, host_ports));
        let (sender, ready) = oneshot::channel();
        tasks.spawn("service proxy", watches.follow(services, zone, proxy, tasks.clone(), sender));
        let (of_names, stopping) = (names.clone(), tasks.stop_token());
        tasks.spawn("name server", async move {
            stopping.cancelled().await;
            of_names.ended().await;
        });
        ready.await.map_err(|_| NetworkError::because("serve Services", "it was stopped"))?;
        stop_on_error.disarm();
        let is_private = matches!(settings.placement, Placement::Private(_));
        let inner = Inner { fabric, services, names, host_ports, machine, is_private, limitations, tasks };
        Ok(Self(Arc::new(inner)))
    }

    /// What this machine does not allow, in sentences for the user.
    pub fn limitations(&self) -> &[String] {
        &self.0.limitations
    }

    /// The address of the node, which pods reach it by.
    pub fn node_address(&self) -> Ipv4Addr {
        self.0.fabric.node_address()
    }

    /// Whether pods have no network of their own: their shims have to stay in that of the machine.
    pub fn is_shared(&self) -> bool {
        self.bridge().is_none()
    }

    /// The bridge that pods are connected with; `None` if they share the network of the machine.
    pub fn bridge(&self) -> Option<&Bridge> {
        self.0.fabric.bridge()
    }

    /// The addresses of pods; around that of the machine if they share its network.
    pub fn pod_subnet(&self) -> Subnet {
        match &self.0.fabric {
            Fabric::Bridge(bridge, _) => bridge.subnet(),
            Fabric::Host(address) => Subnet::around(*address),
        }
    }

    /// The name server of the cluster, as pods reach it.
    pub fn cluster_dns(&self) -> Ipv4Addr {
        self.service_address(self.0.services.name_server())
    }

    /// Where a cluster IP is served: at itself, or on the loopback interface if pods share the network of the machine.
    pub fn service_address(&self, cluster_ip: Ipv4Addr) -> Ipv4Addr {
        self.0.services.served_at(cluster_ip)
    }

    /// The addresses that a name of the cluster has, for programs of this machine whose resolver does not know them;
    /// `None` for other names.
    pub async fn lookup(&self, name: &str) -> Option<Vec<Ipv4Addr>> {
        self.0.names.lookup(name).await
    }

    /// Lets this machine reach a server of the platform at its own address, such as the API. Only a private network of an
    /// ordinary user needs it.
    pub fn publish(&self, address: SocketAddrV4) -> Result<(), NetworkError> {
        if !self.0.is_private {
            return Ok(());
        }
        ServiceProxy::publish(address, &self.0.machine, &self.0.tasks).map_err(|error| {
            let step = format!("listen at {address} on this machine");
            NetworkError::because(
                step,
                format!("{error}; stop the program that uses the port, or choose another"),
            )
        })
    }

    /// `/etc/resolv.conf` of a pod; `node` is that of the machine.
    pub fn resolv_conf(&self, pod: &core::Pod, node: &Resolver) -> String {
        resolv_conf::of_pod(pod, node, self.cluster_dns())
    }

    /// Gives a pod an address, and connects the network namespace of its shim. A pod that has one keeps it.
    pub async fn attach(&self, shim: u32, pod: &str) -> Result<Ipv4Addr, NetworkError> {
        let Fabric::Bridge(bridge, addresses) = &self.0.fabric else { return Ok(self.node_address()) };
        let address = addresses.lock().assign(pod);
        let address = address.map_err(|error| NetworkError::because("give a pod an address", error))?;
        if let Err(error) = bridge.connect(shim, pod, address).await {
            addresses.lock().release(pod);
            return Err(error);
        }
        Ok(address)
    }

    /// Lets the host ports of a pod lead to it.
    pub async fn open_host_ports(
        &self,
        pod: &core::Pod,
        uid: &str,
        target: Ipv4Addr,
    ) -> Result<(), NetworkError> {
        let ports = services::host_ports(pod);
        if ports.is_empty() {
            return Ok(());
        }
        let opened = self.0.host_ports.lock().await.open(uid, target, &ports).await;
        opened.map_err(|why| NetworkError::because("open the ports of the pod", why))
    }

    /// The address of a pod that is connected, such as one of an earlier kubelet.
    pub fn adopt(&self, pod: &str) -> Option<Ipv4Addr> {
        match &self.0.fabric {
            Fabric::Bridge(_, addresses) => addresses.lock().of(pod),
            Fabric::Host(address) => Some(*address),
        }
    }

    /// Disconnects a pod and frees its address. A pod that is not connected is fine.
    pub async fn detach(&self, pod: &str) -> Result<(), NetworkError> {
        self.0.host_ports.lock().await.close(pod).await;
        let Fabric::Bridge(bridge, addresses) = &self.0.fabric else { return Ok(()) };
        let Some(address) = self.adopt(pod) else { return Ok(()) };
        bridge.disconnect(address).await?;
        addresses.lock().release(pod);
        Ok(())
    }

    /// Stops serving. Interfaces and addresses stay for pods that run on and for the next start.
    pub async fn stop(&self) {
        let late = self.0.tasks.shut_down(STOP_TIMEOUT).await;
        self.0.host_ports.lock().await.ended().await;
        if !late.is_empty() {
            tracing::warn!("the network stopped without waiting for: {}", late.join(", "));
        }
    }

    /// Removes interfaces, routes and rules of a data directory whose platform does not run.
    pub async fn clear(data_directory: &Path) -> Result<(), NetworkError> {
        host::clear(data_directory).await
    }
}

/// Opens the bridge of a data directory, with the pods that are still connected.
async fn open_bridge(
    settings: &Settings,
    services: ServiceRange,
    is_private: bool,
) -> Result<Fabric, NetworkError> {
    let directory = &settings.data_directory;
    let services = services.served();
    let changes =
        Changes { bridge: host::bridge_name(directory), services: services.to_string(), is_private };
    changes.write(directory)?;
    let bridge = host::open_bridge(&changes, services).await?;
    let mut addresses = Addresses::new(bridge.subnet());
    for (pod, address) in bridge.pods().await? {
        addresses.keep(&pod, address);
    }
    Ok(Fabric::Bridge(bridge, Mutex::new(addresses)))
}

fn limitation(outside: Result<(), NetworkError>) -> Option<String> {
    outside.err().map(|error| format!("pods cannot reach other machines: {error}"))
}
