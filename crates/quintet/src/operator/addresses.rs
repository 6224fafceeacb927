//! Addresses as Kubernetes programs write them, and the ones used where none is configured.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, bail};
use quintet_api::config::Process;

/// Where a process runs that serves endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In a pod: the kubelet, Prometheus and the API server connect from elsewhere.
    Pod,
    /// On a user's machine: reachable on loopback only.
    Machine,
}

/// Where the endpoints of a process are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) health: Option<SocketAddr>,
    pub(crate) webhooks: SocketAddr,
}

/// Outside a pod metrics and health share this address: port 8080 is where kubectl looks for a cluster if it has no
/// kubeconfig.
const MACHINE: &str = "127.0.0.1:8081";

impl Endpoints {
    /// The configured addresses, and defaults for the others.
    pub(crate) fn of(process: &Process, placement: Placement) -> anyhow::Result<Self> {
        let (metrics, health, host) = match placement {
            Placement::Pod => (":8080", ":8081", ""),
            Placement::Machine => (MACHINE, MACHINE, "127.0.0.1"),
        };
        let metrics = process.metrics_bind_address.as_deref().unwrap_or(metrics);
        let health = process.health_bind_address.as_deref().unwrap_or(health);
        let host = process.webhook.host.as_deref().unwrap_or(host);
        Ok(Self {
            metrics: optional(metrics, "metricsBindAddress (--metrics-bind-address)")?,
            health: optional(health, "healthBindAddress (--health-probe-bind-address)")?,
            webhooks: listen(host, process.webhook.port).context("webhook.host (--webhook-host)")?,
        })
    }
}

/// `host:port`; an empty host means all interfaces, and `0` means that there is no endpoint.
fn optional(text: &str, what: &str) -> anyhow::Result<Option<SocketAddr>> {
    if text == "0" || text.is_empty() {
        return Ok(None);
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        bail!("{what} \"{text}\" has no port; write it like :8080 or 127.0.0.1:8080");
    };
    let port = port.parse().with_context(|| format!("{what} \"{text}\": \"{port}\" is not a port"))?;
    listen(host, port).map(Some).with_context(|| format!("{what} \"{text}\""))
}

/// An address to listen at.
fn listen(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = match host {
        "" => Ipv6Addr::UNSPECIFIED.into(),
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        _ => host.parse().with_context(|| format!("\"{host}\" is not an IP address"))?,
    };
    Ok(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_programs_take() {
        for (text, expected) in [
            (":8080", Some("[::]:8080")),
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("localhost:1", Some("127.0.0.1:1")),
            ("[::1]:1", Some("[::1]:1")),
            ("0", None),
            ("", None),
        ] {
            let address = optional(text, "address").unwrap().map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("8080", "address \"8080\" has no port; write it like :8080 or 127.0.0.1:8080"),
            (":x", "address \":x\": \"x\" is not a port: invalid digit found in string"),
            ("here:1", "address \"here:1\": \"here\" is not an IP address: invalid IP address syntax"),
        ] {
            assert_eq!(format!("{:#}", optional(text, "address").unwrap_err()), expected);
        }
    }

    #[test]
    fn only_a_pod_listens_on_all_interfaces_by_default() {
        let addresses = |process: &Process, placement| {
            let Endpoints { metrics, health, webhooks } = Endpoints::of(process, placement).unwrap();
            [metrics, health, Some(webhooks)].map(|address| address.map(|address| address.to_string()))
        };
        let some = |texts: [&str; 3]| texts.map(|text| Some(text.to_owned()));
        let plain = Process::default();
        assert_eq!(addresses(&plain, Placement::Pod), some(["[::]:8080", "[::]:8081", "[::]:9443"]));
        let on_loopback = addresses(&plain, Placement::Machine);
        assert_eq!(on_loopback, some(["127.0.0.1:8081", "127.0.0.1:8081", "127.0.0.1:9443"]));

        let mut configured = Process {
            metrics_bind_address: Some(":9090".into()),
            health_bind_address: Some("0".into()),
            ..Process::default()
        };
        configured.webhook.host = Some(String::new());
        let everywhere = [Some("[::]:9090".to_owned()), None, Some("[::]:9443".to_owned())];
        assert_eq!(addresses(&configured, Placement::Machine), everywhere, "as configured");
        assert_eq!(addresses(&configured, Placement::Pod), everywhere);
    }
}
