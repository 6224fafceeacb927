//! API groups that an operator serves itself, behind APIServices.

use std::net::IpAddr;

use quintet_controller::aggregated::ApiHandler;

use crate::Service;

/// An aggregated API.
#[derive(Clone)]
pub struct AggregatedApi {
    /// The group.
    pub group: &'static str,
    /// Its versions.
    pub versions: &'static [&'static str],
    /// Where to listen. The port is the target port of the Service.
    pub address: IpAddr,
    /// The Service that the APIServices name.
    pub service: Service,
    /// Handles requests that are allowed, once the operator has started.
    pub handler: ApiHandler,
}

impl AggregatedApi {
    /// The names of its APIServices.
    pub fn api_services(&self) -> impl Iterator<Item = String> + '_ {
        self.versions.iter().map(|version| format!("{version}.{}", self.group))
    }
}
