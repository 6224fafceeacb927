//! Interfaces: the bridge of the node and the pair that connects a pod with it.

use std::net::Ipv4Addr;

use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::netlink::{self, find, is_missing, with_netlink};
use super::{NetworkError, Subnet};

/// The name of the interface that a pod sees.
const POD_INTERFACE: &str = "eth0";

/// The bridge that all pods of the node are connected with.
#[derive(Clone, Debug)]
pub struct Bridge {
    name: String,
    index: u32,
    subnet: Subnet,
}

impl Bridge {
    /// Makes the bridge, or takes the one of an earlier run. `name` has at most 15 characters.
    pub async fn open(name: &str, subnet: Subnet) -> Result<Self, NetworkError> {
        let owned = name.to_owned();
        let index = with_netlink(None, async move |links| open(&links, &owned, subnet).await).await?;
        Ok(Self { name: name.to_owned(), index, subnet })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of its pods.
    pub fn subnet(&self) -> Subnet {
        self.subnet
    }

    /// Connects the network namespace of a process with the bridge, under an address. The kernel remembers whose
    /// address it is, see [`Bridge::pods`].
    pub async fn connect(&self, pid: u32, pod: &str, address: Ipv4Addr) -> Result<(), NetworkError> {
        let (controller, gateway, prefix) = (self.index, self.subnet.gateway(), self.subnet.prefix);
        let pair = Pair::of(address, pod);
        let inside = pair.inside.clone();
        with_netlink(None, async move |links| add_pair(&links, &pair, controller, pid).await).await?;
        with_netlink(Some(pid), async move |links| configure(&links, &inside, address, prefix, gateway).await)
            .await
    }

    /// Removes the interface of an address. The kernel does the same when the namespace of the pod is gone.
    pub async fn disconnect(&self, address: Ipv4Addr) -> Result<(), NetworkError> {
        let Pair { outside, .. } = Pair::of(address, "");
        with_netlink(None, async move |links| match find(&links, &outside).await {
            Ok(index) => delete(&links, index, &outside).await,
            Err(_) => Ok(()),
        })
        .await
    }

    /// The pods that are connected, and their addresses.
    pub async fn pods(&self) -> Result<Vec<(String, Ipv4Addr)>, NetworkError> {
        let links = with_netlink(None, async |handle| netlink::links(&handle).await).await?;
        let of_pods = links.into_iter().filter(|link| link.controller == Some(self.index));
        Ok(of_pods.filter_map(|link| Some((link.alias?, Pair::address(&link.name)?))).collect())
    }

    /// Lets everything that has no other way leave by the bridge.
    pub(super) async fn route_everything(&self) -> Result<(), NetworkError> {
        let (index, source) = (self.index, self.subnet.gateway());
        let step = format!("make {} the default route", self.name);
        with_netlink(None, async move |links| {
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .scope(RouteScope::Link)
                .output_interface(index)
                .pref_source(source)
                .build();
            links.route().add(route).replace().execute().await.map_err(NetworkError::new(step))
        })
        .await
    }

    /// Removes a bridge by its name, and the interfaces of pods that are still connected. One that does not exist is
    /// fine.
    pub(super) async fn remove_named(name: &str) -> Result<(), NetworkError> {
        let name = name.to_owned();
        with_netlink(None, async move |handle| {
            let Ok(index) = find(&handle, &name).await else { return Ok(()) };
            remove(&handle, index, &name).await
        })
        .await
    }

    /// Removes the bridge, and the interfaces of pods that are still connected.
    pub async fn remove(&self) -> Result<(), NetworkError> {
        let (index, name) = (self.index, self.name.clone());
        with_netlink(None, async move |handle| remove(&handle, index, &name).await).await
    }
}

async fn remove(handle: &Handle, index: u32, name: &str) -> Result<(), NetworkError> {
    for link in netlink::links(handle).await? {
        if link.controller == Some(index) {
            delete(handle, link.index, &link.name).await?;
        }
    }
    delete(handle, index, name).await
}

/// The names of two interfaces: one on the bridge, one that becomes the pod's.
struct Pair {
    outside: String,
    inside: String,
    pod: String,
}

impl Pair {
    fn of(address: Ipv4Addr, pod: &str) -> Self {
        let bits = address.to_bits();
        Self { outside: format!("q{bits:x}"), inside: format!("p{bits:x}"), pod: pod.to_owned() }
    }

    fn address(outside: &str) -> Option<Ipv4Addr> {
        u32::from_str_radix(outside.strip_prefix('q')?, 16).ok().map(Ipv4Addr::from_bits)
    }
}

async fn open(links: &Handle, name: &str, subnet: Subnet) -> Result<u32, NetworkError> {
    let step = || format!("make the bridge {name}");
    // In a network namespace that is new, it is not.
    let loopback = LinkUnspec::new_with_index(find(links, "lo").await?).up().build();
    links.link().set(loopback).execute().await.map_err(NetworkError::new(step()))?;
    if find(links, name).await.is_err() {
        let request = links.link().add(LinkBridge::new(name).up().build());
        request.execute().await.map_err(NetworkError::new(step()))?;
    }
    let index = find(links, name).await?;
    let request = links.address().add(index, subnet.gateway().into(), subnet.prefix).replace();
    request
        .execute()
        .await
        .map_err(NetworkError::new(format!("give {name} the address {}", subnet.gateway())))?;
    let up = LinkUnspec::new_with_index(index).up().build();
    links.link().set(up).execute().await.map_err(NetworkError::new(step()))?;
    Ok(index)
}

async fn delete(links: &Handle, index: u32, name: &str) -> Result<(), NetworkError> {
    match links.link().del(index).execute().await {
        // A pod that ended in the meantime took its interface along.
        Err(error) if is_missing(&error) => Ok(()),
        outcome => outcome.map_err(NetworkError::new(format!("remove the interface {name}"))),
    }
}

async fn add_pair(links: &Handle, pair: &Pair, controller: u32, pid: u32) -> Result<(), NetworkError> {
    let Pair { outside, inside, pod } = pair;
    let step = || format!("connect a pod by {outside}");
    if let Ok(old) = find(links, outside).await {
        links.link().del(old).execute().await.map_err(NetworkError::new(step()))?;
    }
    let veth = LinkVeth::new(outside, inside).build();
    links.link().add(veth).execute().await.map_err(NetworkError::new(step()))?;
    let peer = LinkUnspec::new_with_index(find(links, inside).await?).setns_by_pid(pid).build();
    links.link().set(peer).execute().await.map_err(NetworkError::new(step()))?;
    let ours = LinkUnspec::new_with_index(find(links, outside).await?);
    let ours = ours.alias(pod).controller(controller).up().build();
    links.link().set(ours).execute().await.map_err(NetworkError::new(step()))
}

/// In the namespace of the pod: loopback, its address, and everything else by way of the node.
async fn configure(
    links: &Handle,
    name: &str,
    address: Ipv4Addr,
    prefix: u8,
    gateway: Ipv4Addr,
) -> Result<(), NetworkError> {
    let step = || format!("give a pod the address {address}");
    let loopback = LinkUnspec::new_with_index(find(links, "lo").await?).up().build();
    links.link().set(loopback).execute().await.map_err(NetworkError::new(step()))?;
    let index = find(links, name).await?;
    let renamed = LinkUnspec::new_with_index(index).name(POD_INTERFACE).build();
    links.link().set(renamed).execute().await.map_err(NetworkError::new(step()))?;
    links.address().add(index, address.into(), prefix).execute().await.map_err(NetworkError::new(step()))?;
    let up = LinkUnspec::new_with_index(index).up().build();
    links.link().set(up).execute().await.map_err(NetworkError::new(step()))?;
    let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(index).build();
    links.route().add(route).execute().await.map_err(NetworkError::new(step()))
}
