//! Upgrading a connection to the protocol that a client asks for.

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::{failure, websocket};
use crate::kubelet::HandlerBody;

/// The header by which SPDY clients negotiate what their streams mean.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// An upgraded connection.
pub(super) type Connection = TokioIo<Upgraded>;

/// What a client wants to speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// WebSockets, with one of the offered subprotocols.
    WebSocket(String),
    /// SPDY/3.1, with one of the offered protocols for its streams.
    Spdy(String),
}

/// A connection that will be upgraded when the response is sent.
pub(super) struct Upgrade {
    pub protocol: Protocol,
    pending: OnUpgrade,
    headers: HeaderMap,
}

impl Upgrade {
    /// Reads what a client asks for; of what it offers the first of `known` is chosen.
    pub(super) fn of(request: &mut Request<Bytes>, known: &[&str]) -> Result<Self, String> {
        let on_upgrade = request.extensions_mut().remove::<OnUpgrade>();
        let on_upgrade = on_upgrade.ok_or("Upgrade request required")?;
        let (protocol, headers) = negotiate(request.headers(), known)?;
        Ok(Self { protocol, pending: on_upgrade, headers })
    }

    /// The response that upgrades the connection, and the connection to wait for.
    pub(super) fn accept(self) -> (Response<HandlerBody>, OnUpgrade) {
        let mut response = Response::new(futures::stream::empty().boxed());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = self.headers;
        (response, self.pending)
    }
}

/// Waits for the connection; `None` if the client went before.
pub(super) async fn connection(on_upgrade: OnUpgrade) -> Option<Connection> {
    on_upgrade.await.ok().map(TokioIo::new)
}

/// The response to a request that cannot be upgraded.
pub(super) fn refused(why: &str) -> Response<HandlerBody> {
    failure(StatusCode::BAD_REQUEST, why.to_owned())
}

fn negotiate(headers: &HeaderMap, known: &[&str]) -> Result<(Protocol, HeaderMap), String> {
    let wanted = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let offered = |name: HeaderName| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(|one| one.trim().to_owned()).collect::<Vec<_>>()
    };
    let choose = |offered: &[String]| {
        let chosen = known.iter().find(|known| offered.iter().any(|one| one == *known));
        match chosen {
            Some(chosen) => Ok((*chosen).to_owned()),
            None if offered.is_empty() => Ok(String::new()),
            None => Err(format!("none of the protocols {offered:?} is known; known are {known:?}")),
        }
    };
    let mut response = HeaderMap::new();
    response.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    if wanted.eq_ignore_ascii_case("websocket") {
        let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|value| value.to_str().ok());
        let key = key.ok_or("Sec-WebSocket-Key is missing")?;
        let chosen = choose(&offered(header::SEC_WEBSOCKET_PROTOCOL))?;
        response.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        response.insert(header::SEC_WEBSOCKET_ACCEPT, value(&websocket::accept(key))?);
        if !chosen.is_empty() {
            response.insert(header::SEC_WEBSOCKET_PROTOCOL, value(&chosen)?);
        }
        return Ok((Protocol::WebSocket(chosen), response));
    }
    if wanted.eq_ignore_ascii_case("SPDY/3.1") {
        let chosen = choose(&offered(STREAM_PROTOCOL))?;
        response.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        if !chosen.is_empty() {
            response.insert(STREAM_PROTOCOL, value(&chosen)?);
        }
        return Ok((Protocol::Spdy(chosen), response));
    }
    Err("Upgrade request required".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_best_known_protocol_is_chosen() {
        let known = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
        let websocket = headers(&[
            ("upgrade", "WebSocket"),
            ("sec-websocket-key", "x"),
            ("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io"),
        ]);
        let (protocol, response) = negotiate(&websocket, &known).unwrap();
        assert_eq!(protocol, Protocol::WebSocket("v5.channel.k8s.io".into()));
        assert_eq!(response["sec-websocket-protocol"], "v5.channel.k8s.io");
        let spdy = headers(&[
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v9.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ]);
        let (protocol, response) = negotiate(&spdy, &known).unwrap();
        assert_eq!(protocol, Protocol::Spdy("v4.channel.k8s.io".into()));
        assert_eq!(response["x-stream-protocol-version"], "v4.channel.k8s.io");
    }

    #[test]
    fn requests_without_a_known_protocol_are_refused() {
        let known = ["v4.channel.k8s.io"];
        let unknown = headers(&[
            ("upgrade", "websocket"),
            ("sec-websocket-key", "x"),
            ("sec-websocket-protocol", "chat"),
        ]);
        assert!(negotiate(&unknown, &known).unwrap_err().contains("chat"));
        assert_eq!(negotiate(&HeaderMap::new(), &known).unwrap_err(), "Upgrade request required");
        let none = headers(&[("upgrade", "websocket"), ("sec-websocket-key", "x")]);
        assert_eq!(negotiate(&none, &known).unwrap().0, Protocol::WebSocket(String::new()));
    }
}
