//! Sockets of the node and of the machine.
//!
//! As root both are the same network. In namespaces of an ordinary user they are not: a socket belongs to the network
//! that it was made in, so a process that stayed outside makes those of the machine and passes them on.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream, UdpSocket as StdUdp};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;

use super::rootless::SocketClient;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Before connections are accepted again after an error.
const RETRY: Duration = Duration::from_millis(100);

/// The interface that a socket receives from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Device<'a> {
    /// All of them.
    Any,
    /// This one: several platforms serve the same cluster IPs on one machine, each on its own interface.
    Named(&'a str),
}

/// Listens for connections in the network of the node.
pub(super) fn listen(address: SocketAddr, device: Device<'_>) -> io::Result<TcpListener> {
    HostSockets::default().listen_on(address, device)
}

/// The next connection; `None` when `stop` is cancelled. After an error that the client did not cause, such as too many open
/// files, the next attempt waits: it would fail at once, too.
pub(super) async fn accept(
    listener: &TcpListener,
    stop: &CancellationToken,
) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let error = tokio::select! {
            () = stop.cancelled() => return None,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => return Some(accepted),
                Err(error) => error,
            },
        };
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            continue;
        }
        tracing::warn!("cannot accept connections of pods: {error}");
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Receives datagrams in the network of the node.
pub(super) fn receive(address: SocketAddr, device: Device<'_>) -> io::Result<UdpSocket> {
    HostSockets::default().receive_on(address, device)
}

/// Makes sockets in the network of the machine: this process can, or it asks one that can.
#[derive(Clone, Debug, Default)]
pub struct HostSockets(Option<Arc<SocketClient>>);

impl HostSockets {
    pub(super) fn of(client: SocketClient) -> Self {
        Self(Some(Arc::new(client)))
    }

    /// Listens for connections to the machine.
    pub(super) fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        self.listen_on(address, Device::Any)
    }

    /// Receives datagrams to the machine.
    pub(super) fn receive(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        self.receive_on(address, Device::Any)
    }

    /// Opens a connection from the machine.
    pub(super) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(address, Type::STREAM)?;
        socket.set_nonblocking(true)?;
        TcpSocket::from_std_stream(StdStream::from(socket)).connect(address).await
    }

    fn listen_on(&self, address: SocketAddr, device: Device<'_>) -> io::Result<TcpListener> {
        let socket = self.socket(address, Type::STREAM)?;
        socket.set_reuse_address(true)?;
        bind(&socket, address, device)?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(StdListener::from(socket))
    }

    fn receive_on(&self, address: SocketAddr, device: Device<'_>) -> io::Result<UdpSocket> {
        let socket = self.socket(address, Type::DGRAM)?;
        bind(&socket, address, device)?;
        UdpSocket::from_std(StdUdp::from(socket))
    }

    fn socket(&self, address: SocketAddr, kind: Type) -> io::Result<Socket> {
        match &self.0 {
            None => Socket::new(Domain::for_address(address), kind, None),
            Some(client) => client.socket(address.is_ipv4(), kind == Type::STREAM).map(Socket::from),
        }
    }
}

fn bind(socket: &Socket, address: SocketAddr, device: Device<'_>) -> io::Result<()> {
    if let Device::Named(name) = device {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())
}
