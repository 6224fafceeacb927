//! Requests as text, and what every answer must be like: for tests and for fuzzing.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Collected};
use quintet_apiserver::{Api, Caller, request::body::ResponseBody};

/// Reads a request: method, path and content type in the first line, then the body. `None` if HTTP has no such request.
pub(crate) fn parse(text: &[u8]) -> Option<Request<Bytes>> {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (line, body) = text.split_at(end);
    let mut words = line.split(|byte| *byte == b' ');
    let method = http::Method::from_bytes(words.next()?).ok()?;
    let uri = http::Uri::try_from(words.next()?).ok().filter(|uri| uri.path().starts_with('/'))?;
    let kind = words.next().unwrap_or_default();
    let body = Bytes::copy_from_slice(body.get(1..).unwrap_or_default());
    Request::builder().method(method).uri(uri).header("content-type", kind).body(body).ok()
}

/// Sends a request as somebody who may do everything; fails unless it is answered as it has to be. Returns the code.
pub(crate) async fn answered(api: &Api, request: Request<Bytes>, origin: &str) -> u16 {
    let body = String::from_utf8_lossy(request.body()).into_owned();
    let shown = format!("{origin}: {} {}\n{body}", request.method(), request.uri());
    let admin = Caller::known("admin", ["system:masters".to_owned()]);
    let answer = tokio::time::timeout(Duration::from_secs(20), api.handle(request, admin)).await;
    assert!(answer.is_ok(), "no answer to {shown}");
    let Ok(answer) = answer else { return 0 };
    let (head, body) = answer.into_parts();
    let code = head.status.as_u16();
    assert!(code < 500 || matches!(code, 500 | 503 | 504), "{code} to {shown}");
    let ResponseBody::Whole(_) = &body else { return code };
    let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    assert!(bytes.len() < 8 << 20, "{} bytes to {shown}", bytes.len());
    let is_json = head.headers.get("content-type").is_some_and(|value| value == "application/json");
    if code >= 400 && is_json {
        let status: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &code.into()), "{shown}");
        assert!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{shown}");
    }
    code
}
