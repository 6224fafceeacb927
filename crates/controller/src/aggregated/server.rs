//! The HTTPS server of an aggregated API.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Extension, Router, body::Body, extract::Request};
use http::{Response, StatusCode};
use hyper_util::service::TowerToHyperService;
use quintet_foundation::tls::{self, Peer};
use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;

use super::{Access, ApiHandler, StatusError, authentication::AnyClient};
use crate::{tasks::Tasks, webhook::CertificateManager};

/// API servers end requests after this long.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a handler may take, so that its client reads why there is no response.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(50);
/// Connections at a time; API servers use a few for all requests.
const CONNECTIONS: usize = 128;
/// Requests at a time on an HTTP/2 connection.
const STREAMS: u32 = 100;

/// A server that listens and does not serve yet.
#[derive(Debug)]
pub struct ApiServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl ApiServer {
    /// Binds the address.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = tls::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the tasks stop.
    pub fn serve(
        self,
        name: &str,
        handler: ApiHandler,
        access: Access,
        certificates: CertificateManager,
        tasks: &Tasks,
    ) -> Result<(), rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(AnyClient(provider)))
            .with_cert_resolver(Arc::new(certificates));
        let router =
            Router::new().fallback(move |Extension(client): Extension<ClientChain>, request: Request| {
                let (handler, access) = (Arc::clone(&handler), access.clone());
                async move { respond(&handler, &access, &client.0, request).await.map(Body::from) }
            });
        let limits = tls::Limits {
            connections: CONNECTIONS,
            streams: STREAMS,
            request_timeout: Some(REQUEST_TIMEOUT),
            ..tls::Limits::default()
        };
        let stopping = tasks.clone();
        let service = move |peer: Peer<'_>| {
            let chain = ClientChain(peer.certificates.into());
            TowerToHyperService::new(router.clone().layer(Extension(chain)))
        };
        let stop = async move { stopping.stopping().await };
        tasks.spawn(format!("API {name}"), tls::serve(self.listener, tls, limits, service, stop));
        Ok(())
    }
}

/// The certificates of a client, its own first.
#[derive(Clone)]
struct ClientChain(Arc<[CertificateDer<'static>]>);

/// Handles a request if it is allowed. Its body is not read.
async fn respond(
    handler: &ApiHandler,
    access: &Access,
    client: &[CertificateDer<'static>],
    request: Request,
) -> Response<Vec<u8>> {
    let (parts, _) = request.into_parts();
    let response = async {
        match access.allow(client, &parts).await {
            Ok(()) => handler(parts).await,
            Err(refused) => refused.response(),
        }
    };
    tokio::time::timeout(HANDLER_TIMEOUT, response).await.unwrap_or_else(|_| {
        let code = StatusCode::GATEWAY_TIMEOUT.as_u16();
        StatusError::new(code, "Timeout", "the request was not handled in time").response()
    })
}
