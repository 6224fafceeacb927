//! Pods without a kubelet, and a network on an API without controllers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api as KubeApi, DeleteParams, Patch, PatchParams};
use quintet_apiserver::Api;
use quintet_kubelet::network::{Bridge, Network, Settings};
use quintet_kubelet::shim::protocol::{
    ContainerConfig, Identity, Mount, MountSource, ProcessConfig, RootConfig,
};
use quintet_kubelet::shim::{NetworkMode, SandboxConfig, Shim};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Waits until no other test uses cluster IPs from the machine itself, which only one platform at a time can serve.
pub(crate) async fn alone() -> fs::File {
    let lock = || {
        let file = fs::File::create(std::env::temp_dir().join("quintet-network-tests.lock")).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        file
    };
    tokio::task::spawn_blocking(lock).await.unwrap()
}

/// Answers every connection with its own address, without end.
pub(crate) const SERVER: &str = "perl -MIO::Socket::INET -e '\
    $s = IO::Socket::INET->new(LocalPort => 8080, LocalAddr => $ENV{BIND}, Listen => 5, ReuseAddr => 1) or die; \
    while ($c = $s->accept) { print $c $c->sockhost, \"\\n\"; close $c }'";

/// A pod whose containers share nothing but its network.
pub(crate) struct Pod {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) shim: Shim,
    pid: u32,
}

/// A test that fails leaves no process behind.
impl Drop for Pod {
    fn drop(&mut self) {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Pod {
    pub(crate) async fn start(bridge: &Bridge, address: Ipv4Addr) -> Self {
        let (pod, pid) = Self::unconnected().await;
        bridge.connect(pid, "pod", address).await.unwrap();
        pod
    }

    /// A pod of a network, with its address.
    pub(crate) async fn of(network: &Network, uid: &str) -> (Self, Ipv4Addr) {
        let (pod, pid) = Self::unconnected().await;
        let address = network.attach(pid, uid).await.unwrap();
        (pod, address)
    }

    /// A pod, and the process of its shim.
    pub(crate) async fn unconnected() -> (Self, u32) {
        let directory = tempfile::tempdir().unwrap();
        let sandbox = SandboxConfig { hostname: "pod".into(), network: NetworkMode::Pod };
        let program = Path::new(env!("CARGO_BIN_EXE_quintet-kubelet-shim"));
        let (shim, pid) = Shim::start(program, directory.path(), &sandbox).await.unwrap();
        (Self { directory, shim, pid }, pid)
    }

    /// Whether a program waits for a response of the cluster's name server.
    pub(crate) fn awaits_a_name(&self) -> bool {
        // 10.96.0.10:53 in the kernel's notation.
        fs::read_to_string(format!("/proc/{}/net/udp", self.pid)).unwrap().contains(" 0A00600A:0035 ")
    }

    /// What a script prints; names are resolved by this `resolv.conf`.
    pub(crate) async fn output(&self, name: &str, script: &str, resolv_conf: &str) -> String {
        let file = self.directory.path().join("resolv.conf");
        fs::write(&file, resolv_conf).unwrap();
        let target = fs::canonicalize("/etc/resolv.conf").unwrap();
        let mount = Mount { target, source: MountSource::Bind(file), is_read_only: true };
        self.start_container(name, script, "", vec![mount]).await;
        let log = self.ended(name).await;
        let lines = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
        lines.flat_map(|line| [line, "\n"]).collect()
    }

    pub(crate) async fn run(&self, name: &str, script: &str, bind: &str) {
        self.start_container(name, script, bind, Vec::new()).await;
    }

    async fn start_container(&self, name: &str, script: &str, bind: &str, mounts: Vec<Mount>) {
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
            root: RootConfig { mounts, ..RootConfig::default() },
            cgroups: Vec::new(),
            oom_score_adj: 0,
            stdin: false,
            processes_of: None,
        };
        self.shim.start_container(config).await.unwrap();
    }

    pub(crate) async fn ended(&self, name: &str) -> String {
        let mut watch = self.shim.watch().await.unwrap();
        while watch.next().await.unwrap()[name].exit.is_none() {}
        fs::read_to_string(self.directory.path().join("logs").join(name)).unwrap()
    }
}

/// Asks until the server of a pod listens.
pub(crate) async fn ask(address: Ipv4Addr) -> String {
    loop {
        if let Ok(mut stream) = TcpStream::connect((address, 8080)).await {
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            return text;
        }
        tokio::task::yield_now().await;
    }
}

/// A network on an API of its own.
pub(crate) async fn network(data: &Path) -> (Api, Network) {
    let api = Api::in_memory(&[]).await.unwrap();
    let network = Network::start(api.admin_client(), Settings::new(data, "node")).await.unwrap();
    (api, network)
}

pub(crate) fn interfaces() -> Vec<String> {
    let names = fs::read_dir("/sys/class/net").unwrap();
    names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
}

/// What a server says, or why it cannot be reached.
pub(crate) async fn text_of(address: impl Into<SocketAddr>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address.into()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.trim().to_owned())
}

/// Creates or changes a Service of namespace `default` and the slice with its endpoints.
pub(crate) async fn apply(api: &Api, name: &str, spec: &Value, endpoints: &Value, ports: &Value) -> Service {
    let client = api.admin_client();
    let params = PatchParams::apply("test").force();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
        "endpoints": endpoints, "ports": ports,
    });
    let slices: KubeApi<EndpointSlice> = KubeApi::namespaced(client.clone(), "default");
    slices.patch(name, &params, &Patch::Apply(&slice)).await.unwrap();
    let service =
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": spec });
    let services: KubeApi<Service> = KubeApi::namespaced(client, "default");
    services.patch(name, &params, &Patch::Apply(&service)).await.unwrap()
}

/// Deletes a Service of namespace `default` with its slice.
pub(crate) async fn delete(api: &Api, name: &str) {
    let client = api.admin_client();
    let services: KubeApi<Service> = KubeApi::namespaced(client.clone(), "default");
    services.delete(name, &DeleteParams::default()).await.unwrap();
    let slices: KubeApi<EndpointSlice> = KubeApi::namespaced(client, "default");
    slices.delete(name, &DeleteParams::default()).await.unwrap();
}

/// The address of a Service.
pub(crate) fn cluster_ip(service: &Service) -> Ipv4Addr {
    service.spec.as_ref().unwrap().cluster_ip.as_ref().unwrap().parse().unwrap()
}

/// Waits until an attempt succeeds; the last failure is the message of the panic.
pub(crate) async fn eventually<T>(mut attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(why) => assert!(tokio::time::Instant::now() < deadline, "{why}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
