#![expect(clippy::disallowed_methods, reason = "tasks of a test end with the test")]

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{Notify, watch},
    time::Instant,
};
use tokio_rustls::{TlsConnector, client};

use super::*;

type Stream = client::TlsStream<TcpStream>;

/// A response: a word, or as much as the client reads.
enum TestBody {
    Hello(Full<Bytes>),
    Endless { _sending: Sending },
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Hello(body) => Pin::new(body).poll_frame(context),
            Self::Endless { .. } => Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; 32 << 10]))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Hello(body) if body.is_end_stream())
    }
}

/// Counts an endless response while it exists.
struct Sending(watch::Sender<usize>);

impl Sending {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A server whose path `/slow` responds on a signal; `/endless` and `/watch` never stop, and clients of the latter
/// may pause.
struct TestServer {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
    release: Arc<Notify>,
    /// Requests for `/slow` that arrived.
    arrived: watch::Receiver<usize>,
    /// Endless responses that are being sent.
    sending: watch::Receiver<usize>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl TestServer {
    async fn start(limits: Limits) -> Self {
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = key.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], private)
            .unwrap();
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (release, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let (arrivals, arrived) = watch::channel(0);
        let (endless, sending) = watch::channel(0);
        let state = Arc::new((Arc::clone(&release), arrivals, endless));
        let service = move |_: Peer<'_>| {
            let state = Arc::clone(&state);
            service_fn(move |request: Request<Incoming>| {
                let state = Arc::clone(&state);
                async move {
                    let (release, arrivals, endless) = &*state;
                    let path = request.uri().path();
                    if path == "/slow" {
                        let released = release.notified();
                        arrivals.send_modify(|count| *count += 1);
                        released.await;
                    }
                    let is_endless = ["/endless", "/watch"].contains(&path);
                    let mut response = Response::new(if is_endless {
                        TestBody::Endless { _sending: Sending::new(endless) }
                    } else {
                        TestBody::Hello(Full::new(Bytes::from_static(b"hello")))
                    });
                    if path == "/watch" {
                        response.extensions_mut().insert(LongRunning);
                    }
                    Ok::<_, Infallible>(response)
                }
            })
        };
        let serving = tokio::spawn(serve(listener, tls, limits, service, stop.clone().cancelled_owned()));
        Self { address, roots: Arc::new(roots), release, arrived, sending, stop, serving }
    }

    async fn connect(&self, protocol: &str) -> std::io::Result<Stream> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Waits until so many requests for `/slow` have arrived.
    async fn arrived(&self, count: usize) {
        self.arrived.clone().wait_for(|arrived| *arrived >= count).await.unwrap();
    }

    /// An HTTP/2 connection after its preface, without a request.
    async fn connect_http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(self.connect("h2").await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// A request on a new HTTP/1 connection.
    async fn get(&self, path: &str) -> Result<http::StatusCode, Box<dyn std::error::Error>> {
        let stream = TokioIo::new(self.connect("http/1.1").await?);
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        let request = Request::get(path).body(Full::new(Bytes::new()))?;
        Ok(sender.send_request(request).await?.status())
    }
}

fn limits(connections: usize) -> Limits {
    Limits { connections, ..Limits::default() }
}

/// Waits until the server closes a connection.
async fn closed(mut stream: Stream) {
    let mut buffer = [0; 64];
    while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}

#[tokio::test]
async fn a_new_client_replaces_the_one_that_was_idle_for_longest() {
    let server = TestServer::start(limits(4)).await;
    let oldest = server.connect("http/1.1").await.unwrap();
    let mut others = [server.connect_http2().await, server.connect_http2().await];
    let _half_open = TcpStream::connect(server.address).await.unwrap();
    let started = Instant::now();
    assert_eq!(server.get("/").await.unwrap(), 200);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    closed(oldest).await;
    let request = Request::get("https://localhost/").body(Full::new(Bytes::new())).unwrap();
    let answered = others[1].send_request(request).await.unwrap();
    assert_eq!(answered.status(), 200, "the others stay");
}

#[tokio::test]
async fn a_new_client_is_refused_at_once_when_all_are_busy() {
    let server = Arc::new(TestServer::start(limits(2)).await);
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.get("/slow").await.map_err(|error| error.to_string()) })
        })
        .collect();
    server.arrived(2).await;
    let started = Instant::now();
    assert!(server.get("/").await.is_err());
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    server.release.notify_waiters();
    for request in busy {
        assert_eq!(request.await.unwrap().unwrap(), 200, "requests in progress are not disturbed");
    }
}

#[tokio::test]
async fn connections_without_requests_are_closed() {
    let short = Duration::from_millis(200);
    let limits =
        Limits { handshake_timeout: short, header_timeout: short, idle_timeout: short, ..Limits::default() };
    let server = TestServer::start(limits).await;
    let silent = server.connect("http/1.1").await.unwrap();
    let mut slow_headers = server.connect("http/1.1").await.unwrap();
    slow_headers.write_all(b"GET / HTTP/1.1\r\nhost: ").await.unwrap();
    let mut idle = server.connect("http/1.1").await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let idle_http2 = server.connect_http2().await;
    let mut half_open = TcpStream::connect(server.address).await.unwrap();
    let all_closed = async {
        closed(silent).await;
        closed(slow_headers).await;
        closed(idle).await;
        while !idle_http2.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(half_open.read(&mut [0; 8]).await.unwrap_or(0), 0);
    };
    tokio::time::timeout(Duration::from_secs(3), all_closed).await.unwrap();
}

#[tokio::test]
async fn a_request_in_progress_keeps_its_connection() {
    let limits = Limits { idle_timeout: Duration::from_millis(100), ..Limits::default() };
    let server = Arc::new(TestServer::start(limits).await);
    let request = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.get("/slow").await.map_err(|error| error.to_string()) })
    };
    server.arrived(1).await;
    // Longer than the idle timeout: the passing of time is what is tested.
    tokio::time::sleep(Duration::from_millis(400)).await;
    server.release.notify_waiters();
    assert_eq!(request.await.unwrap().unwrap(), 200);
}

#[tokio::test]
async fn stopping_finishes_requests_in_progress_and_closes_idle_connections() {
    let server = Arc::new(TestServer::start(Limits::default()).await);
    let idle = server.connect("http/1.1").await.unwrap();
    let request = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.get("/slow").await.map_err(|error| error.to_string()) })
    };
    server.arrived(1).await;
    server.stop.cancel();
    closed(idle).await;
    assert!(TcpStream::connect(server.address).await.is_err(), "no more connections are accepted");
    assert!(!server.serving.is_finished());
    server.release.notify_waiters();
    assert_eq!(request.await.unwrap().unwrap(), 200);
    let TestServer { serving, .. } = Arc::into_inner(server).unwrap();
    tokio::time::timeout(Duration::from_secs(1), serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_arrives_while_its_connection_closes_is_answered() {
    let limits = Limits { header_timeout: Duration::from_millis(200), ..Limits::default() };
    let server = TestServer::start(limits).await;
    let mut stream = server.connect("http/1.1").await.unwrap();
    stream.write_all(b"GET /slow HTTP/1.1\r\nhost: ").await.unwrap();
    // Longer than the header timeout, so that the connection is being closed.
    tokio::time::sleep(Duration::from_millis(500)).await;
    stream.write_all(b"localhost\r\n\r\n").await.unwrap();
    server.arrived(1).await;
    // Longer than an idle connection may take to close.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.release.notify_waiters();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}

/// A connection whose client never reads its response, but answers pings.
async fn never_read(server: &TestServer) -> tokio::task::JoinHandle<()> {
    let stream = TokioIo::new(server.connect("h2").await.unwrap());
    let mut client = http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(0);
    let (mut sender, connection) = client.handshake(stream).await.unwrap();
    let connected = tokio::spawn(async move { drop(connection.await) });
    let request = Request::get("https://localhost/").body(Full::new(Bytes::new())).unwrap();
    let response = sender.send_request(request).await.unwrap();
    tokio::spawn(async move {
        let _kept = (sender, response);
        std::future::pending::<()>().await;
    });
    connected
}

#[tokio::test]
async fn a_client_that_never_reads_its_response_is_closed_after_the_request_timeout() {
    let limits = Limits {
        request_timeout: Some(Duration::from_millis(300)),
        drain_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = TestServer::start(limits).await;
    let stuck = never_read(&server).await;
    tokio::time::timeout(Duration::from_secs(3), stuck).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_new_client_replaces_one_whose_request_takes_longer_than_allowed() {
    let limits = Limits { request_timeout: Some(Duration::from_millis(300)), ..limits(1) };
    let server = TestServer::start(limits).await;
    let _stuck = never_read(&server).await;
    assert!(server.get("/").await.is_err(), "its request may still take a moment");
    let served = async { while server.get("/").await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(5), served).await.unwrap();
}

#[tokio::test]
async fn a_response_that_is_no_longer_read_is_abandoned() {
    // Far above what a busy machine takes between two reads.
    let stall_timeout = Duration::from_secs(2);
    let server = TestServer::start(Limits { stall_timeout, ..Limits::default() }).await;
    let mut http1 = server.connect("http/1.1").await.unwrap();
    http1.write_all(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    http1.read_exact(&mut [0; 12]).await.unwrap();
    let mut http2 = server.connect_http2().await;
    let request =
        |path: &str| Request::get(format!("https://localhost{path}")).body(Full::new(Bytes::new())).unwrap();
    let mut unread = http2.send_request(request("/endless")).await.unwrap();
    let mut watch = http2.send_request(request("/watch")).await.unwrap();
    let mut read = http2.send_request(request("/endless")).await.unwrap();
    // Only those go on that are read, and those that last as long as their client wants.
    let deadline = Instant::now() + 10 * stall_timeout;
    while *server.sending.borrow() > 2 && Instant::now() < deadline {
        read.frame().await.unwrap().unwrap();
    }
    assert_eq!(*server.sending.borrow(), 2);
    closed(http1).await;
    let mut ended = Ok(());
    while ended.is_ok() {
        ended = unread.frame().await.unwrap().map(drop);
    }
    // Other responses on the connection are not affected.
    read.frame().await.unwrap().unwrap();
    watch.frame().await.unwrap().unwrap();
    assert_eq!(http2.send_request(request("/")).await.unwrap().status(), 200);
}
