//! The HTTPS server of all webhooks.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{extract::Request, http::StatusCode, middleware, response::IntoResponse};
use hyper_util::service::TowerToHyperService;
use quintet_foundation::tls::{self, Peer};
use rustls::{ServerConfig, crypto::aws_lc_rs};
use tokio::net::TcpListener;

use super::{Keeper, Routes};
use crate::tasks::Tasks;

/// How webhooks are served.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// Address to listen at.
    pub address: SocketAddr,
    /// The longest a request may take. API servers wait ten seconds unless told otherwise.
    pub deadline: Duration,
    /// Connections at a time; API servers share a few among all requests.
    pub connections: usize,
    /// How long to go on accepting once the process stops: others learn only then that it is not ready.
    pub linger: Duration,
}

impl WebhookSettings {
    /// At `address`, with usual limits.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, deadline: Duration::from_secs(10), connections: 512, linger: Duration::ZERO }
    }
}

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error(
        "cannot listen at {address}: {source}; is it in use? choose another with --webhook-host and --webhook-port"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A server that listens, and does not answer yet.
#[derive(Debug)]
pub struct WebhookServer {
    settings: WebhookSettings,
    listener: TcpListener,
    address: SocketAddr,
}

impl WebhookServer {
    /// Takes the address.
    pub async fn bind(settings: WebhookSettings) -> Result<Self, ServeError> {
        let listen = |source| ServeError::Listen { address: settings.address, source };
        let listener = tls::bind(settings.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self { settings, listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the tasks stop.
    pub fn serve(self, routes: Routes, keeper: Keeper, tasks: &Tasks) -> Result<(), ServeError> {
        let WebhookSettings { address: _, deadline, connections, linger } = self.settings;
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(keeper));
        let timed = middleware::from_fn(move |request: Request, next: middleware::Next| async move {
            let answer = tokio::time::timeout(deadline, next.run(request)).await;
            answer.unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response())
        });
        let router = routes.into_router().layer(timed);
        let limits = tls::Limits { connections, ..tls::Limits::default() };
        let stopping = tasks.clone();
        let stop = async move {
            stopping.stopping().await;
            tokio::time::sleep(linger).await;
        };
        let service = move |_: Peer<'_>| TowerToHyperService::new(router.clone());
        tasks.spawn("webhooks", tls::serve(self.listener, tls, limits, service, stop));
        Ok(())
    }
}
