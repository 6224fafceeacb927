//! A server for tests that responds as it is told.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use super::config::Variables;

/// A request: its first line, its headers in lower case, and its body.
pub(super) struct Received {
    pub(super) line: String,
    pub(super) headers: String,
    pub(super) body: String,
}

/// Serves until the test ends. Returns the address, `HOST:PORT`.
pub(super) fn serve(respond: impl Fn(&Received) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut received = Received { line: String::new(), headers: String::new(), body: String::new() };
            if reader.read_line(&mut received.line).is_err() {
                continue;
            }
            let mut header = String::new();
            while reader.read_line(&mut header).is_ok_and(|read| read > 2) {
                received.headers.push_str(&header.to_ascii_lowercase());
                header.clear();
            }
            let length = received.headers.lines().find_map(|it| it.strip_prefix("content-length: "));
            let length = length.and_then(|it| it.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            received.body = String::from_utf8_lossy(&body).into_owned();
            let (status, body) = respond(&received);
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// An environment.
pub(super) fn variables(pairs: &[(&'static str, String)]) -> Variables {
    let pairs = pairs.to_vec();
    Arc::new(move |name: &str| pairs.iter().find(|(it, _)| *it == name).map(|(_, value)| value.clone()))
}
