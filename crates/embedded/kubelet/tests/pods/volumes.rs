//! Every kind of volume.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::bed::{Bed, container, shell};
use super::needs_root;

async fn config_map(bed: &Bed, name: &str, data: Value) {
    bed.create::<ConfigMap>(json!({ "metadata": { "name": name }, "data": data })).await;
}

/// A pod that runs a script with volumes, each mounted below `/v`.
fn pod(volumes: Value, script: &str) -> Value {
    let names = volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap());
    let mounts: Vec<Value> =
        names.map(|name| json!({ "name": name, "mountPath": format!("/v/{name}") })).collect();
    let mut main = shell("main", script);
    main["volumeMounts"] = json!(mounts);
    json!({ "restartPolicy": "Never", "volumes": volumes, "containers": [main] })
}

#[tokio::test]
async fn volumes_hold_what_they_say() {
    needs_root!();
    let bed = Bed::new().await;
    config_map(&bed, "settings", json!({ "colour": "blue", "size": "big" })).await;
    bed.create::<Secret>(json!({ "metadata": { "name": "keys" }, "stringData": { "key": "s3cret" } })).await;
    let volumes = json!([
        { "name": "config", "configMap": { "name": "settings", "items": [{ "key": "colour", "path": "deep/c", "mode": 0o444 }] } },
        { "name": "secret", "secret": { "secretName": "keys" } },
        { "name": "absent", "configMap": { "name": "no-such-map", "optional": true } },
        { "name": "empty", "emptyDir": {} },
        { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        { "name": "about", "downwardAPI": { "items": [
            { "path": "name", "fieldRef": { "fieldPath": "metadata.name" } },
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
        ] } },
        { "name": "all", "projected": { "sources": [
            { "configMap": { "name": "settings" } },
            { "secret": { "name": "keys" } },
            { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
            { "downwardAPI": { "items": [{ "path": "ns", "fieldRef": { "fieldPath": "metadata.namespace" } }] } },
        ] } },
    ]);
    let script = "cd /v; cat config/deep/c; echo; cat secret/key; echo; ls absent | wc -l; cat about/name; echo; cat about/labels; echo; \
                  cat all/size all/key all/ns; echo; cut -d. -f1 all/token | wc -c; \
                  echo x > empty/file && echo empty-writable; \
                  head -c 900000 /dev/zero > memory/a && echo memory-writable; (head -c 900000 /dev/zero > memory/b) 2>/dev/null || echo memory-full; \
                  (echo x > config/deep/c) 2>/dev/null || echo config-read-only; df -P secret | tail -1 | cut -d' ' -f1; \
                  ls /var/run/secrets/kubernetes.io/serviceaccount | tr '\\n' ' '";
    let mut spec = pod(volumes, script);
    spec["nodeName"] = json!(bed.node);
    bed.create::<Pod>(json!({ "metadata": { "name": "all", "labels": { "app": "web" } }, "spec": spec }))
        .await;
    let output = bed.output("all").await;
    let expected = "blue\ns3cret\n0\nall\napp=\"web\"\nbigs3cretdefault\n";
    assert!(output.starts_with(expected), "{output}");
    for line in ["empty-writable", "memory-writable", "memory-full", "config-read-only", "tmpfs"] {
        assert!(output.contains(&format!("\n{line}\n")), "{line}: {output}");
    }
    bed.end().await;
}

#[tokio::test]
async fn changes_of_a_pods_annotations_reach_its_volumes() {
    needs_root!();
    let bed = Bed::new().await;
    let items = json!([{ "path": "all", "fieldRef": { "fieldPath": "metadata.annotations" } }]);
    let spec = pod(
        json!([{ "name": "about", "downwardAPI": { "items": items } }]),
        "until grep colour /v/about/all; do sleep 0.1; done",
    );
    bed.pod("watcher", spec).await;
    bed.ready("watcher").await;
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "colour": "green" } } }));
    bed.api::<Pod>().patch("watcher", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(bed.output("watcher").await, "colour=\"green\"\n");
    bed.end().await;
}

#[tokio::test]
async fn changes_of_a_config_map_reach_running_pods() {
    needs_root!();
    let bed = Bed::new().await;
    config_map(&bed, "settings", json!({ "colour": "blue" })).await;
    let mut spec = pod(
        json!([{ "name": "config", "configMap": { "name": "settings" } }]),
        "until grep -q green /v/config/colour; do sleep 0.1; done; cat /v/config/colour /part",
    );
    let part = json!({ "name": "config", "mountPath": "/part", "subPath": "colour" });
    spec["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(part);
    bed.pod("watcher", spec).await;
    bed.ready("watcher").await;
    let patch = Patch::Merge(json!({ "data": { "colour": "green" } }));
    bed.api::<ConfigMap>().patch("settings", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(bed.output("watcher").await, "greenblue\n", "what is mounted by subPath never changes");
    bed.end().await;
}

#[tokio::test]
async fn a_pod_waits_for_the_config_map_it_mounts() {
    needs_root!();
    let bed = Bed::new().await;
    bed.pod("early", pod(json!([{ "name": "config", "configMap": { "name": "late" } }]), "cat /v/config/a"))
        .await;
    bed.event("FailedMount MountVolume.SetUp failed for volume \"config\" : configmap \"late\" not found")
        .await;
    let waiting = bed.phase("early", "Pending").await;
    assert_eq!(container(&waiting, "main")["state"]["waiting"]["reason"], "ContainerCreating");
    config_map(&bed, "late", json!({ "a": "there" })).await;
    assert_eq!(bed.output("early").await, "there\n");
    bed.end().await;
}

#[tokio::test]
async fn a_container_waits_for_what_its_variables_refer_to() {
    needs_root!();
    let bed = Bed::new().await;
    let mut main = shell("main", "echo $COLOUR $NAME $LIMIT $HERE");
    main["env"] = json!([
        { "name": "COLOUR", "valueFrom": { "configMapKeyRef": { "name": "late", "key": "colour" } } },
        { "name": "NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
        { "name": "LIMIT", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory", "divisor": "1Mi" } } },
        { "name": "HERE", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
    ]);
    main["resources"] = json!({ "limits": { "memory": "64Mi" } });
    bed.pod("early", json!({ "restartPolicy": "Never", "containers": [main] })).await;
    let waits = |pod: &Value| {
        let waiting = &container(pod, "main")["state"]["waiting"];
        waiting["reason"] == "CreateContainerConfigError"
            && waiting["message"] == "configmap \"late\" not found"
    };
    bed.until::<Pod>("early", "waited", waits).await;
    config_map(&bed, "late", json!({ "colour": "blue" })).await;
    let output = bed.output("early").await;
    let pod = bed.phase("early", "Succeeded").await;
    let address = pod["status"]["podIP"].as_str().unwrap();
    assert_eq!(output, format!("blue early 64 {address}\n"));
    bed.end().await;
}

#[tokio::test]
async fn claims_are_directories_that_outlive_pods() {
    needs_root!();
    let bed = Bed::new().await;
    let path = bed.directory().join("volumes/one").display().to_string();
    let volume = json!({
        "metadata": { "name": "one" },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": path },
                  "claimRef": { "namespace": "default", "name": "data" } },
    });
    let volumes: Api<k8s_openapi::api::core::v1::PersistentVolume> = Api::all(bed.client.clone());
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "volumeName": "one", "resources": { "requests": { "storage": "1Gi" } } });
    bed.create::<PersistentVolumeClaim>(json!({ "metadata": { "name": "data" }, "spec": spec })).await;
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    bed.pod("writer", pod(volumes.clone(), "echo kept > /v/data/file")).await;
    bed.event("PVC default/data is not bound").await;
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
    bed.api::<PersistentVolumeClaim>().patch_status("data", &PatchParams::default(), &bound).await.unwrap();
    bed.phase("writer", "Succeeded").await;
    bed.pod("reader", pod(volumes, "cat /v/data/file")).await;
    assert_eq!(bed.output("reader").await, "kept\n");
    bed.end().await;
}

#[tokio::test]
async fn a_volume_above_a_part_of_the_image_does_not_hide_it() {
    needs_root!();
    let bed = Bed::new().await;
    let mut main = shell("main", "touch /opt/own && test -x /opt/quintet/bin/quintet && echo both");
    main["image"] = json!("quintet");
    main["volumeMounts"] = json!([{ "name": "data", "mountPath": "/opt" }]);
    let volumes = json!([{ "name": "data", "emptyDir": {} }]);
    bed.pod("layered", json!({ "restartPolicy": "Never", "volumes": volumes, "containers": [main] })).await;
    assert_eq!(bed.output("layered").await, "both\n");
    bed.end().await;
}

#[tokio::test]
async fn groups_of_a_pod_own_its_volumes() {
    needs_root!();
    let bed = Bed::new().await;
    bed.create::<Secret>(json!({ "metadata": { "name": "keys" }, "stringData": { "key": "s3cret" } })).await;
    let volumes = json!([
        { "name": "data", "emptyDir": {} },
        { "name": "keys", "secret": { "secretName": "keys", "defaultMode": 0o400 } },
    ]);
    let mut spec =
        pod(volumes, "touch /v/data/new; stat -c %g /v/data /v/data/new; cat /v/keys/key; id -u; id -g");
    spec["securityContext"] = json!({ "runAsUser": 1234, "runAsGroup": 1235, "fsGroup": 4321 });
    bed.pod("grouped", spec).await;
    assert_eq!(bed.output("grouped").await, "4321\n4321\ns3cret1234\n1235\n");
    bed.end().await;
}
