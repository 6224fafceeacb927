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
use rcgen::{CertificateParams, IsCa, KeyPair};
use rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

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
        Self::serve(tls(&authority, &names).unwrap(), &authority.certificate, answer).await
    }

    /// The same with a certificate that vouches for itself, perhaps as an authority, and for clients with certificates
    /// of `client_ca` only.
    pub(crate) async fn self_signed(
        names: &[&str],
        is_ca: IsCa,
        client_ca: Option<&str>,
        answer: impl Fn(Request<Bytes>) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
                let provider = Arc::new(aws_lc_rs::default_provider());
                let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(clients.build().unwrap())
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        Self::serve(config, &certificate.pem(), answer).await
    }

    async fn serve(
        config: ServerConfig,
        ca: &str,
        answer: impl Fn(Request<Bytes>) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
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
        Self { address, ca: STANDARD.encode(ca) }
    }
}
