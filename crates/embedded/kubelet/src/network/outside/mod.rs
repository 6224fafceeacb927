//! How pods reach other machines: their packets are forwarded, with the address of this machine as their source.
//!
//! Other machines cannot open connections to pods, only to node ports: forwarding would make this machine a router to
//! them otherwise.
//!
//! A private network of an ordinary user has no way out for packets: its TCP connections are opened again from the
//! machine, see [`redirect`].

mod forwarder;
mod nftables;

use std::io;
use std::net::Ipv4Addr;

use quintet_controller::tasks::Tasks;

use super::{Bridge, HostSockets, NetworkError, Subnet};
use nftables::{Chain, Expression, Hook};

/// After the rules of others, as container engines do it.
const AFTER_OTHERS: i32 = 100;
/// Where destinations are changed.
const BEFORE_ROUTING: i32 = -100;

/// Lets the pods of a bridge reach other machines.
pub(super) async fn masquerade(bridge: &Bridge, name_server: Ipv4Addr) -> Result<(), NetworkError> {
    let (name, pods) = (bridge.name().to_owned(), bridge.subnet());
    let leaving = vec![
        Expression::Source(pods, true),
        Expression::Destination(pods, false),
        Expression::Output(name.clone(), false),
        Expression::Masquerade,
    ];
    let entering = vec![
        Expression::Input(name.clone(), false),
        Expression::Output(name.clone(), true),
        Expression::NewConnection,
        Expression::Drop,
    ];
    let chains = vec![
        Chain {
            name: "postrouting",
            kind: "nat",
            hook: Hook::Postrouting,
            priority: AFTER_OTHERS,
            rules: vec![leaving],
        },
        Chain { name: "forward", kind: "filter", hook: Hook::Forward, priority: 0, rules: vec![entering] },
        patience(&name, name_server),
    ];
    with_rules(move || nftables::replace(&name, &chains)).await
}

/// While the platform restarts, the name server does not listen. Pods do not learn of it: programs that get no response
/// ask again after a few seconds, those that are refused give up.
fn patience(bridge: &str, name_server: Ipv4Addr) -> Chain {
    let refusal = vec![
        Expression::Output(bridge.to_owned(), true),
        Expression::From(name_server),
        Expression::Icmp,
        Expression::Drop,
    ];
    Chain { name: "refusals", kind: "filter", hook: Hook::Output, priority: 0, rules: vec![refusal] }
}

/// Lets the pods of a bridge in a private network, and programs beside them, open TCP connections to other machines until
/// `tasks` stop.
pub(super) async fn redirect(
    bridge: &Bridge,
    (services, name_server): (Subnet, Ipv4Addr),
    machine: HostSockets,
    tasks: &Tasks,
) -> Result<(), NetworkError> {
    let failed = |error: io::Error| NetworkError::because("forward connections to other machines", error);
    let (listener, port) = forwarder::open().map_err(failed)?;
    let (name, pods) = (bridge.name().to_owned(), bridge.subnet());
    let elsewhere = |way: Expression| {
        vec![vec![
            way,
            Expression::Destination(pods, false),
            Expression::Destination(services, false),
            Expression::Tcp,
            Expression::Redirect(port),
        ]]
    };
    let chain = |name, hook, rules| Chain { name, kind: "nat", hook, priority: BEFORE_ROUTING, rules };
    let chains = vec![
        chain("prerouting", Hook::Prerouting, elsewhere(Expression::Input(name.clone(), true))),
        chain("output", Hook::Output, elsewhere(Expression::Output(name.clone(), true))),
        patience(&name, name_server),
    ];
    // Packets of programs beside the pods need a route before they are redirected.
    bridge.route_everything().await?;
    with_rules(move || nftables::replace(&name, &chains)).await?;
    tasks.spawn("forwarder", forwarder::serve(listener, machine, tasks.stop_token()));
    Ok(())
}

/// Removes the rules of a bridge; none is fine.
pub(super) async fn clear(bridge: &str) -> Result<(), NetworkError> {
    let name = bridge.to_owned();
    with_rules(move || match nftables::delete(&name) {
        // Without nf_tables there are no rules.
        Err(error) if is_unsupported(&error) => Ok(()),
        outcome => outcome,
    })
    .await
}

fn is_unsupported(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let unsupported = [Errno::EPROTONOSUPPORT, Errno::EOPNOTSUPP, Errno::EAFNOSUPPORT, Errno::ENOENT];
    error.raw_os_error().is_some_and(|code| unsupported.iter().any(|errno| *errno as i32 == code))
}

/// Changes rules, which blocks for a moment.
async fn with_rules(change: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), NetworkError> {
    let failed =
        |why: String| NetworkError::because("change the packet filter of the kernel (nf_tables)", why);
    let outcome = tokio::task::spawn_blocking(change).await;
    outcome.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}
