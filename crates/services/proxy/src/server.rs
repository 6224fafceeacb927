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
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use quintet_foundation::http as http_server;
use tokio::net::TcpListener;

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
        let service = |peer: SocketAddr| {
            let proxy = Arc::clone(&self.0);
            let counted = self.0.metrics.connected();
            service_fn(move |request| {
                let _ = &counted;
                let proxy = Arc::clone(&proxy);
                async move { Ok::<_, Infallible>(proxy.respond(request, peer.ip()).await) }
            })
        };
        http_server::serve(listener, stop, GRACE, service).await;
        self.0.forwarder.stop().await;
    }
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
