//! `quintet up` keeps the promises of the Kubernetes API; and the operator runs on it as on any cluster.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::config::Kubeconfig;

/// A cluster of its own; it goes with the test.
struct Up {
    process: Child,
    directory: PathBuf,
}

impl Up {
    fn start(name: &str, node: &[&str]) -> Self {
        let directory = std::env::temp_dir().join(format!("quintet-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut process = quintet()
            .args(["up", "--no-operator", "--in-memory", "--port", "0"])
            .args(node)
            .arg("--data-dir")
            .arg(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("Quintet is up at https://127.0.0.1:"), "{line}");
        Self { process, directory }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig-in-memory")
    }

    fn client(&self, runtime: &tokio::runtime::Runtime) -> kube::Client {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        runtime.block_on(quintet_conformance::connect(kubeconfig)).unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn quintet() -> Command {
    Command::new(env!("CARGO_BIN_EXE_quintet"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

#[test]
fn the_embedded_api_keeps_the_promises_of_kubernetes() {
    let (up, runtime) = (Up::start("conformance", &["--simulate-nodes", "2"]), runtime());
    let client = up.client(&runtime);
    let report = runtime.block_on(quintet_conformance::run(client, "", 8)).unwrap();
    assert!(report.outcomes.len() > 100, "the suite has shrunk to {}", report.outcomes.len());
    assert!(report.broken().next().is_none(), "{}", report.text());
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md"));
    let page = page.unwrap();
    for outcome in &report.outcomes {
        let row = format!("| {} | kept |", outcome.promise);
        assert!(
            page.lines().any(|line| line.strip_prefix(&row).is_some_and(|rest| !rest.contains("broken"))),
            "docs/conformance.md is out of date; run `make conformance`: {row}"
        );
    }
}

/// A port of this machine that nobody listens on: it was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The body of an answer, and whether it is a good one.
fn get(port: u16, path: &str) -> Option<(bool, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.starts_with("HTTP/1.1 200"), body.to_owned()))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_operator_starts_elects_serves_and_stops() {
    let (up, runtime) = (Up::start("operator", &["--no-node"]), runtime());
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(up.client(&runtime));
    let (health, metrics, webhooks) = (free_port(), free_port(), free_port());
    let operator = |metrics: u16| {
        let mut command = quintet();
        command.args(["operator", "--webhook-host", "127.0.0.1", "--kubeconfig"]).arg(up.kubeconfig());
        command.arg("--health-probe-bind-address").arg(format!("127.0.0.1:{health}"));
        command.arg("--metrics-bind-address").arg(format!("127.0.0.1:{metrics}"));
        command.arg("--webhook-port").arg(webhooks.to_string());
        command
    };
    let missing = operator(metrics).output().unwrap();
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(message.contains("the namespace quintet-system does not exist"), "{message}");
    assert_eq!(missing.status.code(), Some(1));

    let mut namespace = k8s_openapi::api::core::v1::Namespace::default();
    namespace.metadata.name = Some("quintet-system".into());
    runtime.block_on(namespaces.create(&kube::api::PostParams::default(), &namespace)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = operator(taken.local_addr().unwrap().port()).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains("cannot serve metrics at 127.0.0.1:"), "{message}");

    let mut process = operator(metrics).stderr(Stdio::null()).spawn().unwrap();
    until("readiness", || get(health, "/readyz").is_some_and(|(ready, _)| ready));
    let (_, state) = get(health, "/debug/state").expect("debug state");
    until("leadership", || {
        get(health, "/debug/state").is_some_and(|(_, state)| state.contains("\"leading\":true"))
    });
    assert!(state.contains("\"missing\":[]"), "{state}");
    let (_, numbers) = get(metrics, "/metrics").expect("metrics");
    assert!(numbers.contains("quintet_api_requests_total"), "{numbers}");
    let stopped = Command::new("kill").arg("-TERM").arg(process.id().to_string()).status().unwrap();
    assert!(stopped.success());
    assert_eq!(process.wait().unwrap().code(), Some(0), "a polite stop is no failure");

    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(up.client(&runtime), "quintet-system");
    let lease = runtime.block_on(leases.get("quintet-leader")).unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""), "the lease is given back");
}
