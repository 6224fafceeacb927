//! Aggregated API servers in this process: a function instead of a port and a certificate.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Request, Response, header, request::Parts};
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::publish;
use crate::{
    api::Api,
    kubelet::{self, Handler},
    request::body::ResponseBody,
    status::Failure,
};

/// The servers of this process by the name of their APIService.
#[derive(Default)]
pub(crate) struct Servers(RwLock<BTreeMap<String, Server>>);

struct Server {
    spec: Value,
    handler: Handler,
}

impl Servers {
    pub(super) fn of(&self, name: &str) -> Option<Handler> {
        self.0.read().get(name).map(|server| server.handler.clone())
    }

    /// The specs of their APIServices by name.
    pub(super) fn specs(&self) -> Vec<(String, Value)> {
        self.0.read().iter().map(|(name, server)| (name.clone(), server.spec.clone())).collect()
    }
}

impl Api {
    /// Serves a version of a group by a function, as an aggregated API server would under the name of a Service in
    /// `kube-system`. Requests are authenticated and authorized here.
    pub async fn serve_group(
        &self,
        (group, version): (&str, &str),
        service: &str,
        handler: Handler,
    ) -> Result<(), Failure> {
        let spec = json!({
            "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "namespace": "kube-system", "name": service, "port": 443 },
        });
        self.servers().0.write().insert(format!("{version}.{group}"), Server { spec, handler });
        publish(self).await
    }
}

/// Sends a request to a server. Errors that are Status objects are passed on as they are.
pub(super) async fn forward(handler: &Handler, parts: &Parts) -> Result<Response<ResponseBody>, Failure> {
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(Failure::internal)?;
    *request.headers_mut() = parts.headers.clone();
    let (head, body) = handler(request).await.into_parts();
    if head.status.is_success() || is_json(&head.headers) {
        return Ok(Response::from_parts(head, ResponseBody::stream(body)));
    }
    Err(kubelet::failure(head.status.as_u16(), body).await)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

/// The list of resources of a server.
pub(super) async fn resources(handler: &Handler, path: &str) -> Result<Value, String> {
    let request = Request::get(path).body(Bytes::new()).map_err(|error| error.to_string())?;
    let (head, mut body) = handler(request).await.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend(piece);
    }
    if !head.status.is_success() {
        return Err(format!("bad status from server: {}", head.status.as_u16()));
    }
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}
