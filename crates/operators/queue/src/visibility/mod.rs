//! The visibility API: which Workloads wait in a queue, and in which order.
//!
//! An aggregated API, `visibility.kueue.x-k8s.io`. What it answers is read from the scheduler's index, so the order is the
//! one in which Workloads are tried. Every replica serves it: those that stand by keep their index up to date.

mod documents;
mod path;
mod pending;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use http::{Method, Response, StatusCode, request::Parts};
use quintet_api::config::kueue::VisibilityServer;
use quintet_component::{AggregatedApi, Service};
use quintet_controller::aggregated::{StatusError, json_response};
use quintet_controller::index::IndexHandle;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::scheduler::Scheduler;
use path::{Path, Window};

/// The group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first. They are the same.
pub const VERSIONS: &[&str] = &["v1beta2", "v1beta1"];
/// The gate that switches it.
pub(crate) const GATE: &str = "VisibilityOnDemand";

/// Reads of the index at a time: the scheduler does nothing else meanwhile.
const READS: usize = 1;

/// The scheduler, once it runs.
pub(crate) type Source = Arc<OnceLock<IndexHandle<Scheduler>>>;

/// The aggregated API, which reads `source`.
pub(crate) fn api(server: &VisibilityServer, source: &Source) -> Result<AggregatedApi, String> {
    let address: IpAddr = server.bind_address.parse().map_err(|_| {
        format!("visibilityServer.bindAddress: {:?} is not an IP address", server.bind_address)
    })?;
    let (source, reads) = (Arc::clone(source), Arc::new(Semaphore::new(READS)));
    let handler = move |parts: Parts| {
        let (source, reads) = (Arc::clone(&source), Arc::clone(&reads));
        async move { respond(&source, &reads, &parts).await.unwrap_or_else(|error| error.response()) }.boxed()
    };
    Ok(AggregatedApi {
        group: GROUP,
        versions: VERSIONS,
        address,
        service: Service {
            name: "kueue-visibility-server",
            port_name: "visibility",
            port: 443,
            target_port: server.bind_port,
        },
        handler: Arc::new(handler),
    })
}

async fn respond(
    source: &Source,
    reads: &Semaphore,
    parts: &Parts,
) -> Result<Response<Vec<u8>>, StatusError> {
    let Some(path) = Path::parse(parts.uri.path()) else { return Err(StatusError::no_resource()) };
    if parts.method != Method::GET {
        let message = "the server does not allow this method on the requested resource";
        return Err(StatusError { details: json!({}), ..StatusError::new(405, "MethodNotAllowed", message) });
    }
    let unavailable = || StatusError::new(503, "ServiceUnavailable", "the scheduler is not running");
    let (version, queue) = match path {
        Path::Document(document) => return Ok(json_response(StatusCode::OK, &document.content())),
        Path::Healthy => return Ok(Response::new(b"ok".to_vec())),
        Path::Pending { version, queue } => (version, queue),
    };
    let window = Window::read(parts.uri.query().unwrap_or_default())?;
    let handle = source.get().ok_or_else(unavailable)?;
    let Ok(_slot) = reads.acquire().await else { return Err(unavailable()) };
    let asked = queue.clone();
    let items = handle.read(move |scheduler| scheduler.pending_workloads(&asked, window)).await;
    let items = items.ok_or_else(unavailable)?.ok_or_else(|| queue.not_found())?;
    Ok(json_response(StatusCode::OK, &summary(version, &items)))
}

fn summary(version: &str, items: &[Value]) -> Value {
    json!({
        "kind": "PendingWorkloadsSummary", "apiVersion": format!("{GROUP}/{version}"), "metadata": {}, "items": items,
    })
}
