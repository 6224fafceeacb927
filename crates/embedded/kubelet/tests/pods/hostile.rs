//! What a hostile pod cannot do, also as the root user of its container.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};

use super::bed::{Bed, TIMEOUT, container, shell};
use super::needs_root;

/// A container that runs a script as root.
fn as_root(script: &str) -> Value {
    let mut main = shell("main", script);
    main["securityContext"] = json!({ "runAsUser": 0 });
    main
}

async fn run(bed: &Bed, name: &str, script: &str) -> String {
    bed.pod(name, json!({ "restartPolicy": "Never", "containers": [as_root(script)] })).await;
    bed.output(name).await
}

#[tokio::test]
async fn keys_of_the_platform_cannot_be_read() {
    needs_root!();
    let bed = Bed::new().await;
    let key = bed.data.path().join("ca.key");
    std::fs::write(&key, "PRIVATE KEY").unwrap();
    let path = key.display();
    let script = format!(
        "cat {path} /proc/1/root{path} /proc/*/root{path} /etc/shadow; ls -R {} 2>/dev/null | head; echo done",
        bed.data.path().display()
    );
    let output = run(&bed, "thief", &script).await;
    assert!(
        output.contains("done\n") && !output.contains("PRIVATE KEY") && !output.contains("root:"),
        "{output}"
    );
    let mut main = as_root("cat /keys/*");
    main["volumeMounts"] = json!([{ "name": "keys", "mountPath": "/keys" }]);
    let volume = json!({ "name": "keys", "hostPath": { "path": bed.data.path() } });
    bed.pod("mounter", json!({ "volumes": [volume], "containers": [main] })).await;
    bed.event("start quintet up with --allow-privileged to allow it").await;
    let pod = bed.phase("mounter", "Pending").await;
    assert!(container(&pod, "main")["state"]["waiting"].is_object());
    bed.end().await;
}

#[tokio::test]
async fn volumes_and_tokens_of_other_pods_cannot_be_read() {
    needs_root!();
    let bed = Bed::new().await;
    bed.create::<Secret>(json!({ "metadata": { "name": "keys" }, "stringData": { "key": "s3cret" } })).await;
    let mut main = shell("main", "echo mine > /data/file; sleep 1000");
    main["volumeMounts"] =
        json!([{ "name": "keys", "mountPath": "/keys" }, { "name": "data", "mountPath": "/data" }]);
    let volumes =
        json!([{ "name": "keys", "secret": { "secretName": "keys" } }, { "name": "data", "emptyDir": {} }]);
    let victim = bed.pod("victim", json!({ "volumes": volumes, "containers": [main] })).await;
    bed.ready("victim").await;
    let directory = bed.directory().join("pods").join(victim.metadata.uid.unwrap());
    assert_eq!(std::fs::read_to_string(directory.join("volumes/keys/key")).unwrap(), "s3cret");
    let script = format!(
        "cat {0}/volumes/*/* {0}/volumes/keys/key; ls {0}; mount | grep -c {0}; echo done",
        directory.display()
    );
    let output = run(&bed, "thief", &script).await;
    assert!(output.contains("done\n") && !output.contains("s3cret") && !output.contains("mine"), "{output}");
    bed.end().await;
}

#[tokio::test]
async fn processes_of_other_pods_cannot_be_signalled_or_seen() {
    needs_root!();
    let bed = Bed::new().await;
    let victim = bed.pod("victim", json!({ "containers": [shell("main", "exec sleep 1234567")] })).await;
    let before = bed.ready("victim").await;
    let states =
        quintet_kubelet::shim::Shim::of(&bed.directory().join("pods").join(victim.metadata.uid.unwrap()));
    let pid = states.status().await.unwrap()["main"].pid;
    let script = format!(
        "kill -9 {pid} && echo killed; grep -l 1234567 /proc/*/cmdline 2>/dev/null | grep -v self | wc -l; kill -9 -1; echo done"
    );
    let output = run(&bed, "killer", &script).await;
    assert!(!output.contains("killed"), "{output}");
    let after = bed.ready("victim").await;
    assert_eq!(container(&after, "main"), container(&before, "main"));
    bed.end().await;
}

#[tokio::test]
async fn processes_of_other_pods_and_of_the_machine_cannot_be_traced() {
    needs_root!();
    let bed = Bed::new().await;
    let victim = bed.pod("victim", json!({ "containers": [shell("main", "exec sleep 1000")] })).await;
    let before = bed.ready("victim").await;
    let states =
        quintet_kubelet::shim::Shim::of(&bed.directory().join("pods").join(victim.metadata.uid.unwrap()));
    let pid = states.status().await.unwrap()["main"].pid;
    // PTRACE_ATTACH, and the memory of the process.
    let tracer = format!(
        "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in [{pid}, {}]:
    print(pid, libc.ptrace(16, pid, None, None), os.path.exists(f'/proc/{{pid}}/mem'))
print('done')",
        std::process::id()
    );
    let mut main = json!({ "name": "main", "image": "busybox", "command": ["python3", "-c", tracer] });
    main["securityContext"] = json!({ "runAsUser": 0 });
    bed.pod("tracer", json!({ "restartPolicy": "Never", "containers": [main] })).await;
    let output = bed.output("tracer").await;
    assert_eq!(output, format!("{pid} -1 False\n{} -1 False\ndone\n", std::process::id()));
    assert_eq!(container(&bed.ready("victim").await, "main"), container(&before, "main"));
    bed.end().await;
}

#[tokio::test]
async fn the_port_of_the_api_is_not_taken() {
    needs_root!();
    let bed = Bed::new().await;
    let port = bed.cluster.address().port();
    let script = format!(
        "python3 -c \"import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('0.0.0.0', {port})); s.listen(); print('bound')\""
    );
    // In a network of its own it may; the machine's port is another one.
    assert_eq!(run(&bed, "squatter", &script).await, "bound\n");
    assert!(tokio::net::TcpStream::connect(bed.cluster.address()).await.is_ok());
    let mut on_host =
        json!({ "restartPolicy": "Never", "hostNetwork": true, "containers": [as_root(&script)] });
    on_host["dnsPolicy"] = json!("Default");
    bed.pod("on-host", on_host).await;
    bed.event("hostNetwork is not allowed; start quintet up with --allow-privileged").await;
    bed.end().await;
}

#[tokio::test]
async fn the_disk_is_not_filled_beyond_the_limit() {
    needs_root!();
    let bed = Bed::with(|settings| settings.usage_period = Some(Duration::from_millis(200))).await;
    let mut main = as_root("head -c 5000000 /dev/zero > /filled; sleep 1000");
    main["resources"] = json!({ "limits": { "ephemeral-storage": "1Mi" } });
    bed.pod("root", json!({ "terminationGracePeriodSeconds": 1, "containers": [main] })).await;
    let pod = bed.phase("root", "Failed").await;
    assert_eq!(pod["status"]["reason"], "Evicted");
    let message = pod["status"]["message"].as_str().unwrap();
    assert!(message.contains("exceeded its local ephemeral storage limit \"1Mi\""), "{message}");
    let mut main = as_root("head -c 5000000 /dev/zero > /data/filled; sleep 1000");
    main["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    let volume = json!({ "name": "data", "emptyDir": { "sizeLimit": "1Mi" } });
    bed.pod(
        "volume",
        json!({ "terminationGracePeriodSeconds": 1, "volumes": [volume], "containers": [main] }),
    )
    .await;
    let pod = bed.phase("volume", "Failed").await;
    assert_eq!(pod["status"]["message"], "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ");
    bed.end().await;
}

#[tokio::test]
async fn processes_cannot_be_forked_without_end() {
    needs_root!();
    if !std::path::Path::new("/sys/fs/cgroup/pids").exists()
        && !std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
    {
        eprintln!("skipped: this machine has no limit of processes");
        return;
    }
    let bed = Bed::new().await;
    let bomb = "import threading, time
threading.stack_size(32768)
stop = threading.Event()
count = 0
try:
    while count < 10000:
        threading.Thread(target=stop.wait, daemon=True).start()
        count += 1
except RuntimeError:
    pass
print('stopped at', count, flush=True)
import os
os._exit(0)
";
    let main = json!({ "name": "main", "image": "busybox", "command": ["python3", "-c", bomb] });
    bed.pod("bomb", json!({ "restartPolicy": "Never", "containers": [main] })).await;
    let output = bed.output("bomb").await;
    let count: u32 = output.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((1000..4096).contains(&count), "{output}");
    bed.end().await;
}

#[tokio::test]
async fn no_process_outlives_the_deletion_of_its_pod() {
    needs_root!();
    let bed = Bed::new().await;
    let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM HUP INT; exec sleep 7654321' &) ; (setsid sleep 7654321 &); exec sleep 7654321";
    bed.pod("hydra", json!({ "containers": [as_root(script)] })).await;
    bed.ready("hydra").await;
    let is_marked = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let mut commands = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        commands.any(|command| command.starts_with(b"sleep\x007654321"))
    };
    // The pod is ready when its shell runs, and only then it starts the others.
    let has_grown = async {
        while !is_marked() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, has_grown).await.unwrap();
    bed.delete("hydra", Some(1)).await;
    bed.gone("hydra").await;
    assert!(!is_marked());
    bed.end().await;
}

#[tokio::test]
async fn privileges_are_not_gained() {
    needs_root!();
    let bed = Bed::new().await;
    let output = run(&bed, "climber", "mount -t tmpfs none /mnt && echo mounted; echo 1 > /proc/sys/kernel/panic && echo wrote; mknod /tmp/d b 8 0 && echo made; grep NoNewPrivs /proc/self/status").await;
    assert!(!output.contains("mounted") && !output.contains("wrote") && !output.contains("made"), "{output}");
    assert!(output.contains("NoNewPrivs:\t1"), "{output}");
    let mut main = as_root("true");
    main["securityContext"]["privileged"] = json!(true);
    bed.pod("privileged", json!({ "containers": [main] })).await;
    let refused =
        |pod: &Value| container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError";
    bed.until::<Pod>("privileged", "was refused", refused).await;
    bed.end().await;
}
