//! Addresses of pods.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// The most leading bits of a subnet: fewer than 16 addresses are of no use.
const LONGEST: u8 = 28;

/// Addresses that belong together, like `10.244.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    network: u32,
    /// How many leading bits all addresses share.
    pub prefix: u8,
}

impl Subnet {
    /// The subnet of an address.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Result<Self, String> {
        if !(8..=LONGEST).contains(&prefix) {
            return Err(format!("{address}/{prefix}: between 8 and {LONGEST} leading bits are needed"));
        }
        let subnet = Self { network: 0, prefix };
        Ok(Self { network: address.to_bits() & subnet.mask(), prefix })
    }

    /// The smallest subnet with an address.
    pub(super) fn around(address: Ipv4Addr) -> Self {
        let prefix = LONGEST;
        Self { network: address.to_bits() & Self { network: 0, prefix }.mask(), prefix }
    }

    /// The address that all others begin with.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network)
    }

    /// The bits that all addresses share.
    pub(super) fn netmask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.mask())
    }

    /// Whether it has addresses in common with a range of any size.
    pub(super) fn overlaps(self, address: Ipv4Addr, prefix: u8) -> bool {
        let common = Self { network: 0, prefix: self.prefix.min(prefix) }.mask();
        (address.to_bits() ^ self.network) & common == 0
    }

    /// The first address, that of the node.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network | 1)
    }

    /// Whether an address is in it.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.network
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or_default()
    }

    /// The addresses that pods can have: neither the network, nor the node, nor the broadcast address.
    fn hosts(self) -> std::ops::Range<u32> {
        self.network + 2..self.network | !self.mask()
    }
}

impl Default for Subnet {
    /// The range that most clusters use for pods.
    fn default() -> Self {
        Self { network: Ipv4Addr::new(10, 244, 0, 0).to_bits(), prefix: 16 }
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a range of IPv4 addresses; write it like 10.244.0.0/16");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let prefix: u8 = prefix.parse().map_err(|_| invalid())?;
        Self::new(address, prefix)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.network), self.prefix)
    }
}

/// All addresses are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no address is left in {0}")]
pub struct NoAddressLeft(Subnet);

/// Which pod has which address. Addresses are given out round-robin, so that one is not reused soon: peers of a pod that is
/// gone may still talk to its address.
#[derive(Clone, Debug)]
pub struct Addresses {
    subnet: Subnet,
    taken: BTreeMap<u32, String>,
    next: u32,
}

impl Addresses {
    /// All addresses of a subnet are free.
    pub fn new(subnet: Subnet) -> Self {
        Self { subnet, taken: BTreeMap::new(), next: subnet.hosts().start }
    }

    /// A pod of an earlier kubelet has an address.
    pub fn keep(&mut self, pod: &str, address: Ipv4Addr) {
        if self.subnet.contains(address) {
            self.taken.insert(address.to_bits(), pod.to_owned());
            self.next = self.next.max(address.to_bits() + 1).min(self.subnet.hosts().end);
        }
    }

    /// The address of a pod; a free one if it has none.
    pub fn assign(&mut self, pod: &str) -> Result<Ipv4Addr, NoAddressLeft> {
        if let Some(address) = self.of(pod) {
            return Ok(address);
        }
        let hosts = self.subnet.hosts();
        let candidates = (self.next..hosts.end).chain(hosts.start..self.next);
        let mut free = candidates.filter(|address| !self.taken.contains_key(address));
        let address = free.next().ok_or(NoAddressLeft(self.subnet))?;
        self.next = if address + 1 < hosts.end { address + 1 } else { hosts.start };
        self.taken.insert(address, pod.to_owned());
        Ok(Ipv4Addr::from_bits(address))
    }

    /// The address of a pod, if it has one.
    pub fn of(&self, pod: &str) -> Option<Ipv4Addr> {
        self.taken.iter().find(|(_, owner)| *owner == pod).map(|(address, _)| Ipv4Addr::from_bits(*address))
    }

    /// A pod is gone.
    pub fn release(&mut self, pod: &str) {
        self.taken.retain(|_, owner| owner != pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(subnet: &str) -> Addresses {
        Addresses::new(subnet.parse().unwrap())
    }

    #[test]
    fn subnets_are_read() {
        let subnet: Subnet = "10.244.7.9/16".parse().unwrap();
        assert_eq!(
            (subnet.to_string().as_str(), subnet.gateway()),
            ("10.244.0.0/16", [10, 244, 0, 1].into())
        );
        assert!(subnet.contains([10, 244, 255, 1].into()) && !subnet.contains([10, 245, 0, 1].into()));
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/30", "x/16"] {
            assert!(text.parse::<Subnet>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_pod_keeps_its_address() {
        let mut addresses = addresses("10.0.0.0/24");
        let first = addresses.assign("a").unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(addresses.assign("a").unwrap(), first);
        assert_ne!(addresses.assign("b").unwrap(), first);
    }

    #[test]
    fn a_free_address_is_not_reused_before_all_others() {
        let mut addresses = addresses("10.0.0.0/28");
        let first = addresses.assign("a").unwrap();
        addresses.release("a");
        let others: Vec<Ipv4Addr> =
            (0..12).map(|number| addresses.assign(&number.to_string()).unwrap()).collect();
        assert!(!others.contains(&first), "{others:?}");
        assert_eq!(addresses.assign("last").unwrap(), first);
        assert_eq!(addresses.assign("more").unwrap_err().to_string(), "no address is left in 10.0.0.0/28");
    }

    #[test]
    fn addresses_of_running_pods_are_kept_after_a_restart() {
        let mut addresses = addresses("10.0.0.0/24");
        addresses.keep("a", [10, 0, 0, 2].into());
        addresses.keep("stranger", [192, 168, 0, 1].into());
        assert_eq!(addresses.assign("b").unwrap(), Ipv4Addr::new(10, 0, 0, 3));
        assert_eq!(addresses.assign("a").unwrap(), Ipv4Addr::new(10, 0, 0, 2));
    }
}
