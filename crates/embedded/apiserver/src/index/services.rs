//! Which service holds which cluster IP and which node ports.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use serde_json::Value;

use super::Changed;
use crate::{
    json::{items, text},
    store::{key_of, split_key},
};

pub(super) const BUCKET: &str = "core/services";

/// A port as nodes see it: TCP and UDP of one number are two.
pub(crate) type NodePort = (String, i64);

/// What one service holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    address: Option<String>,
    ports: HashSet<NodePort>,
}

impl Allocation {
    pub(crate) fn of(service: &Value) -> Self {
        let address = text(service, "/spec/clusterIP");
        Self {
            address: (!matches!(address, "" | "None")).then(|| address.to_owned()),
            ports: items(service, "/spec/ports").iter().filter_map(node_port).collect(),
        }
    }
}

fn node_port(port: &Value) -> Option<NodePort> {
    let number = port.get("nodePort")?.as_i64().filter(|number| *number != 0)?;
    Some((protocol(port), number))
}

/// The protocol of a service port.
pub(crate) fn protocol(port: &Value) -> String {
    match text(port, "/protocol") {
        "" => "TCP".into(),
        protocol => protocol.to_owned(),
    }
}

/// Who holds what: one service each, unless objects from elsewhere were imported with duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holders<T: Eq + Hash>(HashMap<T, Vec<Arc<str>>>);

impl<T: Eq + Hash> Default for Holders<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone + Eq + Hash> Holders<T> {
    fn insert(&mut self, held: &T, key: &Arc<str>) {
        self.0.entry(held.clone()).or_default().push(Arc::clone(key));
    }

    fn remove(&mut self, held: &T, key: &str) {
        if let Some(holders) = self.0.get_mut(held) {
            holders.retain(|holder| **holder != *key);
            if holders.is_empty() {
                self.0.remove(held);
            }
        }
    }

    fn has_other(&self, held: &T, own_key: Option<&str>) -> bool {
        self.0.get(held).is_some_and(|holders| holders.iter().any(|holder| Some(&**holder) != own_key))
    }
}

/// Stored services by what they hold, and claims of services on their way to the store.
#[derive(Debug, Default)]
pub(crate) struct ServiceIndex {
    allocations: HashMap<Arc<str>, Allocation>,
    addresses: Holders<String>,
    ports: Holders<NodePort>,
    /// What services on their way to the store were given, by the number of the claim.
    claims: HashMap<u64, (String, Allocation)>,
    next_claim: u64,
    #[cfg(test)]
    pub(super) parsed: usize,
}

impl ServiceIndex {
    pub(super) fn catch_up(&mut self, changed: Changed<Arc<str>>) {
        for (key, entry) in changed {
            if let Some(before) = self.allocations.remove(&key) {
                before.address.iter().for_each(|address| self.addresses.remove(address, &key));
                before.ports.iter().for_each(|port| self.ports.remove(port, &key));
            }
            let Some(entry) = entry else { continue };
            #[cfg(test)]
            {
                self.parsed += 1;
            }
            let now = Allocation::of(&entry.parse());
            now.address.iter().for_each(|address| self.addresses.insert(address, &key));
            now.ports.iter().for_each(|port| self.ports.insert(port, &key));
            self.allocations.insert(key, now);
        }
    }

    pub(super) fn fork(&self) -> Self {
        Self {
            allocations: self.allocations.clone(),
            addresses: self.addresses.clone(),
            ports: self.ports.clone(),
            ..Self::default()
        }
    }

    /// Whether another service has an address, or is about to. `own_key` is the service that asks; `is_stored` says
    /// whether what is stored under that key is that service.
    pub(crate) fn is_address_taken(&self, address: &str, own_key: &str, is_stored: bool) -> bool {
        self.addresses.has_other(&address.to_owned(), is_stored.then_some(own_key))
            || self.claims_of_others(own_key).any(|claim| claim.address.as_deref() == Some(address))
    }

    /// Whether another service has a node port, or is about to. See [`Self::is_address_taken`].
    pub(crate) fn is_port_taken(&self, port: &NodePort, own_key: &str, is_stored: bool) -> bool {
        self.ports.has_other(port, is_stored.then_some(own_key))
            || self.claims_of_others(own_key).any(|claim| claim.ports.contains(port))
    }

    fn claims_of_others(&self, own_key: &str) -> impl Iterator<Item = &Allocation> {
        self.claims.values().filter(move |(key, _)| *key != own_key).map(|(_, allocation)| allocation)
    }

    /// Keeps what a service was given from being given to others, until [`Self::release`].
    pub(crate) fn claim(&mut self, key: String, allocation: Allocation) -> u64 {
        self.next_claim += 1;
        self.claims.insert(self.next_claim, (key, allocation));
        self.next_claim
    }

    /// The service of a claim got another name in its namespace.
    pub(crate) fn rename(&mut self, claim: u64, name: &str) {
        if let Some((key, _)) = self.claims.get_mut(&claim) {
            *key = key_of(split_key(key).0, name);
        }
    }

    pub(crate) fn release(&mut self, claim: u64) {
        self.claims.remove(&claim);
    }

    /// Whether two indexes know the same of stored services.
    #[cfg(test)]
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let sorted = |index: &Self| {
            let mut addresses = index.addresses.clone();
            let mut ports = index.ports.clone();
            addresses.0.values_mut().for_each(|holders| holders.sort());
            ports.0.values_mut().for_each(|holders| holders.sort());
            (addresses, ports)
        };
        self.allocations == other.allocations && sorted(self) == sorted(other)
    }
}
