//! Accepts connections: bounded in number, with a deadline for headers.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;

use crate::api::response::Body;

/// Connections at a time. Others wait until one ends.
const CONNECTIONS: usize = 1024;

/// How long requests in progress may take when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// Serves connections until `stop` completes, then waits for those in progress.
pub(crate) async fn serve<F, A>(listener: TcpListener, stop: impl Future<Output = ()>, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let mut stop = std::pin::pin!(stop);
    let graceful = GracefulShutdown::new();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, usually: connections must end before more can begin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Answers are complete, so waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let answer = answer.clone();
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // With a timer, a client that never ends its headers is dropped after hyper's 30 seconds.
        builder.http1().timer(TokioTimer::new());
        let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).into_owned();
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection failed");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were not answered in time; they are cut off");
    }
}
