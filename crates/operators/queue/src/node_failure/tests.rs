use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_controller::{Action, Next, Plan};
use serde_json::{Value, json};

use super::Observed;
use super::plan::plan;
use crate::settings::Settings;
use crate::testing::entry;

const NOW: &str = "2026-01-01T01:00:00Z";

/// A Workload with a pod on each of these hosts, and nodes that are known to have failed.
fn workload(hosts: &[&str], unhealthy: &[&str]) -> Value {
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": kind, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let unhealthy: Vec<Value> = unhealthy.iter().map(|name| json!({ "name": name })).collect();
    json!({ "metadata": { "name": "w", "namespace": "ns" },
        "spec": { "podSets": [{ "name": "main", "count": hosts.len(), "template": { "spec": { "containers": [] } } }] },
        "status": { "conditions": [condition("QuotaReserved"), condition("Admitted")], "unhealthyNodes": unhealthy,
            "admission": { "clusterQueue": "cq", "podSetAssignments": [
                { "name": "main", "count": hosts.len(), "flavors": { "cpu": "f" }, "topologyAssignment": {
                    "levels": ["kubernetes.io/hostname"], "slices": [{ "domainCount": hosts.len(),
                        "podCounts": { "universal": 1 }, "valuesPerLevel": [{ "individual": { "roots": hosts } }] }] } }] } } })
}

fn ready() -> Value {
    json!({ "ready": { "isReady": true } })
}

fn unready(since: &str) -> Value {
    json!({ "ready": { "isReady": false, "since": since } })
}

fn tainted(effect: &str) -> Value {
    json!({ "ready": { "isReady": true }, "taints": [{ "key": "k", "value": "v", "effect": effect }] })
}

/// A pod on a node.
fn running(name: &str, node: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "ns", "annotations": { "kueue.x-k8s.io/workload": "w" } },
        "spec": { "nodeName": node }, "status": { "phase": "Running" } })
}

/// A pod that waits for a node.
fn waiting(name: &str, node: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "ns", "annotations": { "kueue.x-k8s.io/workload": "w",
            "kueue.x-k8s.io/podset-required-topology": "rack" } },
        "spec": { "nodeSelector": { "kubernetes.io/hostname": node } }, "status": { "phase": "Pending" } })
}

struct Case {
    workload: Value,
    nodes: Vec<(&'static str, Value)>,
    pods: Vec<Value>,
    settings: Settings,
}

impl Case {
    /// A Workload with pods on the hosts `a` and `b`.
    fn new(nodes: Vec<(&'static str, Value)>, pods: Vec<Value>) -> Self {
        Self { workload: workload(&["a", "b"], &[]), nodes, pods, settings: Settings::default() }
    }

    fn knowing(self, unhealthy: &[&str]) -> Self {
        Self { workload: workload(&["a", "b"], unhealthy), ..self }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    fn plan(&self) -> Plan {
        let nodes: BTreeMap<String, Value> =
            self.nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect();
        plan(&Observed {
            workload: entry(&self.workload),
            pods: self.pods.iter().map(entry).collect(),
            nodes: serde_json::from_value(json!(nodes)).unwrap(),
            flavors: BTreeMap::new(),
            settings: Arc::new(self.settings.clone()),
            now: NOW.parse().unwrap(),
        })
    }

    /// The nodes that are recorded as failed, if the record changes.
    fn recorded(&self) -> Option<Vec<String>> {
        let plan = self.plan();
        assert!(plan.events.is_empty(), "{plan:?}");
        let nodes = plan.status?.status["unhealthyNodes"].clone();
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        Some(nodes.iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect())
    }

    /// The pods that are failed.
    fn failed(&self) -> Vec<String> {
        let name = |action: &Action| match action {
            Action::Patch { key, patch, .. } => {
                assert_eq!(patch["status"]["conditions"][0]["reason"], "UnschedulableOnAssignedNode");
                key.name().to_owned()
            }
            other => panic!("not a patch: {other:?}"),
        };
        self.plan().steps.iter().map(|step| name(&step.action)).collect()
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as a case has it")]
fn recorded(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn a_node_that_is_gone_or_says_nothing_has_failed_at_once() {
    let pods = || vec![running("p", "a")];
    assert_eq!(Case::new(vec![("b", ready())], pods()).recorded(), recorded(&["a"]));
    let silent = vec![("a", json!({})), ("b", ready())];
    assert_eq!(Case::new(silent, pods()).recorded(), recorded(&["a"]));
    assert_eq!(Case::new(vec![("a", ready()), ("b", ready())], pods()).recorded(), None);
}

#[test]
fn a_node_that_is_not_ready_has_failed_when_no_pods_run_there() {
    let nodes = || vec![("a", unready("2026-01-01T00:00:00Z")), ("b", ready())];
    assert_eq!(Case::new(nodes(), vec![running("p", "a")]).recorded(), None);
    assert_eq!(Case::new(nodes(), vec![running("p", "b")]).recorded(), recorded(&["a"]));
    let mut ending = running("p", "a");
    ending["metadata"]["deletionTimestamp"] = NOW.into();
    assert_eq!(Case::new(nodes(), vec![ending]).recorded(), recorded(&["a"]));
    let mut ended = running("p", "a");
    ended["status"]["phase"] = "Failed".into();
    assert_eq!(Case::new(nodes(), vec![ended]).recorded(), recorded(&["a"]));
}

#[test]
fn without_the_gate_a_node_has_failed_after_half_a_minute_whatever_runs_there() {
    let case = |since: &str| {
        let nodes = vec![("a", unready(since)), ("b", ready())];
        Case::new(nodes, vec![running("p", "a")])
            .with(|settings| settings.gates.replace_on_pod_termination = false)
    };
    assert_eq!(case("2026-01-01T00:59:30Z").recorded(), recorded(&["a"]));
    let soon = case("2026-01-01T00:59:50Z");
    assert_eq!(soon.recorded(), None);
    assert_eq!(soon.plan().next, Next::After(std::time::Duration::from_secs(20)));
    let by_time = |since: &str| {
        case(since).with(|settings| {
            settings.gates.replace_on_pod_termination = true;
            settings.gates.replace_after_time = true;
        })
    };
    assert_eq!(by_time("2026-01-01T00:59:30Z").recorded(), recorded(&["a"]));
    assert_eq!(by_time("2026-01-01T00:59:50Z").recorded(), None);
}

#[test]
fn taints_count_unless_pods_tolerate_them_for_good() {
    let case = |node: Value, pods: Vec<Value>| Case::new(vec![("a", node), ("b", ready())], pods);
    assert_eq!(case(tainted("NoSchedule"), Vec::new()).recorded(), recorded(&["a"]));
    assert_eq!(case(tainted("NoExecute"), vec![running("p", "a")]).recorded(), None);
    let at_once = case(tainted("NoExecute"), vec![running("p", "a")])
        .with(|settings| settings.gates.replace_on_pod_termination = false);
    assert_eq!(at_once.recorded(), recorded(&["a"]));
    let off =
        case(tainted("NoSchedule"), Vec::new()).with(|settings| settings.gates.replace_on_taints = false);
    assert_eq!(off.recorded(), None);
    for (toleration, expected) in [
        (json!({ "key": "k", "operator": "Exists" }), None),
        (json!({ "key": "k", "operator": "Exists", "tolerationSeconds": 300 }), recorded(&["a"])),
    ] {
        let mut case = case(tainted("NoExecute"), Vec::new());
        case.workload["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = json!([toleration]);
        assert_eq!(case.recorded(), expected, "{toleration}");
    }
}

#[test]
fn nodes_that_have_recovered_are_forgotten() {
    let case = Case::new(vec![("a", ready()), ("b", ready())], Vec::new()).knowing(&["a"]);
    assert_eq!(case.recorded(), recorded(&[]));
    let elsewhere = Case::new(vec![("a", ready()), ("b", ready())], Vec::new()).knowing(&["c"]);
    assert_eq!(elsewhere.recorded(), recorded(&[]), "nothing is placed there any more");
    let still = Case::new(vec![("b", ready())], Vec::new()).knowing(&["a"]);
    assert_eq!(still.recorded(), None);
}

#[test]
fn a_second_failed_node_evicts() {
    let plan = Case::new(vec![("a", json!({}))], vec![waiting("p", "a")]).knowing(&["b"]).plan();
    let status = &plan.status.unwrap().status;
    assert_eq!(status["unhealthyNodes"], Value::Null);
    let evicted = status["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!((&evicted["type"], &evicted["reason"]), (&json!("Evicted"), &json!("NodeFailures")));
    let message = "Workload eviction triggered due to multiple TAS assigned node failures, including: b, a";
    assert_eq!(evicted["message"], message);
    assert_eq!(plan.events[0].reason, "EvictedDueToNodeFailures");
    assert!(plan.steps.is_empty(), "its pods are stopped anyway");
}

#[test]
fn the_workload_of_a_single_pod_keeps_its_node() {
    let mut case = Case::new(Vec::new(), Vec::new());
    case.workload["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p" }]);
    assert_eq!(case.plan(), Plan::nothing());
    let with_gate_off = case.with(|settings| settings.scheduling.skip_reassignment_for_pod_owned = false);
    assert!(with_gate_off.plan().status.is_some());
}

#[test]
fn pods_that_wait_in_vain_are_failed() {
    let nodes = || vec![("a", ready()), ("b", ready()), ("c", ready())];
    let pods = || vec![waiting("on-a", "a"), waiting("on-c", "c"), running("runs", "b")];
    assert_eq!(Case::new(nodes(), pods()).failed(), ["on-c"], "its Workload has no place there");
    let tainted = vec![("a", tainted("NoSchedule")), ("b", ready())];
    assert_eq!(Case::new(tainted, vec![waiting("on-a", "a")]).failed(), ["on-a"]);
    let unready = vec![("a", unready("2026-01-01T00:00:00Z")), ("b", ready())];
    let both = vec![waiting("on-a", "a"), running("runs", "a")];
    assert_eq!(Case::new(unready, both).failed(), ["on-a"], "although the node counts as healthy");
    let mut gated = waiting("gated", "c");
    gated["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/topology" }]);
    assert!(Case::new(nodes(), vec![gated]).failed().is_empty());
}

#[test]
fn nothing_is_done_about_workloads_that_have_to_stop() {
    for kind in ["Evicted", "Finished"] {
        let mut case = Case::new(Vec::new(), vec![waiting("p", "c")]);
        let conditions = case.workload["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({ "type": kind, "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }));
        assert_eq!(case.plan(), Plan::nothing(), "{kind}");
    }
}
