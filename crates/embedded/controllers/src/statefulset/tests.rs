use quintet_controller::{Controller as _, Next};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Bench, stored};

struct SetBench {
    bench: Bench,
    next: Next,
}

impl SetBench {
    fn new(spec: &Value) -> Self {
        let mut bench = Bench::new();
        let mut set = json!({
            "metadata": { "name": "db", "uid": "db-uid" },
            "spec": {
                "serviceName": "db",
                "selector": { "matchLabels": { "app": "db" } },
                "template": {
                    "metadata": { "labels": { "app": "db" } },
                    "spec": { "containers": [{ "name": "main", "image": "v1" }] },
                },
                "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            },
        });
        set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("StatefulSet", set);
        Self { bench, next: Next::AwaitChange }
    }

    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..20 {
            let observed = stored(&Observed {
                set: self.bench.entry("StatefulSet", "db"),
                pods: self.bench.entries("Pod"),
                revisions: self.bench.entries("ControllerRevision"),
                claims: self.bench.entries("PersistentVolumeClaim"),
                now: self.bench.now,
            });
            let plan = StatefulSetController::plan(&observed);
            self.next = plan.next;
            if !self.bench.act("StatefulSet", "db", &plan) {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    fn status(&self) -> &Value {
        &self.bench.get("StatefulSet", "db")["status"]
    }

    fn pods(&self) -> Vec<String> {
        self.bench.names("Pod")
    }

    fn make_ready(&mut self, pod: &str) -> &mut Self {
        let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": self.bench.now }]);
        let patch =
            json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Running", "conditions": ready } });
        self.bench.patch("Pod", pod, &patch);
        self
    }

    /// Pods that are being deleted are removed.
    fn kubelet_removes(&mut self) -> Vec<String> {
        let is_leaving =
            |name: &String| self.bench.get("Pod", name)["metadata"].get("deletionTimestamp").is_some();
        let leaving: Vec<_> = self.pods().into_iter().filter(is_leaving).collect();
        for pod in &leaving {
            self.bench.remove("Pod", pod);
        }
        leaving
    }

    /// Reconciles, and makes all pods ready, until nothing changes.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..30 {
            self.reconcile();
            let removed = self.kubelet_removes();
            let unready: Vec<_> = self.pods().into_iter().filter(|pod| !self.is_ready(pod)).collect();
            for pod in &unready {
                self.make_ready(pod);
            }
            if removed.is_empty() && unready.is_empty() {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    fn is_ready(&self, pod: &str) -> bool {
        self.bench.get("Pod", pod)["status"]["conditions"][0]["status"] == "True"
    }

    fn patch(&mut self, spec: &Value) -> &mut Self {
        self.bench.patch("StatefulSet", "db", &json!({ "spec": spec }));
        self
    }

    fn set_image(&mut self, image: &str) -> &mut Self {
        self.patch(&json!({ "template": { "spec": { "containers": [{ "name": "main", "image": image }] } } }))
    }

    fn images(&self) -> Vec<String> {
        let image = |name: &String| self.bench.get("Pod", name)["spec"]["containers"][0]["image"].clone();
        self.pods().iter().map(|name| image(name).as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn pods_are_created_one_after_the_other() {
    let mut db = SetBench::new(&json!({ "replicas": 3 }));
    db.reconcile();
    assert_eq!(db.pods(), ["db-0"], "the next waits until it is ready");
    let pod = db.bench.get("Pod", "db-0");
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("db-0"), &json!("db")));
    assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "0");
    db.make_ready("db-0").reconcile();
    assert_eq!(db.pods(), ["db-0", "db-1"]);
    db.settle();
    let status = db.status();
    for field in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(status[field], 3, "{field}");
    }
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    let events = db.bench.events.iter().map(|event| event.note.clone()).collect::<Vec<_>>();
    assert_eq!(events[0], "Create Pod db-0 in StatefulSet db successful");
}

#[test]
fn parallel_management_creates_all_pods_at_once() {
    let mut db = SetBench::new(
        &json!({ "replicas": 3, "podManagementPolicy": "Parallel", "ordinals": { "start": 5 } }),
    );
    db.reconcile();
    assert_eq!(db.pods(), ["db-5", "db-6", "db-7"]);
}

#[test]
fn pods_are_removed_in_reverse_order_one_at_a_time() {
    let mut db = SetBench::new(&json!({ "replicas": 3 }));
    db.settle().patch(&json!({ "replicas": 1 })).reconcile();
    assert_eq!(db.kubelet_removes(), ["db-2"]);
    db.reconcile();
    assert_eq!(db.kubelet_removes(), ["db-1"]);
    db.settle();
    assert_eq!(db.pods(), ["db-0"]);
}

#[test]
fn a_scale_down_waits_for_unhealthy_pods() {
    let mut db = SetBench::new(&json!({ "replicas": 3 }));
    db.settle();
    db.bench.patch(
        "Pod",
        "db-0",
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
    );
    db.patch(&json!({ "replicas": 2 })).reconcile();
    assert!(db.kubelet_removes().is_empty(), "db-0 is not ready");
    db.make_ready("db-0").reconcile();
    assert_eq!(db.kubelet_removes(), ["db-2"]);
}

#[test]
fn an_ended_pod_is_replaced_under_the_same_name() {
    let mut db = SetBench::new(&json!({ "replicas": 1 }));
    db.settle();
    let uid = db.bench.get("Pod", "db-0")["metadata"]["uid"].clone();
    db.bench.patch("Pod", "db-0", &json!({ "status": { "phase": "Failed" } }));
    db.reconcile();
    db.kubelet_removes();
    db.settle();
    assert_ne!(db.bench.get("Pod", "db-0")["metadata"]["uid"], uid);
}

#[test]
fn an_update_goes_from_the_highest_ordinal_to_the_lowest() {
    let mut db = SetBench::new(&json!({ "replicas": 3 }));
    db.settle().set_image("v2").reconcile();
    assert_eq!(db.kubelet_removes(), ["db-2"]);
    db.reconcile();
    assert_eq!(db.images(), ["v1", "v1", "v2"]);
    assert!(db.kubelet_removes().is_empty(), "the new pod has to be ready first");
    let status = db.status();
    assert_ne!(status["currentRevision"], status["updateRevision"]);
    assert_eq!((&status["currentReplicas"], &status["updatedReplicas"]), (&json!(2), &json!(1)));
    db.settle();
    assert_eq!(db.images(), ["v2", "v2", "v2"]);
    let status = db.status();
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_eq!(db.bench.names("ControllerRevision").len(), 2);
}

#[test]
fn pods_below_the_partition_keep_the_current_revision() {
    let mut db = SetBench::new(&json!({ "replicas": 3 }));
    db.settle()
        .set_image("v2")
        .patch(&json!({ "updateStrategy": { "rollingUpdate": { "partition": 2 } } }))
        .settle();
    assert_eq!(db.images(), ["v1", "v1", "v2"]);
    db.bench.remove("Pod", "db-0");
    db.settle();
    assert_eq!(
        db.images(),
        ["v1", "v1", "v2"],
        "a lost pod below the partition is made of the current revision"
    );
}

#[test]
fn a_former_template_uses_its_revision_again() {
    let mut db = SetBench::new(&json!({ "replicas": 1 }));
    db.settle();
    let first = db.status()["currentRevision"].clone();
    db.set_image("v2").settle().set_image("v1").settle();
    assert_eq!(db.status()["currentRevision"], first);
    let number = &db.bench.get("ControllerRevision", first.as_str().unwrap())["revision"];
    assert_eq!(number, 3, "and is the newest");
}

#[test]
fn a_broken_revision_stays_until_its_pod_is_deleted_unless_pods_are_parallel() {
    for (policy, image) in [("OrderedReady", "broken"), ("Parallel", "v3")] {
        let mut db = SetBench::new(&json!({ "replicas": 1, "podManagementPolicy": policy }));
        db.settle().set_image("broken").reconcile();
        db.kubelet_removes();
        db.reconcile().set_image("v3").reconcile();
        db.kubelet_removes();
        db.reconcile();
        assert_eq!(db.images(), [image], "{policy}");
    }
}

#[test]
fn pods_are_left_alone_with_strategy_on_delete() {
    let mut db = SetBench::new(&json!({ "replicas": 2, "updateStrategy": { "type": "OnDelete" } }));
    db.settle().set_image("v2").settle();
    assert_eq!(db.images(), ["v1", "v1"]);
    db.bench.remove("Pod", "db-1");
    db.settle();
    assert_eq!(db.images(), ["v1", "v2"]);
}

#[test]
fn pods_wait_for_their_predecessors_to_be_available() {
    let mut db = SetBench::new(&json!({ "replicas": 2, "minReadySeconds": 10 }));
    db.reconcile().make_ready("db-0").reconcile();
    assert_eq!((db.pods().len(), db.next), (1, Next::After(std::time::Duration::from_secs(10))));
    db.bench.wait(10);
    db.reconcile();
    assert_eq!(db.pods().len(), 2);
}

#[test]
fn claims_are_made_before_pods_and_kept_or_deleted_as_the_policy_says() {
    let templates = json!([{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"] } }]);
    let mut db = SetBench::new(&json!({ "replicas": 2, "volumeClaimTemplates": templates }));
    db.settle();
    assert_eq!(db.bench.names("PersistentVolumeClaim"), ["data-db-0", "data-db-1"]);
    let volumes = db.bench.get("Pod", "db-1")["spec"]["volumes"].clone();
    assert_eq!(volumes[0]["persistentVolumeClaim"]["claimName"], "data-db-1");
    assert_eq!(db.bench.get("PersistentVolumeClaim", "data-db-0")["metadata"].get("ownerReferences"), None);
    db.patch(&json!({ "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Delete" } }));
    db.reconcile();
    let owner = |db: &SetBench, claim: &str| {
        db.bench.get("PersistentVolumeClaim", claim)["metadata"]["ownerReferences"][0]["kind"].clone()
    };
    assert_eq!(owner(&db, "data-db-0"), "StatefulSet");
    let events = db
        .bench
        .events
        .iter()
        .any(|event| event.note == "Create Claim data-db-0 Pod db-0 in StatefulSet db success");
    assert!(events);
}
