//! Bodies and cross-origin requests; what is answered is a handler's.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;

use crate::api::Request;
use crate::api::query::{self, Query};
use crate::api::response::Response;
use crate::error::Error;

/// Bodies beyond this are refused. The largest columns hold 16 MiB, and JSON escapes take room.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// How long requests in progress may take when the server stops: a third of what Kubernetes gives a pod by default.
const GRACE: Duration = Duration::from_secs(10);

/// The origins whose pages may read answers; none by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins(Arc<[String]>);

impl Origins {
    pub(crate) fn new(origins: Vec<String>) -> Self {
        Self(origins.into())
    }

    /// The origin of a request, if it is allowed.
    fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let is_allowed = |it: &String| it == "*" || origin.to_str().is_ok_and(|origin| it == origin);
        self.0.iter().any(is_allowed).then(|| origin.clone())
    }
}

/// Serves connections until `stop` completes, then waits for those in progress.
pub(crate) async fn serve<H, F>(
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    origins: Origins,
    handler: H,
) where
    H: Fn(Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let service = |_| {
        let (handler, origins) = (handler.clone(), origins.clone());
        service_fn(move |request| {
            let (handler, origins) = (handler.clone(), origins.clone());
            async move { Ok::<_, Infallible>(answer(request, &origins, &handler).await) }
        })
    };
    quintet_foundation::http::serve(listener, stop, GRACE, service).await;
}

async fn answer<H, F>(
    request: http::Request<Incoming>,
    origins: &Origins,
    handler: &H,
) -> http::Response<Full<Bytes>>
where
    H: Fn(Request) -> F,
    F: Future<Output = Response>,
{
    let (parts, body) = request.into_parts();
    let origin = origins.allowed(&parts.headers);
    if let Some(origin) = &origin
        && parts.method == Method::OPTIONS
        && let Some(method) = parts.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)
    {
        return encode(preflight(origin, method, parts.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS)));
    }
    if query::is_plain_path(parts.uri.path()).is_none() {
        return encode(Response::text(StatusCode::BAD_REQUEST, "400 Bad Request"));
    }
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            return encode(Response::refusal(&Error::BadRequest(
                "the body cannot be read, or is too large".to_owned(),
            )));
        }
    };
    let request = Request {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        headers: parts.headers,
        body,
    };
    let mut response = handler(request).await;
    if let Some(origin) = origin {
        response.headers.extend([
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Link")),
            (header::VARY, HeaderValue::from_static("Origin")),
        ]);
    }
    encode(response)
}

/// Tells a browser what a page may send.
fn preflight(origin: &HeaderValue, method: &HeaderValue, headers: Option<&HeaderValue>) -> Response {
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let is_known = method.to_str().is_ok_and(|it| known.contains(&it));
    let mut response = Response { status: StatusCode::OK, headers: Vec::new(), body: String::new() };
    if is_known {
        response.headers = vec![
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone()),
            (header::ACCESS_CONTROL_ALLOW_METHODS, method.clone()),
            (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("300")),
            (header::VARY, HeaderValue::from_static("Origin")),
        ];
        response.headers.extend(headers.map(|it| (header::ACCESS_CONTROL_ALLOW_HEADERS, it.clone())));
    }
    response
}

fn encode(response: Response) -> http::Response<Full<Bytes>> {
    let mut encoded = http::Response::new(Full::new(Bytes::from(response.body)));
    *encoded.status_mut() = response.status;
    encoded.headers_mut().extend(response.headers);
    encoded
}
