//! Interfaces: the bridge of the node and the pair that connects a pod with it.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;

use futures::TryStreamExt as _;
use nix::sched::{CloneFlags, setns};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::Subnet;

/// The name of the interface that a pod sees.
const POD_INTERFACE: &str = "eth0";

/// Why an interface cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {why}")]
pub struct NetworkError {
    step: String,
    why: String,
}

impl NetworkError {
    fn new(step: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let step = step.into();
        move |why| Self { step, why: why.to_string() }
    }
}

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

    /// Connects the network namespace of a process with the bridge, under an address.
    pub async fn connect(&self, pid: u32, address: Ipv4Addr) -> Result<(), NetworkError> {
        let (controller, gateway, prefix) = (self.index, self.subnet.gateway(), self.subnet.prefix);
        // The kernel removes both ends when the namespace is gone.
        let (host, pod) = (format!("q{:x}", address.to_bits()), format!("p{:x}", address.to_bits()));
        let peer = pod.clone();
        with_netlink(None, async move |links| add_pair(&links, &host, &peer, controller, pid).await).await?;
        with_netlink(Some(pid), async move |links| configure(&links, &pod, address, prefix, gateway).await)
            .await
    }

    /// Removes the bridge.
    pub async fn remove(&self) -> Result<(), NetworkError> {
        let index = self.index;
        let step = format!("remove the interface {}", self.name);
        with_netlink(None, async move |links| {
            links.link().del(index).execute().await.map_err(NetworkError::new(step))
        })
        .await
    }
}

async fn open(links: &Handle, name: &str, subnet: Subnet) -> Result<u32, NetworkError> {
    let step = || format!("make the bridge {name}");
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

async fn add_pair(
    links: &Handle,
    host: &str,
    pod: &str,
    controller: u32,
    pid: u32,
) -> Result<(), NetworkError> {
    let step = || format!("connect a pod by {host}");
    if let Ok(old) = find(links, host).await {
        links.link().del(old).execute().await.map_err(NetworkError::new(step()))?;
    }
    links.link().add(LinkVeth::new(host, pod).build()).execute().await.map_err(NetworkError::new(step()))?;
    let peer = LinkUnspec::new_with_index(find(links, pod).await?).setns_by_pid(pid).build();
    links.link().set(peer).execute().await.map_err(NetworkError::new(step()))?;
    let ours = LinkUnspec::new_with_index(find(links, host).await?).controller(controller).up().build();
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

async fn find(links: &Handle, name: &str) -> Result<u32, NetworkError> {
    let mut found = links.link().get().match_name(name.to_owned()).execute();
    let link = found.try_next().await.map_err(NetworkError::new(format!("find the interface {name}")))?;
    let missing =
        || NetworkError { step: format!("find the interface {name}"), why: "it does not exist".into() };
    link.map(|link| link.header.index).ok_or_else(missing)
}

/// Talks to the kernel about the interfaces of a network namespace: that of a process, or our own. It has a thread of
/// its own, because a thread is in one network namespace.
async fn with_netlink<T, Work>(namespace: Option<u32>, work: Work) -> Result<T, NetworkError>
where
    T: Send + 'static,
    Work: AsyncFnOnce(Handle) -> Result<T, NetworkError> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let failed = |why: io::Error| NetworkError {
        step: "talk to the kernel about interfaces".into(),
        why: why.to_string(),
    };
    let run = move || {
        if let Some(pid) = namespace {
            setns(File::open(format!("/proc/{pid}/ns/net"))?, CloneFlags::CLONE_NEWNET)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            tokio::select! {
                outcome = work(handle) => Ok(outcome),
                () = connection => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            }
        })
    };
    let thread = std::thread::Builder::new().name("netlink".into());
    // The receiver is dropped only if the caller was cancelled.
    thread.spawn(move || drop(sender.send(run()))).map_err(failed)?;
    match receiver.await {
        Ok(outcome) => outcome.map_err(failed)?,
        Err(_) => Err(failed(io::ErrorKind::BrokenPipe.into())),
    }
}
