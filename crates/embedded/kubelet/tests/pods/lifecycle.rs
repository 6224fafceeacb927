//! Phases, restarts, init containers, termination.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::bed::{Bed, TIMEOUT, condition, container, shell};
use super::needs_root;

#[tokio::test]
async fn a_pod_runs_to_its_end() {
    needs_root!();
    let bed = Bed::new().await;
    bed.script("job", "echo hello; exit 0").await;
    assert_eq!(bed.output("job").await, "hello\n");
    let pod = bed.phase("job", "Succeeded").await;
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(0), &json!("Completed")));
    assert_eq!(condition(&pod, "Ready"), "False");
    assert!(pod["status"]["podIP"].as_str().is_some(), "{pod:#}");
    for reason in ["Pulled", "Created", "Started"] {
        bed.event(reason).await;
    }
    bed.end().await;
}

#[tokio::test]
async fn a_deleted_pod_is_asked_to_end_and_removed() {
    needs_root!();
    let bed = Bed::new().await;
    let script = "trap 'exit 0' TERM; echo up; while true; do sleep 1; done";
    let mut spec = json!({ "containers": [shell("main", script)] });
    spec["terminationGracePeriodSeconds"] = json!(20);
    bed.pod("web", spec).await;
    bed.ready("web").await;
    bed.delete("web", None).await;
    bed.gone("web").await;
    bed.event("Stopping container main").await;
    bed.end().await;
}

#[tokio::test]
async fn a_failed_container_is_restarted_and_then_backs_off() {
    needs_root!();
    let bed = Bed::new().await;
    bed.pod("crash", json!({ "containers": [shell("main", "echo words > /dev/termination-log; exit 3")] }))
        .await;
    let backs_off = |pod: &Value| container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let pod = bed.until::<Pod>("crash", "backed off", backs_off).await;
    let own = container(&pod, "main");
    assert_eq!((&own["restartCount"], &pod["status"]["phase"]), (&json!(1), &json!("Running")));
    let last = &own["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["message"]), (&json!(3), &json!("words\n")));
    bed.event("Back-off restarting failed container main").await;
    bed.end().await;
}

#[tokio::test]
async fn a_restarted_kubelet_finds_its_pods() {
    needs_root!();
    let mut bed = Bed::new().await;
    let script = "echo started; trap 'exit 0' TERM; while true; do sleep 0.1; done";
    bed.pod("stays", json!({ "containers": [shell("main", script)] })).await;
    bed.pod("ends", json!({ "restartPolicy": "Never", "containers": [shell("main", "until test -e /tmp/go; do sleep 0.1; done; exit 5")] })).await;
    bed.pod("goes", json!({ "containers": [shell("main", "sleep 1000")] })).await;
    let before = bed.ready("stays").await;
    let ending = bed.ready("ends").await;
    bed.ready("goes").await;
    bed.stop_kubelet().await;
    let uid = ending["metadata"]["uid"].as_str().unwrap();
    let root = bed.directory().join(format!("pods/{uid}/containers/main/0/root/tmp"));
    std::fs::write(root.join("go"), "").unwrap();
    bed.delete("goes", Some(0)).await;
    bed.start_kubelet().await;
    let ended = bed.phase("ends", "Failed").await;
    assert_eq!(container(&ended, "main")["state"]["terminated"]["exitCode"], 5);
    let after = bed.ready("stays").await;
    assert_eq!(container(&after, "main")["containerID"], container(&before, "main")["containerID"]);
    assert_eq!(container(&after, "main")["restartCount"], 0);
    assert_eq!(after["status"]["podIP"], before["status"]["podIP"]);
    assert_eq!(bed.logs("stays").await, "started\n");
    bed.gone("goes").await;
    bed.end().await;
}

#[tokio::test]
async fn a_pod_whose_shim_was_killed_starts_again() {
    needs_root!();
    let mut bed = Bed::new().await;
    let pod = bed.pod("web", json!({ "containers": [shell("main", "sleep 1000")] })).await;
    bed.ready("web").await;
    bed.stop_kubelet().await;
    let (_, record) = record_of(&bed, &pod);
    let shim = i32::try_from(record["shim"].as_i64().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), nix::sys::signal::Signal::SIGKILL).unwrap();
    bed.start_kubelet().await;
    let restarted = |pod: &Value| {
        container(pod, "main")["restartCount"] == 1 && container(pod, "main")["state"]["running"].is_object()
    };
    let pod = bed.until::<Pod>("web", "ran again", restarted).await;
    let last = &container(&pod, "main")["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
    bed.end().await;
}

/// What a kubelet keeps of a pod on the disk.
fn record_of(bed: &Bed, pod: &Pod) -> (std::path::PathBuf, Value) {
    let uid = pod.metadata.uid.as_deref().unwrap();
    let path = bed.directory().join(format!("pods/{uid}/record.json"));
    let record = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    (path, record)
}

/// Waits until the kubelet has cleared away a pod.
async fn until_over(bed: &Bed, pod: &Pod) {
    let wait = async {
        while record_of(bed, pod).1["isOver"] != true {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_ended_before_a_crash_gets_no_second_sandbox() {
    needs_root!();
    let mut bed = Bed::new().await;
    let pod = bed.script("job", "exit 0").await;
    bed.phase("job", "Succeeded").await;
    until_over(&bed, &pod).await;
    bed.stop_kubelet().await;
    // As if the kubelet had died when the sandbox was gone, before it could say so.
    let (path, mut record) = record_of(&bed, &pod);
    let shim = record["shim"].clone();
    (record["isOver"], record["hasSandbox"]) = (json!(false), json!(true));
    std::fs::write(path, record.to_string()).unwrap();
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    bed.api::<Pod>().patch_status("job", &PatchParams::default(), &running).await.unwrap();
    bed.start_kubelet().await;
    let after = bed.phase("job", "Succeeded").await;
    assert_eq!(container(&after, "main")["restartCount"], 0);
    until_over(&bed, &pod).await;
    assert_eq!(record_of(&bed, &pod).1["shim"], shim);
    bed.end().await;
}

#[tokio::test]
async fn a_sandbox_that_was_not_complete_is_made_again() {
    needs_root!();
    let mut bed = Bed::new().await;
    let main = json!({ "name": "main", "image": "not/mapped", "command": ["sleep", "1000"] });
    let pod = bed.pod("web", json!({ "containers": [main] })).await;
    let is_waiting = |pod: &Value| container(pod, "main")["state"]["waiting"]["reason"] == "ErrImagePull";
    bed.until::<Pod>("web", "without image", is_waiting).await;
    bed.stop_kubelet().await;
    // As if the kubelet had died when the pod was connected, before it had a name.
    let directory = bed.directory().join("pods").join(pod.metadata.uid.unwrap());
    std::fs::remove_file(directory.join("record.json")).unwrap();
    std::fs::remove_dir_all(directory.join("etc")).unwrap();
    let mapped =
        Patch::Strategic(json!({ "spec": { "containers": [{ "name": "main", "image": "busybox" }] } }));
    bed.api::<Pod>().patch("web", &PatchParams::default(), &mapped).await.unwrap();
    bed.start_kubelet().await;
    bed.ready("web").await;
    bed.end().await;
}

#[tokio::test]
async fn init_containers_and_sidecars_start_in_order() {
    needs_root!();
    let bed = Bed::new().await;
    let mount = json!([{ "name": "shared", "mountPath": "/shared" }]);
    let with_mount = |mut one: Value| {
        one["volumeMounts"] = mount.clone();
        one
    };
    let mut sidecar = with_mount(shell(
        "side",
        "echo side >> /shared/log; trap 'echo end >> /shared/log; exit 0' TERM; while true; do sleep 0.1; done",
    ));
    sidecar["restartPolicy"] = json!("Always");
    let spec = json!({
        "restartPolicy": "Never", "volumes": [{ "name": "shared", "emptyDir": {} }],
        "initContainers": [with_mount(shell("first", "echo first > /shared/log")), sidecar, with_mount(shell("second", "echo second >> /shared/log"))],
        "containers": [with_mount(shell("main", "cat /shared/log"))],
    });
    bed.pod("staged", spec).await;
    let pod = bed.phase("staged", "Succeeded").await;
    let log = kube::api::LogParams { container: Some("main".into()), ..Default::default() };
    let log = bed.api::<Pod>().logs("staged", &log).await.unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0] == "first" && lines.contains(&"second"), "{lines:?}");
    assert_eq!(container(&pod, "side")["state"]["terminated"]["exitCode"], 0);
    bed.end().await;
}

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_end() {
    needs_root!();
    let bed = Bed::with(|settings| settings.allow_privileged = true).await;
    let volume = tempfile::tempdir().unwrap();
    let mut main =
        shell("main", "trap 'echo term >> /shared/log; exit 0' TERM; while true; do sleep 0.1; done");
    main["volumeMounts"] = json!([{ "name": "shared", "mountPath": "/shared" }]);
    main["securityContext"] = json!({ "runAsUser": 0 });
    main["lifecycle"] = json!({
        "postStart": { "exec": { "command": ["sh", "-c", "echo post >> /shared/log"] } },
        "preStop": { "exec": { "command": ["sh", "-c", "echo pre >> /shared/log"] } },
    });
    let host = volume.path().display().to_string();
    let spec =
        json!({ "volumes": [{ "name": "shared", "hostPath": { "path": host } }], "containers": [main] });
    bed.pod("hooked", spec).await;
    bed.ready("hooked").await;
    bed.delete("hooked", None).await;
    bed.gone("hooked").await;
    assert_eq!(std::fs::read_to_string(volume.path().join("log")).unwrap(), "post\npre\nterm\n");
    let mut failing = shell("main", "sleep 1000");
    failing["lifecycle"] = json!({ "postStart": { "exec": { "command": ["false"] } } });
    bed.pod(
        "failing",
        json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [failing] }),
    )
    .await;
    bed.phase("failing", "Failed").await;
    bed.event("FailedPostStartHook").await;
    bed.end().await;
}

#[tokio::test]
async fn a_pod_that_is_active_for_too_long_fails() {
    needs_root!();
    let bed = Bed::new().await;
    let spec = json!({ "activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1, "containers": [shell("main", "sleep 1000")] });
    bed.pod("slow", spec).await;
    let pod = bed.phase("slow", "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert!(container(&pod, "main")["state"]["terminated"].is_object(), "{pod:#}");
    bed.end().await;
}

#[tokio::test]
async fn a_finalizer_keeps_a_pod_that_has_ended() {
    needs_root!();
    let bed = Bed::new().await;
    let spec = json!({ "nodeName": bed.node, "containers": [shell("main", "trap 'exit 0' TERM; while true; do sleep 0.1; done")] });
    bed.create::<Pod>(
        json!({ "metadata": { "name": "held", "finalizers": ["example.com/hold"] }, "spec": spec }),
    )
    .await;
    bed.ready("held").await;
    bed.delete("held", None).await;
    let pod = bed.phase("held", "Succeeded").await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let patch = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    bed.api::<Pod>().patch("held", &kube::api::PatchParams::default(), &patch).await.unwrap();
    bed.gone("held").await;
    bed.end().await;
}

#[tokio::test]
async fn a_container_that_uses_too_much_memory_is_killed() {
    needs_root!();
    let bed = Bed::new().await;
    let hog = "import time\nx = bytearray(200_000_000)\ntime.sleep(1000)";
    let main = json!({ "name": "main", "image": "busybox", "command": ["python3", "-c", hog], "resources": { "limits": { "memory": "64Mi" } } });
    bed.pod("hog", json!({ "restartPolicy": "Never", "containers": [main] })).await;
    let pod = bed.phase("hog", "Failed").await;
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)));
    bed.end().await;
}

#[tokio::test]
async fn commands_that_cannot_be_executed_fail_the_pod() {
    needs_root!();
    let bed = Bed::new().await;
    let main = json!({ "name": "main", "image": "busybox", "command": ["no-such-program"] });
    bed.pod("wrong", json!({ "restartPolicy": "Never", "containers": [main] })).await;
    let pod = bed.phase("wrong", "Failed").await;
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("StartError"), &json!(128)));
    assert!(ended["message"].as_str().unwrap().contains("executable file not found in $PATH"), "{ended}");
    bed.end().await;
}
