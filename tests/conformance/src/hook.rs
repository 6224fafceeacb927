//! A webhook that the cluster can call.
//!
//! It listens on loopback. Where the cluster runs on another machine, `CONFORMANCE_WEBHOOK_HOST` names the address of
//! this one as the cluster sees it; then it listens on all addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Maps path and review to a response; `None` never responds.
type Answer = fn(&str, &Value) -> Option<Value>;

/// A running webhook; it stops with the value.
pub(crate) struct Hook {
    url: String,
    ca: String,
    server: JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Hook {
    pub(crate) async fn start(answer: Answer) -> anyhow::Result<Self> {
        let host = match std::env::var("CONFORMANCE_WEBHOOK_HOST") {
            Ok(host) => host.parse().context("CONFORMANCE_WEBHOOK_HOST is no address")?,
            Err(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let at = if host.is_loopback() { host } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let listener = TcpListener::bind(SocketAddr::new(at, 0)).await.context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let certified = rcgen::generate_simple_self_signed([host.to_string()])?;
        let key = PrivateKeyDer::from_pem_slice(certified.signing_key.serialize_pem().as_bytes())?;
        let chain = vec![CertificateDer::from_pem_slice(certified.cert.pem().as_bytes())?];
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        #[expect(clippy::disallowed_methods, reason = "aborted when the hook goes")]
        let server = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), answer));
        let url = format!("https://{}", SocketAddr::new(host, port));
        Ok(Self { url, ca: STANDARD.encode(certified.cert.pem()), server })
    }

    /// How a configuration says where a path of it is.
    pub(crate) fn client(&self, path: &str) -> Value {
        json!({ "url": format!("{}{path}", self.url), "caBundle": self.ca })
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, answer: Answer) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| respond(request, answer));
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(request: Request<Incoming>, answer: Answer) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let Ok(review) = serde_json::from_slice::<Value>(&body) else {
        let mut response = Response::new(Full::new("the review is not JSON".into()));
        *response.status_mut() = http::StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    match answer(&path, &review) {
        Some(answer) => {
            let mut response = Response::new(Full::new(answer.to_string().into()));
            let json = http::HeaderValue::from_static("application/json");
            response.headers_mut().insert(http::header::CONTENT_TYPE, json);
            Ok(response)
        }
        None => std::future::pending().await,
    }
}
