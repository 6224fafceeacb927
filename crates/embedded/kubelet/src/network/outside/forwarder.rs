//! Connections of a private network to other machines: they are redirected to a forwarder, which opens the same ones
//! from the machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::sockets::{self, Device, HostSockets};

/// Connections at a time.
const CONNECTIONS: usize = 4096;
/// How long a connection to another machine may take to open.
const CONNECT: Duration = Duration::from_secs(30);
/// Of either direction.
const BUFFER: usize = 16 * 1024;

/// The forwarder, and the port that connections are redirected to.
pub(super) fn open() -> io::Result<(TcpListener, u16)> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let listener = sockets::listen(any, Device::Any)?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Forwards connections until `stop`.
pub(super) async fn serve(listener: TcpListener, machine: HostSockets, stop: CancellationToken) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let tracker = TaskTracker::new();
    while let Some((client, _)) = sockets::accept(&listener, &stop).await {
        let permit = tokio::select! {
            () = stop.cancelled() => break,
            permit = Arc::clone(&connections).acquire_owned() => permit,
        };
        let (machine, stop) = (machine.clone(), stop.clone());
        tracker.spawn(async move {
            tokio::select! {
                () = forward(client, &machine) => {}
                () = stop.cancelled() => {}
            }
            drop(permit);
        });
    }
    tracker.close();
    tracker.wait().await;
}

async fn forward(mut client: TcpStream, machine: &HostSockets) {
    let opened = async {
        let target = target_of(&client)?;
        tokio::time::timeout(CONNECT, machine.connect(target.into())).await?
    };
    let outcome = match opened.await {
        Ok(mut target) => {
            tokio::io::copy_bidirectional_with_sizes(&mut client, &mut target, BUFFER, BUFFER).await.map(drop)
        }
        Err(error) => Err(error),
    };
    if outcome.is_err() {
        // A reset: the client must not take it for the end of the data.
        let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    }
}

/// Where a connection was to go. One that was made to the forwarder itself goes nowhere.
fn target_of(client: &TcpStream) -> io::Result<SocketAddrV4> {
    let own = client.local_addr()?;
    let target = SockRef::from(client).original_dst_v4()?.as_socket_ipv4();
    let target = target.filter(|target| SocketAddr::V4(*target) != own);
    target.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}
