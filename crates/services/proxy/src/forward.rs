//! Forwards requests to the Kubernetes API: attempts, deadline, streams, upgraded connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::{Backend, SendError};
use crate::body::Buffered;
use crate::headers::{Forwarded, remove_hop_by_hop};
use crate::metrics::Metrics;
use crate::response::{self, Body};

/// From the first attempt to the headers of the response that is returned.
const DEADLINE: Duration = Duration::from_secs(30);

/// How long to wait before each further attempt.
const BACKOFF: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// Bodies up to this are read when a response is dropped, so that its connection can be used again.
const DRAIN: usize = 64 << 10;

/// Connections that were upgraded, such as WebSockets. They last for as long as their clients want.
const TUNNELS: usize = 256;

/// A request to forward.
pub(crate) struct Forward {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) uri: Uri,
    pub(crate) forwarded: Forwarded,
    pub(crate) body: Buffered,
    /// The client's connection, if it asks for another protocol.
    pub(crate) upgrade: Option<OnUpgrade>,
}

/// Forwards requests.
pub(crate) struct Forwarder {
    backend: Backend,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    tunnels: TaskTracker,
    stopped: CancellationToken,
}

impl Forwarder {
    pub(crate) fn new(backend: Backend, metrics: Arc<Metrics>) -> Self {
        Self {
            backend,
            metrics,
            places: Arc::new(Semaphore::new(TUNNELS)),
            tunnels: TaskTracker::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// Ends the upgraded connections.
    pub(crate) async fn stop(&self) {
        self.stopped.cancel();
        self.tunnels.close();
        self.tunnels.wait().await;
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Sends a request, several times if need be. Bodies of responses are streamed, so that watches work.
    pub(crate) async fn forward(&self, mut request: Forward) -> Response<Body> {
        let mut place = None;
        if request.forwarded.headers.contains_key(header::UPGRADE) {
            let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
                let message = format!("{TUNNELS} upgraded connections are open already; try again later");
                return response::error(StatusCode::SERVICE_UNAVAILABLE, &message);
            };
            place = Some(permit);
        }
        match self.attempt_all(&request).await {
            Ok(response) => self.respond(&mut request, response, place),
            Err(why) => {
                let (method, path) = (&request.method, request.uri.path());
                tracing::warn!(%method, path, "cannot forward a request: {why}");
                response::empty(StatusCode::BAD_GATEWAY)
            }
        }
    }

    /// The first response that is not to be retried, or the last one.
    async fn attempt_all(&self, request: &Forward) -> Result<Response<Incoming>, String> {
        let deadline = Instant::now() + DEADLINE;
        let mut waits = BACKOFF.into_iter();
        loop {
            let attempt = tokio::time::timeout_at(deadline, self.attempt(request)).await;
            let response = attempt
                .map_err(|_| format!("no response within {} s", DEADLINE.as_secs()))?
                .map_err(|error| error.to_string())?;
            let wait = waits.next().filter(|_| is_retryable(response.status()));
            let Some(wait) = wait else { return Ok(response) };
            if Instant::now() + wait > deadline {
                return Err(format!("{}, and no time is left to retry", response.status()));
            }
            self.metrics.retried();
            let drained = Limited::new(response.into_body(), DRAIN).collect();
            // Whatever comes of it: it only saves a connection.
            let _ = tokio::time::timeout_at(deadline, drained).await;
            tokio::time::sleep(wait).await;
        }
    }

    /// One attempt. A request that changes nothing is sent again at once if its connection breaks: the API server may
    /// have closed it just then. Go's transport does the same.
    async fn attempt(&self, request: &Forward) -> Result<Response<Incoming>, SendError> {
        let first = self.backend.send(&request.forwarded.identity, request.outgoing()).await;
        match first {
            Err(error) if error.is_broken_connection() && request.is_replayable() => {
                self.metrics.retried();
                self.backend.send(&request.forwarded.identity, request.outgoing()).await
            }
            sent => sent,
        }
    }

    fn respond(
        &self,
        request: &mut Forward,
        mut response: Response<Incoming>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(client), Some(place)) = (request.upgrade.take(), place) else {
                tracing::warn!("the Kubernetes API upgraded a connection without being asked");
                return response::empty(StatusCode::BAD_GATEWAY);
            };
            let server = hyper::upgrade::on(&mut response);
            self.tunnel(client, server, place);
            let mut switched = response::empty(StatusCode::SWITCHING_PROTOCOLS);
            *switched.headers_mut() = upgraded_headers(response.headers());
            return switched;
        }
        let (mut parts, body) = response.into_parts();
        remove_hop_by_hop(&mut parts.headers);
        // As Go's server, and RFC 9110: what has not changed is not described again.
        if parts.status == StatusCode::NOT_MODIFIED {
            parts.headers.remove(header::CONTENT_TYPE);
        }
        parts.version = http::Version::HTTP_11;
        parts.extensions.clear();
        Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
    }

    /// Copies in both directions until one side closes or this server stops.
    fn tunnel(&self, client: OnUpgrade, server: OnUpgrade, place: OwnedSemaphorePermit) {
        let counted = self.metrics.upgraded();
        let stopped = self.stopped.clone();
        self.tunnels.spawn(async move {
            let copied = async {
                let (client, server) = tokio::try_join!(client, server)?;
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                tokio::io::copy_bidirectional(&mut client, &mut server).await?;
                Ok::<_, response::BoxError>(())
            };
            tokio::select! {
                copied = copied => {
                    if let Err(error) = copied {
                        tracing::debug!(%error, "an upgraded connection failed");
                    }
                }
                () = stopped.cancelled() => {}
            }
            drop((place, counted));
        });
    }
}

impl Forward {
    fn outgoing(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.bytes.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.forwarded.headers.clone();
        request
    }

    fn is_replayable(&self) -> bool {
        let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE];
        safe.contains(&self.method) && self.body.bytes.is_empty()
    }
}

/// Responses after which another attempt may succeed, as upstream counts them. `Retry-After` is not regarded.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// The headers of a response that ends HTTP on a connection.
fn upgraded_headers(headers: &HeaderMap) -> HeaderMap {
    let protocol = headers.get(header::UPGRADE).cloned();
    let mut headers = headers.clone();
    remove_hop_by_hop(&mut headers);
    headers.insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(header::UPGRADE, protocol);
    }
    headers
}
