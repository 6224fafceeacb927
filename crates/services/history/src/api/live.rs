//! Running clusters: requests go to their dashboards.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};

use super::{Asked, Reply};
use crate::server::History;
use crate::store::content;

/// How long a dashboard may take for all of its answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The header that carries Ray's token.
const RAY_AUTHORIZATION: HeaderName = HeaderName::from_static("x-ray-authorization");

/// Headers of one connection, not of the request.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Beginnings of headers that say on whose behalf a request is made. With the credentials of this server they are not for
/// clients to set.
const IDENTITY: [&str; 2] = ["impersonate-", "x-remote-"];

/// The dashboard of a running cluster.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    pub(crate) service: String,
    pub(crate) port: u16,
}

/// The dashboard of a running cluster, and the token that it asks for.
pub(super) struct Live {
    target: Target,
    token: Option<String>,
}

impl Live {
    /// Finds out how to authenticate at a dashboard. The error is the response.
    pub(super) async fn new(history: &History, target: Target) -> Result<Self, Reply> {
        let token = history.token(&target).await.map_err(Reply::failed)?;
        Ok(Self { target, token })
    }
}

/// Sends a request to the dashboard and returns its answer.
pub(super) async fn forward(asked: &Asked<'_>, live: &Live) -> Reply {
    let Live { target, token } = live;
    let through_kubernetes = asked.history.uses_kubernetes_proxy();
    let headers = forwarded(asked, through_kubernetes, token.as_deref());
    let uri = asked.parts.uri.path_and_query().map(http::uri::PathAndQuery::as_str).unwrap_or_default();
    let (shown, answer) = if through_kubernetes {
        let path = format!(
            "/api/v1/namespaces/{}/services/{}:dashboard/proxy{uri}",
            target.namespace, target.service
        );
        let answer = tokio::time::timeout(TIMEOUT, by_kubernetes(asked, &path, headers)).await;
        (path, answer)
    } else {
        let url = format!("http://{}:{}{uri}", target.service, target.port);
        let answer = tokio::time::timeout(TIMEOUT, directly(asked, &url, headers)).await;
        (url, answer)
    };
    match answer {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => Reply::text(StatusCode::BAD_GATEWAY, format!("Get {shown:?}: {error}")),
        Err(_) => Reply::text(
            StatusCode::BAD_GATEWAY,
            format!("Get {shown:?}: no answer within {} seconds", TIMEOUT.as_secs()),
        ),
    }
}

/// The headers that go on. Cookies stay: they are this server's. Credentials of the client stay where the server has
/// its own.
fn forwarded(asked: &Asked<'_>, through_kubernetes: bool, token: Option<&str>) -> HeaderMap {
    let has_tokens = asked.history.uses_tokens();
    let mut headers = HeaderMap::new();
    for (name, value) in &asked.parts.headers {
        let stays = name == header::HOST
            || name == header::COOKIE
            || name == header::CONTENT_LENGTH
            || HOP_BY_HOP.contains(name)
            || IDENTITY.iter().any(|prefix| name.as_str().starts_with(prefix))
            || (name == header::AUTHORIZATION && (through_kubernetes || has_tokens))
            || (name == RAY_AUTHORIZATION && has_tokens);
        if !stays {
            headers.append(name, value.clone());
        }
    }
    if let Some(token) = token
        && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {token}"))
    {
        value.set_sensitive(true);
        headers.insert(RAY_AUTHORIZATION, value);
    }
    headers
}

async fn directly(asked: &Asked<'_>, url: &str, headers: HeaderMap) -> Result<Reply, String> {
    let mut request = Request::get(url).body(content(Bytes::new())).map_err(|error| error.to_string())?;
    *request.headers_mut() = headers;
    let (parts, body) = asked.history.http().send(request).await?.into_parts();
    Ok(reply(&parts, Timed::new(body).boxed_unsync()))
}

async fn by_kubernetes(asked: &Asked<'_>, path: &str, headers: HeaderMap) -> Result<Reply, String> {
    let client = asked.history.kubernetes_client().ok_or("there is no Kubernetes API")?;
    let mut request =
        Request::get(path).body(kube::client::Body::empty()).map_err(|error| error.to_string())?;
    *request.headers_mut() = headers;
    let answer = client.send(request).await.map_err(|error| crate::store::cause(&error))?;
    let (parts, body) = answer.into_parts();
    Ok(reply(&parts, Timed::new(body).boxed_unsync()))
}

fn reply(parts: &http::response::Parts, body: super::response::Body) -> Reply {
    let mut headers = parts.headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    Reply { status: parts.status, headers, body }
}

/// A body that fails when its time is over.
struct Timed<B> {
    body: Pin<Box<B>>,
    deadline: Pin<Box<tokio::time::Sleep>>,
}

impl<B> Timed<B> {
    fn new(body: B) -> Self {
        Self { body: Box::pin(body), deadline: Box::pin(tokio::time::sleep(TIMEOUT)) }
    }
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>> Body for Timed<B> {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(std::io::Error::other)));
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(std::io::ErrorKind::TimedOut.into()))),
            Poll::Pending => Poll::Pending,
        }
    }
}
