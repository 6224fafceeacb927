//! Connections to Services.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::super::sockets;
use super::{Backends, Limits};

/// How long a connection to an endpoint may take to open.
const CONNECT: Duration = Duration::from_secs(5);
/// Endpoints that are tried for one connection.
const ATTEMPTS: usize = 3;
/// Of either direction of a connection.
const BUFFER: usize = 16 * 1024;
/// After this time without traffic a peer has to show that it still exists.
const KEEPALIVE: Duration = Duration::from_mins(5);

/// Accepts connections until `stop`; those that are open then go on.
pub(super) async fn serve(
    listener: TcpListener,
    backends: Arc<Backends>,
    limits: Arc<Limits>,
    stop: CancellationToken,
) {
    while let Some((client, address)) = sockets::accept(&listener, &stop).await {
        // Beyond the limit, clients wait in the backlog of the listener.
        let permit = tokio::select! {
            () = stop.cancelled() => return,
            permit = Arc::clone(&limits.connections).acquire_owned() => permit,
        };
        let (backends, ended) = (Arc::clone(&backends), limits.stop.clone());
        limits.tracker.spawn(async move {
            tokio::select! {
                () = forward(client, address.ip(), &backends) => {}
                () = ended.cancelled() => {}
            }
            drop(permit);
        });
    }
}

async fn forward(mut client: TcpStream, address: IpAddr, backends: &Backends) {
    let Ok(mut endpoint) = connect(address, backends).await else { return abort(&client) };
    for stream in [&client, &endpoint] {
        // Both only make a connection better.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
    }
    let copied = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut endpoint, BUFFER, BUFFER).await;
    if copied.is_err() {
        abort(&client);
        abort(&endpoint);
    }
}

/// Opens a connection to an endpoint; one that refuses is passed over.
async fn connect(client: IpAddr, backends: &Backends) -> io::Result<TcpStream> {
    let mut outcome = Err(io::ErrorKind::ConnectionRefused.into());
    for _ in 0..ATTEMPTS.min(backends.len()) {
        let Some(endpoint) = backends.choose(client, Instant::now()) else { break };
        outcome = match timeout(CONNECT, TcpStream::connect(SocketAddr::V4(endpoint))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        backends.forget(client);
    }
    outcome
}

/// Closes with a reset, so that the peer does not take it for the end of the data.
fn abort(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
