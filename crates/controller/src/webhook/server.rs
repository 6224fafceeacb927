//! The HTTPS server of all webhooks.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::Request, http::StatusCode, middleware, response::IntoResponse};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use rustls::{ServerConfig, crypto::aws_lc_rs};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;

use super::{Keeper, Routes};
use crate::{admin, tasks::Tasks};

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
        let listener = admin::bind(settings.address).await.map_err(listen)?;
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
        let mut tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(keeper));
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let timed = middleware::from_fn(move |request: Request, next: middleware::Next| async move {
            let answer = tokio::time::timeout(deadline, next.run(request)).await;
            answer.unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response())
        });
        let serving = Serving {
            router: routes.into_router().layer(timed),
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            room: Arc::new(Semaphore::new(connections)),
            linger,
            tasks: tasks.clone(),
        };
        tasks.spawn("webhooks", serving.run(self.listener));
        Ok(())
    }
}

struct Serving {
    router: Router,
    acceptor: TlsAcceptor,
    room: Arc<Semaphore>,
    linger: Duration,
    tasks: Tasks,
}

/// A client that has not finished its handshake or headers by then is none.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// How long requests under way may take when the process stops.
const DRAIN: Duration = Duration::from_secs(10);

impl Serving {
    async fn run(self, listener: TcpListener) {
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                () = self.lingered() => break,
                accepted = accept(&listener, &self.room) => accepted,
            };
            let Some((stream, room)) = accepted else { continue };
            let (acceptor, router, watcher) =
                (self.acceptor.clone(), self.router.clone(), graceful.watcher());
            let tasks = self.tasks.clone();
            self.tasks.spawn("webhook connection", async move {
                let _room = room;
                let handshake = tokio::time::timeout(HELLO_DEADLINE, acceptor.accept(stream));
                let stream = tokio::select! {
                    () = tasks.stopping() => return,
                    handshake = handshake => match handshake {
                        Ok(Ok(stream)) => stream,
                        Ok(Err(error)) => return tracing::debug!("TLS handshake failed: {error}"),
                        Err(_) => return tracing::debug!("TLS handshake took too long"),
                    },
                };
                let mut http = auto::Builder::new(TokioExecutor::new());
                http.http1().timer(TokioTimer::new()).header_read_timeout(HELLO_DEADLINE);
                http.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(30));
                let service = TowerToHyperService::new(router);
                let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!("webhook connection ended: {error}");
                }
            });
        }
        drop(listener);
        // Answer what was asked.
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
}

impl Serving {
    /// Resolves when it is time to accept no more.
    async fn lingered(&self) {
        self.tasks.stopping().await;
        tokio::time::sleep(self.linger).await;
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let room = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            let _ = stream.set_nodelay(true);
            Some((stream, room))
        }
        Err(error) => {
            // Out of file descriptors or the like: it will not get better by asking at once.
            tracing::warn!("cannot accept a webhook connection: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}
