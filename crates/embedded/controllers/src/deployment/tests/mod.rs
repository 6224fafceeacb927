//! Deployments with the plans of both controllers, on objects in memory.

use quintet_controller::{Class, Controller as _, Error, Next};
use serde_json::{Value, json};

use super::*;
use crate::replicaset;
use crate::testing::{Bench, stored};

struct DeploymentBench {
    bench: Bench,
    next: Next,
}

impl DeploymentBench {
    fn new(spec: &Value) -> Self {
        let mut bench = Bench::new();
        let mut deployment = json!({
            "metadata": { "name": "web", "uid": "web-uid" },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "main", "image": "v1" }] },
                },
            },
        });
        deployment["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("Deployment", deployment);
        Self { bench, next: Next::AwaitChange }
    }

    /// Reconciles the Deployment once; returns whether anything changed.
    fn reconcile_deployment(&mut self) -> bool {
        let replica_sets = self.bench.entries::<ReplicaSet>("ReplicaSet");
        let pods = self.bench.entries::<PodView>("Pod");
        let running = |uid: &str| {
            let is_of = |pod: &PodView| pod.controller().is_some_and(|owner| owner.uid == uid);
            pods.iter().filter(|pod| is_of(&pod.object) && !pod.object.is_terminal()).count()
        };
        let observed = stored(&Observed {
            deployment: self.bench.entry("Deployment", "web"),
            pods: replica_sets.iter().map(|set| (set.uid.to_string(), running(set.uid.as_str()))).collect(),
            replica_sets,
            now: self.bench.now,
        });
        let plan = DeploymentController::plan(&observed);
        self.next = plan.next;
        self.bench.act("Deployment", "web", &plan)
    }

    fn reconcile_replica_sets(&mut self) -> bool {
        let mut changed = false;
        for name in self.bench.names("ReplicaSet") {
            changed |= replicaset::tests::reconcile_once(&mut self.bench, &name);
        }
        changed
    }

    /// Reconciles both kinds until nothing changes.
    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..50 {
            self.check();
            if !self.reconcile_deployment() && !self.reconcile_replica_sets() {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    /// A rollout stays within its bounds after every step.
    fn check(&self) {
        let spec = &self.bench.get("Deployment", "web")["spec"];
        if spec["strategy"]["type"] == "Recreate" || spec["strategy"].is_null() {
            return;
        }
        let bounds = plan::replicas::Bounds::of(&serde_json::from_value(spec.clone()).unwrap());
        let is_scaled = |name: &String| {
            let annotations = &self.bench.get("ReplicaSet", name)["metadata"]["annotations"];
            annotations[labels::DESIRED_REPLICAS].as_str() == Some(&bounds.replicas.to_string())
        };
        if !self.bench.names("ReplicaSet").iter().all(is_scaled) {
            // The bounds have changed, and the ReplicaSets have not followed yet.
            return;
        }
        let total: i64 = self.sets().iter().map(|(_, replicas)| replicas).sum();
        assert!(total <= i64::from(bounds.max_total()), "{total} of {bounds:?}");
    }

    /// Makes all active pods ready, and removes those that are being deleted.
    fn kubelet(&mut self) -> &mut Self {
        for pod in self.bench.names("Pod") {
            if self.bench.get("Pod", &pod)["metadata"].get("deletionTimestamp").is_some() {
                self.bench.remove("Pod", &pod);
                continue;
            }
            let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": self.bench.now }]);
            let patch =
                json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Running", "conditions": ready } });
            self.bench.patch("Pod", &pod, &patch);
        }
        self
    }

    /// Reconciles and runs pods until nothing changes.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..20 {
            self.reconcile();
            let before = self.bench.names("Pod");
            self.kubelet();
            let is_quiet = before == self.bench.names("Pod");
            if !self.reconcile_deployment() && !self.reconcile_replica_sets() && is_quiet {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    fn set_image(&mut self, image: &str) -> &mut Self {
        let containers = json!([{ "name": "main", "image": image }]);
        self.patch(&json!({ "template": { "spec": { "containers": containers } } }))
    }

    fn patch(&mut self, spec: &Value) -> &mut Self {
        self.bench.patch("Deployment", "web", &json!({ "spec": spec }));
        self
    }

    fn status(&self) -> &Value {
        &self.bench.get("Deployment", "web")["status"]
    }

    /// Images and replicas of the ReplicaSets, in the order of revisions.
    fn sets(&self) -> Vec<(String, i64)> {
        let mut sets: Vec<_> = self
            .bench
            .names("ReplicaSet")
            .iter()
            .map(|name| {
                let set = self.bench.get("ReplicaSet", name);
                let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
                let revision = set["metadata"]["annotations"][labels::REVISION]
                    .as_str()
                    .unwrap()
                    .parse::<i32>()
                    .unwrap();
                (revision, image.as_str().unwrap().to_owned(), set["spec"]["replicas"].as_i64().unwrap())
            })
            .collect();
        sets.sort();
        sets.into_iter().map(|(_, image, replicas)| (image, replicas)).collect()
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let all = self.status()["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|condition| condition["type"] == type_).cloned().unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    fn revision(&self) -> &Value {
        &self.bench.get("Deployment", "web")["metadata"]["annotations"][labels::REVISION]
    }
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn sets(all: &[(&str, i64)]) -> Vec<(String, i64)> {
    all.iter().map(|(image, replicas)| ((*image).to_owned(), *replicas)).collect()
}

#[test]
fn a_deployment_becomes_available() {
    let mut web = DeploymentBench::new(&json!({ "replicas": 3 }));
    web.reconcile();
    assert_eq!(web.condition("Available"), is("False", "MinimumReplicasUnavailable"));
    assert_eq!(web.condition("Progressing"), is("True", "ReplicaSetUpdated"));
    web.settle();
    let status = web.status();
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], 3, "{field}");
    }
    assert_eq!(status.get("unavailableReplicas"), None);
    assert_eq!(web.condition("Available"), is("True", "MinimumReplicasAvailable"));
    assert_eq!(web.condition("Progressing"), is("True", "NewReplicaSetAvailable"));
    assert_eq!(web.revision(), "1");
    let set = web.bench.get("ReplicaSet", &web.bench.names("ReplicaSet")[0]).clone();
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    assert_eq!(set["metadata"]["name"], format!("web-{hash}"));
    assert_eq!(set["spec"]["selector"]["matchLabels"]["pod-template-hash"], hash);
    assert_eq!(web.bench.take_reasons().iter().filter(|reason| *reason == "ScalingReplicaSet").count(), 1);
}

#[test]
fn a_rolling_update_replaces_pods_within_its_bounds() {
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 1 } });
    let mut web = DeploymentBench::new(&json!({ "replicas": 4, "strategy": rolling }));
    web.settle().set_image("v2").reconcile();
    assert_eq!(web.sets(), sets(&[("v1", 3), ("v2", 2)]), "one more and one less than the replicas");
    assert_eq!(web.condition("Available"), is("True", "MinimumReplicasAvailable"));
    web.settle();
    assert_eq!(web.sets(), sets(&[("v1", 0), ("v2", 4)]));
    assert_eq!(web.revision(), "2");
    assert_eq!(web.status()["updatedReplicas"], 4);
}

#[test]
fn a_broken_update_stops_and_is_rolled_back_to_the_same_replica_set() {
    let mut web = DeploymentBench::new(&json!({ "replicas": 4, "progressDeadlineSeconds": 60,
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } } }));
    web.settle().set_image("broken").reconcile();
    assert_eq!(web.sets(), sets(&[("v1", 4), ("broken", 1)]), "the new pod is never ready");
    let Next::After(wait) = web.next else { panic!("no deadline") };
    assert_eq!(wait.as_secs(), 60);
    web.bench.wait(60);
    web.reconcile();
    assert_eq!(web.condition("Progressing"), is("False", "ProgressDeadlineExceeded"));
    web.bench.patch(
        "Deployment",
        "web",
        &json!({ "metadata": { "annotations": { labels::ROLLBACK_TO: "0" } } }),
    );
    web.settle();
    assert_eq!(web.sets(), sets(&[("broken", 0), ("v1", 4)]), "revision 3 is the ReplicaSet of revision 1");
    assert_eq!(web.revision(), "3");
    let names = web.bench.names("ReplicaSet");
    let histories: Vec<_> = names
        .iter()
        .map(|name| {
            web.bench.get("ReplicaSet", name)["metadata"]["annotations"][labels::REVISION_HISTORY].clone()
        })
        .collect();
    assert!(histories.contains(&json!("1")), "{histories:?}");
    assert!(web.bench.take_reasons().contains(&"DeploymentRollback".to_owned()));
}

#[test]
fn recreate_waits_for_the_end_of_all_old_pods() {
    let mut web = DeploymentBench::new(&json!({ "replicas": 2, "strategy": { "type": "Recreate" } }));
    web.settle().set_image("v2").reconcile();
    assert_eq!(web.sets(), sets(&[("v1", 0)]), "old pods are terminating");
    web.kubelet().reconcile();
    assert_eq!(web.sets(), sets(&[("v1", 0), ("v2", 2)]));
    web.settle();
    assert_eq!(web.condition("Progressing"), is("True", "NewReplicaSetAvailable"));
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut web = DeploymentBench::new(&json!({ "replicas": 2 }));
    web.settle().patch(&json!({ "paused": true, "replicas": 3 })).set_image("v2").settle();
    assert_eq!(web.sets(), sets(&[("v1", 3)]));
    assert_eq!(web.condition("Progressing"), is("Unknown", "DeploymentPaused"));
    web.patch(&json!({ "paused": false })).settle();
    assert_eq!(web.sets(), sets(&[("v1", 0), ("v2", 3)]));
    assert_eq!(web.condition("Progressing"), is("True", "NewReplicaSetAvailable"));
}

#[test]
fn scaling_within_a_rollout_is_proportional() {
    let strategy =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 5 } });
    let mut web = DeploymentBench::new(&json!({ "replicas": 10, "strategy": strategy }));
    web.settle().set_image("v2").reconcile();
    assert_eq!(web.sets(), sets(&[("v1", 5), ("v2", 5)]));
    web.patch(&json!({ "replicas": 20 })).reconcile();
    assert_eq!(web.sets(), sets(&[("v1", 10), ("v2", 10)]), "no new pod is available yet");
    web.settle();
    assert_eq!(web.sets(), sets(&[("v1", 0), ("v2", 20)]));
    web.patch(&json!({ "replicas": 4 })).settle();
    assert_eq!(web.sets(), sets(&[("v1", 0), ("v2", 4)]));
    assert_eq!(web.condition("Progressing"), is("True", "NewReplicaSetAvailable"));
}

#[test]
fn old_revisions_beyond_the_limit_are_deleted() {
    let mut web = DeploymentBench::new(&json!({ "replicas": 1, "revisionHistoryLimit": 1 }));
    for image in ["v1", "v2", "v3", "v4"] {
        web.set_image(image).settle();
    }
    assert_eq!(web.sets(), sets(&[("v3", 0), ("v4", 1)]));
    assert_eq!(web.revision(), "4");
}

#[test]
fn a_deployment_without_a_deadline_says_nothing_about_progress() {
    let mut web = DeploymentBench::new(&json!({ "replicas": 1, "progressDeadlineSeconds": i32::MAX }));
    web.settle();
    assert_eq!(web.condition("Progressing"), is("", ""));
    assert_eq!(web.next, Next::AwaitChange);
}

#[test]
fn a_settled_deployment_stays_complete_when_a_pod_becomes_unready() {
    let mut web = DeploymentBench::new(&json!({ "replicas": 1 }));
    web.settle();
    let pod = web.bench.names("Pod")[0].clone();
    web.bench.patch(
        "Pod",
        &pod,
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
    );
    web.reconcile();
    assert_eq!(web.condition("Available"), is("False", "MinimumReplicasUnavailable"));
    assert_eq!(web.condition("Progressing"), is("True", "NewReplicaSetAvailable"));
}

#[test]
fn a_name_that_is_taken_is_a_collision() {
    let web = DeploymentBench::new(&json!({ "replicas": 1 }));
    let observed = Observed {
        deployment: web.bench.entry("Deployment", "web"),
        replica_sets: Vec::new(),
        pods: std::collections::BTreeMap::new(),
        now: web.bench.now,
    };
    let plan = DeploymentController::plan(&observed);
    let status = kube::core::Status::failure("exists", "AlreadyExists").with_code(409);
    let kind = ApiKind::of::<ReplicaSet>();
    let error = Error::request("create", &kind, None, kube::Error::Api(Box::new(status)));
    let on_error = DeploymentController::on_error(&observed, &plan.steps[0].action, &error);
    assert_eq!(on_error.status.unwrap().status["collisionCount"], 1);
    let rejected = Error::new(Class::Invalid, "cannot create", "no");
    let on_error = DeploymentController::on_error(&observed, &plan.steps[0].action, &rejected);
    assert_eq!(on_error.events[0].reason, "ReplicaSetCreateError");
}
