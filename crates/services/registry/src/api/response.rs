//! Responses.

use http::{HeaderValue, Method, StatusCode, header};

use crate::error::Error;
use crate::json::{Json, object};
use crate::store::StoreError;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=UTF-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A response with a small body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(header::HeaderName, HeaderValue)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(status: StatusCode, body: &Json) -> Self {
        let body = format!("{}\n", body.encode());
        Self { status, headers: vec![(header::CONTENT_TYPE, JSON)], body }
    }

    pub(crate) fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self { status, headers: vec![(header::CONTENT_TYPE, TEXT)], body: body.into() }
    }

    /// The refusal of a path that leads nowhere. Methods that are not of HTTP itself are refused whatever the path.
    pub(crate) fn no_route(method: &Method) -> Self {
        if is_standard(method) { Self::not_found() } else { Self::method_not_allowed(method, &[]) }
    }

    /// The refusal of a path that leads nowhere.
    pub(crate) fn not_found() -> Self {
        Self::plain_error(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    /// A refusal in plain text, as Go's `http.Error` sends it.
    pub(crate) fn plain_error(status: StatusCode, text: &str) -> Self {
        let mut response = Self::text(status, text);
        response.headers.push((header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")));
        response
    }

    pub(crate) fn method_not_allowed(method: &Method, allowed: &[&Method]) -> Self {
        let mut names: Vec<&str> = allowed.iter().map(|method| method.as_str()).collect();
        names.sort_unstable();
        let allow = HeaderValue::from_str(&names.join(", ")).ok();
        // Methods that are not of HTTP itself get no list.
        let headers = allow.filter(|_| is_standard(method)).map(|allow| (header::ALLOW, allow));
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            headers: headers.into_iter().collect(),
            body: String::new(),
        }
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::error(StatusCode::BAD_REQUEST, StatusCode::BAD_REQUEST, message)
    }

    /// The refusal of a document that can be read but not used.
    pub(crate) fn unprocessable(message: &str) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::error(status, status, message)
    }

    /// The response to a refusal.
    pub(crate) fn refusal(error: &Error) -> Self {
        let message = error.to_string();
        let (status, code) = match error {
            Error::BadRequest(_) => (StatusCode::BAD_REQUEST, StatusCode::BAD_REQUEST),
            // Upstream labels a missing field as a bad request.
            Error::Unprocessable(_) => (StatusCode::UNPROCESSABLE_ENTITY, StatusCode::BAD_REQUEST),
            Error::NotFound(_) => (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
            Error::Conflict(_) | Error::Store(StoreError::Duplicate) => {
                (StatusCode::CONFLICT, StatusCode::CONFLICT)
            }
            Error::Store(StoreError::Unavailable(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, StatusCode::SERVICE_UNAVAILABLE)
            }
            Error::Internal(_) | Error::Store(_) => {
                tracing::error!(%message, "a request failed");
                (StatusCode::INTERNAL_SERVER_ERROR, StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        Self::error(status, code, &message)
    }

    fn error(status: StatusCode, code: StatusCode, message: &str) -> Self {
        let code = code.canonical_reason().unwrap_or_default();
        Self::json(status, &object([("code", code.into()), ("message", message.into())]))
    }
}

/// Whether a method is one of HTTP itself.
fn is_standard(method: &Method) -> bool {
    let standard = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
    ];
    standard.contains(method)
}
