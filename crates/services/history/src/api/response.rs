//! Responses, as the handlers make them.

use bytes::Bytes;
use futures::stream::{Stream, TryStreamExt as _};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

/// The body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// A body that is in memory.
pub(crate) fn content(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

impl Reply {
    pub(crate) fn new(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, content_type);
        Self { status, headers, body: content(body) }
    }

    pub(crate) fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: content(Bytes::new()) }
    }

    /// Text, usually a reason.
    pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self::new(status, TEXT, text)
    }

    pub(crate) fn bad_request(text: impl Into<Bytes>) -> Self {
        Self::text(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn not_found(text: impl Into<Bytes>) -> Self {
        Self::text(StatusCode::NOT_FOUND, text)
    }

    pub(crate) fn failed(text: impl Into<Bytes>) -> Self {
        Self::text(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// JSON that upstream declares as such.
    pub(crate) fn json(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, JSON, body)
    }

    /// JSON that upstream leaves to Go's sniffing, which finds text.
    pub(crate) fn sniffed(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, TEXT, body)
    }

    /// Text that is produced while it is sent.
    pub(crate) fn streamed(pieces: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static) -> Self {
        let body = StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync();
        Self { body, ..Self::sniffed(Bytes::new()) }
    }

    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn no_sniff(self) -> Self {
        self.with(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
    }

    pub(crate) fn into_http(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}
