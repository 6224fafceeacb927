use quintet_controller::{Class, Controller as _, Error, Next};
use serde_json::{Value, json};

use super::*;
use crate::names::Entropy;
use crate::testing::{Bench, stored};

/// Reconciles a ReplicaSet once; returns whether anything changed.
pub(crate) fn reconcile_once(bench: &mut Bench, name: &str) -> bool {
    let replica_set = bench.entry::<ReplicaSet>("ReplicaSet", name);
    let is_own = |pod: &PodView| pod.controller().is_some_and(|owner| owner.uid == replica_set.uid.as_str());
    let pods = bench.entries::<PodView>("Pod").into_iter().filter(|pod| is_own(&pod.object)).collect();
    let siblings = std::collections::BTreeMap::new();
    let observed = Observed { replica_set, pods, siblings, entropy: Entropy::default(), now: bench.now };
    let plan = ReplicaSetController::plan(&observed);
    bench.act("ReplicaSet", name, &plan)
}

struct ReplicaSetBench {
    bench: Bench,
    next: Next,
}

impl ReplicaSetBench {
    fn new(spec: &Value) -> Self {
        let mut bench = Bench::new();
        let mut replica_set = json!({
            "metadata": { "name": "web", "uid": "web-uid" },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "main" }] },
                },
            },
        });
        replica_set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("ReplicaSet", replica_set);
        Self { bench, next: Next::AwaitChange }
    }

    fn observe(&self) -> Observed {
        stored(&Observed {
            replica_set: self.bench.entry("ReplicaSet", "web"),
            pods: self.bench.entries("Pod"),
            siblings: std::collections::BTreeMap::new(),
            entropy: Entropy::default(),
            now: self.bench.now,
        })
    }

    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..20 {
            let plan = ReplicaSetController::plan(&self.observe());
            self.next = plan.next;
            if !self.bench.act("ReplicaSet", "web", &plan) {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    fn status(&self) -> &Value {
        &self.bench.get("ReplicaSet", "web")["status"]
    }

    fn make_ready(&mut self, pod: &str) {
        let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": self.bench.now }]);
        let patch =
            json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Running", "conditions": ready } });
        self.bench.patch("Pod", pod, &patch);
    }
}

#[test]
fn pods_are_created_and_counted() {
    let mut web = ReplicaSetBench::new(&json!({ "replicas": 3 }));
    web.reconcile();
    let pods = web.bench.names("Pod");
    assert_eq!(pods.len(), 3);
    web.make_ready(&pods[0]);
    web.reconcile();
    let status = web.status();
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(3), &json!(1)));
    assert_eq!((&status["fullyLabeledReplicas"], &status["availableReplicas"]), (&json!(3), &json!(1)));
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(web.bench.take_reasons(), ["SuccessfulCreate"; 3]);
}

#[test]
fn a_pod_is_available_when_it_has_been_ready_long_enough() {
    let mut web = ReplicaSetBench::new(&json!({ "replicas": 1, "minReadySeconds": 30 }));
    web.reconcile();
    let pod = web.bench.names("Pod")[0].clone();
    web.make_ready(&pod);
    web.reconcile();
    assert_eq!(web.status()["availableReplicas"], Value::Null);
    assert_eq!(web.next, Next::After(std::time::Duration::from_secs(30)));
    web.bench.wait(30);
    web.reconcile();
    assert_eq!(web.status()["availableReplicas"], 1);
}

#[test]
fn unready_pods_are_removed_first_and_terminating_ones_are_counted_apart() {
    let mut web = ReplicaSetBench::new(&json!({ "replicas": 2 }));
    web.reconcile();
    let pods = web.bench.names("Pod");
    web.make_ready(&pods[0]);
    web.bench.patch("Pod", &pods[1], &json!({ "spec": { "nodeName": "n" } }));
    web.bench.patch("ReplicaSet", "web", &json!({ "spec": { "replicas": 1 } }));
    web.reconcile();
    assert!(web.bench.get("Pod", &pods[1])["metadata"].get("deletionTimestamp").is_some());
    assert_eq!((&web.status()["replicas"], &web.status()["terminatingReplicas"]), (&json!(1), &json!(1)));
}

#[test]
fn ended_pods_are_replaced_and_left_behind() {
    let mut web = ReplicaSetBench::new(&json!({ "replicas": 1 }));
    web.reconcile();
    let pod = web.bench.names("Pod")[0].clone();
    web.bench.patch("Pod", &pod, &json!({ "status": { "phase": "Failed", "reason": "Evicted" } }));
    web.reconcile();
    assert_eq!(web.bench.names("Pod").len(), 2);
    assert_eq!(web.status()["replicas"], 1);
}

#[test]
fn pods_that_no_longer_match_are_released_and_orphans_adopted() {
    let mut web = ReplicaSetBench::new(&json!({ "replicas": 1 }));
    web.bench
        .create("Pod", json!({ "metadata": { "name": "orphan", "labels": { "app": "web" } }, "spec": {} }));
    web.reconcile();
    let owner = &web.bench.get("Pod", "orphan")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("web-uid"), &json!(true)));
    assert_eq!(web.bench.names("Pod"), ["orphan"], "an adopted pod counts");
}

#[test]
fn a_rejected_pod_is_a_condition_and_an_event_until_one_is_created() {
    let mut web = ReplicaSetBench::new(&json!({ "replicas": 1 }));
    let observed = web.observe();
    let plan = ReplicaSetController::plan(&observed);
    let error = Error::new(Class::Invalid, "cannot create Pod ns/web-x", "exceeded quota");
    let on_error = ReplicaSetController::on_error(&observed, &plan.steps[0].action, &error);
    assert_eq!(on_error.events[0].reason, "FailedCreate");
    assert!(on_error.events[0].note.starts_with("Error creating: "), "{:?}", on_error.events);
    let condition = &on_error.status.as_ref().unwrap().status["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("ReplicaFailure"), &json!("FailedCreate"))
    );
    let conditions = json!({ "status": on_error.status.unwrap().status });
    web.bench.patch("ReplicaSet", "web", &conditions);
    web.reconcile();
    assert_eq!(web.status().get("conditions"), None);
}
