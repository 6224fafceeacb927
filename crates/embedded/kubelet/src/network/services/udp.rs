//! Datagrams to Services. Those of one client are a flow: they go to one endpoint, and what comes back goes to the
//! client.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Backends, Limits};

/// The end of a flow after its last datagram.
const IDLE: Duration = Duration::from_mins(2);
/// Flows of one port.
const FLOWS: usize = 4096;
/// The largest datagram.
const DATAGRAM: usize = 65_535;

struct Flow {
    endpoint: SocketAddrV4,
    socket: Arc<UdpSocket>,
    last: Arc<Mutex<Instant>>,
    replies: AbortHandle,
}

/// Forwards datagrams until `stop`.
pub(super) async fn serve(
    socket: UdpSocket,
    backends: Arc<Backends>,
    limits: Arc<Limits>,
    stop: CancellationToken,
) {
    let socket = Arc::new(socket);
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut replies = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let received = tokio::select! {
            () = stop.cancelled() => return,
            () = limits.stop.cancelled() => return,
            Some(ended) = replies.join_next() => {
                // A flow that was replaced has a task of its own, which is not this one.
                if let Ok(client) = ended
                    && flows.get(&client).is_some_and(|flow| flow.replies.is_finished())
                {
                    flows.remove(&client);
                }
                continue;
            }
            received = socket.recv_from(&mut buffer) => received,
        };
        // Errors are reports about earlier datagrams, which clients repeat.
        let Ok((length, client)) = received else { continue };
        let is_current = |flow: &Flow| backends.contains(flow.endpoint) && !flow.replies.is_finished();
        if !flows.get(&client).is_some_and(is_current) {
            let Some(endpoint) = backends.choose(client.ip(), Instant::now()) else { continue };
            let Ok(flow) = open(&socket, client, endpoint, &mut replies).await else { continue };
            make_room(&mut flows);
            if let Some(old) = flows.insert(client, flow) {
                old.replies.abort();
            }
        }
        if let (Some(flow), Some(datagram)) = (flows.get(&client), buffer.get(..length)) {
            *flow.last.lock() = Instant::now();
            if flow.socket.send(datagram).await.is_err() {
                backends.forget(client.ip());
            }
        }
    }
}

async fn open(
    socket: &Arc<UdpSocket>,
    client: SocketAddr,
    endpoint: SocketAddrV4,
    replies: &mut JoinSet<SocketAddr>,
) -> std::io::Result<Flow> {
    let own = Arc::new(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?);
    own.connect(endpoint).await?;
    let last = Arc::new(Mutex::new(Instant::now()));
    let (from, to, used) = (Arc::clone(&own), Arc::clone(socket), Arc::clone(&last));
    let replies = replies.spawn(async move {
        reply(&from, &to, client, &used).await;
        client
    });
    Ok(Flow { endpoint, socket: own, last, replies })
}

/// Sends to the client what an endpoint sends, until the flow is idle or the endpoint refuses; the next datagram of the
/// client begins a new flow then.
async fn reply(from: &UdpSocket, to: &UdpSocket, client: SocketAddr, last: &Mutex<Instant>) {
    loop {
        let deadline = *last.lock() + IDLE;
        match timeout_at(deadline, from.readable()).await {
            Ok(Ok(())) => {}
            Err(_) if *last.lock() + IDLE > Instant::now() => continue,
            Ok(Err(_)) | Err(_) => return,
        }
        // Most flows wait most of the time: a buffer is only needed now.
        let mut buffer = vec![0; DATAGRAM];
        match from.try_recv(&mut buffer) {
            Ok(length) => {
                *last.lock() = Instant::now();
                let _ = to.send_to(buffer.get(..length).unwrap_or_default(), client).await;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

fn make_room(flows: &mut HashMap<SocketAddr, Flow>) {
    if flows.len() < FLOWS {
        return;
    }
    let oldest = flows.iter().min_by_key(|(_, flow)| *flow.last.lock()).map(|(client, _)| *client);
    if let Some(flow) = oldest.and_then(|client| flows.remove(&client)) {
        flow.replies.abort();
    }
}
