//! Serves the proxy over HTTP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri, request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, BackendError};
use crate::body::{Buffered, Memory};
use crate::cors::Cors;
use crate::forward::{Forward, Forwarder};
use crate::headers::{self, Forwarded, Identity};
use crate::lookup::{self, ServiceName};
use crate::metrics::{self, Metrics};
use crate::query;
use crate::response::{self, Body};
use crate::route::{self, Route};
use crate::template::{self, Document};

/// Connections at a time. Others wait until one ends.
const CONNECTIONS: usize = 1024;

/// How long the headers of a request may take, and a connection may be idle.
const HEADERS: Duration = Duration::from_mins(1);

/// How much of a connection's input and output is buffered; headers have to fit in.
const BUFFER: usize = 128 << 10;

/// How long a client may leave data unread or unacknowledged, and how often a silent one is probed.
const STALL: Duration = Duration::from_mins(1);

/// How long requests in progress may take when the server stops: a third of what Kubernetes gives a pod by default.
const GRACE: Duration = Duration::from_secs(10);

/// Ray resources and requests about them; Kubernetes itself takes no more than 3 MiB.
const MAX_RESOURCE: usize = 4 << 20;

/// What is sent to a Service: Ray's limit for the package of a working directory is 100 MiB by default.
const MAX_SERVICE_BODY: usize = 128 << 20;

/// What is added to the field selector of events.
const RAY_EVENTS: &str = "regarding.apiVersion=ray.io/v1";

/// What a proxy does.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The origin whose pages may read responses: empty for none, `*` for all; may contain one `*`.
    pub cors_allow_origin: String,
    /// Refuse requests without an `Authorization` header, instead of acting with this server's own credentials.
    pub require_token: bool,
    /// Serve Ray resources, events and Services. Without, only health and metrics are there.
    pub is_proxying: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { cors_allow_origin: String::new(), require_token: false, is_proxying: true }
    }
}

/// A proxy.
#[derive(Clone)]
pub struct Server(Arc<Proxy>);

struct Proxy {
    settings: Settings,
    cors: Cors,
    forwarder: Forwarder,
    memory: Memory,
    metrics: Arc<Metrics>,
}

impl Server {
    /// A proxy to the Kubernetes API of a configuration.
    pub fn new(config: &kube::Config, settings: Settings) -> Result<Self, BackendError> {
        let metrics = Arc::new(Metrics::new());
        let forwarder = Forwarder::new(Backend::new(config)?, Arc::clone(&metrics));
        let cors = Cors::new(&settings.cors_allow_origin);
        Ok(Self(Arc::new(Proxy { settings, cors, forwarder, memory: Memory::default(), metrics })))
    }

    /// Serves connections until `stop` completes, then waits for those in progress.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let draining = CancellationToken::new();
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(self.clone().connection(stream, peer, draining.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, usually: connections must end before more can begin.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        draining.cancel();
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all).await.is_err() {
            tracing::warn!("some requests were not answered in time; they are cut off");
        }
        self.0.forwarder.stop().await;
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, draining: CancellationToken) {
        if let Err(error) = bound(&stream) {
            tracing::debug!(%error, "cannot set the options of a connection");
        }
        let _counted = self.0.metrics.connected();
        let service = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.0.respond(request, peer.ip()).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let mut ended = tokio::select! {
            ended = &mut connection => Some(ended),
            () = draining.cancelled() => None,
        };
        if ended.is_none() {
            connection.as_mut().graceful_shutdown();
            ended = Some(connection.await);
        }
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, "a connection failed");
        }
    }
}

/// Lets the kernel end connections whose clients have gone or stopped reading: a watch has no deadline of its own.
fn bound(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(STALL).with_interval(STALL / 4))?;
    socket.set_tcp_user_timeout(Some(STALL))
}

impl Proxy {
    async fn respond(&self, mut request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        let begun = Instant::now();
        let (path, query) = (request.uri().path(), request.uri().query());
        let (name, response) = match route::route(request.method(), path, query, self.settings.is_proxying) {
            Err(error) => ("refused", response::error(StatusCode::BAD_REQUEST, &error.to_string())),
            Ok(route) => {
                let upgrade = hyper::upgrade::on(&mut request);
                let (parts, body) = request.into_parts();
                let name = route.name();
                (name, self.serve(route, parts, body, upgrade, peer).await)
            }
        };
        self.metrics.responded(name, response.status().as_u16(), begun.elapsed());
        response
    }

    async fn serve(
        &self,
        route: Route,
        parts: request::Parts,
        body: Incoming,
        upgrade: OnUpgrade,
        peer: IpAddr,
    ) -> Response<Body> {
        match &route {
            Route::Health => return response::empty(StatusCode::OK),
            Route::Metrics => {
                return response::typed(StatusCode::OK, metrics::CONTENT_TYPE, self.metrics.encode());
            }
            Route::Documentation => return response::error(StatusCode::NOT_FOUND, "404 page not found"),
            Route::Redirect(location) => return response::redirect(&parts.method, location),
            Route::Unknown => return self.with_cors(&parts, async { response::not_found() }).await,
            Route::Resource | Route::Templated { .. } | Route::Events | Route::Service { .. } => {}
        }
        let forwarded = match headers::forwarded(&host_of_target(&parts), peer) {
            Ok(forwarded) => forwarded,
            Err(error) => return response::error(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        if self.settings.require_token && matches!(forwarded.identity, Identity::Server) {
            // A browser sends no credentials with a preflight.
            return if self.cors.is_preflight(&parts.method, &parts.headers) {
                self.cors.preflight(&parts.headers)
            } else {
                unauthorized()
            };
        }
        self.proxy(route, parts, forwarded, body, upgrade).await
    }

    async fn proxy(
        &self,
        route: Route,
        parts: request::Parts,
        mut forwarded: Forwarded,
        body: Incoming,
        upgrade: OnUpgrade,
    ) -> Response<Body> {
        let backend = self.forwarder.backend();
        let limit = if matches!(route, Route::Service { .. }) { MAX_SERVICE_BODY } else { MAX_RESOURCE };
        let mut uri = parts.uri.clone();
        match &route {
            Route::Service { namespace, service } => {
                let refused = check_service(backend, &forwarded.identity, namespace, service).await;
                if let Some(refused) = refused {
                    return refused;
                }
            }
            Route::Events => {
                let query = query::with_field_selector(uri.query().unwrap_or_default(), RAY_EVENTS);
                match with_query(&uri, &query) {
                    Ok(changed) => uri = changed,
                    Err(error) => return response::error(StatusCode::BAD_REQUEST, &error.to_string()),
                }
            }
            _ => {}
        }
        let mut body = match self.memory.read(body, limit).await {
            Ok(body) => body,
            Err(error) => return response::error(error.status(), &error.to_string()),
        };
        if let Route::Templated { namespace } = &route
            && let Err(refused) = apply_templates(backend, namespace, &mut forwarded, &mut body).await
        {
            return refused;
        }
        let method = parts.method.clone();
        let forward = Forward { method, uri, forwarded, body, upgrade: Some(upgrade) };
        self.with_cors(&parts, self.forwarder.forward(forward)).await
    }

    /// A response that pages of other origins may read, if they are allowed to. It is not made for a preflight.
    async fn with_cors(
        &self,
        request: &request::Parts,
        response: impl Future<Output = Response<Body>>,
    ) -> Response<Body> {
        if self.cors.is_preflight(&request.method, &request.headers) {
            return self.cors.preflight(&request.headers);
        }
        let mut response = response.await;
        self.cors.allow(&request.method, &request.headers, &mut response);
        response
    }
}

/// The headers of a request; if its target is a complete URL, with the host of that.
fn host_of_target(parts: &request::Parts) -> http::HeaderMap {
    let mut headers = parts.headers.clone();
    let authority = parts.uri.authority().and_then(|one| HeaderValue::from_str(one.as_str()).ok());
    if let Some(host) = authority {
        headers.insert(header::HOST, host);
    }
    headers
}

fn with_query(uri: &Uri, query: &str) -> Result<Uri, http::Error> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}", uri.path()))?);
    Ok(Uri::from_parts(parts)?)
}

fn unauthorized() -> Response<Body> {
    let message =
        "this server forwards only requests with the caller's own token; send an Authorization header";
    let mut response = response::error(StatusCode::UNAUTHORIZED, message);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Refuses requests for Services that do not belong to a Ray cluster.
async fn check_service(
    backend: &Backend,
    identity: &Identity,
    namespace: &str,
    service: &str,
) -> Option<Response<Body>> {
    let Some(name) = ServiceName::read(service) else {
        let message = format!("invalid service format: {service}");
        return Some(response::error(StatusCode::BAD_REQUEST, &message));
    };
    match lookup::is_ray_service(backend, identity, namespace, &name).await {
        Ok(true) => None,
        Ok(false) => Some(response::error(StatusCode::NOT_FOUND, "kuberay service not found")),
        Err(error) => {
            tracing::warn!(namespace, service, "cannot look for a Service: {error}");
            Some(response::error(StatusCode::INTERNAL_SERVER_ERROR, "failed to list kuberay services"))
        }
    }
}

/// Fills compute templates into a Ray resource, which is JSON from then on. Each template is read once.
async fn apply_templates(
    backend: &Backend,
    namespace: &str,
    forwarded: &mut Forwarded,
    body: &mut Buffered,
) -> Result<(), Response<Body>> {
    let document = Document::read(&forwarded.headers, &body.bytes).await;
    let document = document.map_err(|error| response::error(StatusCode::BAD_REQUEST, &error.to_string()))?;
    let Document::Resource(mut resource) = document else { return Ok(()) };
    let mut templates = BTreeMap::new();
    for mut group in template::groups(&mut resource) {
        let Some(name) = group.template_name().map(str::to_owned) else { continue };
        if !templates.contains_key(&name) {
            let read = lookup::compute_template(backend, &forwarded.identity, namespace, &name).await;
            let read = read.map_err(|error| response::error(StatusCode::UNPROCESSABLE_ENTITY, &error))?;
            templates.insert(name.clone(), read);
        }
        if let Some(template) = templates.get(&name) {
            group.apply(template);
        }
    }
    body.bytes = resource.to_string().into();
    forwarded.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(())
}
