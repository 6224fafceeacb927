//! Kubelets in this process: where requests for logs and streams of pods go.
//!
//! A kubelet of another machine would be reached over HTTPS at its node's address. One in this process registers a
//! function instead: no port, no certificate.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use http::{Request, Response};
use parking_lot::RwLock;

use crate::{request::body::ResponseBody, status::Failure};

/// Serves the API of a kubelet: `/containerLogs/NAMESPACE/POD/CONTAINER`, `/exec/…`, `/attach/…`, `/portForward/NAMESPACE/POD`,
/// with the parameters of the pod's subresource. A request that upgrades its connection carries hyper's `OnUpgrade` in its
/// extensions.
pub type Handler =
    Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<BoxStream<'static, Bytes>>> + Send + Sync>;

/// The kubelets of this process by the name of their node.
#[derive(Default)]
pub struct Kubelets(RwLock<BTreeMap<String, Handler>>);

impl Kubelets {
    /// Requests for pods of a node go to `handler` from now on.
    pub fn register(&self, node: &str, handler: Handler) {
        self.0.write().insert(node.to_owned(), handler);
    }

    /// The kubelet of a node is gone.
    pub fn remove(&self, node: &str) {
        self.0.write().remove(node);
    }

    pub(crate) fn of(&self, node: &str) -> Option<Handler> {
        self.0.read().get(node).cloned()
    }
}

/// Sends a request to a kubelet. What it refuses becomes a Status, as upstream's `GenericHttpResponseChecker` makes one.
pub(crate) async fn forward(
    handler: &Handler,
    parts: &http::request::Parts,
    path: &str,
) -> Result<Response<ResponseBody>, Failure> {
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = format!("{path}{query}").parse().map_err(Failure::internal)?;
    *request.headers_mut() = parts.headers.clone();
    *request.extensions_mut() = parts.extensions.clone();
    let (head, body) = handler(request).await.into_parts();
    let code = head.status.as_u16();
    if code == 101 {
        return Ok(Response::from_parts(head, ResponseBody::whole(Bytes::new())));
    }
    if code < 400 {
        return Ok(Response::from_parts(head, ResponseBody::stream(body)));
    }
    Err(failure(code, body).await)
}

/// The failure that a response of plain text reports.
pub(crate) async fn failure(code: u16, mut body: BoxStream<'static, Bytes>) -> Failure {
    let mut message = Vec::new();
    while let Some(piece) = body.next().await {
        message.extend(piece);
    }
    let message = String::from_utf8_lossy(&message).trim().to_owned();
    match code {
        400 => Failure::bad_request(message),
        404 => Failure::new(404, "NotFound", message),
        500 => Failure::internal(message),
        _ => Failure::new(code, "", message),
    }
}
