//! A server in a process of its own, whose files can be limited and whose memory can be measured.
#![allow(dead_code, reason = "each suite uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; the server says where it is"
)]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};

use quintet_apiserver::{Api, Cluster, Settings};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Set for a process that is to serve, and printed before what its clients need.
const MARK: &str = "QUINTET_TEST_SERVER";

/// The test that is a server if it runs in a process that [`ServerProcess::start`] started, and nothing otherwise.
pub(crate) fn serve_if_asked(prepare: impl AsyncFnOnce(&Api)) {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start(Settings::default()).await.unwrap();
        prepare(cluster.api()).await;
        let (certificate, key) = cluster.authority().client("kubernetes-admin", "system:masters").unwrap();
        let ca = &cluster.authority().certificate;
        let found = json!({"address": cluster.address(), "ca": ca, "certificate": certificate, "key": key});
        println!("{MARK}{found}");
        // The parent closes the input when it is done.
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
    });
    runtime.shutdown_background();
}

pub(crate) struct ServerProcess {
    child: Child,
    /// Held open: after a minute the test harness of the server writes that its test takes long, and ends if it cannot.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
    found: Value,
}

impl ServerProcess {
    /// Starts the test `server_process` of this program as a server that may open so many files.
    pub(crate) fn start(files: u32) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "server_process", "--nocapture"])
            .env(MARK, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map(Result::unwrap);
        let found = lines.find_map(|line| Some(line.split_once(MARK)?.1.to_owned()));
        let found: Value = serde_json::from_str(&found.expect("the server starts")).unwrap();
        let address = found["address"].as_str().unwrap().parse().unwrap();
        Self { child, _output: output, address, found }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let ca = self.found["ca"].as_str().unwrap();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        roots
    }

    /// How to connect: as the administrator or without credentials.
    pub(crate) fn connector(&self, is_admin: bool) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(self.roots());
        let pem = |field: &str| self.found[field].as_str().unwrap().as_bytes();
        let config = if is_admin {
            let chain = vec![CertificateDer::from_pem_slice(pem("certificate")).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(pem("key")).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        } else {
            config.with_no_client_auth()
        };
        TlsConnector::from(Arc::new(config))
    }

    pub(crate) async fn connect(&self, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    /// The memory of the server now and at its peak, in bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let bytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
        };
        (bytes("VmRSS:"), bytes("VmHWM:"))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
