//! The operator while the API server is away.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A process; killed if the test fails.
struct Running(Child);

impl Running {
    fn stop(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster that can be stopped and started again at the same address.
struct Cluster {
    directory: PathBuf,
    port: u16,
    up: Option<Running>,
}

impl Cluster {
    fn start(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("quintet-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut cluster = Self { directory, port, up: None };
        cluster.resume();
        cluster
    }

    fn resume(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
        command
            .args(["up", "--no-operator", "--no-node", "--port", &self.port.to_string(), "--data-dir"])
            .arg(&self.directory);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.starts_with("Quintet is up at"), "{first}");
        std::thread::spawn(move || lines.for_each(drop));
        self.up = Some(Running(process));
    }

    fn pause(&mut self) {
        self.up.take().unwrap().stop();
    }

    fn address(&self) -> String {
        format!("https://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.up = None;
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A running operator and its log.
struct Operator {
    process: Running,
    log: Receiver<Value>,
}

impl Operator {
    fn start(cluster: &Cluster, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
        command
            .args(["operator", "--components", "ray", "--namespace", "default", "--log-format", "json"])
            .args(["--health-probe-bind-address", "0", "--metrics-bind-address", "0", "--webhook-port", "0"])
            .arg("--kubeconfig")
            .arg(cluster.directory.join("kubeconfig"))
            .args(arguments)
            .envs(environment.iter().copied())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (send, log) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process: Running(process), log }
    }

    /// The lines up to the first that says `text`, which is the last of them.
    fn until(&self, text: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) => lines.push(line),
                Err(error) => panic!("{text:?} is not logged ({error}): {lines:#?}"),
            }
            if lines.last().is_some_and(|line| line.to_string().contains(text)) {
                return lines;
            }
        }
    }

    /// The lines of some time.
    fn during(&self, time: Duration) -> Vec<Value> {
        let (mut lines, end) = (Vec::new(), Instant::now() + time);
        loop {
            match self.log.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => return lines,
                Err(RecvTimeoutError::Disconnected) => panic!("it ended: {lines:#?}"),
            }
        }
    }
}

const RESPONDS: &str = "the Kubernetes API responds again";

#[test]
fn an_operator_without_leader_election_waits_and_logs_an_outage_once() {
    let mut cluster = Cluster::start("outage");
    let operator = Operator::start(&cluster, &["--leader-elect=false"], &[]);
    operator.until("serving webhooks with a new certificate");
    cluster.pause();
    let lines = operator.until("lost contact with the Kubernetes API");
    let line = lines.last().unwrap();
    assert_eq!((&line["address"], &line["level"]), (&cluster.address().into(), &"WARN".into()), "{line}");
    let reason = line["reason"].as_str().unwrap();
    assert!(!reason.is_empty() && !reason.contains("client error"), "the innermost reason: {line}");
    // Long enough for several attempts of every watch.
    let silent = operator.during(Duration::from_secs(6));
    assert!(silent.is_empty(), "one line per outage: {silent:#?}");
    cluster.resume();
    let lines = operator.until(RESPONDS);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    operator.process.stop();
}

#[test]
fn a_lease_lost_in_an_outage_is_told_with_the_address_and_the_reason() {
    let mut cluster = Cluster::start("lease");
    let settings = |lease: &str| {
        let text = format!(
            "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\nleaderElection:\n  resourceName: {lease}\n  \
             leaseDuration: 4s\n  renewDeadline: 3s\n  retryPeriod: 1s\n"
        );
        let file = cluster.directory.join(format!("{lease}.yaml"));
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let (outside, inside) = (settings("outside"), settings("inside"));
    let outside = Operator::start(&cluster, &["--config", &outside], &[]);
    let pod = [("KUBERNETES_SERVICE_HOST", "127.0.0.1")];
    let mut inside = Operator::start(&cluster, &["--config", &inside, "--webhook-host", "127.0.0.1"], &pod);
    outside.until("leading");
    inside.until("leading");
    cluster.pause();

    let told = |lease: &str| {
        format!(
            "lost contact with the Kubernetes API at {}: Connection refused (os error 111); the Lease default/{lease} \
             could not be renewed, so another replica may lead",
            cluster.address()
        )
    };
    let expected = told("inside");
    inside.until(&format!("error: {expected}"));
    assert_eq!(inside.process.0.wait().unwrap().code(), Some(1), "the kubelet restarts it");
    outside.until(&format!("{}; waiting for the API to start again", told("outside")));
    cluster.resume();
    outside.until(RESPONDS);
    outside.until("leading");
    outside.process.stop();
}
