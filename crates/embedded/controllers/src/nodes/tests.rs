use quintet_controller::{Controller as _, Next};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Bench, NAMESPACE};

struct NodeBench {
    bench: Bench,
    renewed: Option<Timestamp>,
    another_is_ready: bool,
    next: Next,
}

impl NodeBench {
    /// A node that has just reported that it is ready.
    fn new() -> Self {
        let mut bench = Bench::new();
        let now = bench.now;
        let condition = |type_: &str, status: &str| json!({ "type": type_, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now });
        let conditions = [condition("Ready", "True"), condition("MemoryPressure", "False")];
        bench.create("Node", json!({ "metadata": { "name": "n" }, "status": { "conditions": conditions } }));
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        bench.create(
            "Pod",
            json!({
                "metadata": { "name": "p" }, "spec": { "nodeName": "n" },
                "status": { "phase": "Running", "conditions": ready },
            }),
        );
        Self { bench, renewed: None, another_is_ready: true, next: Next::AwaitChange }
    }

    fn reconcile(&mut self) -> &mut Self {
        for _ in 0..5 {
            let observed = Observed {
                node: self.bench.entry("Node", "n"),
                renewed: self.renewed,
                another_is_ready: self.another_is_ready,
                pods: self.bench.entries("Pod"),
                now: self.bench.now,
            };
            let plan = NodeController::plan(&observed);
            self.next = plan.next;
            // What the plan writes to the root itself comes before its status.
            if !self.bench.act("Node", "n", &plan) {
                return self;
            }
        }
        panic!("still changing");
    }

    fn taints(&self) -> Vec<String> {
        let taints = self.bench.get("Node", "n")["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let text = |taint: &Value| {
            format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap())
        };
        taints.iter().map(|taint| text(taint).replace("node.kubernetes.io/", "")).collect()
    }

    fn condition(&self, type_: &str) -> Value {
        let conditions = self.bench.get("Node", "n")["status"]["conditions"].as_array().cloned().unwrap();
        conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default()
    }
}

#[test]
fn a_node_that_stops_reporting_is_unknown_tainted_and_its_pods_not_ready() {
    let mut node = NodeBench::new();
    node.reconcile();
    assert_eq!(node.next, Next::After(std::time::Duration::from_secs(50)));
    node.bench.wait(30);
    node.renewed = Some(node.bench.now);
    node.bench.wait(30);
    node.reconcile();
    assert!(node.taints().is_empty(), "its lease was renewed");
    node.bench.wait(20);
    node.reconcile();
    let ready = node.condition("Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
    assert_eq!(node.condition("PIDPressure")["status"], "Unknown");
    assert_eq!(node.taints(), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    assert_eq!(node.bench.get("Pod", "p")["status"]["conditions"][0]["status"], "False");
    assert_eq!(node.bench.take_reasons(), ["NodeNotReady"]);
}

#[test]
fn nothing_is_evicted_when_no_node_is_ready() {
    let mut node = NodeBench::new();
    node.another_is_ready = false;
    node.bench.wait(100);
    node.reconcile();
    assert_eq!(node.taints(), ["unreachable:NoSchedule"]);
}

#[test]
fn taints_follow_conditions_and_leave_those_of_others() {
    let mut node = NodeBench::new();
    let own = json!([{ "key": "gpu", "effect": "NoSchedule" }]);
    node.bench.patch("Node", "n", &json!({ "spec": { "unschedulable": true, "taints": own } }));
    node.reconcile();
    assert_eq!(node.taints(), ["gpu:NoSchedule", "unschedulable:NoSchedule"]);
    node.bench.patch("Node", "n", &json!({ "spec": { "unschedulable": false } }));
    node.reconcile();
    assert_eq!(node.taints(), ["gpu:NoSchedule"]);
}

#[test]
fn pods_are_evicted_when_their_toleration_ends() {
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    // Tolerations, seconds since the taint was seen, and what follows: evicted, later, or nothing.
    let cases = [
        (json!([]), 0, Some(0)),
        (json!([{ "key": "x", "operator": "Exists" }]), 1000, None),
        (json!([{ "key": "x", "operator": "Exists", "tolerationSeconds": 300 }]), 100, Some(200)),
        (json!([{ "key": "x", "operator": "Exists", "tolerationSeconds": 300 }]), 300, Some(0)),
        (json!([{ "key": "y", "operator": "Exists" }]), 0, Some(0)),
    ];
    for (tolerations, since, expected) in cases {
        let pod = json!({ "spec": { "nodeName": "n", "tolerations": tolerations } });
        let pod: PodView = serde_json::from_value(pod).unwrap();
        let taint = json!({ "key": "x", "effect": "NoExecute" });
        let observed = eviction::Observed {
            pod: Arc::new(Entry::new(ObjectKey::new(NAMESPACE, "p"), pod)),
            taints: vec![serde_json::from_value(taint).unwrap()],
            since: crate::time::after(now, -since),
            now,
        };
        let plan = eviction::plan(&observed);
        match expected {
            Some(0) => {
                let event = plan.steps[1].event.as_ref().unwrap();
                assert_eq!(event.note, "Marking for deletion Pod ns/p");
            }
            Some(seconds) => assert_eq!(plan.next, Next::After(std::time::Duration::from_secs(seconds))),
            None => assert!(plan.is_empty() && plan.next == Next::AwaitChange),
        }
    }
}
