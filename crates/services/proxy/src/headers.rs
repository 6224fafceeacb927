//! What is forwarded of the headers of a request, and with whose credentials.
//!
//! Headers of one connection end here, as in Go's `httputil.ReverseProxy`. A request that could make another hop drop
//! or choose credentials is refused.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that are about one connection only.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The prefix of the headers by which a user of the Kubernetes API acts as another.
const IMPERSONATE: &str = "impersonate-";

/// Who a request acts as in the Kubernetes API.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    /// This server.
    Server,
    /// The caller, by these headers. Everything that is done for such a request is done as the caller, so that it is
    /// never given more rights than it has.
    Caller(HeaderMap),
}

/// What is forwarded of a request.
#[derive(Clone, Debug)]
pub(crate) struct Forwarded {
    pub(crate) identity: Identity,
    /// All headers but the credentials of this server.
    pub(crate) headers: HeaderMap,
}

/// Why a request is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidHeaders {
    #[error("the request has more than one {0} header")]
    Repeated(&'static str),
    /// A gateway in front may have added it: without it the request would act as this server.
    #[error("the header Connection names {0:?}, which has to be forwarded")]
    ConnectionNames(&'static str),
    #[error("the header Upgrade is not valid")]
    Upgrade,
}

/// The headers to forward for a request of `peer`.
pub(crate) fn forwarded(incoming: &HeaderMap, peer: IpAddr) -> Result<Forwarded, InvalidHeaders> {
    for (name, text) in [(header::AUTHORIZATION, "Authorization"), (header::HOST, "Host")] {
        if incoming.get_all(name).iter().count() > 1 {
            return Err(InvalidHeaders::Repeated(text));
        }
    }
    for token in connection_tokens(incoming) {
        let protected = [("authorization", "Authorization"), ("host", "Host")];
        if let Some((_, text)) = protected.into_iter().find(|(name, _)| *name == token) {
            return Err(InvalidHeaders::ConnectionNames(text));
        }
        if token.starts_with(IMPERSONATE) {
            return Err(InvalidHeaders::ConnectionNames("Impersonate-*"));
        }
    }
    let mut headers = incoming.clone();
    let upgrade = upgrade(incoming)?;
    let accepts_trailers = tokens(incoming, &header::TE).any(|token| token == "trailers");
    remove_hop_by_hop(&mut headers);
    // The body is sent anew, in one piece.
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    if accepts_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    append_forwarded_for(&mut headers, peer);
    let identity = identify(&mut headers);
    Ok(Forwarded { identity, headers })
}

/// Removes the headers of the connection to the Kubernetes API from a response.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = connection_tokens(headers).collect();
    for name in named {
        headers.remove(name.as_str());
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove(header::UPGRADE);
}

/// The protocol that a request wants its connection to speak from now on.
fn upgrade(headers: &HeaderMap) -> Result<Option<HeaderValue>, InvalidHeaders> {
    if !connection_tokens(headers).any(|token| token == "upgrade") {
        return Ok(None);
    }
    let protocol = headers.get(header::UPGRADE).filter(|protocol| !protocol.is_empty());
    let is_printable =
        |value: &&HeaderValue| value.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte));
    match protocol {
        Some(protocol) if !is_printable(&protocol) => Err(InvalidHeaders::Upgrade),
        protocol => Ok(protocol.cloned()),
    }
}

/// Removes what may not be used with this server's credentials, if the caller has none.
fn identify(headers: &mut HeaderMap) -> Identity {
    if headers.get(header::AUTHORIZATION).is_some_and(|value| !value.is_empty()) {
        let is_credential =
            |name: &HeaderName| name == header::AUTHORIZATION || name.as_str().starts_with(IMPERSONATE);
        let mut credentials = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(name, _)| is_credential(name)) {
            credentials.append(name, value.clone());
        }
        return Identity::Caller(credentials);
    }
    // This server may be allowed to impersonate; a caller who is not even known must not be.
    let impersonation = headers.keys().filter(|name| name.as_str().starts_with(IMPERSONATE));
    for name in impersonation.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    headers.remove(header::AUTHORIZATION);
    Identity::Server
}

fn append_forwarded_for(headers: &mut HeaderMap, peer: IpAddr) {
    let mut hops: Vec<String> = headers
        .get_all(X_FORWARDED_FOR)
        .iter()
        .map(|hop| String::from_utf8_lossy(hop.as_bytes()).into_owned())
        .collect();
    hops.push(peer.to_canonical().to_string());
    if let Ok(value) = HeaderValue::from_str(&hops.join(", ")) {
        headers.insert(X_FORWARDED_FOR, value);
    }
}

fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = String> {
    tokens(headers, &header::CONNECTION)
}

/// The parts of a header that is a list, in lower case.
fn tokens(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let tokens = values.flat_map(|value| value.split(',')).map(|token| token.trim().to_ascii_lowercase());
    tokens.filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        map
    }

    fn forward(pairs: &[(&str, &str)]) -> Forwarded {
        forwarded(&map(pairs), [10, 0, 0, 9].into()).unwrap()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn headers_of_the_connection_end_here() {
        let forwarded = forward(&[
            ("host", "ray.example"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("x-own", "v"),
        ]);
        assert_eq!(names(&forwarded.headers), ["host", "te", "x-forwarded-for", "x-own"]);
        assert_eq!(forwarded.headers["te"], "trailers");
    }

    #[test]
    fn an_upgrade_is_forwarded_if_the_connection_says_so() {
        let forwarded = forward(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(forwarded.headers["connection"], "Upgrade");
        assert_eq!(forwarded.headers["upgrade"], "websocket");
    }

    #[test]
    fn the_client_is_added_to_the_hops() {
        assert_eq!(forward(&[]).headers["x-forwarded-for"], "10.0.0.9");
        let two = forward(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2")]);
        assert_eq!(two.headers["x-forwarded-for"], "1.1.1.1, 2.2.2.2, 10.0.0.9");
    }

    #[test]
    fn only_callers_with_their_own_credentials_may_impersonate() {
        let impersonation = [("impersonate-user", "root"), ("impersonate-extra-scopes", "all")];
        let forwarded = forward(&impersonation);
        assert!(matches!(forwarded.identity, Identity::Server));
        assert_eq!(names(&forwarded.headers), ["x-forwarded-for"]);
        let empty = forward(&[("authorization", ""), impersonation[0]]);
        assert!(matches!(empty.identity, Identity::Server));
        assert_eq!(names(&empty.headers), ["x-forwarded-for"]);
        let own = forward(&[("authorization", "Bearer own"), impersonation[0], impersonation[1]]);
        let Identity::Caller(credentials) = &own.identity else { panic!("the caller has a token") };
        assert_eq!(names(credentials), ["authorization", "impersonate-extra-scopes", "impersonate-user"]);
        assert_eq!(own.headers["authorization"], "Bearer own");
        assert_eq!(own.headers["impersonate-user"], "root");
    }

    #[test]
    fn credentials_cannot_be_dropped_or_doubled() {
        let refused = |pairs: &[(&str, &str)]| forwarded(&map(pairs), [127, 0, 0, 1].into()).unwrap_err();
        assert_eq!(
            refused(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]),
            InvalidHeaders::Repeated("Authorization")
        );
        assert_eq!(refused(&[("host", "a"), ("host", "b")]), InvalidHeaders::Repeated("Host"));
        let named = InvalidHeaders::ConnectionNames("Authorization");
        assert_eq!(refused(&[("authorization", "Bearer a"), ("connection", "close, AUTHORIZATION")]), named);
        let named = InvalidHeaders::ConnectionNames("Impersonate-*");
        assert_eq!(refused(&[("connection", "Impersonate-User")]), named);
    }
}
