use quintet_controller::Controller as _;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Bench, stored};

struct DaemonBench {
    bench: Bench,
    backoff: Backoff,
    nodes: Vec<Value>,
}

impl DaemonBench {
    fn new(spec: &Value, nodes: &[&str]) -> Self {
        let mut bench = Bench::new();
        let mut set = json!({
            "metadata": { "name": "agent", "uid": "agent-uid" },
            "spec": {
                "selector": { "matchLabels": { "app": "agent" } },
                "template": {
                    "metadata": { "labels": { "app": "agent" } },
                    "spec": { "containers": [{ "name": "main", "image": "v1" }] },
                },
            },
        });
        set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("DaemonSet", set);
        let node = |name: &&str| json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } });
        Self { bench, backoff: Backoff::default(), nodes: nodes.iter().map(node).collect() }
    }

    fn nodes(&self) -> Vec<Arc<Entry<NodeView>>> {
        let entry = |node: &Value| {
            let key = ObjectKey::cluster(node["metadata"]["name"].as_str().unwrap());
            Arc::new(Entry::new(key, serde_json::from_value(node.clone()).unwrap()))
        };
        self.nodes.iter().map(entry).collect()
    }

    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..20 {
            let set = self.bench.entry("DaemonSet", "agent");
            let pods = self.bench.entries("Pod");
            let observed = stored(&Observed {
                replace_at: self.backoff.observe(&set, &pods, self.bench.now),
                set,
                pods,
                revisions: self.bench.entries("ControllerRevision"),
                nodes: self.nodes(),
                entropy: Entropy::default(),
                now: self.bench.now,
            });
            let plan = DaemonSetController::plan(&observed);
            if !self.bench.act("DaemonSet", "agent", &plan) {
                return self;
            }
        }
        panic!("still changing: {:#}", self.status());
    }

    fn status(&self) -> &Value {
        &self.bench.get("DaemonSet", "agent")["status"]
    }

    /// Nodes and images of pods that are not being deleted.
    fn pods(&self) -> Vec<(String, String)> {
        let mut pods: Vec<_> = self
            .bench
            .names("Pod")
            .iter()
            .map(|name| self.bench.get("Pod", name))
            .filter(|pod| pod["metadata"].get("deletionTimestamp").is_none())
            .map(|pod| {
                let term = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                    ["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
                let image = &pod["spec"]["containers"][0]["image"];
                (term.as_str().unwrap().to_owned(), image.as_str().unwrap().to_owned())
            })
            .collect();
        pods.sort();
        pods
    }

    /// Starts pods, and removes those that are being deleted.
    fn kubelet(&mut self) -> &mut Self {
        for name in self.bench.names("Pod") {
            let pod = self.bench.get("Pod", &name).clone();
            if pod["metadata"].get("deletionTimestamp").is_some() {
                self.bench.remove("Pod", &name);
                continue;
            }
            let view: PodView = serde_json::from_value(pod).unwrap();
            let node = objects::node_of(&view).unwrap();
            let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": self.bench.now }]);
            let patch = json!({ "spec": { "nodeName": node }, "status": { "phase": "Running", "conditions": ready } });
            self.bench.patch("Pod", &name, &patch);
        }
        self
    }

    fn set_image(&mut self, image: &str) -> &mut Self {
        let containers = json!([{ "name": "main", "image": image }]);
        let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        self.bench.patch("DaemonSet", "agent", &patch);
        self
    }
}

fn on(pods: &[(&str, &str)]) -> Vec<(String, String)> {
    pods.iter().map(|(node, image)| ((*node).to_owned(), (*image).to_owned())).collect()
}

#[test]
fn every_node_has_a_pod_that_only_it_can_run() {
    let mut agent = DaemonBench::new(&json!({}), &["a", "b"]);
    agent.reconcile();
    assert_eq!(agent.pods(), on(&[("a", "v1"), ("b", "v1")]));
    let pod = agent.bench.get("Pod", &agent.bench.names("Pod")[0]);
    let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(tolerations.len(), 6, "{tolerations:?}");
    agent.kubelet().reconcile();
    let status = agent.status();
    assert_eq!((&status["desiredNumberScheduled"], &status["numberReady"]), (&json!(2), &json!(2)));
    assert_eq!((&status["updatedNumberScheduled"], &status["numberAvailable"]), (&json!(2), &json!(2)));
    let node = json!({ "metadata": { "name": "c", "labels": {} } });
    agent.nodes.push(node);
    agent.reconcile();
    assert_eq!(agent.pods().len(), 3, "a new node gets one, too");
}

#[test]
fn selectors_and_taints_decide_where_pods_are_started_and_stay() {
    let mut agent = DaemonBench::new(&json!({}), &["a", "b", "c"]);
    agent.reconcile().kubelet().reconcile();
    agent.nodes[0]["spec"] = json!({ "taints": [{ "key": "x", "effect": "NoSchedule" }] });
    agent.nodes[1]["spec"] = json!({ "taints": [{ "key": "x", "effect": "NoExecute" }] });
    agent.reconcile();
    assert_eq!(agent.pods(), on(&[("a", "v1"), ("c", "v1")]), "a pod that runs stays despite NoSchedule");
    assert_eq!(agent.status()["numberMisscheduled"], 2);
    agent.kubelet().reconcile();
    assert_eq!(agent.status()["desiredNumberScheduled"], 1);
    let patch =
        json!({ "spec": { "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": "c" } } } } });
    agent.bench.patch("DaemonSet", "agent", &patch);
    agent.reconcile().kubelet().reconcile();
    assert_eq!(agent.pods(), on(&[("c", "v1")]), "replaced by a pod of the new template");
}

#[test]
fn an_update_replaces_one_pod_at_a_time() {
    let mut agent = DaemonBench::new(&json!({}), &["a", "b"]);
    agent.reconcile().kubelet().reconcile().set_image("v2").reconcile();
    assert_eq!(agent.pods().len(), 1);
    agent.kubelet().reconcile();
    assert_eq!(agent.pods(), on(&[("a", "v2"), ("b", "v1")]), "the next waits until it is available");
    agent.kubelet().reconcile().kubelet().reconcile().kubelet().reconcile();
    assert_eq!(agent.pods(), on(&[("a", "v2"), ("b", "v2")]));
    assert_eq!(agent.status()["updatedNumberScheduled"], 2);
}

#[test]
fn with_a_surge_the_new_pod_comes_first() {
    let strategy =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    let mut agent = DaemonBench::new(&json!({ "updateStrategy": strategy }), &["a"]);
    agent.reconcile().kubelet().reconcile().set_image("v2").reconcile();
    assert_eq!(agent.pods(), on(&[("a", "v1"), ("a", "v2")]));
    agent.kubelet().reconcile();
    assert_eq!(agent.pods(), on(&[("a", "v2")]));
}

#[test]
fn failed_pods_are_replaced() {
    let mut agent = DaemonBench::new(&json!({}), &["a"]);
    agent.reconcile().kubelet();
    let pod = agent.bench.names("Pod")[0].clone();
    agent.bench.patch("Pod", &pod, &json!({ "status": { "phase": "Failed" } }));
    agent.reconcile();
    assert!(agent.bench.get("Pod", &pod)["metadata"].get("deletionTimestamp").is_none(), "not at once");
    agent.bench.wait(2);
    agent.reconcile().kubelet().reconcile();
    assert_ne!(agent.bench.get("Pod", &agent.bench.names("Pod")[0])["status"]["phase"], "Failed");
    assert!(agent.bench.take_reasons().contains(&"FailedDaemonPod".to_owned()));
}
