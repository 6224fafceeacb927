//! A network of an ordinary user. The test needs root, to become such a user: it starts itself again.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, PostParams};
use quintet_kubelet::network::rootless::{self, Entered, Placement, Private};
use quintet_kubelet::network::{Bridge, Network, Settings};
use quintet_kubelet::shim::{NetworkMode, SandboxConfig, Shim};
use serde_json::json;

/// An ordinary user that has no name.
const USER: u32 = 54_321;
/// An address of the machine that the platform reaches only as one of another machine, and a name server there.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 213, 81, 1);
/// What that name server says to every question.
const ANSWER: [u8; 4] = [192, 0, 2, 55];
const NODE_PORT: u16 = 31_877;
const TIMEOUT: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    if let Some(code) = quintet_kubelet::hidden_command() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, data] = arguments.as_slice()
        && command == "up"
    {
        return up(Path::new(data));
    }
    if let [command, data] = arguments.as_slice()
        && command == "names"
    {
        return names(Path::new(data));
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: becoming an ordinary user needs root");
        return ExitCode::SUCCESS;
    }
    run();
    println!("a_platform_of_an_ordinary_user_serves_pods_and_machine_and_survives_a_kill ... ok");
    programs_of_the_platform_resolve_names_of_the_cluster();
    println!("programs_of_the_platform_resolve_names_of_the_cluster ... ok");
    ExitCode::SUCCESS
}

/// A platform of root, whose programs resolve names.
fn names(data: &Path) -> ExitCode {
    let Entered::Here(placement) = rootless::enter(data).unwrap() else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let api = quintet_apiserver::Api::in_memory(&[]).await.unwrap();
        let settings = Settings { placement, ..Settings::new(data, "node") };
        let network = Network::start(api.admin_client(), settings).await.unwrap();
        let found = tokio::net::lookup_host("kubernetes.default.svc.cluster.local:443").await.unwrap();
        println!("name {}", found.map(|address| address.to_string()).collect::<Vec<_>>().join(" "));
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        network.stop().await;
        Network::clear(data).await.unwrap();
    });
    ExitCode::SUCCESS
}

fn programs_of_the_platform_resolve_names_of_the_cluster() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let before = fs::read_to_string("/etc/resolv.conf").unwrap();
    let platform = |data: &tempfile::TempDir| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("names").arg(data.path());
        command
    };
    // Runs until its standard input ends.
    let mut one = platform(&first).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(one.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "name 10.96.0.1:443\n");
    // On the machine itself, the first one has the address of the name server.
    let output = platform(&second).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "name 10.96.0.1:443\n");
    drop(one.stdin.take());
    assert!(one.wait().unwrap().success());
    assert_eq!(fs::read_to_string("/etc/resolv.conf").unwrap(), before, "the machine's own is as it was");
}

/// The platform: a network with two pods, whose checks it prints.
fn up(data: &Path) -> ExitCode {
    let placement = match rootless::enter(data).unwrap() {
        Entered::Ended(code) => return code,
        Entered::Here(placement) => placement,
    };
    assert!(matches!(placement, Placement::Private(_)), "{placement:?}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(platform(data, placement));
    ExitCode::SUCCESS
}

async fn platform(data: &Path, placement: Placement) {
    let api = quintet_apiserver::Api::in_memory(&[]).await.unwrap();
    let settings =
        Settings { placement, resolv_conf: Some(data.join("upstream.conf")), ..Settings::new(data, "node") };
    let network = Network::start(api.admin_client(), settings).await.unwrap();
    println!("user ids {}", Private::user_ids());
    let shims = [data.join("one"), data.join("two")];
    if network.adopt("one").is_some() {
        println!("adopted {:?} {:?}", network.adopt("one"), network.adopt("two"));
    } else {
        start_pods(&network, &shims).await;
        start_server(data);
    }
    serve(&api, &network).await;
    println!("pid {}", std::process::id());
    println!("ready");
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap().recv().await;
    let server = fs::read_to_string(data.join("server")).unwrap();
    let server = rustix::process::Pid::from_raw(server.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    for shim in &shims {
        Shim::of(shim).shut_down().await.unwrap();
    }
    network.stop().await;
    println!("stopped");
}

async fn start_pods(network: &Network, shims: &[PathBuf; 2]) {
    let program = std::env::current_exe().unwrap();
    let sandbox = SandboxConfig { hostname: "pod".into(), network: NetworkMode::Pod };
    for (directory, uid) in shims.iter().zip(["one", "two"]) {
        fs::create_dir(directory).unwrap();
        let (_, pid) = Shim::start(&program, directory, &sandbox).await.unwrap();
        fs::write(directory.join("pid"), pid.to_string()).unwrap();
        network.attach(pid, uid).await.unwrap();
    }
}

/// A server in the first pod. It outlives the platform, like all processes of pods.
fn start_server(data: &Path) {
    let script = format!(
        "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5, ReuseAddr => 1) \
         or die; while ($c = $s->accept) {{ print $c \"pod\\n\"; close $c }}' >/dev/null 2>&1 & echo $! >{}/server",
        data.display()
    );
    in_pod(&data.join("one"), &script);
}

/// A Service with the first pod behind it, and the questions of the second one.
async fn serve(api: &quintet_apiserver::Api, network: &Network) {
    let (one, two) = (network.adopt("one").unwrap(), network.adopt("two").unwrap());
    println!("addresses {one} {two}");
    let data = PathBuf::from(std::env::args().nth(2).unwrap());
    let client = api.admin_client();
    let slice = json!({ "metadata": { "name": "web", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "endpoints": [{ "addresses": [one] }], "ports": [{ "port": 8080 }] });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    let service = json!({ "metadata": { "name": "web" }, "spec": { "type": "NodePort",
        "ports": [{ "port": 80, "targetPort": 8080, "nodePort": NODE_PORT }] } });
    let services: Api<Service> = Api::namespaced(client, "default");
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();

    let get = "exec 3<>/dev/tcp/$0/$1 && cat <&3";
    let retried = format!(
        "for i in $(seq 100); do bash -c '{get}' web.default.svc.cluster.local 80 && break; sleep 0.1; done 2>/dev/null"
    );
    println!("service {}", in_pod(&data.join("two"), &retried));
    let name = "getent ahostsv4 www.example.com | cut -d' ' -f1 | sort -u";
    println!("other name {}", in_pod(&data.join("two"), name));
    let port = fs::read_to_string(data.join("port")).unwrap();
    let outside = format!("timeout 5 bash -c '{get}' {OUTSIDE} {port}");
    println!("outside from a pod {}", in_pod(&data.join("two"), &outside));
    let output = Command::new("sh").args(["-c", &outside]).output().unwrap();
    println!("outside from the node {}", String::from_utf8_lossy(&output.stdout).trim());
    let closed = format!("timeout 5 bash -c '{get}' {OUTSIDE} 1 2>/dev/null || echo refused");
    println!("closed port {}", in_pod(&data.join("two"), &closed));
    // A server of the platform, such as the API.
    let own = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = own.local_addr().unwrap().port();
    network.publish(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    println!("published {port}");
    std::thread::spawn(move || {
        let own = own.into_std().unwrap();
        own.set_nonblocking(false).unwrap();
        while let Ok((mut client, _)) = own.accept() {
            client.write_all(b"platform\n").unwrap();
        }
    });
}

/// What a script prints in the network of a pod.
fn in_pod(directory: &Path, script: &str) -> String {
    let pid = fs::read_to_string(directory.join("pid")).unwrap();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{pid}/ns/net")).args(["sh", "-c", script]);
    String::from_utf8_lossy(&command.output().unwrap().stdout).trim().to_owned()
}

/// A platform that runs, and what it prints.
struct Platform {
    parent: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Platform {
    fn start(program: &Path, data: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg("up").arg(data).current_dir("/").uid(USER).gid(USER).stdout(Stdio::piped());
        let mut parent = command.spawn().unwrap();
        let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        Self { parent, lines }
    }

    /// The lines up to one.
    fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(Ok(line)) = self.lines.next() {
            seen.push(line);
            if seen.last().is_some_and(|line| line == last) {
                return seen;
            }
        }
        panic!("it ended without {last:?}: {seen:?}, {:?}", self.parent.wait());
    }
}

/// The rest of the line that begins with a word.
fn value<'a>(lines: &'a [String], name: &str) -> &'a str {
    let found = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name:?} in {lines:?}"))
}

fn run() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("quintet");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let wire = runtime.block_on(Bridge::open("qtest5", "10.213.81.0/24".parse().unwrap())).unwrap();
    let outside = TcpListener::bind((OUTSIDE, 0)).unwrap();
    fs::write(data.join("port"), outside.local_addr().unwrap().port().to_string()).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut client, address)) = outside.accept() {
            writeln!(client, "{}", address.ip()).unwrap();
        }
    });
    fs::write(data.join("upstream.conf"), format!("nameserver {OUTSIDE}\n")).unwrap();
    std::thread::spawn(answer_names);
    for path in [&data, &data.join("port"), &data.join("upstream.conf")] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }

    let mut first = Platform::start(&program, &data);
    let lines = first.until("ready");
    check(&lines);
    let addresses = value(&lines, "addresses").to_owned();
    // A crash: the parent ends too, and the pods stay.
    let pid: i32 = value(&lines, "pid").parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let status = first.parent.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(137), None));
    let shim = |name: &str| fs::read_to_string(data.join(name).join("pid")).unwrap();
    let is_running = |pid: &str| Path::new("/proc").join(pid).join("ns").exists();
    assert!(is_running(&shim("one")) && is_running(&shim("two")));

    let mut second = Platform::start(&program, &data);
    let lines = second.until("ready");
    check(&lines);
    assert_eq!(value(&lines, "addresses"), addresses);
    assert!(value(&lines, "adopted").contains(addresses.split(' ').next().unwrap()), "{lines:?}");
    // A signal to the parent is passed on.
    let parent = i32::try_from(second.parent.id()).unwrap();
    let parent = rustix::process::Pid::from_raw(parent).unwrap();
    rustix::process::kill_process(parent, rustix::process::Signal::TERM).unwrap();
    second.until("stopped");
    assert!(second.parent.wait().unwrap().success());
    let gone = Instant::now() + TIMEOUT;
    while is_running(&shim("one")) || is_running(&shim("two")) {
        assert!(Instant::now() < gone, "pods are left over");
        std::thread::sleep(Duration::from_millis(20));
    }
    runtime.block_on(wire.remove()).unwrap();
    runtime.block_on(Network::clear(&data)).unwrap();
}

fn check(lines: &[String]) {
    assert_eq!(value(lines, "user ids"), "1");
    assert_eq!(value(lines, "service"), "pod");
    assert_eq!(value(lines, "other name"), Ipv4Addr::from(ANSWER).to_string());
    // The machine that is reached sees an address of this one.
    assert_eq!(value(lines, "outside from a pod"), OUTSIDE.to_string());
    assert_eq!(value(lines, "outside from the node"), OUTSIDE.to_string());
    assert_eq!(value(lines, "closed port"), "refused");
    let text = |port: u16| {
        let mut text = String::new();
        let deadline = Instant::now() + TIMEOUT;
        let mut stream = loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{port}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(text(NODE_PORT), "pod\n");
    assert_eq!(text(value(lines, "published").parse().unwrap()), "platform\n");
}

/// A name server that knows one address.
fn answer_names() {
    let socket = UdpSocket::bind((OUTSIDE, 53)).unwrap();
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let mut response = buffer[..length].to_vec();
        let end = 12 + response[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
        let is_address = response[end - 4..end - 2] == [0, 1];
        response.truncate(end);
        response[2] |= 0x80;
        response[6..12].copy_from_slice(&[0, u8::from(is_address), 0, 0, 0, 0]);
        if is_address {
            response.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
            response.extend_from_slice(&ANSWER);
        }
        socket.send_to(&response, from).unwrap();
    }
}
