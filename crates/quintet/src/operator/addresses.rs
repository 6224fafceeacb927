//! Addresses as Kubernetes programs write them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, bail};

/// `host:port`; an empty host means all interfaces, and `0` means that there is no endpoint.
pub(crate) fn optional(text: &str, what: &str) -> anyhow::Result<Option<SocketAddr>> {
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
pub(super) fn listen(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
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
}
