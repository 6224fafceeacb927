//! A client that sends exactly what it is given: odd paths, methods, headers and bodies.

use std::fmt::Write as _;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
}

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), ..Self::default() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn json(mut self, body: &serde_json::Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self.header("Content-Type", "application/json")
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Sends a request on a connection of its own.
pub async fn send(address: SocketAddr, request: &Request) -> std::io::Result<Response> {
    let mut stream = open(address, request).await?;
    let mut received = Vec::new();
    let is_head = request.method == "HEAD";
    while !is_complete(&received, is_head) && stream.read_buf(&mut received).await? > 0 {}
    parse(&received).ok_or_else(|| std::io::Error::other("the response is malformed"))
}

/// Whether all of a response is there: a connection that was to be upgraded stays open.
fn is_complete(received: &[u8], is_head: bool) -> bool {
    let Some(end) = end_of_head(received) else { return false };
    let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
    let body = &received[end..];
    let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) => is_head || body.len() >= length,
        None => is_head || head.contains("transfer-encoding: chunked") && body.ends_with(b"0\r\n\r\n"),
    }
}

fn end_of_head(received: &[u8]) -> Option<usize> {
    Some(received.windows(4).position(|window| window == b"\r\n\r\n")? + 4)
}

/// Sends a request, and returns the connection to read the response from.
pub async fn open(address: SocketAddr, request: &Request) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let has = |name: &str| request.headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.path);
    if !has("Host") {
        let _ = write!(head, "Host: {address}\r\n");
    }
    if !has("Upgrade") {
        head.push_str("Connection: close\r\n");
    }
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
    Ok(stream)
}

fn parse(received: &[u8]) -> Option<Response> {
    let end = end_of_head(received)?;
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let mut response = Response { status, headers, body: received[end..].to_vec() };
    if response.header("transfer-encoding") == Some("chunked") {
        response.body = unchunk(&response.body)?;
    }
    Some(response)
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
