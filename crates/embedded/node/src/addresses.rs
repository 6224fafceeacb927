//! Addresses for nodes and pods: unique, and not routed anywhere.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use parking_lot::Mutex;
use quintet_controller::object::Uid;

/// Addresses that no real network routes (RFC 6598); four million.
const PODS: (u32, u32) = (u32::from_be_bytes([100, 64, 0, 1]), u32::from_be_bytes([100, 127, 255, 254]));
/// Addresses for benchmarks (RFC 2544); 131,000.
const NODES: u32 = u32::from_be_bytes([198, 18, 0, 1]);

/// The address of a node by its number.
pub(crate) fn of_node(number: u32) -> String {
    Ipv4Addr::from(NODES.saturating_add(number)).to_string()
}

/// The addresses of pods.
#[derive(Default)]
pub(crate) struct Addresses(Mutex<Pool>);

#[derive(Default)]
struct Pool {
    next: u32,
    taken: HashSet<Ipv4Addr>,
    of: HashMap<Uid, Ipv4Addr>,
}

impl Addresses {
    /// The pod's address; allocates one if it has none.
    pub(crate) fn of_pod(&self, uid: &Uid) -> String {
        let mut pool = self.0.lock();
        if let Some(address) = pool.of.get(uid) {
            return address.to_string();
        }
        loop {
            let address = Ipv4Addr::from(PODS.0 + pool.next % (PODS.1 - PODS.0));
            pool.next = pool.next.wrapping_add(1);
            if pool.taken.insert(address) {
                pool.of.insert(uid.clone(), address);
                return address.to_string();
            }
        }
    }

    /// Records an address that the pod already has.
    pub(crate) fn keep(&self, uid: &Uid, address: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            let mut pool = self.0.lock();
            pool.taken.insert(address);
            pool.of.insert(uid.clone(), address);
        }
    }

    /// Releases the address of a pod that is gone.
    pub(crate) fn free(&self, uid: &Uid) {
        let mut pool = self.0.lock();
        if let Some(address) = pool.of.remove(uid) {
            pool.taken.remove(&address);
        }
    }
}
