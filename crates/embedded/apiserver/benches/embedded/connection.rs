//! Connections to a cluster, as its kubeconfig says.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::Value;

use crate::Error;

/// How a cluster is reached.
#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    tls: Arc<ClientConfig>,
}

impl Target {
    pub(crate) fn of_kubeconfig(path: &Path) -> Result<Self, Error> {
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let text = |pointer: &str| -> Result<&str, Error> {
            let found = config.pointer(pointer).and_then(Value::as_str);
            found.ok_or_else(|| format!("{} has no {pointer}", path.display()).into())
        };
        let pem = |pointer: &str| -> Result<Vec<u8>, Error> { Ok(STANDARD.decode(text(pointer)?)?) };
        let server = text("/clusters/0/cluster/server")?;
        Self::new(
            server.trim_start_matches("https://").to_owned(),
            &pem("/clusters/0/cluster/certificate-authority-data")?,
            Some((&pem("/users/0/user/client-certificate-data")?, &pem("/users/0/user/client-key-data")?)),
        )
    }

    pub(crate) fn new(address: String, ca: &[u8], client: Option<(&[u8], &[u8])>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca)?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let tls = match client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate)?];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?
            }
        };
        Ok(Self { address, tls: Arc::new(tls) })
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        let stream = tokio::net::TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let host = self.address.rsplit_once(':').map_or("localhost", |(host, _)| host);
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(ServerName::try_from(host.to_owned())?, stream).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection(sender))
    }
}

/// One connection, one request at a time.
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    /// Sends a request and reads the answer to its end.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Bytes, Error> {
        Ok(self.open(request).await?.collect().await?.to_bytes())
    }

    /// Sends a request whose answer is read as it comes.
    pub(crate) async fn open(&mut self, request: Request<Full<Bytes>>) -> Result<Incoming, Error> {
        self.0.ready().await?;
        let response = self.0.send_request(request).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(response.into_body());
        }
        let body = response.into_body().collect().await?.to_bytes();
        Err(format!("{code}: {}", String::from_utf8_lossy(&body)).into())
    }
}
