//! Which endpoint a new connection goes to. Pure but for the time that is passed in.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Clients with an endpoint of their own that are remembered per port.
const CLIENTS: usize = 8192;

/// The endpoints behind one port, shared by its listeners. They change while connections go on.
#[derive(Debug, Default)]
pub(super) struct Backends(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    endpoints: Arc<[SocketAddrV4]>,
    next: usize,
    affinity: Option<Duration>,
    clients: HashMap<IpAddr, (SocketAddrV4, Instant)>,
}

impl Backends {
    /// Replaces the endpoints. Clients of endpoints that are gone get another one.
    pub(super) fn set(&self, endpoints: Vec<SocketAddrV4>, affinity: Option<Duration>) {
        let mut state = self.0.lock();
        state.clients.retain(|_, (endpoint, _)| affinity.is_some() && endpoints.contains(endpoint));
        state.endpoints = endpoints.into();
        state.affinity = affinity;
    }

    pub(super) fn contains(&self, endpoint: SocketAddrV4) -> bool {
        self.0.lock().endpoints.contains(&endpoint)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.lock().endpoints.len()
    }

    /// The endpoint of a new connection: round-robin, or the one that the client had before.
    pub(super) fn choose(&self, client: IpAddr, now: Instant) -> Option<SocketAddrV4> {
        let mut state = self.0.lock();
        if let Some(timeout) = state.affinity
            && let Some((endpoint, last)) = state.clients.get_mut(&client)
            && now.duration_since(*last) < timeout
        {
            *last = now;
            return Some(*endpoint);
        }
        let endpoint = *state.endpoints.get(state.next % state.endpoints.len().max(1))?;
        state.next = state.next.wrapping_add(1);
        if let Some(timeout) = state.affinity {
            state.make_room(timeout, now);
            state.clients.insert(client, (endpoint, now));
        }
        Some(endpoint)
    }

    /// A client could not connect to its endpoint, and may get another one.
    pub(super) fn forget(&self, client: IpAddr) {
        self.0.lock().clients.remove(&client);
    }
}

impl State {
    fn make_room(&mut self, timeout: Duration, now: Instant) {
        if self.clients.len() < CLIENTS {
            return;
        }
        self.clients.retain(|_, (_, last)| now.duration_since(*last) < timeout);
        while self.clients.len() >= CLIENTS {
            let oldest = self.clients.iter().min_by_key(|(_, (_, last))| *last).map(|(client, _)| *client);
            let Some(oldest) = oldest else { return };
            self.clients.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: u8) -> SocketAddrV4 {
        SocketAddrV4::new([10, 0, 0, number].into(), 80)
    }

    fn client(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    fn backends(count: u8, affinity: Option<Duration>) -> Backends {
        let backends = Backends::default();
        backends.set((1..=count).map(endpoint).collect(), affinity);
        backends
    }

    #[test]
    fn connections_are_spread_over_all_endpoints() {
        let (backends, now) = (backends(3, None), Instant::now());
        let chosen: Vec<_> = (0..6).map(|_| backends.choose(client(1), now).unwrap()).collect();
        for number in 1..=3 {
            assert_eq!(chosen.iter().filter(|chosen| **chosen == endpoint(number)).count(), 2, "{chosen:?}");
        }
        assert_eq!(Backends::default().choose(client(1), now), None);
    }

    #[test]
    fn a_client_keeps_its_endpoint_until_the_timeout_or_until_it_is_gone() {
        let timeout = Duration::from_secs(10);
        let (backends, start) = (backends(2, Some(timeout)), Instant::now());
        let first = backends.choose(client(1), start).unwrap();
        assert_ne!(backends.choose(client(2), start), Some(first), "another client has another one");
        // Every use restarts the timeout.
        assert_eq!(backends.choose(client(1), start + timeout / 2), Some(first));
        assert_eq!(backends.choose(client(1), start + timeout), Some(first));
        let late = start + timeout * 3;
        let other = backends.choose(client(1), late).unwrap();
        let gone = vec![if other == endpoint(1) { endpoint(2) } else { endpoint(1) }];
        backends.set(gone.clone(), Some(timeout));
        assert_eq!(backends.choose(client(1), late), Some(gone[0]));
    }

    #[test]
    fn the_number_of_clients_that_are_remembered_is_bounded() {
        let (backends, now) = (backends(2, Some(Duration::from_secs(10))), Instant::now());
        for number in 0..u32::try_from(CLIENTS).unwrap() + 10 {
            backends.choose(client(number), now).unwrap();
        }
        assert_eq!(backends.0.lock().clients.len(), CLIENTS);
    }
}
