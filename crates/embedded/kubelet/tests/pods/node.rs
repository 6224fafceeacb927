//! What the node does for pods beyond running them: it admits them and gives them ports.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::bed::{Bed, container, shell};
use super::needs_root;

/// Answers every connection with the name of its pod.
const SERVER: &str = "import os, socket
server = socket.create_server(('', 8080))
while True:
    client, _ = server.accept()
    client.sendall(os.uname().nodename.encode())
    client.close()";

fn server(port: u16) -> Value {
    json!({ "containers": [{
        "name": "main", "image": "busybox", "command": ["python3", "-c", SERVER],
        "ports": [{ "containerPort": 8080, "hostPort": port }],
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
    }], "terminationGracePeriodSeconds": 1 })
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What a server at a port of this machine says.
async fn ask(port: u16) -> std::io::Result<String> {
    let ask = move || {
        let mut text = String::new();
        TcpStream::connect(("127.0.0.1", port))?.read_to_string(&mut text)?;
        Ok(text)
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_port_leads_to_its_pod_until_it_is_gone() {
    needs_root!();
    let mut bed = Bed::new().await;
    let port = free_port();
    bed.pod("web", server(port)).await;
    bed.ready("web").await;
    assert_eq!(ask(port).await.unwrap(), "web");
    bed.stop_kubelet().await;
    assert!(ask(port).await.is_err(), "the kubelet serves it");
    bed.start_kubelet().await;
    let answered = async {
        loop {
            match ask(port).await {
                Ok(answer) => return answer,
                // The new kubelet has not found the pod yet.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(super::bed::TIMEOUT, answered).await.unwrap(), "web");
    bed.delete("web", None).await;
    bed.gone("web").await;
    assert!(ask(port).await.is_err(), "the pod is gone");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_a_host_port_that_another_program_has() {
    needs_root!();
    let bed = Bed::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    bed.pod("web", server(port)).await;
    bed.event(&format!("Failed to create pod sandbox: cannot open the ports of the pod: cannot listen at 127.0.0.1:{port} (TCP)")).await;
    drop(taken);
    bed.ready("web").await;
    assert_eq!(ask(port).await.unwrap(), "web");
    bed.delete("web", None).await;
    bed.gone("web").await;
    bed.end().await;
}

/// Waits until a pod is rejected, and checks what its status says.
async fn rejected(bed: &Bed, name: &str, reason: &str, message: &str) {
    let pod = bed.phase(name, "Failed").await;
    let status = &pod["status"];
    assert_eq!(
        (&status["reason"], &status["message"]),
        (&json!(reason), &json!(format!("Pod was rejected: {message}")))
    );
    assert_eq!(container(&pod, "main"), &Value::Null, "no container was looked at");
    bed.event(&format!("{reason} {message}")).await;
}

#[tokio::test]
async fn pods_that_were_bound_without_a_scheduler_are_rejected_if_they_do_not_fit() {
    needs_root!();
    let bed = Bed::new().await;
    let sleeper = |more: Value| {
        let mut spec =
            json!({ "containers": [shell("main", "sleep 1000")], "terminationGracePeriodSeconds": 1 });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let asks = |cpu: String| {
        let mut spec = sleeper(json!({}));
        spec["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
        spec
    };
    let nodes: Api<Node> = Api::all(bed.client.clone());
    let node = serde_json::to_value(nodes.get(&bed.node).await.unwrap()).unwrap();
    let capacity = node["status"]["allocatable"]["cpu"].as_str().unwrap().parse::<u64>().unwrap() * 1000;
    let most = capacity * 3 / 4;
    bed.pod("most", asks(format!("{most}m"))).await;
    bed.ready("most").await;
    bed.pod("more", asks(format!("{most}m"))).await;
    let message = format!(
        "Node didn't have enough resource: cpu, requested: {most}, used: {most}, capacity: {capacity}"
    );
    rejected(&bed, "more", "OutOfcpu", &message).await;
    bed.pod("elsewhere", sleeper(json!({ "nodeSelector": { "disk": "none" } }))).await;
    let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    rejected(&bed, "elsewhere", "NodeAffinity", message).await;
    bed.delete("most", None).await;
    bed.gone("most").await;
    bed.pod("next", asks(format!("{most}m"))).await;
    bed.ready("next").await;
    bed.end().await;
}

#[tokio::test]
async fn a_pod_that_runs_is_not_judged_again_when_the_kubelet_restarts() {
    needs_root!();
    let mut bed = Bed::new().await;
    let nodes: Api<Node> = Api::all(bed.client.clone());
    let label = |value: Value| Patch::Merge(json!({ "metadata": { "labels": { "disk": value } } }));
    nodes.patch(&bed.node, &PatchParams::default(), &label(json!("ssd"))).await.unwrap();
    bed.stop_kubelet().await;
    bed.start_kubelet().await;
    let spec = json!({
        "containers": [shell("main", "sleep 1000")], "nodeSelector": { "disk": "ssd" },
        "terminationGracePeriodSeconds": 1,
    });
    bed.pod("chosen", spec).await;
    let before = bed.ready("chosen").await;
    bed.stop_kubelet().await;
    nodes.patch(&bed.node, &PatchParams::default(), &label(Value::Null)).await.unwrap();
    bed.start_kubelet().await;
    let after =
        bed.until::<Pod>("chosen", "was ready", |pod| super::bed::condition(pod, "Ready") == "True").await;
    assert_eq!(container(&after, "main")["containerID"], container(&before, "main")["containerID"]);
    bed.end().await;
}

/// Asks for other resources of the only container of a pod.
async fn resize(bed: &Bed, name: &str, resources: Value) {
    let patch = json!({ "spec": { "containers": [{ "name": "main", "resources": resources }] } });
    let patch = Patch::Strategic(patch);
    bed.api::<Pod>().patch_subresource("resize", name, &PatchParams::default(), &patch).await.unwrap();
}

/// What limits the container of a pod, as its control groups say.
fn limits(pod: &Value) -> (String, String) {
    let name = format!("quintet/pod{}-main-0", pod["metadata"]["uid"].as_str().unwrap());
    let read = |files: [String; 2]| {
        let mut found =
            files.iter().filter_map(|file| std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok());
        found.next().map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    (
        read([format!("{name}/cpu.max"), format!("cpu/{name}/cpu.cfs_quota_us")]),
        read([format!("{name}/memory.max"), format!("memory/{name}/memory.limit_in_bytes")]),
    )
}

#[tokio::test]
async fn a_running_container_is_resized() {
    needs_root!();
    let bed = Bed::new().await;
    let asks = |cpu: &str, memory: &str| {
        let amounts = json!({ "cpu": cpu, "memory": memory });
        json!({ "requests": amounts, "limits": amounts })
    };
    let mut main = shell("main", "sleep 1000");
    main["resources"] = asks("100m", "64Mi");
    main["resizePolicy"] = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    bed.pod("web", json!({ "containers": [main], "terminationGracePeriodSeconds": 1 })).await;
    let before = bed.ready("web").await;
    let (cpu, memory) = limits(&before);
    if cpu.is_empty() || memory.is_empty() {
        eprintln!("skipped: this machine does not let us limit containers");
        bed.end().await;
        return;
    }
    assert!(cpu.starts_with("10000"), "{cpu}");
    resize(&bed, "web", asks("200m", "64Mi")).await;
    let given =
        |cpu: &'static str| move |pod: &Value| container(pod, "main")["resources"]["limits"]["cpu"] == cpu;
    let after = bed.until::<Pod>("web", "was resized", given("200m")).await;
    assert!(limits(&after).0.starts_with("20000"), "{:?}", limits(&after));
    assert_eq!(container(&after, "main")["containerID"], container(&before, "main")["containerID"]);
    bed.event("ResizeCompleted").await;

    resize(&bed, "web", asks("100000", "64Mi")).await;
    let pending = |pod: &Value| super::bed::condition(pod, "PodResizePending") == "True";
    let pod = bed.until::<Pod>("web", "was refused", pending).await;
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let pending = conditions.iter().find(|one| one["type"] == "PodResizePending").unwrap();
    assert_eq!(pending["reason"], "Infeasible");
    assert!(
        pending["message"].as_str().unwrap().starts_with("Node didn't have enough resource: cpu"),
        "{pending}"
    );
    assert!(given("200m")(&pod) && limits(&pod).0.starts_with("20000"), "what it has stays: {pod:#}");

    resize(&bed, "web", asks("200m", "128Mi")).await;
    let restarted = |pod: &Value| {
        container(pod, "main")["restartCount"] == 1 && super::bed::condition(pod, "Ready") == "True"
    };
    let pod = bed.until::<Pod>("web", "was restarted", restarted).await;
    assert_eq!(container(&pod, "main")["resources"]["limits"]["memory"], "128Mi");
    assert_eq!(super::bed::condition(&pod, "PodResizePending"), "", "{pod:#}");
    bed.end().await;
}
