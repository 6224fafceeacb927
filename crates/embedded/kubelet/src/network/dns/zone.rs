//! What the name server knows: Services, their endpoints and namespaces. It follows the watches; a change costs as much
//! as the Service that changed has endpoints.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use quintet_controller::ObjectKey;

use super::super::Subnet;
use super::super::services::{Reach, ServiceView, Target};
use crate::pod::names::CLUSTER_DOMAIN;

/// The names of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Zone {
    namespaces: BTreeSet<String>,
    services: BTreeMap<ObjectKey, ServiceView>,
    /// The names of addresses, for reverse lookups.
    names: HashMap<Ipv4Addr, BTreeSet<String>>,
    /// Addresses that no other name server knows.
    ranges: Vec<Subnet>,
    /// How often it changed.
    serial: u32,
}

impl Zone {
    /// An empty zone that is responsible for the names of these addresses.
    pub(crate) fn new(ranges: Vec<Subnet>) -> Self {
        Self { ranges, ..Self::default() }
    }

    /// A namespace appeared or disappeared.
    pub(crate) fn set_namespace(&mut self, name: &str, exists: bool) {
        let changed =
            if exists { self.namespaces.insert(name.to_owned()) } else { self.namespaces.remove(name) };
        self.serial = self.serial.wrapping_add(u32::from(changed));
    }

    /// A Service changed, or its endpoints did; `None` if it is gone.
    pub(crate) fn set_service(&mut self, key: &ObjectKey, service: Option<ServiceView>) {
        if let Some(old) = self.services.remove(key) {
            for (address, name) in reverse_names(key, &old) {
                if let Some(names) = self.names.get_mut(&address) {
                    names.remove(&name);
                    if names.is_empty() {
                        self.names.remove(&address);
                    }
                }
            }
        }
        if let Some(new) = service {
            for (address, name) in reverse_names(key, &new) {
                self.names.entry(address).or_default().insert(name);
            }
            self.services.insert(key.clone(), new);
        }
        self.serial = self.serial.wrapping_add(1);
    }

    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<&ServiceView> {
        self.services.get(&ObjectKey::new(namespace, name))
    }

    pub(super) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    pub(super) fn serial(&self) -> u32 {
        self.serial
    }

    /// The names of an address; `None` if this zone is not responsible for it.
    pub(super) fn names_of(&self, address: Ipv4Addr) -> Option<impl Iterator<Item = &String>> {
        let names = self.names.get(&address);
        let is_ours = names.is_some() || self.ranges.iter().any(|range| range.contains(address));
        is_ours.then(|| names.into_iter().flatten())
    }
}

/// The full name of a Service.
pub(super) fn service_name(key: &ObjectKey) -> String {
    format!("{}.{}.svc.{CLUSTER_DOMAIN}", key.name(), key.namespace().unwrap_or_default())
}

/// What the addresses of a Service are called: its own, and those of endpoints with a name, or of all if it is headless.
fn reverse_names(key: &ObjectKey, service: &ServiceView) -> Vec<(Ipv4Addr, String)> {
    let own = service_name(key);
    let of_target = |target: &Target| (target.address, format!("{}.{own}", target.label()));
    match service.reach {
        Reach::ClusterIp(address) => {
            let named = service.targets.iter().filter(|target| target.hostname.is_some());
            named.map(of_target).chain([(address, own.clone())]).collect()
        }
        Reach::Headless => service.targets.iter().filter(|target| target.is_ready).map(of_target).collect(),
        Reach::ExternalName(_) => Vec::new(),
    }
}
