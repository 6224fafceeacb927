//! Requests to containers: commands, HTTP, TCP and gRPC. Hooks and probes share them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1 as core;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::handle::PodHandle;
use crate::pod::probe;
use crate::shim::protocol::{Channel, ExecConfig, Response};

/// What is read of a response or of the output of a command.
const OUTPUT_LIMIT: usize = 10 << 10;
/// Redirects that are followed.
const REDIRECTS: usize = 10;

/// Runs a command in a container; its exit code and its output.
pub(super) async fn command(
    handle: &PodHandle,
    container: &str,
    command: &[String],
) -> Result<(i32, String), String> {
    let config =
        ExecConfig { container: container.to_owned(), command: command.to_vec(), tty: false, stdin: false };
    let mut streams = handle.shim().exec(config).await.map_err(|error| error.to_string())?;
    let mut output = Vec::new();
    loop {
        match streams.receive().await.map_err(|error| error.to_string())? {
            Some((Channel::Stdout | Channel::Stderr, bytes)) => {
                let room = OUTPUT_LIMIT.saturating_sub(output.len());
                output.extend(bytes.iter().take(room));
            }
            Some((Channel::Control, message)) => {
                return match serde_json::from_slice(&message) {
                    Ok(Response::Exited(exit)) => {
                        Ok((exit.code, String::from_utf8_lossy(&output).into_owned()))
                    }
                    Ok(Response::Failed { message, .. }) => Err(message),
                    other => Err(format!("unexpected response {other:?}")),
                };
            }
            Some(_) => {}
            None => return Err("the container ended".into()),
        }
    }
}

/// Where an HTTP request of a hook or a probe goes.
#[derive(Clone, Debug)]
pub(super) struct HttpTarget {
    host: String,
    port: u16,
    is_secure: bool,
    path: String,
    headers: HeaderMap,
}

impl HttpTarget {
    /// Reads a request; `pod_ip` is where it goes unless it says otherwise.
    pub(super) fn of(
        action: &core::HTTPGetAction,
        container: &core::Container,
        pod_ip: &str,
    ) -> Result<Self, String> {
        let port = probe::port(&action.port, container);
        let port = port.ok_or_else(|| format!("the container has no port {:?}", action.port))?;
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(pod_ip);
        let path = action.path.as_deref().unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let mut headers = HeaderMap::new();
        for one in action.http_headers.iter().flatten() {
            let name = HeaderName::try_from(&one.name).map_err(|error| error.to_string())?;
            let value = HeaderValue::try_from(&one.value).map_err(|error| error.to_string())?;
            headers.append(name, value);
        }
        let is_secure = action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        Ok(Self { host: host.to_owned(), port, is_secure, path, headers })
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn url(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }
}

/// An HTTP response of a container.
pub(super) struct HttpResponse {
    pub status: StatusCode,
    pub body: String,
}

/// Sends a GET request. Redirects on the same host are followed; one that leads elsewhere is the response.
pub(super) async fn http(target: &HttpTarget, agent: &str) -> Result<HttpResponse, String> {
    let mut target = target.clone();
    for _ in 0..REDIRECTS {
        let (status, location, body) = http_once(&target, agent).await?;
        let next = location.filter(|_| status.is_redirection()).and_then(|to| redirected(&target, &to));
        match next {
            Some(next) => target = next,
            None => return Ok(HttpResponse { status, body }),
        }
    }
    Err(format!("Get {:?}: stopped after {REDIRECTS} redirects", target.url()))
}

/// Where a redirect leads, if that is on the same host.
fn redirected(from: &HttpTarget, location: &str) -> Option<HttpTarget> {
    if location.starts_with('/') && !location.starts_with("//") {
        return Some(HttpTarget { path: location.to_owned(), ..from.clone() });
    }
    let uri: http::Uri = location.parse().ok()?;
    let is_secure = uri.scheme_str()? == "https";
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let host = uri.host()?.trim_matches(['[', ']']);
    (host == from.host).then(|| HttpTarget { port, is_secure, path, ..from.clone() })
}

async fn http_once(target: &HttpTarget, agent: &str) -> Result<(StatusCode, Option<String>, String), String> {
    let failed = |why: String| format!("Get {:?}: {why}", target.url());
    let mut request = Request::builder().uri(&target.path).body(Full::new(Bytes::new()));
    if let Ok(request) = &mut request {
        let defaults = [
            (header::HOST, target.authority()),
            (header::USER_AGENT, agent.to_owned()),
            (header::ACCEPT, "*/*".into()),
        ];
        for (name, value) in defaults {
            if let Ok(value) = HeaderValue::try_from(value) {
                request.headers_mut().insert(name, value);
            }
        }
        // Those of the container replace ours.
        request.headers_mut().extend(target.headers.clone());
    }
    let request = request.map_err(|error| failed(error.to_string()))?;
    let stream = connect(&target.host, target.port).await.map_err(failed)?;
    if !target.is_secure {
        return exchange(stream, request).await.map_err(failed);
    }
    let name = ServerName::try_from(target.host.clone()).map_err(|error| failed(error.to_string()))?;
    let connector = tokio_rustls::TlsConnector::from(accept_any_certificate().map_err(failed)?);
    let stream = connector.connect(name, stream).await.map_err(|error| failed(error.to_string()))?;
    exchange(stream, request).await.map_err(failed)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Option<String>, String), String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let location = head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
        let location = location.map(str::to_owned);
        // A longer body says no more about the container.
        let body = Limited::new(body, OUTPUT_LIMIT).collect().await.map(http_body_util::Collected::to_bytes);
        let body = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
        Ok((head.status, location, body))
    };
    // The connection ends when the sender is dropped; its own errors are those of the exchange.
    let (outcome, _) = futures::future::join(exchange, connection).await;
    outcome
}

/// Connects as the node does: a server that listens on the loopback interface of its pod is not reached.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    TcpStream::connect((host, port)).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {shown}: connect: connection refused"),
        _ => format!("dial tcp {shown}: {error}"),
    })
}

/// Asks the gRPC health service of a container whether it serves.
pub(super) async fn grpc(host: &str, port: u16, service: &str) -> Result<(), String> {
    let stream = connect(host, port).await?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let request = Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(health_request(service)))
        .map_err(|error| error.to_string())?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let in_head = grpc_status(response.headers());
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
        let status = in_head.or_else(|| grpc_status(body.trailers()?)).unwrap_or_else(|| "0".into());
        Ok::<_, String>((status, body.to_bytes()))
    };
    let (outcome, _) = futures::future::join(exchange, connection).await;
    judge_health(outcome?)
}

fn grpc_status(headers: &HeaderMap) -> Option<String> {
    headers.get("grpc-status")?.to_str().ok().map(str::to_owned)
}

/// A message with the name of the service as its only field, behind a prefix of a flag and its length.
fn health_request(service: &str) -> Bytes {
    let mut message = Vec::new();
    if let Ok(length @ 1..=127) = u8::try_from(service.len()) {
        message.extend([0x0a, length]);
        message.extend(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or_default();
    [&[0], length.to_be_bytes().as_slice(), &message].concat().into()
}

fn judge_health((status, body): (String, Bytes)) -> Result<(), String> {
    match (status.as_str(), body.get(5..)) {
        ("0", Some([0x08, 1])) => Ok(()),
        ("0", found) => {
            let name = match found {
                Some([0x08, 2]) => "NOT_SERVING",
                Some([0x08, 3]) => "SERVICE_UNKNOWN",
                _ => "UNKNOWN",
            };
            Err(format!("service unhealthy (responded with {name:?})"))
        }
        ("12", _) => {
            Err("this server does not implement the grpc health protocol (grpc.health.v1.Health)".into())
        }
        (code, _) => Err(format!("error: health rpc failed: code {code}")),
    }
}

/// TLS without a look at the certificate, as probes have it.
fn accept_any_certificate() -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(action: serde_json::Value) -> HttpTarget {
        let container = json!({ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] });
        let container = serde_json::from_value(container).unwrap();
        HttpTarget::of(&serde_json::from_value(action).unwrap(), &container, "10.0.0.2").unwrap()
    }

    #[test]
    fn requests_go_to_the_pod_unless_they_say_otherwise() {
        assert_eq!(target(json!({ "port": "web" })).url(), "http://10.0.0.2:8080/");
        let other = json!({ "port": 1, "host": "::1", "scheme": "HTTPS", "path": "live" });
        assert_eq!(target(other).url(), "https://[::1]:1/live");
    }

    #[test]
    fn redirects_are_followed_on_the_same_host_only() {
        let from = target(json!({ "port": 80 }));
        let to = |location: &str| redirected(&from, location).map(|next| next.url());
        assert_eq!(to("/ready?x=1").as_deref(), Some("http://10.0.0.2:80/ready?x=1"));
        assert_eq!(to("https://10.0.0.2:8443/a").as_deref(), Some("https://10.0.0.2:8443/a"));
        assert_eq!(to("http://elsewhere/a"), None);
        assert_eq!(to("//elsewhere/a"), None);
    }

    #[test]
    fn health_messages() {
        assert_eq!(health_request("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(health_request("a").as_ref(), [0, 0, 0, 0, 3, 0x0a, 1, b'a']);
        let judge =
            |status: &str, body: &'static [u8]| judge_health((status.into(), Bytes::from_static(body)));
        assert_eq!(judge("0", &[0, 0, 0, 0, 2, 8, 1]), Ok(()));
        assert!(judge("0", &[0, 0, 0, 0, 2, 8, 2]).unwrap_err().contains("NOT_SERVING"));
        assert!(judge("12", &[]).unwrap_err().contains("does not implement"));
        assert!(judge("5", &[]).is_err());
    }
}
