//! The default FlowSchemas and PriorityLevelConfigurations. This API has one limit for all requests; clients, charts
//! and `kubectl` look for these objects all the same.

use serde_json::{Value, json};

use super::BootstrapObject;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// A priority level that limits requests.
struct Level {
    name: &'static str,
    shares: u32,
    /// How many queues, and how many of them a request can go to. Without queues requests are rejected at once.
    queues: Option<(u32, u32)>,
    lendable_percent: u32,
}

const fn level(name: &'static str, shares: u32, queues: Option<(u32, u32)>, lendable_percent: u32) -> Level {
    Level { name, shares, queues, lendable_percent }
}

const LEVELS: [Level; 7] = [
    level("catch-all", 5, None, 0),
    level("global-default", 20, Some((128, 6)), 50),
    level("leader-election", 10, Some((16, 4)), 0),
    level("node-high", 40, Some((64, 6)), 25),
    level("system", 30, Some((64, 6)), 33),
    level("workload-high", 40, Some((128, 6)), 50),
    level("workload-low", 100, Some((128, 6)), 90),
];

impl Level {
    fn object(&self) -> BootstrapObject {
        let response = match self.queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => {
                json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}})
            }
        };
        let limited = json!({"nominalConcurrencyShares": self.shares, "limitResponse": response,
            "lendablePercent": self.lendable_percent});
        priority_level(self.name, &json!({"type": "Limited", "limited": limited}))
    }
}

/// The objects of API priority and fairness.
pub(super) fn objects() -> Vec<BootstrapObject> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let exempt = priority_level("exempt", &exempt);
    LEVELS.iter().map(Level::object).chain([exempt]).chain(schemas()).collect()
}

fn schemas() -> Vec<BootstrapObject> {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let system_accounts =
        json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}});
    let everybody = json!([group("system:unauthenticated"), group("system:authenticated")]);
    let manager = user("system:kube-controller-manager");
    let scheduler = user("system:kube-scheduler");
    let nodes = json!([group("system:nodes")]);
    let everything = |subjects: &Value| {
        json!([{"subjects": subjects,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}])
    };
    let leases = |verbs: Value| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    let probes = json!([{"subjects": everybody,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}]);
    let election = json!([{"subjects": [manager, scheduler, system_accounts],
        "resourceRules": [leases(json!(["get", "create", "update"]))]}]);
    let of_nodes = json!([{"subjects": nodes, "resourceRules": [
        {"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true, "namespaces": ["*"]},
        leases(json!(["*"]))]}]);
    let (by_user, by_namespace) = (Some("ByUser"), Some("ByNamespace"));
    [
        ("exempt", "exempt", 1, None, everything(&json!([group("system:masters")]))),
        ("probes", "exempt", 2, None, probes),
        ("system-leader-election", "leader-election", 100, by_user, election),
        ("system-node-high", "node-high", 400, by_user, of_nodes),
        ("system-nodes", "system", 500, by_user, everything(&nodes)),
        ("kube-controller-manager", "workload-high", 800, by_namespace, everything(&json!([manager]))),
        ("kube-scheduler", "workload-high", 800, by_namespace, everything(&json!([scheduler]))),
        ("kube-system-service-accounts", "workload-high", 900, by_namespace, everything(&json!([system_accounts]))),
        ("service-accounts", "workload-low", 9000, by_user, everything(&json!([group("system:serviceaccounts")]))),
        ("global-default", "global-default", 9900, by_user, everything(&everybody)),
        ("catch-all", "catch-all", 10000, by_user, everything(&everybody)),
    ]
    .into_iter()
    .map(|(name, level, precedence, method, rules)| {
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules});
        if let Some(method) = method {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        object("FlowSchema", "flowschemas", name, &spec)
    })
    .collect()
}

fn priority_level(name: &str, spec: &Value) -> BootstrapObject {
    object("PriorityLevelConfiguration", "prioritylevelconfigurations", name, spec)
}

fn object(kind: &str, plural: &'static str, name: &str, spec: &Value) -> BootstrapObject {
    let object = json!({"apiVersion": API_VERSION, "kind": kind, "spec": spec,
        "metadata": {"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}}});
    BootstrapObject::new(GROUP, plural, "", object)
}
