//! A server in this process.

use std::net::SocketAddr;
use std::ops::Deref;

use quintet_registry_server::{Location, Server};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Something that serves, until this is dropped.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
}

impl Serving {
    /// Serves on a free port of the loopback interface.
    pub(crate) async fn start<F>(
        serve: impl FnOnce(TcpListener, std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let stopped = Box::pin(async move {
            let _ = stopped.await;
        });
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        tokio::spawn(serve(listener, stopped));
        Self { address, stop: Some(stop) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

/// A running registry server, which stops when it is dropped.
pub(crate) struct Running(Serving);

impl Running {
    /// Starts a server on a free port of the loopback interface.
    pub(crate) async fn start(location: &Location) -> Self {
        Self::start_as(Server::default(), location).await
    }

    /// Starts this server without a database.
    pub(crate) async fn start_without_database(server: Server) -> Self {
        Self(Serving::start(|listener, stop| server.serve(listener, stop)).await)
    }

    /// Starts this server on a free port of the loopback interface.
    pub(crate) async fn start_as(server: Server, location: &Location) -> Self {
        server.open_database(location).await.expect("the database opens");
        Self(Serving::start(|listener, stop| server.serve(listener, stop)).await)
    }
}

impl Deref for Running {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.0
    }
}
