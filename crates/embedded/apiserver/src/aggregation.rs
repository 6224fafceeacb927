//! APIs that other servers serve: requests for their groups are passed on.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderName, HeaderValue, Request, Response, header, request::Parts};
use http_body_util::{BodyStream, Full};
use serde_json::Value;

use crate::{
    api::Api,
    auth::Caller,
    json::text,
    outbound::{self, Target, Trust},
    request::body::Answer,
    status::Failure,
};

const BUCKET: &str = "apiregistration.k8s.io/apiservices";

/// The APIService of another server for a version of a group.
pub(crate) fn service(api: &Api, group: &str, version: &str) -> Option<Value> {
    if group.is_empty() {
        return None;
    }
    let entry = api.store().get(BUCKET, &format!("{version}.{group}"))?;
    let service: Value = serde_json::from_slice(&entry.body).ok()?;
    service.pointer("/spec/service").is_some_and(Value::is_object).then_some(service)
}

/// Groups and versions that other servers serve.
pub(crate) fn remote_versions(api: &Api) -> Vec<(String, String)> {
    let services = api.store().list(BUCKET, "", None, None).map(|(entries, _)| entries).unwrap_or_default();
    services
        .iter()
        .filter_map(|(_, entry)| serde_json::from_slice::<Value>(&entry.body).ok())
        .filter(|service| service.pointer("/spec/service").is_some_and(Value::is_object))
        .map(|service| (text(&service, "/spec/group").to_owned(), text(&service, "/spec/version").to_owned()))
        .collect()
}

/// Passes a request on, and its answer back.
pub(crate) async fn pass_on(
    api: &Api,
    service: &Value,
    caller: &Caller,
    parts: &Parts,
    body: Bytes,
) -> Result<Response<Answer>, Failure> {
    let unavailable = |why: &str| {
        tracing::debug!("APIService {} is not available: {why}", text(service, "/metadata/name"));
        Failure::plain(503, "service unavailable\n")
    };
    let reference = service.pointer("/spec/service").cloned().unwrap_or_default();
    let address = outbound::endpoint(api, &reference).map_err(|why| unavailable(&why))?;
    let bundle = STANDARD.decode(text(service, "/spec/caBundle")).unwrap_or_default();
    let is_blind = service.pointer("/spec/insecureSkipTLSVerify") == Some(&Value::Bool(true));
    let name = format!("{}.{}.svc", text(&reference, "/name"), text(&reference, "/namespace"));
    let trust = if is_blind { Trust::Anybody } else { Trust::Bundle(&bundle) };
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(Failure::internal)?;
    for (key, value) in &parts.headers {
        // Who asks is said below; what belongs to this connection stays here.
        let is_own = key.as_str().starts_with("x-remote-")
            || key.as_str().starts_with("impersonate-")
            || [header::AUTHORIZATION, header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH]
                .contains(key);
        if !is_own {
            request.headers_mut().append(key.clone(), value.clone());
        }
    }
    let mut add = |key: &str, value: &str| {
        if let (Ok(key), Ok(value)) = (HeaderName::from_bytes(key.as_bytes()), HeaderValue::from_str(value)) {
            request.headers_mut().append(key, value);
        }
    };
    add("x-remote-user", &caller.name);
    if !caller.uid.is_empty() {
        add("x-remote-uid", &caller.uid);
    }
    for group in &caller.groups {
        add("x-remote-group", group);
    }
    for (key, values) in &caller.extra {
        for value in values {
            add(&format!("x-remote-extra-{key}"), value);
        }
    }
    if let Ok(host) = HeaderValue::from_str(&name) {
        request.headers_mut().insert(header::HOST, host);
    }
    let target = Target { address, name, trust };
    let response = outbound::send(&target, request).await.map_err(|why| unavailable(&why))?;
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::TRANSFER_ENCODING);
    head.headers.remove(header::CONNECTION);
    let pieces = BodyStream::new(body).filter_map(|frame| async move { frame.ok()?.into_data().ok() });
    Ok(Response::from_parts(head, Answer::stream(pieces)))
}
