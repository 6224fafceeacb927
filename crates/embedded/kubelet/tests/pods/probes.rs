//! Probes of running containers.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::bed::{Bed, condition, container, shell};
use super::needs_root;

/// A web server that answers 200 while `/tmp/ok` exists, else 503, and redirects to another host.
const SERVER: &str = "import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == '/elsewhere':
            self.send_response(302); self.send_header('Location', 'http://elsewhere.example/'); self.end_headers()
            return
        self.send_response(200 if os.path.exists('/tmp/ok') else 503); self.end_headers()
http.server.HTTPServer(('0.0.0.0', 8080), H).serve_forever()
";

fn server(probes: Value) -> Value {
    let mut main = json!({ "name": "main", "image": "busybox", "command": ["python3", "-c", SERVER], "ports": [{ "name": "web", "containerPort": 8080 }] });
    for (name, probe) in probes.as_object().unwrap() {
        main[name] = probe.clone();
    }
    json!({ "terminationGracePeriodSeconds": 1, "containers": [main] })
}

fn file(bed: &Bed, pod: &Value, name: &str) -> std::path::PathBuf {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    bed.directory().join(format!("pods/{uid}/containers/main/0/root/tmp/{name}"))
}

#[tokio::test]
async fn a_pod_is_ready_while_its_probe_succeeds() {
    needs_root!();
    let bed = Bed::new().await;
    let probe =
        json!({ "httpGet": { "port": "web", "path": "/ready" }, "periodSeconds": 1, "failureThreshold": 1 });
    bed.pod("web", server(json!({ "readinessProbe": probe }))).await;
    bed.event("Readiness probe failed: HTTP probe failed with statuscode: 503").await;
    let pod = bed.phase("web", "Running").await;
    assert_eq!(condition(&pod, "Ready"), "False");
    std::fs::write(file(&bed, &pod, "ok"), "").unwrap();
    let pod = bed.ready("web").await;
    std::fs::remove_file(file(&bed, &pod, "ok")).unwrap();
    let pod = bed.until::<Pod>("web", "was unready again", |pod| condition(pod, "Ready") == "False").await;
    assert_eq!(container(&pod, "main")["restartCount"], 0);
    bed.end().await;
}

#[tokio::test]
async fn a_container_whose_liveness_probe_fails_is_restarted() {
    needs_root!();
    let bed = Bed::new().await;
    let mounted = |mut container: Value| {
        container["volumeMounts"] = json!([{ "name": "state", "mountPath": "/state" }]);
        container
    };
    // The file is there before the container starts, which is ready at once.
    let init = mounted(shell("init", "touch /state/alive"));
    let mut main = mounted(shell("main", "while true; do sleep 0.1; done"));
    main["livenessProbe"] =
        json!({ "exec": { "command": ["cat", "/state/alive"] }, "periodSeconds": 1, "failureThreshold": 1 });
    let volumes = json!([{ "name": "state", "emptyDir": {} }]);
    let spec = json!({ "terminationGracePeriodSeconds": 1, "volumes": volumes, "initContainers": [init], "containers": [main] });
    let pod = bed.pod("web", spec).await;
    bed.ready("web").await;
    let directory = bed.directory().join("pods").join(pod.metadata.uid.unwrap());
    std::fs::remove_file(directory.join("volumes/state/alive")).unwrap();
    let restarted = |pod: &Value| container(pod, "main")["restartCount"] == 1;
    bed.until::<Pod>("web", "was restarted", restarted).await;
    bed.event("Liveness probe failed: cat: /state/alive: No such file or directory").await;
    bed.event("Container main failed liveness probe, will be restarted").await;
    bed.end().await;
}

#[tokio::test]
async fn other_probes_wait_for_the_startup_probe() {
    needs_root!();
    let bed = Bed::new().await;
    let probes = json!({
        "startupProbe": { "httpGet": { "port": 8080 }, "periodSeconds": 1, "failureThreshold": 100 },
        "livenessProbe": { "httpGet": { "port": 8080 }, "periodSeconds": 1, "failureThreshold": 1 },
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
    });
    bed.pod("web", server(probes)).await;
    bed.event("Startup probe failed: HTTP probe failed with statuscode: 503").await;
    let pod = bed.phase("web", "Running").await;
    assert_eq!(container(&pod, "main")["started"], false);
    std::fs::write(file(&bed, &pod, "ok"), "").unwrap();
    let pod = bed.ready("web").await;
    assert_eq!(
        (&container(&pod, "main")["started"], &container(&pod, "main")["restartCount"]),
        (&json!(true), &json!(0))
    );
    bed.end().await;
}

#[tokio::test]
async fn a_redirect_to_another_host_is_a_success_with_a_warning() {
    needs_root!();
    let bed = Bed::new().await;
    let probe = json!({ "httpGet": { "port": "web", "path": "/elsewhere" }, "periodSeconds": 1, "timeoutSeconds": 20 });
    bed.pod("web", server(json!({ "readinessProbe": probe }))).await;
    bed.ready("web").await;
    bed.event("Readiness probe warning: Probe terminated redirects").await;
    bed.end().await;
}

#[tokio::test]
async fn probes_do_not_reach_the_loopback_interface_of_a_pod() {
    needs_root!();
    let bed = Bed::new().await;
    let script = "import socket, time\ns = socket.create_server(('127.0.0.1', 8080))\ntime.sleep(1000)";
    let main = json!({
        "name": "main", "image": "busybox", "command": ["python3", "-c", script],
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
    });
    bed.pod("hidden", json!({ "containers": [main] })).await;
    bed.event(":8080: connect: connection refused").await;
    bed.end().await;
}

#[tokio::test]
async fn readiness_gates_are_waited_for() {
    needs_root!();
    let bed = Bed::new().await;
    let spec = json!({ "readinessGates": [{ "conditionType": "example.com/gate" }], "containers": [shell("main", "sleep 1000")] });
    bed.pod("gated", spec).await;
    bed.until::<Pod>("gated", "had ready containers", |pod| condition(pod, "ContainersReady") == "True")
        .await;
    let gate = json!({ "type": "example.com/gate", "status": "True" });
    let patch = kube::api::Patch::Strategic(json!({ "status": { "conditions": [gate] } }));
    bed.api::<Pod>().patch_status("gated", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let pod = bed.ready("gated").await;
    assert_eq!(condition(&pod, "example.com/gate"), "True");
    bed.end().await;
}
