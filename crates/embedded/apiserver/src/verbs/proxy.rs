//! The `proxy` subresource of services, pods and nodes.
//!
//! Everything on one machine may well be on its loopback interface: other than in Kubernetes, an address on it that an
//! object states may be passed on to. Names that resolve to it may not, nor may link-local addresses.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;

use super::links;
use crate::{
    api::Api,
    encoding::response,
    json::{items, text},
    outbound::{self, Target, Trust},
    request::{body::ResponseBody, content_type::ContentType, url::ResourcePath},
    status::{Failure, Named},
    store::key_of,
};

/// Pages in which links are rewritten are read as a whole; longer ones are none.
const PAGE_AT_MOST: usize = 8 << 20;
/// The default port of kubelets.
const NODE_PORT: u16 = 10_250;

/// Whom a name means: `[scheme:]name[:port]`.
struct ProxyTarget<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> ProxyTarget<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(':');
        let asked = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            (name, None, ..) => Self { scheme: "", name, port: "" },
            (name, Some(port), None, _) => Self { scheme: "", name, port },
            (scheme @ ("" | "http" | "https"), Some(name), Some(port), None) => Self { scheme, name, port },
            _ => return None,
        };
        (!asked.name.is_empty()).then_some(asked)
    }
}

/// The address to connect to, and whether it speaks TLS.
struct Destination {
    address: (String, u16),
    is_secure: bool,
}

/// Forwards a request, and returns the response.
pub(crate) async fn serve(
    api: &Api,
    path: &ResourcePath,
    parts: &http::request::Parts,
    body: Bytes,
) -> Result<Response<ResponseBody>, Failure> {
    let raw = parts.uri.path();
    let (prefix, rest) = split(raw, path.namespace.is_some());
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    if rest.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
        // Relative links of a page need a directory to be relative to.
        let mut response = response::with_body(301, ContentType::Text, "");
        if let Ok(location) = HeaderValue::from_str(&format!("{raw}/{query}")) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        return Ok(response);
    }
    let name = path.name.as_deref().unwrap_or_default();
    let invalid = || Failure::bad_request(format!("invalid {} request {name:?}", singular(path)));
    let asked = ProxyTarget::parse(name).ok_or_else(invalid)?;
    let namespace = path.namespace.as_deref().unwrap_or_default();
    let found = match path.resource.as_str() {
        "services" => service(api, namespace, &asked)?,
        "pods" => pod(api, namespace, &asked)?,
        _ => node(api, &asked)?,
    };
    let (host, port) = &found.address;
    let ip = resolve(host, *port).await?;
    let rest = if rest.is_empty() { "/" } else { rest };
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = format!("{rest}{query}").parse().map_err(Failure::internal)?;
    *request.headers_mut() = forwarded(&parts.headers, host, *port, raw);
    let trust = if found.is_secure { Trust::Unverified } else { Trust::Unencrypted };
    let target = Target { address: (ip.to_string(), *port), name: host.clone(), trust, identity: None };
    let response = outbound::send(&target, request).await.map_err(|why| {
        let shown = format!("error trying to reach service: {why}");
        Failure::new(503, "ServiceUnavailable", shown)
    })?;
    Ok(answer(response, prefix, host, *port).await)
}

/// The address to connect to. It is resolved once: what was checked is what is connected to.
async fn resolve(host: &str, port: u16) -> Result<IpAddr, Failure> {
    let not_allowed = || Failure::bad_request("address not allowed");
    if let Ok(ip) = host.parse::<IpAddr>() {
        let ip = ip.to_canonical();
        return if ip.is_loopback() || is_proxyable(ip) { Ok(ip) } else { Err(not_allowed()) };
    }
    if host.is_empty() {
        return Err(not_allowed());
    }
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| Failure::bad_request(format!("lookup {host}: {error}")))?;
    let found: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
    match found.first() {
        // As upstream's `IsProxyableHostname`: one forbidden address forbids the name.
        Some(first) if found.iter().all(|ip| is_proxyable(*ip)) => Ok(*first),
        _ => Err(not_allowed()),
    }
}

/// Whether requests may be forwarded there: not to this machine, nor to link-local addresses, where clouds have their
/// metadata services.
fn is_proxyable(ip: IpAddr) -> bool {
    let is_special = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_special && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()
}

fn singular(path: &ResourcePath) -> &str {
    path.resource.strip_suffix('s').unwrap_or(&path.resource)
}

/// Cuts a path after `/proxy`, as it was written.
fn split(raw: &str, is_namespaced: bool) -> (&str, &str) {
    // /api/v1/namespaces/NAMESPACE/services/NAME/proxy, or /api/v1/nodes/NAME/proxy
    let segments = if is_namespaced { 7 } else { 5 };
    let end = raw.match_indices('/').nth(segments).map_or(raw.len(), |(at, _)| at);
    raw.split_at_checked(end).unwrap_or((raw, ""))
}

fn object(api: &Api, plural: &str, namespace: &str, name: &str) -> Result<Value, Failure> {
    let entry = api.store().get(&format!("core/{plural}"), &key_of(namespace, name));
    let entry = entry.ok_or_else(|| Failure::not_found(Named { group: "", resource: plural, name }))?;
    serde_json::from_slice(&entry.body).map_err(Failure::internal)
}

fn service(api: &Api, namespace: &str, asked: &ProxyTarget<'_>) -> Result<Destination, Failure> {
    let ProxyTarget { name, port, scheme } = asked;
    let service = object(api, "services", namespace, name)?;
    let unavailable = |message: String| Failure::new(503, "ServiceUnavailable", message);
    let ports = items(&service, "/spec/ports");
    let wanted = ports.iter().find(|one| {
        text(one, "/name") == *port
            || one.get("port").and_then(Value::as_u64).is_some_and(|number| number.to_string() == *port)
    });
    let wanted = match (wanted, ports) {
        (None, [only]) if port.is_empty() => Some(only),
        (wanted, _) => wanted,
    };
    let wanted =
        wanted.ok_or_else(|| unavailable(format!("no service port {port:?} found for service {name:?}")))?;
    let address = outbound::ready(api, namespace, name, text(wanted, "/name"))
        .ok_or_else(|| unavailable(format!("no endpoints available for service {name:?}")))?;
    Ok(Destination { address, is_secure: *scheme == "https" })
}

fn pod(api: &Api, namespace: &str, asked: &ProxyTarget<'_>) -> Result<Destination, Failure> {
    let ProxyTarget { name, port, scheme } = asked;
    let pod = object(api, "pods", namespace, name)?;
    let mut ports = items(&pod, "/spec/containers").iter().flat_map(|container| items(container, "/ports"));
    let number = if port.is_empty() {
        // The first one it speaks of, else that of the web.
        let first = ports.find_map(|port| port.get("containerPort")?.as_u64());
        u16::try_from(first.unwrap_or(if *scheme == "https" { 443 } else { 80 })).ok()
    } else {
        let mut named = ports.filter(|one| text(one, "/name") == *port);
        let named = named.next().and_then(|one| u16::try_from(one.get("containerPort")?.as_u64()?).ok());
        named.or_else(|| port.parse().ok())
    };
    let number = number.ok_or_else(|| Failure::bad_request(format!("invalid port {port:?}")))?;
    let address = (text(&pod, "/status/podIP").to_owned(), number);
    Ok(Destination { address, is_secure: *scheme == "https" })
}

fn node(api: &Api, asked: &ProxyTarget<'_>) -> Result<Destination, Failure> {
    let ProxyTarget { name, port, scheme } = asked;
    let node = object(api, "nodes", "", name)?;
    let addresses = items(&node, "/status/addresses");
    let preferred = ["InternalIP", "ExternalIP", "Hostname"].iter().find_map(|kind| {
        addresses.iter().find(|one| text(one, "/type") == *kind).map(|one| text(one, "/address"))
    });
    let address = preferred.ok_or_else(|| {
        Failure::internal(format!("no preferred addresses found for node {name:?}; it has none"))
    })?;
    let own = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let own = own.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(NODE_PORT);
    let number = if port.is_empty() { Some(own) } else { port.parse().ok() };
    let number = number.ok_or_else(|| Failure::bad_request(format!("invalid port {port:?}")))?;
    // Nodes themselves speak nothing else; whatever else runs there is asked as the caller says.
    let is_secure = if number == own { *scheme != "http" } else { *scheme == "https" };
    Ok(Destination { address: (address.to_owned(), number), is_secure })
}

/// Headers that belong to one connection, or that carry credentials for this server.
fn is_own(name: &HeaderName) -> bool {
    let own = [
        header::AUTHORIZATION,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    own.contains(name) || name.as_str().starts_with("impersonate-") || name.as_str() == "keep-alive"
}

fn forwarded(headers: &HeaderMap, host: &str, port: u16, raw: &str) -> HeaderMap {
    let mut out: HeaderMap = headers
        .iter()
        .filter(|(name, _)| !is_own(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .fold(HeaderMap::new(), |mut out, (name, value)| {
            out.append(name, value);
            out
        });
    let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let asked = headers.get(header::HOST).cloned();
    let told = [
        (header::HOST, HeaderValue::from_str(&host).ok()),
        (HeaderName::from_static("x-forwarded-host"), asked),
        (HeaderName::from_static("x-forwarded-proto"), Some(HeaderValue::from_static("https"))),
        (HeaderName::from_static("x-forwarded-uri"), HeaderValue::from_str(raw).ok()),
    ];
    for (name, value) in told {
        if let Some(value) = value {
            out.insert(name, value);
        }
    }
    out
}

/// The response, with links rewritten to lead through the proxy.
async fn answer(
    response: Response<hyper::body::Incoming>,
    prefix: &str,
    host: &str,
    port: u16,
) -> Response<ResponseBody> {
    let (mut head, body) = response.into_parts();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE] {
        head.headers.remove(name);
    }
    if let Some(location) = head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok())
        && let Some(location) = links::location(location, prefix, host, port)
        && let Ok(location) = HeaderValue::from_str(&location)
    {
        head.headers.insert(header::LOCATION, location);
    }
    let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_page = content_type.is_some_and(|value| value.starts_with("text/html"));
    if !is_page || head.headers.contains_key(header::CONTENT_ENCODING) {
        return Response::from_parts(head, ResponseBody::forwarded(body));
    }
    head.headers.remove(header::CONTENT_LENGTH);
    match Limited::new(body, PAGE_AT_MOST).collect().await {
        Ok(page) => {
            let page = links::page(&page.to_bytes(), prefix, host, port);
            Response::from_parts(head, ResponseBody::whole(page))
        }
        Err(error) => {
            response::failure(&Failure::new(502, "", format!("the page could not be read: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_scheme_and_port() {
        let parts = |text: &'static str| ProxyTarget::parse(text).map(|one| (one.scheme, one.name, one.port));
        assert_eq!(parts("a"), Some(("", "a", "")));
        assert_eq!(parts("a:80"), Some(("", "a", "80")));
        assert_eq!(parts("https:a:"), Some(("https", "a", "")));
        assert_eq!(parts("https:a:web"), Some(("https", "a", "web")));
        assert_eq!(parts("ftp:a:1"), None);
        assert_eq!(parts(":80"), None);
        assert_eq!(parts("a:b:c:d"), None);
    }

    #[tokio::test]
    async fn addresses_are_judged_after_resolution() {
        let judge =
            async |host: &str| resolve(host, 80).await.map_err(|failure| failure.message().to_owned());
        for host in ["10.0.0.1", "127.0.0.1", "2001:db8::1", "::ffff:10.0.0.1"] {
            assert!(judge(host).await.is_ok(), "{host}");
        }
        for host in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::ffff:0.0.0.0",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "",
            "localhost",
        ] {
            assert_eq!(judge(host).await, Err("address not allowed".to_owned()), "{host}");
        }
    }

    #[test]
    fn paths_are_cut_as_they_were_written() {
        let raw = "/api/v1/namespaces/a/services/https:b:c/proxy/d%2Fe/";
        assert_eq!(split(raw, true), ("/api/v1/namespaces/a/services/https:b:c/proxy", "/d%2Fe/"));
        assert_eq!(split("/api/v1/nodes/n/proxy", false), ("/api/v1/nodes/n/proxy", ""));
    }
}
