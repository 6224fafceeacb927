//! The API over HTTPS.

mod body;
pub mod certificates;
pub mod cluster;
mod limits;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, header};
use hyper::{body::Incoming, service::service_fn};
use quintet_foundation::tls::{self, Client, ClientClass, Peer};
use rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::net::TcpListener;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{
    api::Api,
    auth::{Caller, MASTERS, UNAUTHENTICATED, tokens},
    encoding::response,
    request::{body::ResponseBody, content_type::ContentType},
    status::Failure,
};
use certificates::Authority;
use limits::RequestLimits;

/// Connections at a time of clients with credentials; every kubectl is one, every controller a few.
const CONNECTIONS: usize = 4096;
/// Connections at a time of clients without, or of which nothing is known yet.
const UNKNOWN_CONNECTIONS: usize = 512;
/// Connections reserved for administrators, so that other clients cannot use all of them.
const ADMIN_CONNECTIONS: usize = 512;
/// Files that are not connections of clients: the store, webhooks, connections that are being closed.
const OTHER_FILES: usize = 256;
/// Clients send their first request as soon as they are connected.
const FIRST_REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// A client without credentials, such as a health check, connects again.
const UNKNOWN_IDLE_DEADLINE: Duration = Duration::from_secs(30);
/// A connection of a known client without a request for this long is closed.
const IDLE_DEADLINE: Duration = Duration::from_mins(5);
const TOO_MANY: &str = "Too many requests, please try again later.\n";
/// How long requests in progress may take when the server stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen at {address}: {source}; is it in use? choose another with --port and --host")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// Certificates cannot be made.
    #[error("cannot make certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// Certificates that were made cannot be used.
    #[error("cannot use the certificates: {0}")]
    Unusable(String),
}

/// Listens at an address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

/// How connections are secured: the server's certificate, and client certificates of the same authority.
pub fn tls(authority: &Authority, names: &[String]) -> Result<ServerConfig, ServeError> {
    let unusable = |error: &dyn std::fmt::Display| ServeError::Unusable(error.to_string());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).map_err(|e| unusable(&e))?;
    roots.add(ca)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(&error))?;
    let (certificate, key) = authority.server(names)?;
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|e| unusable(&e))?];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| unusable(&e))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    Ok(config)
}

/// Serves an API until it stops.
pub async fn serve(api: Api, listener: TcpListener, tls: ServerConfig) {
    let requests = Arc::new(RequestLimits::default());
    let stop = api.stopping().clone();
    let service = move |peer: Peer<'_>| {
        let known = peer.certificates.first().and_then(caller_of).map(Arc::new);
        if let Some(caller) = &known {
            identify(peer.client, caller);
        }
        let (api, requests, client) = (api.clone(), Arc::clone(&requests), peer.client.clone());
        service_fn(move |request| {
            let (api, known, requests) = (api.clone(), known.clone(), Arc::clone(&requests));
            let client = client.clone();
            async move {
                let response = respond(&api, &requests, (&client, known.as_deref()), request).await;
                Ok::<_, Infallible>(response)
            }
        })
    };
    let limits = connection_limits(quintet_foundation::files::raise_limit());
    tls::serve(listener, tls, limits, service, stop.cancelled_owned()).await;
}

/// How many connections there may be, if so many files may be open.
fn connection_limits(files: u64) -> tls::Limits {
    let files = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES).max(8);
    tls::Limits {
        connections: UNKNOWN_CONNECTIONS.min(files / 8),
        known_connections: CONNECTIONS.min(files / 2),
        privileged_connections: ADMIN_CONNECTIONS.min(files / 8),
        header_timeout: FIRST_REQUEST_DEADLINE,
        idle_timeout: UNKNOWN_IDLE_DEADLINE,
        known_idle_timeout: IDLE_DEADLINE,
        drain_timeout: DRAIN,
        ..tls::Limits::default()
    }
}

/// Counts a connection among those of clients like this caller.
fn identify(client: &Client, caller: &Caller) {
    if caller.is_in(MASTERS) {
        client.identify(ClientClass::Privileged);
    } else if !caller.is_in(UNAUTHENTICATED) {
        client.identify(ClientClass::Known);
    }
}

/// Who a client certificate is of: its common name is the user, its organizations are the groups.
fn caller_of(certificate: &CertificateDer<'_>) -> Option<Caller> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|part| part.as_str().ok().map(str::to_owned));
    Some(Caller::known(name, groups.collect::<Vec<_>>()))
}

/// Who a request is from.
fn authenticate(
    api: &Api,
    certificate: Option<&Caller>,
    headers: &http::HeaderMap,
) -> Result<Caller, Failure> {
    if let Some(caller) = certificate {
        return Ok(caller.clone());
    }
    let Some(authorization) = headers.get(header::AUTHORIZATION) else { return Ok(Caller::anonymous()) };
    let token = authorization.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let known = token.and_then(|token| tokens::authenticate(api, token, &[tokens::ISSUER]));
    known.map(|(caller, _)| caller).ok_or_else(Failure::unauthorized)
}

async fn respond(
    api: &Api,
    limits: &RequestLimits,
    (client, certificate): (&Client, Option<&Caller>),
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let version = request.version();
    let caller = match authenticate(api, certificate, request.headers()) {
        Ok(caller) => caller,
        Err(failure) => return unread(version, &failure),
    };
    identify(client, &caller);
    let Ok(_room) = limits.admit(&caller, &request) else { return too_many() };
    let is_long_running = limits::is_long_running(&request);
    let (parts, body) = request.into_parts();
    let permitted = match api.permit(&parts, caller) {
        Ok(permitted) => permitted,
        Err(failure) if body::skip(body).await => return api.refuse(&failure),
        Err(failure) => return unread(version, &failure),
    };
    let body = match body::read(body).await {
        Ok(body) => body,
        Err(failure) => return unread(version, &failure),
    };
    let is_head = parts.method == http::Method::HEAD;
    let mut response = api.respond(&parts, permitted, body).await;
    if is_head {
        *response.body_mut() = ResponseBody::whole(Bytes::new());
    }
    if is_long_running {
        response.extensions_mut().insert(tls::LongRunning);
    }
    response
}

/// `429 Too Many Requests`: clients retry after a second.
fn too_many() -> Response<ResponseBody> {
    let mut response = response::with_body(429, ContentType::Text, TOO_MANY);
    response.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    response
}

/// The response to a request whose body was not read to its end. The connection is of no further use, and a client
/// that is not told so would send its next request on it.
fn unread(version: http::Version, failure: &Failure) -> Response<ResponseBody> {
    let mut response = response::failure(failure);
    if version < http::Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    response
}
