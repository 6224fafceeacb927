//! A server that reads requests and answers with as many bytes as the API would, and does nothing else: what the
//! machine, TLS and HTTP allow.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use quintet_apiserver::server::{self, certificates::Authority};
use tokio::net::TcpListener;

use crate::{Error, connection::Target};

/// As large as the answer to most requests that are measured.
const ANSWER: usize = 1200;

/// Serves as long as the runtime lives.
pub(crate) async fn serve() -> Result<Target, Error> {
    let authority = Authority::generate()?;
    let tls = server::tls(&authority, &["127.0.0.1".to_owned()])?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let target = Target::new(listener.local_addr()?.to_string(), authority.certificate.as_bytes(), None)?;
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    });
    Ok(target)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    Ok(Response::new(Full::new(vec![b'x'; ANSWER].into())))
}
