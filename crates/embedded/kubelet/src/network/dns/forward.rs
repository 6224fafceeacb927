//! Questions about other names, which the name servers of this machine answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use quintet_controller::rng::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::super::HostSockets;
use super::message::{is_truncated, responds_to};

/// How long a server has to answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Every server is asked this often.
const ROUNDS: usize = 2;
/// Questions in flight; more are answered with a failure at once.
const IN_FLIGHT: usize = 512;
/// The largest response over UDP.
const DATAGRAM: usize = 4096;
const PORT: u16 = 53;

/// The name servers of this machine.
#[derive(Debug)]
pub(super) struct Upstream {
    /// A `resolv.conf`.
    path: PathBuf,
    /// The network that these servers are reached from.
    machine: HostSockets,
    /// Addresses of our own, which would ask in circles.
    excluded: Vec<IpAddr>,
    servers: Mutex<(Option<SystemTime>, Vec<SocketAddr>)>,
    in_flight: Semaphore,
    rng: Rng,
}

impl Upstream {
    pub(super) fn new(path: &Path, excluded: Vec<IpAddr>, machine: HostSockets) -> Self {
        Self {
            path: path.to_owned(),
            machine,
            excluded,
            servers: Mutex::default(),
            in_flight: Semaphore::new(IN_FLIGHT),
            rng: Rng::from_entropy(),
        }
    }

    /// Asks the servers in the order of the file, and passes on what the first one says. `None` if none answers, or
    /// there is none.
    pub(super) async fn ask(&self, query: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let _permit = self.in_flight.try_acquire().ok()?;
        let servers = self.servers();
        // A random identifier for every question: other hosts cannot guess it and respond in place of the server.
        let mut own = query.to_vec();
        let [high, low, ..] = self.rng.next_u64().to_be_bytes();
        own.get_mut(..2)?.copy_from_slice(&[high, low]);
        for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
            let asked = async {
                let response = by_udp(&self.machine, *server, &own).await?;
                if over_tcp && is_truncated(&response) {
                    by_tcp(&self.machine, *server, &own).await
                } else {
                    Ok(response)
                }
            };
            if let Ok(Ok(mut response)) = timeout(TIMEOUT, asked).await {
                response.get_mut(..2)?.copy_from_slice(query.get(..2)?);
                return Some(response);
            }
        }
        None
    }

    /// The servers as the file says now: machines change networks.
    fn servers(&self) -> Vec<SocketAddr> {
        let changed = std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()).ok();
        let mut known = self.servers.lock();
        if known.0.is_none() || known.0 != changed {
            let text = std::fs::read_to_string(&self.path).unwrap_or_default();
            *known = (changed, servers_in(&text, &self.excluded));
        }
        known.1.clone()
    }
}

fn servers_in(text: &str, excluded: &[IpAddr]) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        address.parse::<IpAddr>().ok()
    };
    let servers = text.lines().filter_map(server).filter(|address| !excluded.contains(address));
    servers.map(|address| SocketAddr::new(address, PORT)).collect()
}

async fn by_udp(machine: &HostSockets, server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = machine.receive(SocketAddr::new(any, 0))?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut response = vec![0; DATAGRAM];
    loop {
        let length = socket.recv(&mut response).await?;
        if response.get(..length).is_some_and(|response| responds_to(response, query)) {
            response.truncate(length);
            return Ok(response);
        }
    }
}

async fn by_tcp(machine: &HostSockets, server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = machine.connect(server).await?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
    let length = stream.read_u16().await?;
    let mut response = vec![0; usize::from(length)];
    stream.read_exact(&mut response).await?;
    if responds_to(&response, query) { Ok(response) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_without_our_own() {
        let text =
            "# comment\nnameserver 192.0.2.1\nnameserver 10.96.0.10\nsearch x\nnameserver fd00::1 # other\n";
        let servers: Vec<String> =
            servers_in(text, &["10.96.0.10".parse().unwrap()]).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[fd00::1]:53"]);
    }
}
