//! Pods in networks of their own. These tests need root.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use quintet_kubelet::network::{Addresses, Bridge, Subnet};
use quintet_kubelet::shim::protocol::{ContainerConfig, Identity, ProcessConfig, RootConfig};
use quintet_kubelet::shim::{NetworkMode, SandboxConfig, Shim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Skips a test where namespaces cannot be made.
macro_rules! needs_root {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: namespaces need root");
            return;
        }
    };
}

/// Answers every connection with its own address, without end.
const SERVER: &str = "perl -MIO::Socket::INET -e '\
    $s = IO::Socket::INET->new(LocalPort => 8080, LocalAddr => $ENV{BIND}, Listen => 5, ReuseAddr => 1) or die; \
    while ($c = $s->accept) { print $c $c->sockhost, \"\\n\"; close $c }'";

struct Pod {
    directory: tempfile::TempDir,
    shim: Shim,
}

impl Pod {
    async fn start(bridge: &Bridge, address: Ipv4Addr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sandbox = SandboxConfig { hostname: "pod".into(), network: NetworkMode::Pod };
        let program = Path::new(env!("CARGO_BIN_EXE_quintet-kubelet-shim"));
        let (shim, pid) = Shim::start(program, directory.path(), &sandbox).await.unwrap();
        bridge.connect(pid, address).await.unwrap();
        Self { directory, shim }
    }

    async fn run(&self, name: &str, script: &str, bind: &str) {
        let path = |part: &str| self.directory.path().join(part).join(name);
        let config = ContainerConfig {
            name: name.into(),
            id: name.into(),
            attempt: 0,
            directory: path("containers"),
            log: path("logs"),
            process: ProcessConfig {
                command: vec!["sh".into(), "-c".into(), script.into()],
                environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("BIND".into(), bind.into())],
                working_directory: "/".into(),
                identity: Identity { uid: 10_000, gid: 10_000, ..Identity::default() },
                tty: false,
            },
            root: RootConfig::default(),
            cgroups: Vec::new(),
            oom_score_adj: 0,
            stdin: false,
        };
        self.shim.start_container(config).await.unwrap();
    }

    async fn ended(&self, name: &str) -> String {
        let mut watch = self.shim.watch().await.unwrap();
        while watch.next().await.unwrap()[name].exit.is_none() {}
        fs::read_to_string(self.directory.path().join("logs").join(name)).unwrap()
    }
}

/// Asks until the server of a pod listens.
async fn ask(address: Ipv4Addr) -> String {
    loop {
        if let Ok(mut stream) = TcpStream::connect((address, 8080)).await {
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            return text;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn pods_reach_each_other_and_the_node_reaches_them() {
    needs_root!();
    let subnet: Subnet = "10.213.77.0/24".parse().unwrap();
    let bridge = Bridge::open("qtest0", subnet).await.unwrap();
    // A second start takes what is there.
    let bridge_again = Bridge::open("qtest0", subnet).await.unwrap();
    let mut addresses = Addresses::new(subnet);
    let (a, b) = (addresses.assign("a").unwrap(), addresses.assign("b").unwrap());
    let server = Pod::start(&bridge, a).await;
    let client = Pod::start(&bridge_again, b).await;
    server.run("web", SERVER, "0.0.0.0").await;
    assert_eq!(ask(a).await, format!("{a}\n"));

    let script = format!("exec 3<>/dev/tcp/{a}/8080; cat <&3; cat /proc/net/route | wc -l");
    client.run("client", &format!("bash -c '{script}'"), "").await;
    let log = client.ended("client").await;
    assert!(log.contains(&format!("F {a}\n")), "{log}");

    client.run("local", SERVER, "127.0.0.1").await;
    let mut through = loop {
        if let Ok(stream) = client.shim.forward(8080).await {
            break stream;
        }
        tokio::task::yield_now().await;
    };
    let mut text = String::new();
    through.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "127.0.0.1\n");
    assert!(
        TcpStream::connect((b, 8080)).await.is_err(),
        "a server on loopback is not reached by the pod's address"
    );

    server.shim.shut_down().await.unwrap();
    client.shim.shut_down().await.unwrap();
    bridge.remove().await.unwrap();
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_cannot_be_forwarded() {
    needs_root!();
    let subnet: Subnet = "10.213.78.0/24".parse().unwrap();
    let bridge = Bridge::open("qtest1", subnet).await.unwrap();
    let pod = Pod::start(&bridge, [10, 213, 78, 2].into()).await;
    let error = pod.shim.forward(9).await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    let mut unused = TcpStream::connect(("10.213.78.2", 9)).await;
    if let Ok(stream) = &mut unused {
        stream.shutdown().await.unwrap();
    }
    assert!(unused.is_err());
    pod.shim.shut_down().await.unwrap();
    bridge.remove().await.unwrap();
}
