//! Responses of this server itself.

use std::error::Error;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};

/// Any error.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// A body of a response: complete, or streamed from the Kubernetes API.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// What Go's gRPC gateway answers at unknown paths.
const NOT_FOUND: &str = r#"{"code":5,"message":"Not Found"}"#;

/// A body of these bytes.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// An error as plain text, as Go's `http.Error` writes it.
pub(crate) fn error(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = typed(status, "text/plain; charset=utf-8", format!("{message}\n"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// There is nothing at this path.
pub(crate) fn not_found() -> Response<Body> {
    typed(StatusCode::NOT_FOUND, "application/json", NOT_FOUND.to_owned())
}

/// A body of this type.
pub(crate) fn typed(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The request is to be sent again to another path, with the same method and body.
pub(crate) fn redirect(method: &Method, location: &str) -> Response<Body> {
    let status = StatusCode::TEMPORARY_REDIRECT;
    let Ok(value) = HeaderValue::from_str(location) else {
        return error(StatusCode::BAD_REQUEST, "the path is not valid");
    };
    let mut response = if method == Method::GET || method == Method::HEAD {
        let link = location
            .replace('&', "&amp;")
            .replace('"', "&#34;")
            .replace('\'', "&#39;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        typed(status, "text/html; charset=utf-8", format!("<a href=\"{link}\">Temporary Redirect</a>.\n\n"))
    } else {
        empty(status)
    };
    response.headers_mut().insert(header::LOCATION, value);
    response
}
