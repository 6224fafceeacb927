use quintet_controller::Controller as _;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Bench, stored};

struct VolumeBench {
    bench: Bench,
    mode: &'static str,
    provisioner: &'static str,
}

impl VolumeBench {
    fn new(spec: &Value) -> Self {
        let mut bench = Bench::new();
        let mut claim = json!({
            "metadata": { "name": "data", "uid": "data-uid", "annotations": {} },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "5Gi" } } },
        });
        claim["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("PersistentVolumeClaim", claim);
        Self { bench, mode: "WaitForFirstConsumer", provisioner: PROVISIONER }
    }

    fn volume(&mut self, name: &str, size: &str, spec: &Value) -> &mut Self {
        let mut volume = json!({
            "metadata": { "name": name },
            "spec": { "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": { "storage": size },
                      "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/x" } },
        });
        volume["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.bench.create("PersistentVolume", volume);
        self
    }

    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..10 {
            let claim = self.bench.entry::<PersistentVolumeClaim>("PersistentVolumeClaim", "data");
            let class = claim.object.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
            let class = class.filter(|name| !name.is_empty()).map(|name| {
                let class = json!({ "metadata": { "name": name }, "provisioner": self.provisioner,
                                    "volumeBindingMode": self.mode, "reclaimPolicy": "Delete" });
                Arc::new(Entry::new(ObjectKey::cluster(&name), serde_json::from_value(class).unwrap()))
            });
            let observed = stored(&ObservedClaim {
                claim,
                volumes: self.volumes(),
                class,
                directory: Some(PathBuf::from("/data/pv")),
                now: self.bench.now,
            });
            let plan = ClaimController::plan(&observed);
            if !self.bench.act("PersistentVolumeClaim", "data", &plan) {
                return self;
            }
        }
        panic!("still changing");
    }

    /// Volumes are cluster-scoped.
    fn volumes(&self) -> Vec<Arc<Entry<PersistentVolume>>> {
        let entry = |name: &String| {
            let shown = self.bench.entry::<PersistentVolume>("PersistentVolume", name);
            let mut entry = Entry::new(ObjectKey::cluster(name), shown.object.clone());
            entry.uid = shown.uid.clone();
            Arc::new(entry)
        };
        self.bench.names("PersistentVolume").iter().map(entry).collect()
    }

    fn claim(&self) -> &Value {
        self.bench.get("PersistentVolumeClaim", "data")
    }

    fn reclaim(&mut self, name: &str, claim_exists: bool) -> Plan<reclaim::RemoveDirectory> {
        let volume = self.volumes().into_iter().find(|volume| volume.key.name() == name).unwrap();
        let directory = Some(PathBuf::from("/data/pv"));
        reclaim::plan(&reclaim::ObservedVolume { volume, claim_exists, directory })
    }
}

#[test]
fn the_smallest_volume_that_will_do_is_bound_on_both_sides() {
    let mut data = VolumeBench::new(&json!({ "storageClassName": "" }));
    data.volume("small", "1Gi", &json!({}))
        .volume("huge", "100Gi", &json!({}))
        .volume("fits", "8Gi", &json!({}))
        .volume("classy", "6Gi", &json!({ "storageClassName": "fast" }))
        .volume("taken", "6Gi", &json!({ "claimRef": { "namespace": "other", "name": "data" } }))
        .reconcile();
    let claim = data.claim();
    assert_eq!((&claim["spec"]["volumeName"], &claim["status"]["phase"]), (&json!("fits"), &json!("Bound")));
    assert_eq!(claim["status"]["capacity"]["storage"], "8Gi");
    assert_eq!(claim["metadata"]["annotations"][BIND_COMPLETED], "yes");
    let volume = data.bench.get("PersistentVolume", "fits");
    assert_eq!(
        (&volume["spec"]["claimRef"]["uid"], &volume["status"]["phase"]),
        (&json!("data-uid"), &json!("Bound"))
    );
}

#[test]
fn the_built_in_class_waits_for_a_node_and_makes_a_directory() {
    let mut data = VolumeBench::new(&json!({ "storageClassName": "standard" }));
    data.reconcile();
    assert_eq!(data.claim()["status"]["phase"], "Pending");
    assert_eq!(data.bench.take_reasons()[0], "WaitForFirstConsumer");
    let selected = json!({ "metadata": { "annotations": { SELECTED_NODE: "n" } } });
    data.bench.patch("PersistentVolumeClaim", "data", &selected);
    data.reconcile();
    let volume = data.bench.get("PersistentVolume", "pvc-data-uid").clone();
    assert_eq!(volume["spec"]["hostPath"]["path"], "/data/pv/pvc-data-uid_ns_data");
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(
        (&data.claim()["spec"]["volumeName"], &data.claim()["status"]["phase"]),
        (&json!("pvc-data-uid"), &json!("Bound"))
    );
    assert!(data.bench.take_reasons().contains(&"ProvisioningSucceeded".to_owned()));
    assert!(data.reclaim("pvc-data-uid", true).is_empty());
    let released = data.reclaim("pvc-data-uid", false);
    assert_eq!(released.status.unwrap().status["phase"], "Released");
    data.bench.patch("PersistentVolume", "pvc-data-uid", &json!({ "status": { "phase": "Released" } }));
    let steps = data.reclaim("pvc-data-uid", false).steps;
    let actions: Vec<_> = steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(actions[0], "remove directory /data/pv/pvc-data-uid_ns_data");
    assert_eq!(actions[1], "delete PersistentVolume pvc-data-uid");
}

#[test]
fn directories_of_others_are_never_removed() {
    for (path, provisioner) in [
        ("/data/pv/pvc-x", "other"),
        ("/etc", PROVISIONER),
        ("/data/pv/../pvc-x", PROVISIONER),
        ("/data/pv/keys", PROVISIONER),
    ] {
        let mut data = VolumeBench::new(&json!({}));
        let spec = json!({ "hostPath": { "path": path }, "persistentVolumeReclaimPolicy": "Delete",
                           "claimRef": { "namespace": "ns", "name": "gone", "uid": "u" } });
        data.volume("v", "1Gi", &spec);
        let patch = json!({ "metadata": { "annotations": { PROVISIONED_BY: provisioner } }, "status": { "phase": "Released" } });
        data.bench.patch("PersistentVolume", "v", &patch);
        assert!(data.reclaim("v", false).steps.is_empty(), "{path} {provisioner}");
    }
}

#[test]
fn a_retained_volume_is_released_and_not_bound_again() {
    let mut data = VolumeBench::new(&json!({ "storageClassName": "" }));
    data.volume("v", "5Gi", &json!({ "claimRef": { "namespace": "ns", "name": "former", "uid": "u" } }));
    let plan = data.reclaim("v", false);
    assert_eq!(plan.status.unwrap().status["phase"], "Released");
    assert!(plan.steps.is_empty());
    data.reconcile();
    assert_eq!(data.claim()["status"]["phase"], "Pending");
    assert_eq!(data.bench.take_reasons()[0], "FailedBinding");
}

#[test]
fn a_claim_whose_volume_is_gone_is_lost() {
    let mut data = VolumeBench::new(&json!({ "storageClassName": "" }));
    data.volume("v", "5Gi", &json!({})).reconcile();
    data.bench.remove("PersistentVolume", "v");
    data.reconcile();
    assert_eq!(data.claim()["status"]["phase"], "Lost");
    assert!(data.bench.take_reasons().contains(&"ClaimLost".to_owned()));
}

#[test]
fn other_provisioners_are_waited_for() {
    let mut data = VolumeBench::new(&json!({ "storageClassName": "fast" }));
    (data.mode, data.provisioner) = ("Immediate", "example.com/disks");
    data.reconcile();
    assert_eq!(data.bench.take_reasons()[0], "ExternalProvisioning");
}

#[test]
fn ephemeral_volumes_get_a_claim_that_belongs_to_the_pod() {
    let mut bench = Bench::new();
    let template = json!({
        "metadata": { "labels": { "app": "db" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let volumes = json!([
        { "name": "scratch", "ephemeral": { "volumeClaimTemplate": template } },
        { "name": "other", "persistentVolumeClaim": { "claimName": "data" } },
    ]);
    bench.create(
        "Pod",
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [], "volumes": volumes } }),
    );
    let plan = |bench: &Bench| {
        let claims = bench.entries("PersistentVolumeClaim");
        ephemeral::plan(&stored(&ephemeral::Observed { pod: bench.entry("Pod", "p"), claims }))
    };
    let first = plan(&bench);
    assert!(bench.act("Pod", "p", &first));
    let claim = bench.get("PersistentVolumeClaim", "p-scratch");
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-1", "controller": true,
                        "blockOwnerDeletion": true });
    assert_eq!(claim["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!((&claim["metadata"]["labels"], &claim["spec"]), (&json!({ "app": "db" }), &template["spec"]));
    assert!(plan(&bench).is_empty());
    // A claim of its name that somebody else made is not used.
    bench.patch("PersistentVolumeClaim", "p-scratch", &json!({ "metadata": { "ownerReferences": [] } }));
    let refused = plan(&bench);
    assert!(refused.steps.is_empty());
    let expected =
        "ephemeral volume scratch: PVC ns/p-scratch was not created for pod ns/p (pod is not owner)";
    assert_eq!(refused.events[0].note, expected);
    bench.remove("PersistentVolumeClaim", "p-scratch");
    bench.patch("Pod", "p", &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    assert!(plan(&bench).is_empty(), "a pod that goes gets none");
}
