//! Requests that the server makes: to webhooks, and to the servers of other APIs.

mod trust;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::{
    api::Api,
    json::{items, text},
    store::key_of,
};

pub(crate) use trust::ClientIdentity;

/// Longest a connection may take to be set up, TLS handshake included.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Whose certificates are believed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust<'a> {
    /// Those of these authorities, as PEM.
    Bundle(&'a [u8]),
    /// Any certificate: `insecureSkipTLSVerify`.
    Unverified,
    /// No TLS.
    Unencrypted,
}

/// Where a request goes.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// Host and port to connect to.
    pub(crate) address: (String, u16),
    /// The name the certificate must be for.
    pub(crate) name: String,
    pub(crate) trust: Trust<'a>,
    /// The client certificate to present.
    pub(crate) identity: Option<&'a ClientIdentity>,
}

/// Sends a request on a connection of its own and returns the response as soon as its head is there. Connecting has a
/// deadline; how long the response may take is for the caller to say.
pub(crate) async fn send(
    target: &Target<'_>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    let (host, port) = &target.address;
    let connected = tokio::time::timeout(CONNECT_DEADLINE, connect(target)).await;
    match connected.map_err(|_| format!("dial tcp {host}:{port}: i/o timeout"))?? {
        Connection::Plain(stream) => exchange(stream, request).await,
        Connection::Tls(stream) => exchange(*stream, request).await,
    }
}

enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

async fn connect(target: &Target<'_>) -> Result<Connection, String> {
    let (host, port) = &target.address;
    let stream = TcpStream::connect((host.as_str(), *port))
        .await
        .map_err(|error| format!("dial tcp {host}:{port}: {error}"))?;
    let _ = stream.set_nodelay(true);
    let verifier = match target.trust {
        Trust::Unencrypted => return Ok(Connection::Plain(stream)),
        Trust::Unverified => trust::anyone(),
        Trust::Bundle(bundle) => trust::bundle(bundle),
    };
    let config = trust::config(verifier, target.identity)?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(target.name.clone()).map_err(|error| error.to_string())?;
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    Ok(Connection::Tls(Box::new(stream)))
}

/// Sends a request on a connection that is there.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    #[expect(clippy::disallowed_methods, reason = "it ends when the answer was read or dropped")]
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("outbound connection ended: {error}");
        }
    });
    sender.send_request(request).await.map_err(|error| error.to_string())
}

/// Where a service can be reached: one of its endpoints.
pub(crate) fn endpoint(api: &Api, service: &Value) -> Result<(String, u16), String> {
    let (namespace, name) = (text(service, "/namespace"), text(service, "/name"));
    let key = key_of(namespace, name);
    let Some(entry) = api.store().get("core/services", &key) else {
        return Err(format!("service {name:?} not found"));
    };
    let object = entry.parse();
    let wanted = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    let ports = items(&object, "/spec/ports");
    let Some(port) = ports.iter().find(|port| port.get("port").and_then(Value::as_i64) == Some(wanted))
    else {
        return Err(format!("no service port {wanted} found for service {name:?}"));
    };
    if text(&object, "/spec/type") == "ExternalName" {
        let port = u16::try_from(wanted).map_err(|_| format!("port {wanted} is none"))?;
        return Ok((text(&object, "/spec/externalName").to_owned(), port));
    }
    ready(api, namespace, name, text(port, "/name"))
        .ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

/// A ready endpoint of a service for one of its ports.
pub(crate) fn ready(api: &Api, namespace: &str, service: &str, port: &str) -> Option<(String, u16)> {
    let named = |ports: &[Value]| {
        let found = ports.iter().find(|one| text(one, "/name") == port)?;
        u16::try_from(found.get("port")?.as_u64()?).ok()
    };
    let endpoints = api.store().get("core/endpoints", &key_of(namespace, service));
    let endpoints = endpoints.map(|entry| entry.parse());
    let subsets = endpoints.as_ref().map(|endpoints| items(endpoints, "/subsets"));
    let listed = subsets.into_iter().flatten().find_map(|subset| {
        let address = items(subset, "/addresses").first()?;
        Some((text(address, "/ip").to_owned(), named(items(subset, "/ports"))?))
    });
    listed.or_else(|| {
        let slices = api.store().objects("discovery.k8s.io/endpointslices", &format!("{namespace}/"));
        slices.iter().find_map(|(_, entry)| {
            if entry.head.label("kubernetes.io/service-name") != Some(service) {
                return None;
            }
            let slice = entry.parse();
            let is_ready =
                |endpoint: &&Value| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
            let endpoint = items(&slice, "/endpoints").iter().find(is_ready)?;
            let address = items(endpoint, "/addresses").first()?.as_str()?.to_owned();
            Some((address, named(items(&slice, "/ports"))?))
        })
    })
}
