//! An HTTPS accept loop that idle or slow clients cannot block.
//!
//! Every wait for a client has a deadline: the handshake, the first request, the next request, the reply to a
//! keep-alive ping, the requests in progress when the server stops, and, if the limits say so, any request. The
//! number of connections is bounded. When all are taken, a new client replaces the one that has been idle for
//! longest, or one whose request takes longer than allowed; only if there is none it is refused, at once.

mod connection;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
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
    task::{Id, JoinSet},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use connection::{Connection, TrackedBody};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a server waits for its clients, and how much they may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
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
    /// From the headers of a request to the last of its response; `None` where responses may take forever.
    pub request_timeout: Option<Duration>,
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
            // Go's HTTP/2 server allows as many.
            streams: 250,
            header_bytes: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(20),
            // Longer than the 90 seconds after which Go's clients close idle connections: a connection that the
            // client closes cannot break a request.
            idle_timeout: Duration::from_mins(2),
            request_timeout: None,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// The client of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its address.
    pub address: SocketAddr,
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
        limits,
        service,
        draining: CancellationToken::new(),
    });
    let mut connections = Connections::default();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(ended) = connections.tasks.join_next_with_id() => connections.ended(ended),
            (stream, address) = accept(&listener) => {
                if let Some(connection) = connections.admit(&server.limits) {
                    let serving = Arc::clone(&server).run(stream, address, Arc::clone(&connection));
                    connections.add(connection, serving);
                }
            }
        }
    }
    drop(listener);
    server.draining.cancel();
    let drained = async { while connections.tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(server.limits.drain_timeout, drained).await.is_err() {
        tracing::warn!("closing {} connections with requests in progress", connections.tasks.len());
    }
}

/// The next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("cannot disable Nagle's algorithm: {error}");
                }
                return (stream, address);
            }
            Err(error) => {
                // Out of file descriptors or the like, which takes a moment to pass.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The open connections. Dropping them closes all.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: HashMap<Id, Arc<Connection>>,
}

impl Connections {
    /// Makes room for a new connection; `None` if all are busy.
    fn admit(&self, limits: &Limits) -> Option<Arc<Connection>> {
        let limit = limits.connections;
        let staying = || self.open.values().filter(|connection| !connection.is_evicted());
        if self.open.len() >= limit && staying().count() >= limit {
            let idle = staying().filter_map(|connection| Some((connection.idle_since()?, connection)));
            let overdue = staying().filter_map(|connection| {
                let (since, timeout) = connection.busy_since().zip(limits.request_timeout)?;
                (since.elapsed() > timeout).then_some((since, connection))
            });
            let longest =
                idle.min_by_key(|(since, _)| *since).or_else(|| overdue.min_by_key(|(since, _)| *since));
            let Some((since, longest)) = longest else {
                tracing::warn!("refused a connection: all {limit} have requests in progress");
                return None;
            };
            tracing::debug!(
                "closing a connection in favour of a new one, {:?} after its last progress",
                since.elapsed()
            );
            longest.evict();
        }
        Some(Arc::new(Connection::new()))
    }

    fn add(&mut self, connection: Arc<Connection>, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.open.insert(id, connection);
    }

    fn ended(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!("a connection failed: {error}");
                error.id()
            }
        };
        self.open.remove(&id);
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
    async fn run(self: Arc<Self>, stream: TcpStream, address: SocketAddr, connection: Arc<Connection>) {
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
        self.serve(stream, address, &connection).await;
    }

    async fn serve(&self, stream: TlsStream<TcpStream>, address: SocketAddr, connection: &Arc<Connection>) {
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let service = (self.service)(Peer { address, certificates });
        let tracked = Arc::clone(connection);
        let service = service_fn(move |request| {
            let in_progress = tracked.begin_request();
            let response = service.call(request);
            async move { response.await.map(|response| response.map(|body| TrackedBody::new(body, in_progress))) }
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
        http.http1().timer(TokioTimer::new()).header_read_timeout(None);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(self.limits.ping_interval)
            .keep_alive_timeout(self.limits.ping_timeout)
            .max_concurrent_streams(self.limits.streams)
            .max_header_list_size(self.limits.header_bytes);
        http
    }
}

fn log_end(ended: Result<(), BoxError>) {
    if let Err(error) = ended {
        tracing::debug!("connection ended: {error}");
    }
}
