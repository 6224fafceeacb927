//! The HTTPS server of all webhooks.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::Request,
    response::{IntoResponse, Response},
    routing::post,
};
use hyper_util::service::TowerToHyperService;
use quintet_foundation::tls::{self, Peer};
use rustls::{ServerConfig, crypto::aws_lc_rs};
use tokio::{net::TcpListener, time::Instant};

use super::{CertificateManager, HandlerError, Routes, body::BodyMemory};
use crate::tasks::Tasks;

/// Twice what API servers wait for: the rest is for clients that do not read their response.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Requests at a time on an HTTP/2 connection; clients open another connection for more.
const STREAMS: u32 = 100;

/// How webhooks are served.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// Address to listen at.
    pub address: SocketAddr,
    /// The time limit of requests. Those that say how long their API server waits end earlier than that.
    pub deadline: Duration,
    /// Connections at a time; API servers use a few for all requests.
    pub connections: usize,
    /// How long to go on accepting connections once the process stops: clients learn only then that it is not
    /// ready.
    pub linger: Duration,
}

impl WebhookSettings {
    /// At `address`, with the default limits. API servers wait for at most 30 seconds, and for conversions, which
    /// do not say so, just as long: the response has to arrive before that.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, deadline: Duration::from_secs(29), connections: 512, linger: Duration::ZERO }
    }
}

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error(
        "cannot listen at {address}: {source}; is it in use? choose another with --webhook-host and --webhook-port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A server that listens and does not serve yet.
#[derive(Debug)]
pub struct WebhookServer {
    settings: WebhookSettings,
    listener: TcpListener,
    address: SocketAddr,
}

impl WebhookServer {
    /// Binds the address.
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
    pub fn serve(
        self,
        routes: Routes,
        certificates: CertificateManager,
        tasks: &Tasks,
    ) -> Result<(), ServeError> {
        let WebhookSettings { address: _, deadline, connections, linger } = self.settings;
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificates));
        let router = router(&Arc::new(routes), deadline);
        let limits = tls::Limits {
            connections,
            streams: STREAMS,
            request_timeout: Some(REQUEST_TIMEOUT),
            ..tls::Limits::default()
        };
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

fn router(routes: &Arc<Routes>, deadline: Duration) -> Router {
    let memory = BodyMemory::default();
    let mut router = Router::new();
    for path in routes.paths() {
        let (routes, path_name, memory) = (Arc::clone(routes), path.to_owned(), memory.clone());
        let handler = post(move |request: Request| async move {
            let asked = request.uri().query().and_then(requested_timeout).map(before_timeout);
            let limit = asked.map_or(deadline, |asked| asked.min(deadline));
            respond(&routes, &path_name, &memory, request, limit).await.unwrap_or_else(|failed| failed)
        });
        router = router.route(path, handler);
    }
    router
}

/// Handles one request. Reading its body counts towards the time limit.
async fn respond(
    routes: &Routes,
    path: &str,
    memory: &BodyMemory,
    request: Request,
    limit: Duration,
) -> Result<Response, Response> {
    let failed = |error: HandlerError| (error.status(), error.to_string()).into_response();
    let started = Instant::now();
    // The share is held until the response: what the handler works with is as large as the body.
    let (body, _share) = tokio::time::timeout(limit, memory.read(request.into_body()))
        .await
        .map_err(|_| failed(HandlerError::TimedOut { path: path.to_owned(), limit }))?
        .map_err(IntoResponse::into_response)?;
    let review = serde_json::from_slice(&body).map_err(|error| {
        failed(HandlerError::BadRequest(format!("the request body is not valid JSON: {error}")))
    })?;
    drop(body);
    let left = limit.saturating_sub(started.elapsed());
    routes.handle(path, review, left).await.map(|review| Json(review).into_response()).map_err(failed)
}

/// How long the API server waits for the response, by the `timeout` parameter that it adds to the URL.
fn requested_timeout(query: &str) -> Option<Duration> {
    let text = query.split('&').find_map(|parameter| parameter.strip_prefix("timeout="))?;
    parse_go_duration(text)
}

/// A duration as Go writes it in whole seconds: `10s`, `1m30s`.
fn parse_go_duration(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let (unit, after) = rest[digits..].split_at_checked(1)?;
        let factor = match unit {
            "h" => 3600,
            "m" => 60,
            "s" => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(factor)?)?;
        rest = after;
    }
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// The time limit for a response that arrives before the API server gives up: the user then reads why, and not
/// only that there was none.
fn before_timeout(timeout: Duration) -> Duration {
    timeout.saturating_sub((timeout / 10).min(Duration::from_secs(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_the_api_server_is_read_from_the_query() {
        let seconds = |query| requested_timeout(query).map(|timeout| timeout.as_secs());
        assert_eq!(seconds("timeout=10s"), Some(10));
        assert_eq!(seconds("dryRun=All&timeout=1m30s"), Some(90));
        for query in
            ["", "timeout=", "timeout=10", "timeout=soon", "timeout=0s", "timeout=1.5s", "timeout=3µs"]
        {
            assert_eq!(seconds(query), None, "{query}");
        }
        assert_eq!(before_timeout(Duration::from_secs(10)), Duration::from_secs(9));
        assert_eq!(before_timeout(Duration::from_secs(2)), Duration::from_millis(1800));
    }
}
