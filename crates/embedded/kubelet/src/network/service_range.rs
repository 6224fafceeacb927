//! The addresses that the API gives to Services, and those where they are served.

use std::net::Ipv4Addr;

use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::{NetworkError, Subnet};

/// The address of the cluster's name server among those of Services, as on other clusters.
const NAME_SERVER: u32 = 10;
/// Addresses that begin with this are local on every machine.
const LOOPBACK: u8 = 127;

/// The addresses of Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServiceRange {
    given: Subnet,
    served: Subnet,
}

impl ServiceRange {
    /// Services are served at the addresses that they have.
    pub(super) async fn read(client: &kube::Client) -> Result<Self, NetworkError> {
        let failed = |why: String| NetworkError::because("find out the addresses of Services", why);
        let ranges: kube::Api<ServiceCIDR> = kube::Api::all(client.clone());
        let range = ranges.get("kubernetes").await.map_err(|error| failed(error.to_string()))?;
        let cidrs = range.spec.and_then(|spec| spec.cidrs).unwrap_or_default();
        let first = cidrs.iter().find_map(|cidr| cidr.parse::<Subnet>().ok());
        let given = first
            .ok_or_else(|| failed(format!("the ServiceCIDR kubernetes has no IPv4 range, but {cidrs:?}")))?;
        Ok(Self { given, served: given })
    }

    /// Services are served at addresses of the loopback interface, which need no privileges: those that they have, with
    /// 127 at the beginning.
    pub(super) fn on_loopback(self) -> Result<Self, NetworkError> {
        let [_, rest @ ..] = self.given.network().octets();
        let [second, third, fourth] = rest;
        let network = Ipv4Addr::new(LOOPBACK, second, third, fourth);
        let served = Subnet::new(network, self.given.prefix)
            .map_err(|error| NetworkError::because("serve Services on the loopback interface", error))?;
        Ok(Self { served, ..self })
    }

    /// Where a Service is served.
    pub(super) fn served_at(self, address: Ipv4Addr) -> Ipv4Addr {
        if !self.given.contains(address) {
            return address;
        }
        let host = address.to_bits() & !self.given.netmask().to_bits();
        Ipv4Addr::from_bits(self.served.network().to_bits() | host)
    }

    /// All addresses where Services are served.
    pub(super) fn served(self) -> Subnet {
        self.served
    }

    /// The address of the Service of the name server.
    pub(super) fn name_server(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.given.network().to_bits() | NAME_SERVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_privileges_services_are_served_on_loopback() {
        let given: Subnet = "10.96.0.0/16".parse().unwrap();
        let usual = ServiceRange { given, served: given };
        assert_eq!(usual.served_at([10, 96, 3, 4].into()), Ipv4Addr::new(10, 96, 3, 4));
        assert_eq!(usual.name_server(), Ipv4Addr::new(10, 96, 0, 10));
        let loopback = usual.on_loopback().unwrap();
        assert_eq!(loopback.served().to_string(), "127.96.0.0/16");
        assert_eq!(loopback.served_at([10, 96, 3, 4].into()), Ipv4Addr::new(127, 96, 3, 4));
        assert_eq!(loopback.served_at([192, 0, 2, 1].into()), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(loopback.served_at(loopback.name_server()), Ipv4Addr::new(127, 96, 0, 10));
    }
}
