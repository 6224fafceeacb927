//! The kubelet's API: logs and streams of containers, and metrics, called by the API server.

mod forward;
mod logs;
pub(crate) mod metrics;
mod query;
mod spdy;
mod streams;
mod upgrade;
mod websocket;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};

use crate::kubelet::HandlerBody;
use crate::worker::{PodHandle, Pods};
use query::Query;
use streams::Action;

/// Serves one request.
pub(crate) async fn serve(pods: &Pods, request: Request<Bytes>) -> Response<HandlerBody> {
    let path = request.uri().path().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    if let ["apis", "metrics.k8s.io", "v1beta1", rest @ ..] = segments.as_slice() {
        return metrics::serve(pods, rest, &query);
    }
    let (["containerLogs" | "exec" | "attach", namespace, name, _] | ["portForward", namespace, name]) =
        segments.as_slice()
    else {
        return failure(StatusCode::NOT_FOUND, format!("{path} is not served by this kubelet"));
    };
    let Some(handle) = pods.find(namespace, name) else {
        let message = format!("pod \"{namespace}/{name}\" is not known to this kubelet yet");
        return failure(StatusCode::NOT_FOUND, message);
    };
    match segments.as_slice() {
        ["containerLogs", .., container] => logs::serve(pods, &handle, container, &query),
        ["exec", .., container] => exec(pods, &handle, container, &query, request).await,
        ["attach", .., container] => {
            streams::serve(pods, &handle, (container, Action::Attach), &query, request).await
        }
        _ => forward::serve(pods, &handle, &query, request),
    }
}

async fn exec(
    pods: &Pods,
    handle: &Arc<PodHandle>,
    container: &str,
    query: &Query,
    request: Request<Bytes>,
) -> Response<HandlerBody> {
    let command: Vec<String> = query.all("command").map(str::to_owned).collect();
    if command.is_empty() {
        return failure(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 command for the container".into(),
        );
    }
    streams::serve(pods, handle, (container, Action::Exec(command)), query, request).await
}

/// A response that says what is wrong.
fn failure(code: StatusCode, message: String) -> Response<HandlerBody> {
    let body = futures::stream::once(async move { Bytes::from(message) }).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}
