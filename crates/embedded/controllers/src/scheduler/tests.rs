//! Decisions of the scheduler on objects in memory.

use quintet_controller::Action;
use quintet_controller::object::ResourceVersion;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

struct SchedulerBench {
    scheduler: Scheduler,
    pods: BTreeMap<ObjectKey, Value>,
    now: Timestamp,
    version: u64,
    /// Bindings as `pod -> node`, messages, and the events of all writes.
    events: Vec<String>,
}

impl SchedulerBench {
    fn new() -> Self {
        let now = NOW.parse().unwrap();
        Self { scheduler: Scheduler::default(), pods: BTreeMap::new(), now, version: 0, events: Vec::new() }
    }

    fn entry<T: serde::de::DeserializeOwned>(&mut self, key: &ObjectKey, object: &Value) -> Arc<Entry<T>> {
        self.version += 1;
        let mut entry = Entry::new(key.clone(), serde_json::from_value(object.clone()).unwrap());
        entry.uid = format!("uid-{}", key.name()).as_str().into();
        entry.version = ResourceVersion(self.version);
        let mut hasher = DefaultHasher::new();
        (object["spec"].to_string(), object["metadata"].to_string()).hash(&mut hasher);
        entry.content = hasher.finish();
        entry.deleting = object["metadata"].get("deletionTimestamp").is_some();
        Arc::new(entry)
    }

    fn node(&mut self, name: &str, change: &Value) -> &mut Self {
        let mut node = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
            "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } },
        });
        merge(&mut node, change);
        let entry = self.entry(&ObjectKey::cluster(name), &node);
        self.scheduler.apply(Event::Node(Update::Applied(entry)), self.now);
        self
    }

    fn pod(&mut self, name: &str, spec: &Value) -> &mut Self {
        let mut pod = json!({
            "metadata": { "name": name, "creationTimestamp": self.now, "labels": { "app": name } },
            "spec": { "schedulerName": "default-scheduler", "containers": [{ "name": "main" }] },
            "status": { "phase": "Pending" },
        });
        merge(&mut pod["spec"], spec);
        self.put(ObjectKey::new("ns", name), pod)
    }

    fn put(&mut self, key: ObjectKey, pod: Value) -> &mut Self {
        let entry = self.entry(&key, &pod);
        self.pods.insert(key, pod);
        self.scheduler.apply(Event::Pod(Update::Applied(entry)), self.now);
        self
    }

    fn change(&mut self, name: &str, change: &Value) -> &mut Self {
        let key = ObjectKey::new("ns", name);
        let mut pod = self.pods[&key].clone();
        merge(&mut pod, change);
        self.put(key, pod)
    }

    fn remove(&mut self, name: &str) -> &mut Self {
        let key = ObjectKey::new("ns", name);
        self.pods.remove(&key);
        self.scheduler.apply(Event::Pod(Update::Deleted(key)), self.now);
        self
    }

    fn claim(&mut self, name: &str, claim: &Value) -> &mut Self {
        let entry = self.entry(&ObjectKey::new("ns", name), claim);
        self.scheduler.apply(Event::Claim(Update::Applied(entry)), self.now);
        self
    }

    fn class(&mut self, name: &str, mode: &str) -> &mut Self {
        let class = json!({ "metadata": { "name": name }, "provisioner": "p", "volumeBindingMode": mode });
        let entry = self.entry(&ObjectKey::cluster(name), &class);
        self.scheduler.apply(Event::Class(Update::Applied(entry)), self.now);
        self
    }

    /// Decides once, and lets all writes take effect.
    fn decide(&mut self) -> Vec<String> {
        let writes = self.scheduler.decide(self.now, 100);
        let mut done = Vec::new();
        for write in writes {
            self.events.extend(write.events.iter().map(|event| format!("{}: {}", event.reason, event.note)));
            let target = write.action.target().unwrap();
            match &write.action {
                Action::CreateSubresource { body, .. } => {
                    let node = body["target"]["name"].as_str().unwrap();
                    done.push(format!("{} -> {node}", target.name()));
                    let change = json!({ "spec": { "nodeName": node }, "status": { "phase": "Running" } });
                    self.change(target.name(), &change);
                }
                Action::Status { patch, .. } => {
                    done.push(format!("status of {}", target.name()));
                    let status = json!({ "status": patch.status });
                    self.change(target.name(), &status);
                }
                Action::Patch { .. } => done.push(format!("claim {}", target.name())),
                Action::Delete { .. } => {
                    done.push(format!("delete {}", target.name()));
                    let now = self.now;
                    self.change(target.name(), &json!({ "metadata": { "deletionTimestamp": now } }));
                }
                other => panic!("unexpected {other}"),
            }
            let version = Some(ResourceVersion(self.version));
            self.scheduler.outcome(write.decision, WriteOutcome::Written { version }, self.now);
        }
        done
    }

    /// The message of condition `PodScheduled`.
    fn message(&self, name: &str) -> String {
        let conditions = self.pods[&ObjectKey::new("ns", name)]["status"]["conditions"].clone();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
        scheduled.map(|condition| condition["message"].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

fn merge(object: &mut Value, change: &Value) {
    match (object, change) {
        (Value::Object(object), Value::Object(change)) => {
            for (name, value) in change {
                merge(object.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (object, change) => *object = change.clone(),
    }
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({ "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu, "memory": memory } } }] })
}

fn none() -> Value {
    json!({})
}

#[test]
fn pods_go_to_the_emptier_node() {
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).node("b", &none());
    bench.pod("one", &requests("1", "1Gi"));
    assert_eq!(bench.decide(), ["one -> a"]);
    bench.pod("two", &requests("1", "1Gi"));
    assert_eq!(bench.decide(), ["two -> b"]);
    assert_eq!(bench.events[0], "Scheduled: Successfully assigned ns/one to a");
    assert_eq!(bench.decide(), [""; 0], "nothing is left to decide");
}

#[test]
fn assumed_bindings_take_room_until_their_outcome_is_known() {
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("one", &requests("3", "1Gi")).pod("two", &requests("3", "1Gi"));
    let now = bench.now;
    let writes = bench.scheduler.decide(now, 100);
    let bind = writes.into_iter().find(|write| matches!(write.decision, Decision::Bind { .. })).unwrap();
    assert_eq!(bind.action.target().unwrap().name(), "one");
    assert!(bench.scheduler.decide(now, 100).is_empty(), "no room for another");
    bench.scheduler.outcome(bind.decision, WriteOutcome::Lost, now);
    let again = bench.scheduler.decide(now, 100);
    assert_eq!(again.len(), 1, "a lost binding is written again: {again:?}");
    assert_eq!(again[0].action.target().unwrap().name(), "one");
    bench.scheduler.outcome(again[0].decision.clone(), WriteOutcome::Conflict, now);
    bench.now = crate::time::after(now, 10);
    assert_eq!(bench.decide(), ["one -> a", "status of two"], "a conflict frees the room");
}

#[test]
fn messages_name_the_reasons_of_all_nodes() {
    // What differs of the nodes and the pod, and what the message says before preemption.
    let tainted = json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } });
    let labeled = json!({ "metadata": { "labels": { "zone": "z" } } });
    let port =
        json!({ "containers": [{ "name": "main", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
    let cases = [
        (none(), requests("9", "1Gi"), "0/2 nodes are available: 2 Insufficient cpu."),
        (
            none(),
            requests("9", "99Gi"),
            "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory.",
        ),
        (
            tainted.clone(),
            requests("5", "1Gi"),
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).",
        ),
        (
            json!({ "spec": { "unschedulable": true } }),
            json!({ "nodeSelector": { "zone": "z" } }),
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable.",
        ),
        (
            json!({ "status": { "allocatable": { "pods": "0" } } }),
            json!({ "nodeSelector": { "zone": "z" } }),
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            labeled,
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "NotIn", "values": ["z"] }] }] } } },
            "tolerations": [{ "key": "gpu", "operator": "Exists" }], "nodeName": null, "containers": port["containers"].clone() }),
            "",
        ),
    ];
    for (second, spec, expected) in cases {
        let mut bench = SchedulerBench::new();
        bench.node("a", &none()).node("b", &second).pod("one", &spec);
        bench.decide();
        let message = bench.message("one");
        let (reasons, preemption) =
            message.split_once(" no new claims to deallocate, preemption: ").unwrap_or((&message, ""));
        assert_eq!(reasons, expected, "{spec}");
        if !expected.is_empty() {
            let helpless = "0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
            assert_eq!(preemption, helpless, "{spec}");
            assert_eq!(bench.events, [format!("FailedScheduling: {message}")]);
        }
    }
}

#[test]
fn a_pod_without_nodes_says_so() {
    let mut bench = SchedulerBench::new();
    bench.pod("one", &none()).decide();
    assert_eq!(bench.message("one"), "no nodes available to schedule pods");
}

#[test]
fn waiting_pods_are_tried_again_when_room_is_freed_and_not_before() {
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("big", &requests("4", "1Gi"));
    bench.decide();
    bench.pod("next", &requests("2", "1Gi"));
    assert_eq!(bench.decide(), ["status of next"]);
    let expected = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
                    0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(bench.message("next"), expected);
    bench.now = crate::time::after(bench.now, 20);
    bench.change("big", &json!({ "status": { "phase": "Running", "startTime": NOW } }));
    assert_eq!(bench.decide(), [""; 0], "a status is no reason to try again");
    bench.change("big", &json!({ "metadata": { "deletionTimestamp": NOW } }));
    assert_eq!(bench.decide(), [""; 0], "a terminating pod holds its resources");
    bench.remove("big");
    assert_eq!(bench.decide(), [""; 0], "not before the backoff is over");
    bench.now = crate::time::after(bench.now, 10);
    assert_eq!(bench.decide(), ["next -> a"]);
}

#[test]
fn an_ended_pod_frees_its_room() {
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("big", &requests("4", "1Gi"));
    bench.decide();
    bench.pod("next", &requests("4", "1Gi")).decide();
    bench.now = crate::time::after(bench.now, 20);
    bench.change("big", &json!({ "status": { "phase": "Succeeded" } }));
    assert_eq!(bench.decide(), ["next -> a"]);
}

#[test]
fn gated_foreign_and_ended_pods_are_left_alone() {
    let mut bench = SchedulerBench::new();
    bench.node("a", &none());
    bench.pod("gated", &json!({ "schedulingGates": [{ "name": "wait" }] }));
    bench.pod("foreign", &json!({ "schedulerName": "other" }));
    bench.pod("ended", &none()).change("ended", &json!({ "status": { "phase": "Failed" } }));
    assert_eq!(bench.decide(), [""; 0]);
    bench.change("gated", &json!({ "spec": { "schedulingGates": [] } }));
    assert_eq!(bench.decide(), ["gated -> a"]);
}

#[test]
fn host_ports_and_pod_counts_limit_a_node() {
    let port =
        json!({ "containers": [{ "name": "main", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("one", &port).decide();
    bench.pod("two", &port).decide();
    let message = bench.message("two");
    assert!(message.contains("1 node(s) didn't have free ports for the requested pod ports"), "{message}");
    let mut bench = SchedulerBench::new();
    bench.node("a", &json!({ "status": { "allocatable": { "pods": "1" } } })).pod("one", &none()).decide();
    bench.pod("two", &none()).decide();
    assert!(bench.message("two").contains("1 Too many pods"), "{}", bench.message("two"));
}

#[test]
fn anti_affinity_keeps_pods_apart_in_both_directions() {
    let apart = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "other" } } }] } } });
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("other", &none()).decide();
    bench.pod("shy", &apart).decide();
    assert!(bench.message("shy").contains("1 node(s) didn't match pod anti-affinity rules"));
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("shy", &apart).decide();
    bench.pod("other", &none()).decide();
    assert!(bench.message("other").contains("1 node(s) didn't satisfy existing pods anti-affinity rules"));
}

#[test]
fn affinity_brings_pods_together_and_the_first_is_free_to_go_anywhere() {
    let near = |app: &str| {
        json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": app } } }] } } })
    };
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).node("b", &none()).pod("friend", &near("friend"));
    assert_eq!(bench.decide(), ["friend -> a"], "it matches its own term");
    bench.pod("follower", &near("friend"));
    assert_eq!(bench.decide(), ["follower -> a"]);
    bench.pod("lonely", &near("nobody")).decide();
    assert!(bench.message("lonely").contains("2 node(s) didn't match pod affinity rules"));
}

#[test]
fn spread_constraints_limit_the_skew() {
    let spread = json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "web" } } }] });
    let zone = |zone: &str| json!({ "metadata": { "labels": { "zone": zone } } });
    let mut bench = SchedulerBench::new();
    bench.node("a", &zone("1")).node("b", &zone("2"));
    for name in ["p1", "p2", "p3"] {
        bench.pod(name, &spread);
        bench.change(name, &json!({ "metadata": { "labels": { "app": "web" } } }));
        bench.decide();
    }
    let on = |bench: &SchedulerBench, node: &str| bench.scheduler.state.nodes[node].pods.len();
    assert_eq!((on(&bench, "a"), on(&bench, "b")), (2, 1));
    bench.node("b", &json!({ "spec": { "unschedulable": true }, "metadata": { "labels": { "zone": "2" } } }));
    bench.pod("p4", &spread).change("p4", &json!({ "metadata": { "labels": { "app": "web" } } }));
    bench.decide();
    let message = bench.message("p4");
    assert!(message.contains("1 node(s) didn't match pod topology spread constraints"), "{message}");
}

#[test]
fn preemption_removes_the_fewest_pods_of_the_lowest_priority() {
    let with = |cpu: &str, priority: i32| {
        let mut spec = requests(cpu, "1Gi");
        spec["priority"] = json!(priority);
        spec
    };
    let mut bench = SchedulerBench::new();
    bench.node("a", &none());
    bench.pod("low", &with("2", 1)).pod("lower", &with("2", 0));
    bench.decide();
    bench.pod("urgent", &with("2", 10));
    assert_eq!(bench.decide(), ["status of urgent", "status of lower"]);
    assert_eq!(bench.pods[&ObjectKey::new("ns", "urgent")]["status"]["nominatedNodeName"], "a");
    let condition = &bench.pods[&ObjectKey::new("ns", "lower")]["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("PreemptionByScheduler"))
    );
    assert_eq!(bench.decide(), ["delete lower"]);
    bench.now = crate::time::after(bench.now, 20);
    // Another pod does not take the room that is being made.
    bench.pod("sneaky", &with("2", 1)).decide();
    bench.remove("lower");
    bench.now = crate::time::after(bench.now, 20);
    assert_eq!(bench.decide(), ["urgent -> a"]);
    assert!(bench.events.iter().any(|event| event == "Preempted: Preempted by pod uid-urgent on node a"));
}

#[test]
fn pods_that_may_not_preempt_say_so() {
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("low", &requests("4", "1Gi")).decide();
    let mut urgent = requests("4", "1Gi");
    urgent["priority"] = json!(9);
    urgent["preemptionPolicy"] = json!("Never");
    bench.pod("urgent", &urgent);
    assert_eq!(bench.decide(), ["status of urgent"]);
    assert!(bench.message("urgent").ends_with("preemption: not eligible due to preemptionPolicy=Never."));
}

#[test]
fn claims_are_found_bound_or_given_a_node() {
    let with_claim =
        json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] });
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).class("standard", "WaitForFirstConsumer").pod("one", &with_claim).decide();
    assert!(
        bench
            .message("one")
            .starts_with("0/1 nodes are available: persistentvolumeclaim \"data\" not found.")
    );
    bench.claim("data", &json!({ "spec": {}, "status": { "phase": "Pending" } }));
    bench.now = crate::time::after(bench.now, 10);
    bench.decide();
    let message = bench.message("one");
    assert!(message.contains("pod has unbound immediate PersistentVolumeClaims"), "{message}");
    bench.claim(
        "data",
        &json!({ "spec": { "storageClassName": "standard" }, "status": { "phase": "Pending" } }),
    );
    bench.now = crate::time::after(bench.now, 10);
    assert_eq!(bench.decide(), ["claim data"], "its node is selected first");
    let bound = json!({ "spec": { "storageClassName": "standard", "volumeName": "v" }, "status": { "phase": "Bound" } });
    bench.claim("data", &bound);
    bench.now = crate::time::after(bench.now, 10);
    assert_eq!(bench.decide(), ["one -> a"]);
}

#[test]
fn a_pod_waits_for_the_claims_of_its_ephemeral_volumes() {
    let template = json!({ "spec": { "storageClassName": "standard" } });
    let volume = json!({ "name": "scratch", "ephemeral": { "volumeClaimTemplate": template } });
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).class("standard", "WaitForFirstConsumer");
    bench.pod("one", &json!({ "volumes": [volume] })).decide();
    let expected = "0/1 nodes are available: waiting for ephemeral volume controller to create the \
                    persistentvolumeclaim \"one-scratch\".";
    assert!(bench.message("one").starts_with(expected), "{}", bench.message("one"));
    let bound = json!({ "spec": { "storageClassName": "standard", "volumeName": "v" }, "status": { "phase": "Bound" } });
    bench.claim("one-scratch", &bound);
    bench.now = crate::time::after(bench.now, 10);
    bench.decide();
    let message = bench.message("one");
    assert!(message.contains("was not created for pod ns/one (pod is not owner)"), "{message}");
    let owner =
        json!({ "apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "uid-one", "controller": true });
    let mut own = bound;
    own["metadata"] = json!({ "ownerReferences": [owner] });
    bench.claim("one-scratch", &own);
    bench.now = crate::time::after(bench.now, 10);
    assert_eq!(bench.decide(), ["one -> a"]);
}

#[test]
fn an_index_rebuilt_from_the_objects_is_the_same() {
    let mut bench = SchedulerBench::new();
    bench.node("a", &none()).pod("one", &none()).pod("two", &requests("9", "1Gi"));
    bench.decide();
    let mut rebuilt = bench.scheduler.empty();
    let pods = bench.pods.clone();
    let version = bench.scheduler.state.nodes["a"].node.as_ref().unwrap().version;
    for (key, pod) in pods.into_iter().rev() {
        let entry = bench.entry(&key, &pod);
        rebuilt.apply(Event::Pod(Update::Applied(entry)), bench.now);
    }
    let mut node = Entry::new(ObjectKey::cluster("a"), NodeView::default());
    node.version = version;
    rebuilt.apply(Event::Node(Update::Applied(Arc::new(node))), bench.now);
    assert_eq!(rebuilt.fingerprint(), bench.scheduler.fingerprint());
}
