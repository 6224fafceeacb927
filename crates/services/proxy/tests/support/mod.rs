//! What the tests share.

pub mod http;
pub mod kubernetes;

use std::net::{Ipv4Addr, SocketAddr};

use quintet_proxy::{Server, Settings};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Chooses the implementation of TLS for the process.
pub fn use_tls() {
    // Fails only if one is installed already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// A proxy on loopback.
pub struct Proxy {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy to the Kubernetes API of a configuration.
    pub async fn start(config: &kube::Config, settings: Settings) -> Self {
        let server = Server::new(config, settings).expect("a usable configuration");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(listener, async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), serving }
    }

    /// Stops it, and waits for the requests in progress.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.await.expect("it ends");
    }
}
