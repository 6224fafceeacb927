//! An operator that is added by its descriptor alone shows up everywhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn sixth(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet-component-test"));
    command.args(arguments);
    command
}

fn printed(arguments: &[&str]) -> String {
    let output = sixth(arguments).env("SIXTH_MOOD", "good").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn it_has_fewer_than_a_hundred_lines() {
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs")).unwrap();
    let lines = source.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines < 100, "{lines}");
}

#[test]
fn it_shows_up_in_components_crds_and_manifests() {
    assert!(
        printed(&["components"]).lines().any(|line| line.starts_with("sixth ") && line.contains("Greeting"))
    );
    assert!(printed(&["crds", "--list"]).lines().any(|line| line.starts_with("Greeting ")));
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&printed(&["manifests", "--components", "sixth"])).unwrap();
    let find = |kind: &str, name: &str| {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    find("CustomResourceDefinition", "greetings.sixth.quintet.dev");
    find("Service", "sixth");
    let rules = find("ClusterRole", "quintet")["rules"].to_string();
    assert!(
        rules.contains("greetings") && rules.contains("sixth-validating-webhook-configuration"),
        "{rules}"
    );
    assert!(!rules.contains("rayclusters"), "{rules}");
    let webhooks = find("ValidatingWebhookConfiguration", "sixth-validating-webhook-configuration");
    assert_eq!(webhooks["webhooks"][0]["name"], "vgreeting.sixth.quintet.dev");
    let container = &find("Deployment", "quintet")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0]["name"], "SIXTH_MOOD");
    assert!(container["ports"].to_string().contains("8099"), "{container}");
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn up(directory: &Path, arguments: &[&str]) -> (Running, PathBuf) {
    let mut command = sixth(&["up", "--no-node", "--in-memory", "--port", "0", "--data-dir"]);
    command.arg(directory).args(arguments).stdout(Stdio::piped());
    let mut process = Running(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("Quintet is up at"), "{line}");
    (process, directory.join("kubeconfig-in-memory"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A client, and the kind of a Greeting.
async fn connect(kubeconfig: &Path) -> (kube::Client, kube::api::ApiResource) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let kind = kube::api::ApiResource {
        group: "sixth.quintet.dev".into(),
        version: "v1".into(),
        api_version: "sixth.quintet.dev/v1".into(),
        kind: "Greeting".into(),
        plural: "greetings".into(),
    };
    (kube::Client::try_from(config).unwrap(), kind)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A Greeting gets its ConfigMap.
fn runs_its_controller(kubeconfig: &Path) {
    block_on(async {
        let (client, kind) = connect(kubeconfig).await;
        let mut greeting = kube::api::DynamicObject::new("hello", &kind);
        greeting.data = serde_json::json!({ "spec": { "text": "good morning" } });
        let greetings =
            kube::Api::<kube::api::DynamicObject>::namespaced_with(client.clone(), "default", &kind);
        greetings.create(&kube::api::PostParams::default(), &greeting).await.unwrap();
        let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client, "default");
        let said = async {
            loop {
                if let Some(map) = maps.get_opt("hello").await.unwrap() {
                    return map.data.unwrap_or_default();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let said = tokio::time::timeout(Duration::from_mins(1), said).await.unwrap();
        assert_eq!(said["text"], "good morning");
    });
}

#[test]
fn it_runs_and_shows_up_in_readyz_and_metrics() {
    let directory = std::env::temp_dir().join(format!("quintet-sixth-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (_up, kubeconfig) = up(&directory, &["--no-operator"]);
    let (health, webhooks) = (free_port(), free_port());
    let mut command = sixth(&["operator", "--components", "sixth", "--namespace", "default"]);
    command.args(["--webhook-host", "127.0.0.1", "--webhook-port", &webhooks.to_string()]);
    command.args(["--health-probe-bind-address", &format!("127.0.0.1:{health}")]);
    command.args(["--metrics-bind-address", &format!("127.0.0.1:{health}"), "--kubeconfig"]).arg(&kubeconfig);
    let _operator = Running(command.stderr(Stdio::null()).spawn().unwrap());
    until("readiness", || {
        get(health, "/readyz?verbose").is_some_and(|text| text.starts_with("HTTP/1.1 200"))
    });
    let ready = get(health, "/readyz?verbose").unwrap();
    assert!(ready.contains("sixth"), "{ready}");
    let metrics = get(health, "/metrics").unwrap();
    assert!(metrics.contains("sixth_greeters") && metrics.contains("\"greeting\""), "{metrics}");
    runs_its_controller(&kubeconfig);
    let explained = sixth(&["explain", "greeting/nobody", "--kubeconfig"]).arg(&kubeconfig).output().unwrap();
    let message = String::from_utf8(explained.stderr).unwrap();
    assert!(message.contains("greeting default/nobody does not exist"), "{message}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn it_runs_in_the_process_of_the_embedded_api() {
    let directory = std::env::temp_dir().join(format!("quintet-sixth-inside-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (_up, kubeconfig) = up(&directory, &["--components", "sixth"]);
    runs_its_controller(&kubeconfig);
    let refused = block_on(async {
        let (client, kind) = connect(&kubeconfig).await;
        let mut empty = kube::api::DynamicObject::new("empty", &kind);
        empty.data = serde_json::json!({ "spec": { "text": "" } });
        let greetings = kube::Api::<kube::api::DynamicObject>::namespaced_with(client, "default", &kind);
        greetings.create(&kube::api::PostParams::default(), &empty).await.unwrap_err().to_string()
    });
    assert!(refused.contains("spec.text: say something"), "its webhook answers without a socket: {refused}");
    std::fs::remove_dir_all(directory).unwrap();
}
