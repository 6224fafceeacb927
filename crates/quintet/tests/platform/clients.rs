//! What people do with pods, with the clients that they use.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::ray::curl;
use crate::support::{Platform, temporary};

/// The image of the Python client.
const PYTHON_CLIENT: &str = "kubernetes-client";

/// kubectl in the namespace of the case.
fn kubectl(platform: &Platform, arguments: &[&str]) -> Command {
    let mut command = platform.kubectl(&["--namespace", &platform.namespace()]);
    command.args(arguments);
    command
}

/// What kubectl prints; it has to succeed.
fn run(platform: &Platform, arguments: &[&str]) -> String {
    let output = kubectl(platform, arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {}: {error}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

fn pod(name: &str, script: &str) -> serde_json::Value {
    let container = json!({ "name": "main", "image": "busybox", "stdin": true, "command": ["sh", "-c", script],
        "resources": { "requests": { "cpu": "50m", "memory": "32Mi" } } });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container] } })
}

pub(crate) async fn kubectl_follows_enters_and_reaches_pods(platform: &Platform) {
    platform.apply(&pod("counter", "for i in 1 2 3; do echo line $i; sleep 1; done")).await;
    let runs = "--for=jsonpath={.status.containerStatuses[0].state.running}";
    run(platform, &["wait", "pod/counter", runs, "--timeout=1m"]);
    assert_eq!(run(platform, &["logs", "-f", "counter"]), "line 1\nline 2\nline 3\n");

    let server =
        "mkdir -p /tmp/site; echo hello >/tmp/site/word; cd /tmp/site; exec python3 -m http.server 8000";
    let mut web = pod("web", server);
    // kubectl ends a port-forward whose first connection is refused.
    web["spec"]["containers"][0]["readinessProbe"] =
        json!({ "tcpSocket": { "port": 8000 }, "periodSeconds": 1 });
    platform.apply(&web).await;
    run(platform, &["wait", "pod/web", "--for=condition=Ready", "--timeout=1m"]);
    assert_eq!(run(platform, &["exec", "web", "--", "cat", "/tmp/site/word"]), "hello\n");
    let failed = kubectl(platform, &["exec", "web", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(7));
    let (here, back) = (temporary("here"), temporary("back"));
    std::fs::write(&here, "copied").unwrap();
    run(platform, &["cp", here.to_str().unwrap(), "web:/tmp/site/copy"]);
    run(platform, &["cp", "web:/tmp/site/copy", back.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&back).unwrap(), "copied");
    for file in [here, back] {
        std::fs::remove_file(file).unwrap();
    }
    let mut forward =
        kubectl(platform, &["port-forward", "web", ":8000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let through = crate::support::eventually("the server in the pod", async || {
        curl(&[&format!("http://127.0.0.1:{port}/copy")]).await.ok()
    });
    assert_eq!(through.await, "copied");
    forward.kill().unwrap();
    forward.wait().unwrap();
    let top = run(platform, &["top", "pod", "web"]);
    assert!(top.starts_with("NAME") && top.contains("web") && top.contains("Mi"), "{top}");

    platform.apply(&pod("echo", "while read line; do echo got $line; done")).await;
    run(platform, &["wait", "pod/echo", "--for=condition=Ready", "--timeout=1m"]);
    let mut attach = kubectl(platform, &["attach", "-i", "echo"]);
    let mut attach =
        attach.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    attach.stdin.as_mut().unwrap().write_all(b"this\n").unwrap();
    let mut line = String::new();
    BufReader::new(attach.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "got this\n");
    attach.kill().unwrap();
    attach.wait().unwrap();

    run(
        platform,
        &["create", "deployment", "roll", "--image=busybox", "--replicas=2", "--", "sleep", "1000"],
    );
    run(platform, &["rollout", "status", "deployment/roll", "--timeout=1m"]);
    run(platform, &["set", "env", "deployment/roll", "WORD=new"]);
    run(platform, &["rollout", "status", "deployment/roll", "--timeout=2m"]);
    assert_eq!(run(platform, &["exec", "deployment/roll", "--", "sh", "-c", "echo $WORD"]), "new\n");
    run(platform, &["rollout", "undo", "deployment/roll"]);
    run(platform, &["rollout", "status", "deployment/roll", "--timeout=2m"]);
    assert!(run(platform, &["rollout", "history", "deployment/roll"]).contains('3'));
}

/// Runs in a pod with the token of its service account, and on this machine with the kubeconfig.
const PROGRAM: &str = "import os, sys, time
from kubernetes import client, config, watch
from kubernetes.stream import stream

if 'KUBECONFIG' in os.environ:
    config.load_kube_config()
else:
    config.load_incluster_config()
core, namespace, name = client.CoreV1Api(), sys.argv[1], sys.argv[2]
container = client.V1Container(name='main', image='busybox', command=['sh', '-c', 'echo began; exec sleep 1000'])
spec = client.V1PodSpec(containers=[container], termination_grace_period_seconds=1)
core.create_namespaced_pod(namespace, client.V1Pod(metadata=client.V1ObjectMeta(name=name), spec=spec))
watcher = watch.Watch()
for event in watcher.stream(core.list_namespaced_pod, namespace, field_selector='metadata.name=' + name, timeout_seconds=120):
    if event['object'].status.phase == 'Running':
        watcher.stop()
assert 'began' in next(iter(watch.Watch().stream(core.read_namespaced_pod_log, name, namespace)))
answer = stream(core.connect_get_namespaced_pod_exec, name, namespace, command=['hostname'], stdout=True, stderr=True)
assert answer == name + '\\n', answer
core.delete_namespaced_pod(name, namespace)
while core.list_namespaced_pod(namespace, field_selector='metadata.name=' + name).items:
    time.sleep(0.2)
print('done')
";

pub(crate) async fn the_python_client_works_inside_and_outside_of_pods(platform: &Platform) {
    if let Some(reason) = platform.image_obstacle(PYTHON_CLIENT).await {
        println!("skipped: the Python client cannot be installed: {reason}");
        return;
    }
    let namespace = platform.namespace();
    run(
        platform,
        &[
            "create",
            "rolebinding",
            "edit",
            "--clusterrole=edit",
            &format!("--serviceaccount={namespace}:default"),
        ],
    );
    let container = json!({ "name": "main", "image": PYTHON_CLIENT, "command": ["python3", "-c", PROGRAM, namespace, "one"] });
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "inside" },
            "spec": { "restartPolicy": "Never", "containers": [container] } }))
        .await;
    let is_over =
        |pod: &serde_json::Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    platform.wait(("v1", "Pod", "inside"), "over", is_over).await;
    let log = platform.log("inside", None).await;
    assert_eq!(log.lines().last(), Some("done"), "{log}");

    let python = platform.environment("kubernetes==36.0.3").join("bin/python");
    let mut outside = tokio::process::Command::new(python);
    outside.args(["-c", PROGRAM, &namespace, "two"]).env("KUBECONFIG", platform.kubeconfig());
    let output = outside.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
