//! Aggregated APIs: requests for groups of other servers are forwarded.

mod availability;
mod in_process;
mod services;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, header, request::Parts};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::Value;

use crate::{
    api::Api,
    auth::Caller,
    json::text,
    outbound::{self, Target, Trust},
    request::body::ResponseBody,
    status::Failure,
};

pub(crate) use availability::start;
pub(crate) use in_process::Servers;
pub(crate) use services::{Services, publish, refresh_service};

/// How long another server may take to begin its response, connecting included.
const HEAD_DEADLINE: Duration = Duration::from_mins(1);

/// Sends a request to the server of an APIService, as a user.
async fn send(
    api: &Api,
    service: &Value,
    caller: &Caller,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    let reference = service.pointer("/spec/service").cloned().unwrap_or_default();
    let address = outbound::endpoint(api, &reference)?;
    let bundle = STANDARD.decode(text(service, "/spec/caBundle"));
    let bundle = bundle.map_err(|error| format!("spec.caBundle is not base64: {error}"))?;
    let skips_verification = service.pointer("/spec/insecureSkipTLSVerify") == Some(&Value::Bool(true));
    let name = format!("{}.{}.svc", text(&reference, "/name"), text(&reference, "/namespace"));
    let trust = if skips_verification { Trust::Unverified } else { Trust::Bundle(&bundle) };
    set_user_headers(&mut request, caller);
    if let Ok(host) = HeaderValue::from_str(&name) {
        request.headers_mut().insert(header::HOST, host);
    }
    let identity = api.front_proxy().map(|proxy| &proxy.identity);
    outbound::send(&Target { address, name, trust, identity }, request).await
}

/// Sets the headers that identify the user (`X-Remote-User` and others).
fn set_user_headers(request: &mut Request<Full<Bytes>>, caller: &Caller) {
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
            add(&format!("x-remote-extra-{}", escaped(key)), value);
        }
    }
}

/// A key of extra information as a header can carry it.
fn escaped(key: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    key.bytes().map(escape).collect()
}

/// Forwards a request, and returns the response.
pub(crate) async fn forward(
    api: &Api,
    service: &Value,
    caller: &Caller,
    parts: &Parts,
    body: Bytes,
) -> Result<Response<ResponseBody>, Failure> {
    let unavailable = |why: &str| {
        tracing::debug!("APIService {} is not available: {why}", text(service, "/metadata/name"));
        Failure::plain(503, "service unavailable\n")
    };
    if let Some(handler) = api.servers().of(text(service, "/metadata/name")) {
        return in_process::forward(&handler, parts).await;
    }
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(Failure::internal)?;
    for (key, value) in &parts.headers {
        // Identity headers are set here; hop-by-hop headers are not forwarded.
        let is_own = key.as_str().starts_with("x-remote-")
            || key.as_str().starts_with("impersonate-")
            || [header::AUTHORIZATION, header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH]
                .contains(key);
        if !is_own {
            request.headers_mut().append(key.clone(), value.clone());
        }
    }
    let response = tokio::time::timeout(HEAD_DEADLINE, send(api, service, caller, request)).await;
    let response = response
        .unwrap_or_else(|_| Err("it does not respond".to_owned()))
        .map_err(|why| unavailable(&why))?;
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::TRANSFER_ENCODING);
    head.headers.remove(header::CONNECTION);
    Ok(Response::from_parts(head, ResponseBody::forwarded(body)))
}
