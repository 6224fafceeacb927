//! Where the name server is: its sockets, and its Service, where users and programs expect it.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::dns::{self, NameServer};
use super::services::SERVICE_NAME;
use super::sockets::{self, Device};
use super::watch::NAME_SERVER;
use super::{Bridge, NetworkError};

/// Who owns the fields of both objects.
const FIELD_MANAGER: &str = "quintet-network";

/// Creates or repairs `kube-system/kube-dns`: its cluster IP is `address`, its endpoint the name server on the bridge.
pub(super) async fn publish(
    client: &kube::Client,
    address: Ipv4Addr,
    endpoint: Ipv4Addr,
) -> Result<(), NetworkError> {
    let (namespace, name) = NAME_SERVER;
    let failed = |error: kube::Error| {
        NetworkError::because(format!("publish the name server as the Service {namespace}/{name}"), error)
    };
    let labels = json!({
        "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": labels },
        "spec": { "clusterIP": address, "clusterIPs": [address], "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
        ] },
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    services.patch(name, &params, &Patch::Apply(&service)).await.map_err(failed)?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "labels": {
            SERVICE_NAME: name, "endpointslice.kubernetes.io/managed-by": FIELD_MANAGER,
        } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [endpoint], "conditions": { "ready": true } }],
        "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP" },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
        ],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    slices.patch(name, &params, &Patch::Apply(&slice)).await.map_err(failed)?;
    Ok(())
}

/// Answers questions at the address of the Service, and at that of the bridge.
pub(super) fn serve(
    names: &NameServer,
    address: Ipv4Addr,
    bridge: Option<&Bridge>,
) -> Result<(), NetworkError> {
    let open = |address: Ipv4Addr, device: Device<'_>| {
        let address = dns::address(address);
        Ok::<_, std::io::Error>((sockets::receive(address, device)?, sockets::listen(address, device)?))
    };
    let serve = |address: Ipv4Addr, device: Device<'_>| {
        let opened = open(address, device).map_err(|error| {
            let step = format!("answer questions about names at {address}:{}", dns::PORT);
            NetworkError::because(step, format!("{error}; {}", advice(&error)))
        });
        opened.map(|(udp, tcp)| names.serve(udp, tcp))
    };
    let Some(bridge) = bridge else { return serve(address, Device::Any) };
    serve(address, Device::Named(bridge.name()))?;
    serve(bridge.subnet().gateway(), Device::Any)?;
    // Another platform on this machine may have it.
    let _ = serve(address, Device::Named("lo"));
    Ok(())
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "set net.ipv4.ip_unprivileged_port_start=53, or give this program CAP_NET_BIND_SERVICE"
        }
        _ => {
            "if another name server listens at all addresses of this machine, limit it to those that it is for"
        }
    }
}
