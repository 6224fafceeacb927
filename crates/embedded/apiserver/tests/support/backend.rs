//! A small HTTPS server of a test's own: a webhook, or the server of another API.
#![expect(clippy::disallowed_methods, reason = "tasks of a test or benchmark end with it")]

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use quintet_apiserver::server::{certificates::Authority, tls};

pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    /// Who vouches for it, as `caBundle` has it.
    pub(crate) ca: String,
}

impl Backend {
    /// Serves `answer` under some names until the test ends.
    pub(crate) async fn start(
        names: &[&str],
        answer: impl Fn(Request<Bytes>) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls(&authority, &names).unwrap()));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let answer = Arc::clone(&answer);
                        async move {
                            let (parts, body) = request.into_parts();
                            let body = body.collect().await.unwrap().to_bytes();
                            Ok::<_, Infallible>(answer(Request::from_parts(parts, body)))
                        }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, ca: STANDARD.encode(&authority.certificate) }
    }
}
