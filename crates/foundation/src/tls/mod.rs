//! An HTTPS accept loop that idle or slow clients cannot block.
//!
//! Every wait for a client has a deadline: the handshake, the first request, the next request, the reply to a
//! keep-alive ping, the reading of a response that is not long-running, the requests in progress when the server stops,
//! and, if the limits say so, any request. The
//! number of connections is bounded, apart for clients that the service knows. When all are taken, a new client
//! replaces the one that has been idle for longest, or one whose request takes longer than allowed; only if there is
//! none it is refused, at once.

mod connection;
mod pool;
#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use http_body::Body;
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use connection::{Connection, TrackedBody};
pub use pool::{Client, ClientClass};
use pool::{Connections, Slot};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How much of a response waits for a client that does not read, per connection of HTTP/1 and per request of HTTP/2.
/// Also the most that HTTP/1 reads of the headers of a request.
const SEND_BUFFER: usize = 128 << 10;

/// How long a server waits for its clients, and how much they may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time of clients that the service does not know.
    pub connections: usize,
    /// Connections at a time of clients that it knows, apart from those.
    pub known_connections: usize,
    /// Connections at a time of clients that must get in whatever the others do.
    pub privileged_connections: usize,
    /// Requests at a time on an HTTP/2 connection.
    pub streams: u32,
    /// Bytes of the headers of an HTTP/2 request.
    pub header_bytes: u32,
    /// From accepting a connection to the end of its TLS handshake.
    pub handshake_timeout: Duration,
    /// From accepting a connection to the complete headers of the first request.
    pub header_timeout: Duration,
    /// From the end of a request to the complete headers of the next.
    pub idle_timeout: Duration,
    /// The same for a client that the service knows, also before its first request.
    pub known_idle_timeout: Duration,
    /// From the headers of a request to the last of its response; `None` where responses may take forever.
    pub request_timeout: Option<Duration>,
    /// While a client reads nothing of a response that waits for it, unless the response is [`LongRunning`]. It may
    /// take up to twice as long to be noticed.
    pub stall_timeout: Duration,
    /// Between keep-alive pings on an HTTP/2 connection.
    pub ping_interval: Duration,
    /// Until a keep-alive ping is acknowledged.
    pub ping_timeout: Duration,
    /// For the requests in progress when the server stops or their connection is closed.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            known_connections: 0,
            privileged_connections: 0,
            // Go's HTTP/2 server allows as many.
            streams: 250,
            header_bytes: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(20),
            // Longer than the 90 seconds after which Go's clients close idle connections: a connection that the
            // client closes cannot break a request.
            idle_timeout: Duration::from_mins(2),
            known_idle_timeout: Duration::from_mins(2),
            request_timeout: None,
            stall_timeout: Duration::from_mins(1),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// An extension of responses that last as long as their client wants, such as watches and logs: the client may pause
/// for as long as it wants, too.
#[derive(Clone, Copy, Debug)]
pub struct LongRunning;

/// The client of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its address.
    pub address: SocketAddr,
    /// Where the service reports what it learns of it.
    pub client: &'a Client,
    /// The certificates it presented, its own first; verified by the TLS configuration.
    pub certificates: &'a [CertificateDer<'static>],
}

/// Binds a listener. All IPv6 interfaces means all IPv4 interfaces where the kernel has no IPv6.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) && is_unsupported(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        outcome => outcome,
    }
}

fn is_unsupported(error: &std::io::Error) -> bool {
    // EAFNOSUPPORT and EADDRNOTAVAIL, for which there are no stable names.
    matches!(error.raw_os_error(), Some(97 | 99))
}

/// Serves HTTP/1 and HTTP/2 over TLS until `stop` resolves and the requests in progress are finished.
///
/// `service` makes the service of a connection. Requests that upgrade their connection (WebSocket) leave the
/// server's limits once they are upgraded.
pub async fn serve<F, S, B>(
    listener: TcpListener,
    mut tls: ServerConfig,
    limits: Limits,
    service: F,
    stop: impl Future<Output = ()>,
) where
    F: Fn(Peer<'_>) -> S + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let server = Arc::new(Server {
        acceptor: TlsAcceptor::from(Arc::new(tls)),
        limits: limits.clone(),
        service,
        draining: CancellationToken::new(),
    });
    let connections = Arc::new(Connections::new(limits));
    // Dropping them closes all.
    let mut tasks = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    tracing::error!("a connection failed: {error}");
                }
            }
            (stream, address) = accept(&listener, &connections) => {
                if let Some(slot) = connections.admit() {
                    tasks.spawn(Arc::clone(&server).run(stream, address, Arc::new(slot)));
                }
            }
        }
    }
    drop(listener);
    server.draining.cancel();
    let drained = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(server.limits.drain_timeout, drained).await.is_err() {
        tracing::warn!("closing {} connections with requests in progress", tasks.len());
    }
}

/// The next connection.
async fn accept(listener: &TcpListener, connections: &Connections) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("cannot disable Nagle's algorithm: {error}");
                }
                return (stream, address);
            }
            Err(error) => {
                // Out of file descriptors or the like. Closing others takes a moment.
                tracing::warn!("cannot accept a connection: {error}");
                connections.relieve();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

struct Server<F> {
    acceptor: TlsAcceptor,
    limits: Limits,
    service: F,
    draining: CancellationToken,
}

impl<F, S, B> Server<F>
where
    F: Fn(Peer<'_>) -> S + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    async fn run(self: Arc<Self>, stream: TcpStream, address: SocketAddr, slot: Arc<Slot>) {
        let connection = Arc::clone(&slot.connection);
        let handshake = tokio::time::timeout(self.limits.handshake_timeout, self.acceptor.accept(stream));
        let stream = tokio::select! {
            () = self.draining.cancelled() => return,
            () = connection.evicted() => return,
            handshake = handshake => match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!("TLS handshake failed: {error}"),
                Err(_) => return tracing::debug!("TLS handshake timed out"),
            },
        };
        self.serve(stream, address, &connection, &Client::new(slot)).await;
    }

    async fn serve(
        &self,
        stream: TlsStream<TcpStream>,
        address: SocketAddr,
        connection: &Arc<Connection>,
        client: &Client,
    ) {
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let service = (self.service)(Peer { address, client, certificates });
        let tracked = Arc::clone(connection);
        let service = service_fn(move |request| {
            let in_progress = tracked.begin_request();
            let response = service.call(request);
            async move {
                let response = response.await?;
                let is_long_running = response.extensions().get::<LongRunning>().is_some();
                Ok::<_, S::Error>(response.map(|body| TrackedBody::new(body, in_progress, is_long_running)))
            }
        });
        let http = self.http();
        let serving = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(serving);
        let goodbye = tokio::select! {
            ended = serving.as_mut() => return log_end(ended),
            () = self.draining.cancelled() => self.limits.drain_timeout,
            () = connection.evicted() => connection::CLOSE_TIMEOUT,
            () = connection.idle_too_long(&self.limits) => connection::CLOSE_TIMEOUT,
            () = connection.busy_too_long(&self.limits) => connection::CLOSE_TIMEOUT,
            () = connection.stalled_too_long(&self.limits, is_http2) => connection::CLOSE_TIMEOUT,
        };
        serving.as_mut().graceful_shutdown();
        tokio::select! {
            ended = serving => log_end(ended),
            () = connection.had_time_to_close(goodbye, &self.limits) => {}
        }
    }

    fn http(&self) -> auto::Builder<TokioExecutor> {
        let mut http = auto::Builder::new(TokioExecutor::new());
        // hyper cannot tell an idle connection from slow headers; `Connection::idle_too_long` covers both.
        http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(SEND_BUFFER);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(self.limits.ping_interval)
            .keep_alive_timeout(self.limits.ping_timeout)
            .max_concurrent_streams(self.limits.streams)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(self.limits.header_bytes);
        http
    }
}

fn log_end(ended: Result<(), BoxError>) {
    if let Err(error) = ended {
        tracing::debug!("connection ended: {error}");
    }
}
