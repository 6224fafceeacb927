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

/// The methods that pages of other origins may use.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The origins whose pages may read answers; none by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins(Arc<[String]>);

impl Origins {
    /// An empty text, as of an empty variable, names none.
    pub(crate) fn new(mut origins: Vec<String>) -> Self {
        origins.retain(|origin| !origin.is_empty());
        Self(origins.into())
    }

    /// What an answer says of the origin of a request, if it is allowed.
    fn allowed(&self, method: &Method, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN).filter(|_| METHODS.contains(&method.as_str()))?;
        if self.0.iter().any(|it| it == "*") {
            return Some(HeaderValue::from_static("*"));
        }
        let text = origin.to_str().ok()?;
        let is_allowed = |it: &String| match it.split_once('*') {
            None => it.eq_ignore_ascii_case(text),
            Some((start, end)) => {
                let text = text.to_ascii_lowercase();
                text.len() >= it.len() - 1
                    && text.starts_with(&start.to_ascii_lowercase())
                    && text.ends_with(&end.to_ascii_lowercase())
            }
        };
        self.0.iter().any(is_allowed).then(|| origin.clone())
    }

    /// Whether requests of other origins are looked at. Health checks are not.
    fn concern(&self, path: &str) -> bool {
        !self.0.is_empty() && !path.ends_with("/readyz/isDirty") && !path.ends_with("/readyz/health")
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
    let concern = origins.concern(parts.uri.path());
    let origin = if concern { origins.allowed(&parts.method, &parts.headers) } else { None };
    if concern
        && parts.method == Method::OPTIONS
        && parts.headers.contains_key(header::ORIGIN)
        && let Some(method) = parts.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)
        && !method.is_empty()
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
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Link, Deprecation, Sunset")),
        ]);
    }
    if concern {
        response.headers.push((header::VARY, HeaderValue::from_static("Origin")));
    }
    encode(response)
}

/// Tells a browser what a page may send; nothing if it may not.
fn preflight(origin: Option<HeaderValue>, method: &HeaderValue, headers: Option<&HeaderValue>) -> Response {
    const VARY: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
    let vary = (header::VARY, HeaderValue::from_static(VARY));
    let mut response = Response { status: StatusCode::OK, headers: vec![vary], body: String::new() };
    let method = method.to_str().unwrap_or_default().to_ascii_uppercase();
    let headers = requested_headers(headers);
    let (Some(origin), Some(headers), true) = (origin, headers, METHODS.contains(&method.as_str())) else {
        return response;
    };
    let method = HeaderValue::from_str(&method).map(|it| (header::ACCESS_CONTROL_ALLOW_METHODS, it));
    response.headers.push((header::ACCESS_CONTROL_ALLOW_ORIGIN, origin));
    response.headers.extend(method);
    if !headers.is_empty() {
        let headers = HeaderValue::from_str(&headers.join(", "));
        response.headers.extend(headers.map(|it| (header::ACCESS_CONTROL_ALLOW_HEADERS, it)));
    }
    response.headers.push((header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("300")));
    response
}

/// The headers that a page wants to send, as Go spells them; `None` if one of them is not for pages to send.
fn requested_headers(headers: Option<&HeaderValue>) -> Option<Vec<&'static str>> {
    const KNOWN: [&str; 5] = ["Accept", "Authorization", "Content-Type", "X-Csrf-Token", "Origin"];
    let text = headers.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| KNOWN.into_iter().find(|it| it.eq_ignore_ascii_case(name))).collect()
}

fn encode(response: Response) -> http::Response<Full<Bytes>> {
    let mut encoded = http::Response::new(Full::new(Bytes::from(response.body)));
    *encoded.status_mut() = response.status;
    encoded.headers_mut().extend(response.headers);
    encoded
}
