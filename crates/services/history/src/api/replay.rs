//! Endpoints of the dashboard that the collector polled: answered as the dashboard did.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Asked, Reply, query};
use crate::layout;

/// Larger answers are not read.
const LARGEST: u64 = 256 * 1024 * 1024;

async fn stored(asked: &Asked<'_>, uri: &str) -> Result<Option<Bytes>, Reply> {
    let path = format!("{}/{}", asked.directory(), layout::endpoint(uri));
    asked.history.store().get(&path, LARGEST).await.map_err(|error| Reply::failed(error.to_string()))
}

pub(super) async fn metadata(asked: &Asked<'_>) -> Reply {
    match stored(asked, "/api/v0/cluster_metadata").await {
        Ok(Some(body)) => Reply::json(body),
        Ok(None) => Reply::not_found("Cluster metadata not found"),
        Err(reply) => reply,
    }
}

pub(super) async fn timezone(asked: &Asked<'_>) -> Reply {
    match stored(asked, "/timezone").await {
        Ok(Some(body)) => Reply::json(body),
        Ok(None) => Reply::json(r#"{"offset":"","value":""}"#),
        Err(reply) => reply,
    }
}

/// Any other path: what was stored for exactly this path and query.
pub(super) async fn endpoint(asked: &Asked<'_>) -> Reply {
    let uri = asked.parts.uri.path_and_query().map(http::uri::PathAndQuery::as_str).unwrap_or_default();
    let path = query::decode(asked.parts.uri.path(), false).unwrap_or_default();
    let path = path.trim_end_matches('/');
    let is_placement_groups = path == "/api/v0/placement_groups";
    match stored(asked, uri).await {
        Ok(Some(body)) if is_placement_groups => Reply::json(with_bundles(body)),
        Ok(Some(body)) => Reply::json(body),
        Ok(None) => absent(path, is_placement_groups),
        Err(reply) => reply,
    }
}

/// What the front end needs of endpoints that were never stored.
fn absent(path: &str, is_placement_groups: bool) -> Reply {
    if is_placement_groups {
        let answer = json!({"result": true, "msg": "", "data": {"result": {
            "total": 0, "num_after_truncation": 0, "num_filtered": 0, "result": [],
            "partial_failure_warning": "", "warnings": null}}});
        return Reply::json(answer.to_string());
    }
    if path == "/api/serve/applications" {
        return Reply::json(r#"{"applications":{}}"#);
    }
    match path.strip_prefix("/api/data/datasets/") {
        Some(job) if !job.is_empty() && !job.contains('/') => Reply::json(r#"{"datasets":[]}"#),
        _ => Reply::not_found("Endpoint data not found in storage"),
    }
}

/// The front end fails on placement groups without bundles; those of finished jobs have none.
fn with_bundles(body: Bytes) -> Bytes {
    let Ok(mut answer) = serde_json::from_slice::<Value>(&body) else { return body };
    let Some(Value::Array(groups)) = answer.pointer_mut("/data/result/result") else { return body };
    let mut is_changed = false;
    for group in groups {
        if let Value::Object(group) = group
            && !group.contains_key("bundles")
        {
            group.insert("bundles".to_owned(), json!([]));
            is_changed = true;
        }
    }
    if is_changed { Bytes::from(answer.to_string()) } else { body }
}
