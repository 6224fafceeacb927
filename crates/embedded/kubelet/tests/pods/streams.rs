//! Logs, exec, attach, port-forward and cp, with the clients that people use.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::bed::{Bed, TIMEOUT, condition, container, shell};
use super::needs_root;

/// kubectl of this machine, for a cluster.
struct Kubectl {
    program: PathBuf,
    config: tempfile::NamedTempFile,
}

impl Kubectl {
    /// `None` where there is none.
    fn find(bed: &Bed) -> Option<Self> {
        let places = std::env::var_os("PATH").unwrap_or_default();
        let further = [PathBuf::from("/usr/lib/google-cloud-sdk/bin")];
        let mut programs =
            std::env::split_paths(&places).chain(further).map(|directory| directory.join("kubectl"));
        let program = programs.find(|path| path.exists())?;
        let config = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(config.path(), bed.cluster.kubeconfig().unwrap()).unwrap();
        Some(Self { program, config })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(self.config.path()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, b"", &[]).await
    }

    async fn run_with(&self, arguments: &[&str], stdin: &[u8], variables: &[(&str, &str)]) -> Output {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).envs(variables.iter().copied()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin).await.unwrap();
        tokio::time::timeout(TIMEOUT, child.wait_with_output()).await.unwrap().unwrap()
    }
}

macro_rules! kubectl {
    ($bed:expr) => {
        match Kubectl::find(&$bed) {
            Some(kubectl) => kubectl,
            None => {
                eprintln!("skipped: there is no kubectl on this machine");
                return;
            }
        }
    };
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// WebSockets, and SPDY as older clients speak it.
const TRANSPORTS: [&[(&str, &str)]; 2] = [&[], &[("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")]];

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_containers() {
    needs_root!();
    let bed = Bed::new().await;
    let kubectl = kubectl!(bed);
    bed.script("box", "echo data > /tmp/file; exec sleep 1000").await;
    bed.ready("box").await;
    for transport in TRANSPORTS {
        let script = "cat; cat /tmp/file; hostname; echo bad >&2; exit 7";
        let arguments = ["exec", "-i", "box", "--", "sh", "-c", script];
        let output = kubectl.run_with(&arguments, b"input\n", transport).await;
        assert_eq!(text(&output.stdout), "input\ndata\nbox\n", "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("bad\n"), "{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    }
    let output = kubectl.run(&["exec", "box", "--", "no-such-program"]).await;
    assert!(text(&output.stderr).contains("executable file not found"), "{}", text(&output.stderr));
    let output = kubectl.run(&["exec", "box", "-c", "other", "--", "ls"]).await;
    assert!(
        text(&output.stderr).contains("container other is not valid for pod box"),
        "{}",
        text(&output.stderr)
    );
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_copied_in_and_out() {
    needs_root!();
    let bed = Bed::new().await;
    let kubectl = kubectl!(bed);
    bed.script("box", "sleep 1000").await;
    bed.ready("box").await;
    let directory = tempfile::tempdir().unwrap();
    let (here, back) = (directory.path().join("here"), directory.path().join("back"));
    let content: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&here, &content).unwrap();
    let output = kubectl.run(&["cp", here.to_str().unwrap(), "box:/tmp/there"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = kubectl.run(&["cp", "box:/tmp/there", back.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(&back).unwrap() == content);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_the_loopback_interface_are_forwarded() {
    needs_root!();
    let bed = Bed::new().await;
    let kubectl = kubectl!(bed);
    let server = "import http.server, functools\n\
                  class H(http.server.BaseHTTPRequestHandler):\n\
                  \u{20}   def do_GET(self):\n\
                  \u{20}       self.send_response(200); self.end_headers(); self.wfile.write(b'hello from ' + self.path.encode())\n\
                  http.server.HTTPServer(('127.0.0.1', 8000), H).serve_forever()\n";
    let container = json!({
        "name": "main", "image": "busybox", "command": ["python3", "-c", server],
        "readinessProbe": { "periodSeconds": 1, "timeoutSeconds": 20, "exec": { "command": ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8000))"] } },
    });
    bed.pod("web", json!({ "containers": [container] })).await;
    bed.ready("web").await;
    let further: [&[(&str, &str)]; 2] = [&[], &[("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")]];
    for transport in further {
        let mut command = kubectl.command(&["port-forward", "web", ":8000"]);
        let mut child = command.envs(transport.iter().copied()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap();
        let Some(first) = first else {
            let mut error = String::new();
            child.stderr.take().unwrap().read_to_string(&mut error).await.unwrap();
            panic!("{error}");
        };
        let port =
            first.split_once("127.0.0.1:").unwrap().1.split(' ').next().unwrap().parse::<u16>().unwrap();
        for path in ["/a", "/b"] {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let request = format!("GET {path} HTTP/1.0\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
            assert!(answer.ends_with(&format!("hello from {path}")), "{answer}");
        }
        child.kill().await.unwrap();
    }
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_attached_to() {
    needs_root!();
    let bed = Bed::new().await;
    let kubectl = kubectl!(bed);
    let mut main = shell("main", "while read line; do echo got $line; done");
    main["stdin"] = json!(true);
    for (name, transport) in ["one", "two"].iter().zip(TRANSPORTS) {
        bed.pod(name, json!({ "restartPolicy": "Never", "containers": [main] })).await;
        bed.ready(name).await;
        let mut command = kubectl.command(&["attach", "-i", name]);
        let mut child = command.stdin(Stdio::piped()).envs(transport.iter().copied()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap();
        assert_eq!(line.as_deref(), Some("got hello"));
        child.kill().await.unwrap();
    }
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_pod_is_debugged_with_further_containers() {
    needs_root!();
    let bed = Bed::new().await;
    let kubectl = kubectl!(bed);
    let spec =
        json!({ "containers": [shell("main", "exec sleep 1234")], "terminationGracePeriodSeconds": 1 });
    bed.pod("web", spec).await;
    let before = bed.ready("web").await;
    let look = "tr '\\0' ' ' </proc/1/cmdline; hostname; exit 3";
    let debug =
        ["debug", "web", "--image=busybox", "--target=main", "--container=look", "--", "sh", "-c", look];
    let output = kubectl.run(&debug).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pod = bed
        .until::<Pod>("web", "was looked at", |pod| {
            pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        })
        .await;
    assert_eq!(text(&kubectl.run(&["logs", "web", "--container=look"]).await.stdout), "sleep 1234 web\n");
    let interactive = ["debug", "web", "-i", "--image=busybox", "--container=shell", "--", "sh"];
    let output = kubectl.run_with(&interactive, b"echo I am $((6 * 7))\nexit 0\n", &[]).await;
    assert!(text(&output.stdout).contains("I am 42"), "{}{}", text(&output.stdout), text(&output.stderr));
    let after = bed
        .until::<Pod>("web", "forgot the shell", |pod| {
            pod["status"]["ephemeralContainerStatuses"][1]["state"]["terminated"]["exitCode"] == 0
        })
        .await;
    for pod in [&pod, &after] {
        assert_eq!(
            (&pod["status"]["phase"], condition(pod, "Ready")),
            (&json!("Running"), "True"),
            "{pod:#}"
        );
        assert_eq!(container(pod, "main")["containerID"], container(&before, "main")["containerID"]);
    }
    assert_eq!(after["status"]["ephemeralContainerStatuses"][0]["restartCount"], 0, "they run once");
    bed.delete("web", None).await;
    bed.gone("web").await;
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_shown_by_kubectl_top() {
    needs_root!();
    let bed = Bed::new().await;
    let kubectl = kubectl!(bed);
    let spec = json!({ "containers": [shell("main", "while :; do :; done"), shell("other", "sleep 1000")], "terminationGracePeriodSeconds": 1 });
    bed.pod("busy", spec).await;
    bed.ready("busy").await;
    let top = async |arguments: &[&str]| {
        let output = kubectl.run(&[&["top"], arguments].concat()).await;
        let table = text(&output.stdout);
        assert!(output.status.success(), "{table}{}", text(&output.stderr));
        table
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect::<Vec<Vec<String>>>()
    };
    if !std::path::Path::new("/sys/fs/cgroup/cpuacct").exists()
        && !std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
    {
        eprintln!("skipped: this machine does not count what containers use");
        return bed.end().await;
    }
    let nodes = top(&["nodes"]).await;
    assert_eq!((nodes[0][0].as_str(), nodes[1][0].as_str()), ("NAME", bed.node.as_str()));
    assert!(nodes[1][1].ends_with('m') && nodes[1][3].ends_with("Mi"), "{nodes:?}");
    let pods = top(&["pods", "busy"]).await;
    let millis: u64 = pods[1][1].trim_end_matches('m').parse().unwrap();
    assert!(pods[1][0] == "busy" && millis > 50, "{pods:?}");
    let containers = top(&["pods", "--containers", "-A"]).await;
    let names: Vec<_> = containers[1..].iter().map(|line| line[2].as_str()).collect();
    assert_eq!(names, ["main", "other"]);
    bed.delete("busy", None).await;
    bed.gone("busy").await;
    let output = kubectl.run(&["top", "pods"]).await;
    assert!(text(&output.stderr).contains("No resources found"), "{}", text(&output.stderr));
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_to_the_end_of_the_container() {
    needs_root!();
    let bed = Bed::new().await;
    let kubectl = kubectl!(bed);
    bed.script("job", "for i in 1 2 3; do echo line $i; sleep 0.3; done; printf last").await;
    bed.until::<Pod>("job", "started", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
    })
    .await;
    let output = kubectl.run(&["logs", "-f", "job"]).await;
    assert_eq!(text(&output.stdout), "line 1\nline 2\nline 3\nlast\n", "{}", text(&output.stderr));
    bed.phase("job", "Succeeded").await;
    let output = kubectl.run(&["logs", "job", "--tail=2"]).await;
    assert_eq!(text(&output.stdout), "line 3\nlast\n");
    let stamped = text(&kubectl.run(&["logs", "job", "--timestamps", "--limit-bytes=40"]).await.stdout);
    assert!(stamped.len() == 40 && stamped.contains("Z line 1"), "{stamped}");
    bed.end().await;
}

#[tokio::test]
async fn logs_of_containers_that_do_not_run_say_why() {
    needs_root!();
    let bed = Bed::new().await;
    let unmapped = json!({ "containers": [{ "name": "main", "image": "nginx:1.27" }] });
    bed.pod("unmapped", unmapped).await;
    let waits = |pod: &serde_json::Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
    };
    bed.until::<Pod>("unmapped", "failed to pull", waits).await;
    let error = bed.api::<Pod>().logs("unmapped", &LogParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("is waiting to start: trying and failing to pull image"), "{error}");
    bed.event("no local runtime for image \"nginx:1.27\"").await;
    bed.script("fine", "echo fine").await;
    bed.phase("fine", "Succeeded").await;
    let previous = LogParams { previous: true, ..LogParams::default() };
    let error = bed.api::<Pod>().logs("fine", &previous).await.unwrap_err().to_string();
    assert!(error.contains("previous terminated container \"main\" in pod \"fine\" not found"), "{error}");
    bed.end().await;
}
