//! What cannot work: statuses, events and messages are those of a kubelet, a scheduler and an API server.

use std::net::TcpListener;
use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Platform, Program, eventually, temporary};

const POD: (&str, &str) = ("v1", "Pod");

/// Creates a pod.
async fn apply_pod(platform: &Platform, name: &str, spec: Value) {
    let pod = json!({ "apiVersion": POD.0, "kind": POD.1, "metadata": { "name": name }, "spec": spec });
    platform.apply(&pod).await;
}

/// A pod of one container that runs a command, with further fields of the container.
async fn apply_container(platform: &Platform, name: &str, command: &[&str], fields: Value) {
    let mut container = json!({ "name": "main", "image": "busybox", "command": command });
    for (key, value) in fields.as_object().unwrap() {
        container[key] = value.clone();
    }
    apply_pod(platform, name, json!({ "terminationGracePeriodSeconds": 1, "containers": [container] })).await;
}

/// Waits until a pod is as it should be.
async fn pod(platform: &Platform, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    platform.wait((POD.0, POD.1, name), what, holds).await
}

/// Waits for an event about an object, and returns its message.
async fn event(platform: &Platform, object: &str, reason: &str, part: &str) -> String {
    let events: Api<Event> = Api::namespaced(platform.client().await, &platform.namespace());
    let fields = ListParams::default().fields(&format!("involvedObject.name={object},reason={reason}"));
    eventually(&format!("an event {reason} of {object} with {part:?}"), async || {
        let found = events.list(&fields).await.unwrap();
        found.items.into_iter().filter_map(|event| event.message).find(|text| text.contains(part))
    })
    .await
}

fn waits_for(reason: &str) -> impl Fn(&Value) -> bool {
    move |pod| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == kind).unwrap()
}

pub(crate) async fn an_image_that_is_not_mapped(platform: &Platform) {
    let container = json!({ "name": "main", "image": "example/unheard-of:1" });
    apply_pod(platform, "puzzle", json!({ "containers": [container] })).await;
    let waiting = pod(platform, "puzzle", "without image", waits_for("ErrImagePull")).await;
    assert_eq!(waiting["status"]["phase"], "Pending");
    let message = waiting["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("example/unheard-of") && message.contains("node.images"), "{message}");
    let backs_off = pod(platform, "puzzle", "backing off", waits_for("ImagePullBackOff")).await;
    let message =
        backs_off["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("Back-off pulling image \"example/unheard-of:1\""), "{message}");
    event(platform, "puzzle", "Failed", "Failed to pull image \"example/unheard-of:1\": ").await;
    event(platform, "puzzle", "Failed", "Error: ErrImagePull").await;
}

pub(crate) async fn a_command_that_does_not_exist(platform: &Platform) {
    apply_container(platform, "typo", &["pyhton3", "--version"], json!({})).await;
    let failed = pod(platform, "typo", "backing off", waits_for("CrashLoopBackOff")).await;
    let last = &failed["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["reason"], &last["exitCode"]), (&json!("StartError"), &json!(128)));
    let message = last["message"].as_str().unwrap();
    assert!(message.contains("\"pyhton3\": executable file not found in $PATH"), "{message}");
    event(platform, "typo", "Failed", "executable file not found in $PATH").await;
    event(platform, "typo", "BackOff", "Back-off restarting failed container main in pod typo_").await;
}

pub(crate) async fn a_volume_from_a_missing_config_map(platform: &Platform) {
    let mount = json!({ "name": "settings", "mountPath": "/settings" });
    let container = json!({ "name": "main", "image": "busybox", "command": ["cat", "/settings/word"], "volumeMounts": [mount] });
    let volume = json!({ "name": "settings", "configMap": { "name": "absent" } });
    let spec = json!({ "restartPolicy": "Never", "containers": [container], "volumes": [volume] });
    apply_pod(platform, "reader", spec).await;
    let expected = "MountVolume.SetUp failed for volume \"settings\" : configmap \"absent\" not found";
    event(platform, "reader", "FailedMount", expected).await;
    let waiting = pod(platform, "reader", "creating", waits_for("ContainerCreating")).await;
    assert_eq!(waiting["status"]["phase"], "Pending");
    let (kind, data) = (("v1", "ConfigMap"), json!({ "word": "found" }));
    platform
        .apply(
            &json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": "absent" }, "data": data }),
        )
        .await;
    pod(platform, "reader", "over", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(platform.log("reader", None).await.trim_end(), "found");
}

pub(crate) async fn more_than_the_node_has(platform: &Platform) {
    let requests = json!({ "resources": { "requests": { "cpu": "1000", "memory": "900Ti" } } });
    apply_container(platform, "giant", &["true"], requests).await;
    let is_judged = |pod: &Value| pod["status"]["conditions"].is_array();
    let pending = pod(platform, "giant", "judged", is_judged).await;
    assert_eq!(pending["status"]["phase"], "Pending");
    let scheduled = condition(&pending, "PodScheduled");
    assert_eq!((&scheduled["status"], &scheduled["reason"]), (&json!("False"), &json!("Unschedulable")));
    let expected = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.";
    assert!(scheduled["message"].as_str().unwrap().starts_with(expected), "{scheduled}");
    event(platform, "giant", "FailedScheduling", expected).await;
}

pub(crate) async fn probes_that_never_succeed(platform: &Platform) {
    let probe = json!({ "exec": { "command": ["sh", "-c", "echo not today; false"] }, "periodSeconds": 1, "failureThreshold": 1 });
    let sleep = ["sleep", "1000"];
    apply_container(platform, "unready", &sleep, json!({ "readinessProbe": probe })).await;
    apply_container(platform, "unwell", &sleep, json!({ "livenessProbe": probe })).await;
    apply_container(platform, "unborn", &sleep, json!({ "startupProbe": probe })).await;
    event(platform, "unready", "Unhealthy", "Readiness probe failed: not today").await;
    let unready = pod(platform, "unready", "running", |pod| pod["status"]["phase"] == "Running").await;
    let ready = condition(&unready, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ContainersNotReady")));
    assert_eq!(ready["message"], "containers with unready status: [main]");
    for (name, kind) in [("unwell", "Liveness"), ("unborn", "Startup")] {
        event(platform, name, "Unhealthy", &format!("{kind} probe failed: not today")).await;
        let note = format!("Container main failed {} probe, will be restarted", kind.to_lowercase());
        event(platform, name, "Killing", &note).await;
        let restarted =
            |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0);
        pod(platform, name, "restarted", restarted).await;
    }
    let unready = pod(platform, "unready", "there", |_| true).await;
    assert_eq!(unready["status"]["containerStatuses"][0]["restartCount"], 0);
}

pub(crate) async fn a_node_port_that_is_taken(platform: &Platform) {
    let mut free = (30_000..32_768).filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let taken = free.next().unwrap();
    let port = taken.local_addr().unwrap().port();
    // A port is opened when there is something behind it.
    let container = json!({ "name": "main", "image": "busybox", "command": ["sleep", "1000"] });
    let metadata = json!({ "name": "backend", "labels": { "app": "web" } });
    let spec = json!({ "containers": [container] });
    platform.apply(&json!({ "apiVersion": POD.0, "kind": POD.1, "metadata": metadata, "spec": spec })).await;
    let spec = json!({ "type": "NodePort", "selector": { "app": "web" }, "ports": [{ "port": 80, "nodePort": port }] });
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": spec }))
        .await;
    let message = event(platform, "web", "FailedToOpenPort", &format!("127.0.0.1:{port}")).await;
    assert!(message.contains("Address already in use") && message.contains("another nodePort"), "{message}");
}

/// What `quintet up` complains about when it cannot start.
fn complaint(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "it started");
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines().find(|line| line.starts_with("error: ")).unwrap_or(&text).to_owned()
}

pub(crate) async fn an_api_port_that_is_taken(_: &Platform) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let directory = temporary("taken");
    let other = Platform::new(directory.clone(), Program::built());
    let mut up = Program::built().command();
    up.args(["up", "--port", &port, "--data-dir"]).arg(&directory);
    let complaint = complaint(&mut up);
    assert!(complaint.contains(&format!("127.0.0.1:{port}")), "{complaint}");
    assert!(complaint.contains("Address already in use") && complaint.contains("--port"), "{complaint}");
    other.down();
}

pub(crate) async fn a_data_directory_that_is_in_use(platform: &Platform) {
    let names = platform.directory().join("node/namespaces/resolv.conf");
    let before = std::fs::read_to_string(&names).unwrap();
    assert_ne!(before, std::fs::read_to_string("/etc/resolv.conf").unwrap());
    let mut second = Program::built().command();
    second.args(["up", "--port", "0", "--data-dir"]).arg(platform.directory());
    let complaint = complaint(&mut second);
    assert!(complaint.contains("is in use by another quintet up"), "{complaint}");
    // The one that runs goes on, and still resolves names of the cluster.
    assert_eq!(std::fs::read_to_string(&names).unwrap(), before);
    apply_container(platform, "fine", &["sleep", "1000"], json!({})).await;
    pod(platform, "fine", "running", |pod| pod["status"]["phase"] == "Running").await;
}

/// A file system in memory, unmounted at the end.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let path = temporary("small-disk");
        std::fs::create_dir_all(&path).unwrap();
        let options = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        Self(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub(crate) async fn a_full_disk(_: &Platform) {
    let disk = SmallDisk::mount("64m");
    let platform = Platform::new(disk.0.join("data"), Program::built()).started().await;
    // The disk has less room than a node keeps free.
    apply_container(&platform, "late", &["true"], json!({})).await;
    let is_judged = |pod: &Value| pod["status"]["conditions"].is_array();
    let pending = pod(&platform, "late", "judged", is_judged).await;
    let message = condition(&pending, "PodScheduled")["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("0/1 nodes are available: 1 node(s) had untolerated taint"), "{message}");
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(platform.client().await);
    let node = nodes.list(&ListParams::default()).await.unwrap().items.remove(0);
    let node = serde_json::to_value(node).unwrap();
    assert_eq!(condition(&node, "DiskPressure")["reason"], "KubeletHasDiskPressure");
    // Nothing more can be written; what is there can be read.
    let filler = disk.0.join("filler");
    fill(&filler);
    let maps: Api<ConfigMap> = Api::namespaced(platform.client().await, &platform.namespace());
    let create = async |name: String| {
        let mut map = ConfigMap {
            data: Some([("text".to_owned(), "x".repeat(100_000))].into()),
            ..ConfigMap::default()
        };
        map.metadata.name = Some(name);
        maps.create(&PostParams::default(), &map).await
    };
    let refused = create("refused".into()).await.unwrap_err().to_string();
    assert!(refused.contains("the disk is full"), "{refused}");
    assert!(maps.list(&ListParams::default()).await.is_ok());
    std::fs::remove_file(&filler).unwrap();
    eventually("room to write", async || create("accepted".into()).await.ok()).await;
    platform.down();
}

/// Fills a disk to its last byte.
fn fill(path: &std::path::Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    let block = [0; 4096];
    while file.write_all(&block).is_ok() {}
}
