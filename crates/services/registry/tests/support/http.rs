//! A client that sends exactly what it is given: odd paths, methods and bodies.

use std::fmt::Write;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a request on a connection of its own.
pub(crate) async fn send(address: SocketAddr, request: &Request) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect(address).await?;
    let mut head =
        format!("{} {} HTTP/1.1\r\nHost: registry\r\nConnection: close\r\n", request.method, request.path);
    for (name, value) in &request.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if let Some(body) = &request.body {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend(request.body.iter().flatten());
    stream.write_all(&bytes).await?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await?;
    parse(&received).ok_or_else(|| std::io::Error::other("the response is malformed"))
}

fn parse(received: &[u8]) -> Option<Response> {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(Response { status, headers: headers.collect(), body: received[end + 4..].to_vec() })
}
