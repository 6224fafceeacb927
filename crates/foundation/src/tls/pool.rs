//! The open connections, and which of them yields to a new one.
//!
//! Connections are counted by what is known of their client, so that clients without credentials compete with each
//! other only. A connection is of an unknown client until the service says who it is.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::{Limits, connection::Connection};

/// How many connections yield at a time when there are no file descriptors left.
const RELIEF: usize = 32;

/// What the service knows of the client of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientClass {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It has shown credentials.
    Known,
    /// It must get in whatever the others do.
    Privileged,
}

/// The connections of one class, in the order in which they were accepted.
type Pool = BTreeMap<u64, Arc<Connection>>;

#[derive(Default)]
struct Pools {
    unknown: Pool,
    known: Pool,
    privileged: Pool,
}

impl Pools {
    fn of(&mut self, class: ClientClass) -> &mut Pool {
        match class {
            ClientClass::Unknown => &mut self.unknown,
            ClientClass::Known => &mut self.known,
            ClientClass::Privileged => &mut self.privileged,
        }
    }
}

/// The open connections of a server.
pub(super) struct Connections {
    limits: Limits,
    open: Mutex<Pools>,
    accepted: AtomicU64,
}

/// The place of a connection among the others, until it is dropped.
pub(super) struct Slot {
    connections: Arc<Connections>,
    pub(super) connection: Arc<Connection>,
    number: u64,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Mutex::default(), accepted: AtomicU64::new(0) }
    }

    /// Makes room for a new connection; `None` if nothing yields.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Slot> {
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        let unknown = &mut open.unknown;
        if unknown.len() >= self.limits.connections && !self.evict(unknown, ClientClass::Unknown) {
            let limit = self.limits.connections;
            tracing::warn!("refused a connection: all {limit} have requests in progress");
            return None;
        }
        let connection = Arc::new(Connection::new());
        unknown.insert(number, Arc::clone(&connection));
        Some(Slot { connections: Arc::clone(self), connection, number })
    }

    /// Frees file descriptors, of which there are none left for a new connection.
    pub(super) fn relieve(&self) {
        let mut open = self.open.lock();
        let classes = [ClientClass::Unknown, ClientClass::Known, ClientClass::Privileged];
        for _ in 0..RELIEF {
            if !classes.into_iter().any(|class| self.evict(open.of(class), class)) {
                break;
            }
        }
    }

    /// Closes the connection that has been idle for longest, or else one whose request takes longer than allowed. If
    /// clients are distinguished, the unknown ones also yield in the middle of a request.
    fn evict(&self, pool: &mut Pool, class: ClientClass) -> bool {
        let idle = || {
            let idle = pool.iter().filter_map(|(number, one)| Some((one.idle_since()?, *number)));
            idle.min()
        };
        let is_expendable = class == ClientClass::Unknown && self.limits.known_connections > 0;
        let busy = || {
            let busy = pool.iter().filter_map(|(number, one)| Some((one.busy_since()?, *number)));
            busy.min().filter(|(since, _)| {
                is_expendable || self.limits.request_timeout.is_some_and(|limit| since.elapsed() > limit)
            })
        };
        let Some((since, number)) = idle().or_else(busy) else { return false };
        tracing::debug!("closing a connection for another, {:?} after its last progress", since.elapsed());
        // It is counted no more: closing takes a moment, in which the new one need not wait.
        if let Some(connection) = pool.remove(&number) {
            connection.evict();
        }
        true
    }

    fn limit(&self, class: ClientClass) -> usize {
        match class {
            ClientClass::Unknown => self.limits.connections,
            ClientClass::Known => self.limits.known_connections,
            ClientClass::Privileged => self.limits.privileged_connections,
        }
    }
}

impl Slot {
    /// Counts the connection as one of a class. It stays where it is if that class is full and all are busy.
    fn identify(&self, class: ClientClass) {
        let before = self.connection.class();
        if before == class {
            return;
        }
        let mut open = self.connections.open.lock();
        let pool = open.of(class);
        let is_full = pool.len() >= self.connections.limit(class);
        if is_full && !self.connections.evict(pool, class) {
            tracing::debug!("no room for another connection of a {class:?} client");
            return;
        }
        // Not if it was evicted meanwhile.
        if let Some(connection) = open.of(before).remove(&self.number) {
            connection.set_class(class);
            open.of(class).insert(self.number, connection);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.open.lock().of(self.connection.class()).remove(&self.number);
    }
}

/// The client of a connection, of which the service learns more as it serves requests.
#[derive(Clone)]
pub struct Client(Arc<Slot>);

impl Client {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self(slot)
    }

    /// Says what is known of the client.
    pub fn identify(&self, class: ClientClass) {
        self.0.identify(class);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.0.connection.class()).finish()
    }
}
