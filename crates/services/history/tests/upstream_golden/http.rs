//! A plain HTTP client: one connection for each request, headers as they are given.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    uri: &str,
    headers: &[(String, String)],
    body: Vec<u8>,
) -> Answer {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let mut request = hyper::Request::builder().method(method).uri(uri).header("Host", address.to_string());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(Bytes::from(body))).expect("a request");
    let (parts, body) = sender.send_request(request).await.expect("a response").into_parts();
    let headers = parts.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    Answer {
        status: parts.status.as_u16(),
        headers: headers.collect(),
        body: body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default(),
    }
}
