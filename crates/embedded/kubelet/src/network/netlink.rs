//! Requests to the kernel about interfaces, addresses and routes.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;

use futures::TryStreamExt as _;
use nix::sched::{CloneFlags, setns};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::{NetworkError, Subnet};

/// The routing table of the machine's own addresses.
const LOCAL_TABLE: u32 = 255;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub index: u32,
    pub name: String,
    /// A text that an administrator gave it.
    pub alias: Option<String>,
    /// The bridge that it is part of.
    pub controller: Option<u32>,
}

/// All interfaces.
pub(super) async fn links(handle: &Handle) -> Result<Vec<Link>, NetworkError> {
    let found: Vec<LinkMessage> =
        handle.link().get().execute().try_collect().await.map_err(NetworkError::new("list interfaces"))?;
    Ok(found.iter().map(link).collect())
}

/// The interface of a name.
pub(super) async fn find(handle: &Handle, name: &str) -> Result<u32, NetworkError> {
    let step = || format!("find the interface {name}");
    let mut found = handle.link().get().match_name(name.to_owned()).execute();
    let link = found.try_next().await.map_err(NetworkError::new(step()))?;
    link.map(|link| link.header.index).ok_or_else(|| NetworkError::because(step(), "it does not exist"))
}

/// The IPv4 addresses of the interfaces, with their subnets.
pub(super) async fn addresses(handle: &Handle) -> Result<Vec<(u32, Ipv4Addr, u8)>, NetworkError> {
    let found: Vec<_> =
        handle.address().get().execute().try_collect().await.map_err(NetworkError::new("list addresses"))?;
    let address = |message: &rtnetlink::packet_route::address::AddressMessage| {
        let own = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(std::net::IpAddr::V4(address)) => Some(*address),
            _ => None,
        })?;
        Some((message.header.index, own, message.header.prefix_len))
    };
    Ok(found.iter().filter_map(address).collect())
}

/// The IPv4 ranges that this machine has routes to; the default route is none of them.
pub(super) async fn routes(handle: &Handle) -> Result<Vec<(Ipv4Addr, u8)>, NetworkError> {
    let mut request = RouteMessageBuilder::<Ipv4Addr>::new().build();
    request.header.address_family = AddressFamily::Inet;
    let found: Vec<_> = handle
        .route()
        .get(request)
        .execute()
        .try_collect()
        .await
        .map_err(NetworkError::new("list routes"))?;
    let range = |message: &rtnetlink::packet_route::route::RouteMessage| {
        message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                Some((*address, message.header.destination_prefix_length))
            }
            _ => None,
        })
    };
    Ok(found.iter().filter_map(range).filter(|(_, prefix)| *prefix > 0).collect())
}

/// The ranges that interfaces and routes of this machine use.
pub(super) async fn used_ranges(handle: &Handle) -> Result<Vec<(Ipv4Addr, u8)>, NetworkError> {
    let own = addresses(handle).await?.into_iter().map(|(_, address, prefix)| (address, prefix));
    Ok(own.chain(routes(handle).await?).collect())
}

/// Makes all addresses of a subnet local: a listener at one of them is reached, and the others refuse connections.
pub(super) async fn make_local(handle: &Handle, subnet: Subnet) -> Result<(), NetworkError> {
    let step = format!("make the addresses of Services, {subnet}, local");
    let route = local_route(subnet, find(handle, "lo").await?);
    handle.route().add(route).replace().execute().await.map_err(NetworkError::new(step))
}

/// Undoes [`make_local`]; a route that is gone is fine.
pub(super) async fn remove_local(handle: &Handle, subnet: Subnet) -> Result<(), NetworkError> {
    let route = local_route(subnet, find(handle, "lo").await?);
    let outcome = handle.route().del(route).execute().await;
    match outcome {
        Err(error) if is_missing(&error) => Ok(()),
        outcome => outcome.map_err(NetworkError::new(format!("remove the route to {subnet}"))),
    }
}

fn local_route(subnet: Subnet, loopback: u32) -> rtnetlink::packet_route::route::RouteMessage {
    use rtnetlink::packet_route::route::{RouteScope, RouteType};
    RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(subnet.network(), subnet.prefix)
        .output_interface(loopback)
        .table_id(LOCAL_TABLE)
        .scope(RouteScope::Host)
        .kind(RouteType::Local)
        .build()
}

/// Whether the kernel says that something does not exist.
pub(super) fn is_missing(error: &rtnetlink::Error) -> bool {
    let rtnetlink::Error::NetlinkError(message) = error else { return false };
    let code = message.raw_code().unsigned_abs();
    [nix::errno::Errno::ENODEV, nix::errno::Errno::ESRCH, nix::errno::Errno::ENOENT]
        .iter()
        .any(|missing| (*missing as i32).unsigned_abs() == code)
}

fn link(message: &LinkMessage) -> Link {
    let mut link = Link { index: message.header.index, name: String::new(), alias: None, controller: None };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            _ => {}
        }
    }
    link
}

/// Talks to the kernel about the interfaces of a network namespace: that of a process, or our own. It has a thread of
/// its own, because a thread is in one network namespace.
pub(super) async fn with_netlink<T, Work>(namespace: Option<u32>, work: Work) -> Result<T, NetworkError>
where
    T: Send + 'static,
    Work: AsyncFnOnce(Handle) -> Result<T, NetworkError> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let failed = |why: io::Error| NetworkError::because("talk to the kernel about interfaces", why);
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
