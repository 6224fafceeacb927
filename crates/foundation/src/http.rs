//! An HTTP accept loop for servers inside a cluster, whose clients speak HTTP/1 without TLS.
//!
//! Connections are bounded in number. Headers have a deadline, also those of the next request on an idle connection,
//! and the kernel ends connections whose clients have gone or stopped reading.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connections at a time. Others wait until one ends.
const CONNECTIONS: usize = 1024;

/// How long the headers of a request may take, and a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);

/// How much of a connection's input and output is buffered; headers have to fit in.
const BUFFER: usize = 128 << 10;

/// How long a client may leave data unread or unacknowledged, and how often a silent one is probed. A watch or a log that
/// is followed has no deadline of its own.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves connections until `stop` completes. Requests in progress have `grace` to end then.
///
/// `service` is called for every connection; what it returns lives as long as the connection. Services may upgrade
/// connections.
pub async fn serve<F, S, B>(
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    grace: Duration,
    mut service: F,
) where
    F: FnMut(SocketAddr) -> S,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let mut stop = std::pin::pin!(stop);
    let draining = CancellationToken::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                connections.spawn(connection(stream, service(peer), draining.clone()));
            }
            Err(error) => {
                // Out of file descriptors, usually: connections must end before more can begin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    draining.cancel();
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, drained).await.is_err() {
        tracing::warn!("closing {} connections with requests in progress", connections.len());
    }
}

async fn connection<S, B>(stream: TcpStream, service: S, draining: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "cannot set the options of a connection");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut ended = tokio::select! {
        ended = &mut connection => Some(ended),
        () = draining.cancelled() => None,
    };
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
        ended = Some(connection.await);
    }
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a connection failed");
    }
}

fn set_options(stream: &TcpStream) -> std::io::Result<()> {
    // Responses are complete when they are sent, so waiting to fill a packet only delays them.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(STALL_TIMEOUT).with_interval(STALL_TIMEOUT / 4))?;
    socket.set_tcp_user_timeout(Some(STALL_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    /// A server whose requests end when they get a permit.
    struct TestServer {
        address: SocketAddr,
        /// One permit for every request that has begun.
        begun: Arc<Semaphore>,
        /// Lets requests end.
        permits: Arc<Semaphore>,
        stop: oneshot::Sender<()>,
        tasks: JoinSet<()>,
    }

    impl TestServer {
        async fn start(grace: Duration) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel::<()>();
            let stopped = async move { drop(stopped.await) };
            let (begun, permits) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
            let semaphores = (Arc::clone(&begun), Arc::clone(&permits));
            let service = move |_| {
                let semaphores = semaphores.clone();
                service_fn(move |_| {
                    let (begun, permits) = semaphores.clone();
                    async move {
                        begun.add_permits(1);
                        permits.acquire().await.unwrap().forget();
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("done"))))
                    }
                })
            };
            let mut tasks = JoinSet::new();
            tasks.spawn(serve(listener, stopped, grace, service));
            Self { address, begun, permits, stop, tasks }
        }

        /// Sends a request, and waits until it has begun.
        async fn request(&self) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            self.begun.acquire().await.unwrap().forget();
            stream
        }
    }

    /// What is read until the connection ends.
    async fn rest(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        // A connection that is cut off may end with an error.
        let _ = stream.read_to_end(&mut bytes).await;
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn requests_in_progress_are_answered_when_the_server_stops() {
        let mut server = TestServer::start(Duration::from_mins(1)).await;
        server.permits.add_permits(1);
        let mut idle = server.request().await;
        let mut answered = [0; 12];
        idle.read_exact(&mut answered).await.unwrap();
        assert_eq!(&answered, b"HTTP/1.1 200");
        let waiting = server.request().await;
        server.stop.send(()).unwrap();
        // The idle connection is closed although the other request is not answered yet.
        assert!(rest(idle).await.ends_with("done"));
        server.permits.add_permits(1);
        assert!(rest(waiting).await.ends_with("done"));
        server.tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn requests_that_take_too_long_are_cut_off_when_the_server_stops() {
        let mut server = TestServer::start(Duration::from_millis(10)).await;
        let waiting = server.request().await;
        server.stop.send(()).unwrap();
        server.tasks.join_next().await.unwrap().unwrap();
        assert_eq!(rest(waiting).await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_ends_its_headers_is_cut_off() {
        let server = TestServer::start(Duration::from_secs(1)).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
        assert_eq!(rest(stream).await, "");
    }
}
