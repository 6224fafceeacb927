//! The name server of the cluster: Services, endpoints and pods from the watches, everything else from the name
//! servers of this machine.
//!
//! ```text
//!   pod ── UDP, TCP ──> server ── answer(question, zone) ──> response
//!                          └──── other names ── forward ──> name servers of the machine
//! ```

mod answer;
mod forward;
mod message;
mod zone;

#[cfg(test)]
mod tests;

pub(super) use zone::Zone;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{HostSockets, sockets};
use answer::{Answer, answer, authority};
use forward::Upstream;
use message::{Code, Data, Query, Record, Rejected, Response, types};

/// The port of name servers.
pub(super) const PORT: u16 = 53;
/// The largest query over UDP.
const QUERY: usize = 4096;
/// Connections at a time, of all clients.
const CONNECTIONS: usize = 256;
/// A connection without a query is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
/// Names that an alias may lead through.
const ALIASES: usize = 8;

/// The name server.
#[derive(Clone, Debug)]
pub(super) struct NameServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    zone: Arc<RwLock<Zone>>,
    upstream: Upstream,
    connections: Arc<Semaphore>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl NameServer {
    /// Serves a zone. Other names are asked for at the servers of `resolv_conf`, but for our own addresses, from the network of `machine`.
    pub(super) fn new(
        zone: Arc<RwLock<Zone>>,
        resolv_conf: &Path,
        own: Vec<IpAddr>,
        machine: HostSockets,
        stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            zone,
            upstream: Upstream::new(resolv_conf, own, machine),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            tracker: TaskTracker::new(),
            stop,
        }))
    }

    /// Answers at these sockets until it is stopped.
    pub(super) fn serve(&self, udp: UdpSocket, tcp: TcpListener) {
        self.0.tracker.spawn(self.clone().serve_udp(Arc::new(udp)));
        self.0.tracker.spawn(self.clone().serve_tcp(tcp));
    }

    /// Waits until all questions are answered, after it was stopped.
    pub(super) async fn ended(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    async fn serve_udp(self, socket: Arc<UdpSocket>) {
        let mut buffer = vec![0; QUERY];
        loop {
            let received = tokio::select! {
                () = self.0.stop.cancelled() => return,
                received = socket.recv_from(&mut buffer) => received,
            };
            // Errors are reports about earlier responses.
            let Ok((length, client)) = received else { continue };
            let message = buffer.get(..length).unwrap_or_default();
            match self.first(message) {
                First::Response(response) => drop(socket.send_to(&response, client).await),
                First::Nothing => {}
                First::Later(query) => {
                    let (server, socket, message) = (self.clone(), Arc::clone(&socket), message.to_vec());
                    self.0.tracker.spawn(async move {
                        let response = server.ask_others(&query, &message, false).await;
                        let _ = socket.send_to(&response, client).await;
                    });
                }
            }
        }
    }

    async fn serve_tcp(self, listener: TcpListener) {
        while let Some((stream, _)) = sockets::accept(&listener, &self.0.stop).await {
            // Beyond the limit, new connections are closed at once.
            let Ok(permit) = Arc::clone(&self.0.connections).try_acquire_owned() else { continue };
            let server = self.clone();
            self.0.tracker.spawn(async move {
                let stop = server.0.stop.clone();
                tokio::select! {
                    _ = server.serve_connection(stream) => {}
                    () = stop.cancelled() => {}
                }
                drop(permit);
            });
        }
    }

    async fn serve_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let length = timeout(IDLE, stream.read_u16()).await??;
            let mut message = vec![0; usize::from(length)];
            timeout(IDLE, stream.read_exact(&mut message)).await??;
            let response = match self.first_within(&message, usize::from(u16::MAX)) {
                First::Response(response) => response,
                First::Nothing => return Ok(()),
                First::Later(query) => self.ask_others(&query, &message, true).await,
            };
            let length = u16::try_from(response.len()).map_err(io::Error::other)?;
            timeout(IDLE, stream.write_all(&[&length.to_be_bytes(), response.as_slice()].concat())).await??;
        }
    }

    fn first(&self, message: &[u8]) -> First {
        self.first_within(message, 0)
    }

    /// What can be said at once. A `limit` of zero is that of the client over UDP.
    fn first_within(&self, message: &[u8], limit: usize) -> First {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(Rejected::Ignored) => return First::Nothing,
            Err(Rejected::With(response)) => return First::Response(response),
        };
        let limit = if limit == 0 { query.udp_size() } else { limit };
        let zone = self.0.zone.read();
        let found =
            if query.is_internet() { answer(&query.name, query.kind, &zone) } else { Answer::Foreign };
        match found {
            Answer::Foreign => First::Later(query),
            Answer::Alias(..) if query.kind != types::CNAME => First::Later(query),
            found => {
                let mut response = response_of(found, &zone);
                // Clients often take the first address: each begins with another one.
                let count = response.answers.len().max(1);
                response.answers.rotate_left(usize::from(query.id) % count);
                First::Response(response.encode(&query, limit))
            }
        }
    }

    /// What other name servers say: about the name, or about what it is an alias of.
    async fn ask_others(&self, query: &Query, message: &[u8], over_tcp: bool) -> Vec<u8> {
        let limit = if over_tcp { usize::from(u16::MAX) } else { query.udp_size() };
        let alias = match answer(&query.name, query.kind, &self.0.zone.read()) {
            Answer::Alias(record, target) => Some((record, target)),
            _ => None,
        };
        if let Some((record, target)) = alias {
            let mut response = Response::new(Code::NoError);
            response.answers.push(record);
            response.answers.extend(self.resolve(target, query.kind).await);
            return response.encode(query, limit);
        }
        let response = self.0.upstream.ask(message, over_tcp).await;
        response.unwrap_or_else(|| Response::new(Code::ServerFailure).encode(query, limit))
    }

    /// The records of a name, followed through the zone and beyond it.
    async fn resolve(&self, mut name: String, kind: u16) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..ALIASES {
            let found = answer(&name, kind, &self.0.zone.read());
            match found {
                Answer::Records(found, _) => records.extend(found),
                Answer::NoSuchName => {}
                Answer::Alias(record, target) => {
                    records.push(record);
                    name = target;
                    continue;
                }
                Answer::Foreign => {
                    let response = self.0.upstream.ask(&Query::about(&name, kind, 0), true).await;
                    records.extend(response.as_deref().map(message::addresses_in).unwrap_or_default());
                }
            }
            break;
        }
        records
    }

    /// The addresses of a name of the cluster; `None` if it is not one.
    pub(super) async fn lookup(&self, name: &str) -> Option<Vec<Ipv4Addr>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if matches!(answer(&name, types::A, &self.0.zone.read()), Answer::Foreign) {
            return None;
        }
        let records = self.resolve(name, types::A).await;
        let address = |record: Record| match record.data {
            Data::A(address) => Some(address),
            _ => None,
        };
        Some(records.into_iter().filter_map(address).collect())
    }
}

/// What can be said to a message at once.
enum First {
    Response(Vec<u8>),
    Nothing,
    /// Others have to be asked.
    Later(Query),
}

fn response_of(found: Answer, zone: &Zone) -> Response {
    let (code, answers, additionals) = match found {
        Answer::Records(answers, additionals) => (Code::NoError, answers, additionals),
        Answer::Alias(record, _) => (Code::NoError, vec![record], Vec::new()),
        Answer::NoSuchName => (Code::NoSuchName, Vec::new(), Vec::new()),
        Answer::Foreign => (Code::ServerFailure, Vec::new(), Vec::new()),
    };
    let authorities = if answers.is_empty() { vec![authority(zone)] } else { Vec::new() };
    Response { code, is_authoritative: true, answers, authorities, additionals }
}

/// Where a name server listens.
pub(super) fn address(ip: Ipv4Addr) -> SocketAddr {
    SocketAddr::new(ip.into(), PORT)
}
