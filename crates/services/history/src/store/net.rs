//! The HTTP client of stores and dashboards.

use std::io::Read as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::StoreError;

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a request to a store may take, besides the time for what it uploads.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Uploads are given up when they are slower than this many bytes a second.
const SLOWEST_UPLOAD: u64 = 256 * 1024;

/// Larger responses of stores are not read.
const LARGEST: usize = 256 * 1024 * 1024;

/// Pauses before a read is sent again. A store that is busy asks for fractions of a second.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// How long a request to a store may take that has this body.
fn upload_timeout(body: &Body) -> Duration {
    use hyper::body::Body as _;
    let length = body.size_hint().exact().unwrap_or_default();
    TIMEOUT + Duration::from_secs(length / SLOWEST_UPLOAD)
}

/// Whether a store may do what was asked in a moment.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// An HTTP client that keeps connections. Clones share them.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl Http {
    /// A client that trusts the certificates of this machine; one without certificates can still use plain HTTP.
    pub(crate) fn new() -> Result<Self, StoreError> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let builder = hyper_rustls::HttpsConnectorBuilder::new();
        let builder = if let Ok(builder) = builder.with_provider_and_native_roots(provider.clone()) {
            builder
        } else {
            let tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
                .with_safe_default_protocol_versions()
                .map_err(|error| StoreError(format!("cannot set up TLS: {error}")))?;
            let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls)
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_mins(1))
            .pool_max_idle_per_host(8)
            .build(connector);
        Ok(Self { client })
    }

    /// Sends a request and returns the response with its body still to be read.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, String> {
        // hyper leaves out the length of an empty body, without which stores refuse a write.
        if matches!(*request.method(), Method::PUT | Method::POST)
            && let Some(length) = hyper::body::Body::size_hint(request.body()).exact()
        {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        self.client.request(request).await.map_err(|error| cause(&error))
    }

    /// Sends a request and reads the whole response, both within `timeout`.
    pub(crate) async fn fetch(
        &self,
        request: Request<Body>,
        timeout: Duration,
        limit: usize,
    ) -> Result<Response<Bytes>, String> {
        let fetching = async {
            let (parts, body) = self.send(request).await?.into_parts();
            let body = Limited::new(body, limit).collect().await.map_err(|error| error.to_string())?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        tokio::time::timeout(timeout, fetching).await.unwrap_or_else(|_| Err(no_answer(timeout)))
    }

    /// Sends a request to a store and reads the whole response. A read is sent again when the store is busy or the
    /// connection breaks: who loads a session skips files that cannot be read. Those who write try again themselves.
    pub(super) async fn fetch_stored(&self, request: Request<Body>) -> Result<Response<Bytes>, String> {
        let timeout = upload_timeout(request.body());
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return self.fetch(request, timeout, LARGEST).await;
        }
        let (parts, _) = request.into_parts();
        let fetch = || {
            let request = Request::from_parts(parts.clone(), content(Bytes::new()));
            self.fetch(request, timeout, LARGEST)
        };
        let reading = async {
            for pause in PAUSES {
                match fetch().await {
                    Ok(response) if !is_passing(response.status()) => return Ok(response),
                    _ => tokio::time::sleep(pause).await,
                }
            }
            fetch().await
        };
        tokio::time::timeout(timeout, reading).await.unwrap_or_else(|_| Err(no_answer(timeout)))
    }
}

fn no_answer(timeout: Duration) -> String {
    format!("no answer within {} seconds", timeout.as_secs())
}

/// The body of a request.
pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

/// A body that is in memory.
pub(crate) fn content(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// Files are sent in pieces of this size.
const PIECE: usize = 64 * 1024;

/// A body that is read from a file while it is sent. If the file grows meanwhile, the rest is left out.
pub(crate) fn file_content(path: &Path) -> std::io::Result<Body> {
    let file = std::fs::File::open(path)?;
    let left = file.metadata()?.len();
    Ok(FileBody { file, left }.boxed())
}

struct FileBody {
    file: std::fs::File,
    left: u64,
}

impl hyper::body::Body for FileBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let length = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
        let mut piece = vec![0; length];
        let read = match self.file.read(&mut piece) {
            Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        Poll::Ready(Some(read.map(|read| {
            piece.truncate(read);
            self.left -= read as u64;
            Frame::data(Bytes::from(piece))
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The innermost cause of an error: it says what happened.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Encodes a text for a URL; with `/` kept if it is a path.
pub(crate) fn percent_encoded(text: &str, keep_slash: bool) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            b'/' if keep_slash => encoded.push('/'),
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}
