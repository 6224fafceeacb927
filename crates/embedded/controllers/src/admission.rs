//! What a kubelet checks of a pod before it runs it: pods may be bound to a node without the scheduler. It rejects what
//! the scheduler's filters for resources, affinity, host ports and taints reject, as upstream's `predicateAdmitHandler`.

use k8s_openapi::api::core::v1::{Node, Pod};
use quintet_api::Quantity;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::node::NodeView;
use crate::pod::PodView;
use crate::scheduler::have_port_conflict;
use crate::taints::{self, NO_EXECUTE};

/// Why a kubelet rejects a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason in the pod's status, like `OutOfcpu`.
    pub reason: String,
    /// The message in its event.
    pub message: String,
}

impl Rejection {
    fn out_of(resource: &str, requested: i64, used: i64, capacity: i64) -> Self {
        Self {
            reason: format!("OutOf{resource}"),
            message: format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        }
    }

    fn predicate(name: &str, why: &str) -> Self {
        Self { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") }
    }
}

/// Decides whether a node can run a pod beside others that it runs already. The first obstacle is the reason.
pub fn admit(pod: &Pod, node: &Node, others: &[&Pod]) -> Result<(), Rejection> {
    // What was read from the API can be projected.
    let (Some(pod), Some(node)) = (project::<PodView>(pod), project::<NodeView>(node)) else { return Ok(()) };
    let others: Vec<PodView> = others.iter().filter_map(project).collect();
    check_resources(&pod, &node, &others)?;
    if !node.is_selected_by(&pod) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return Err(Rejection::predicate("NodeAffinity", why));
    }
    if have_port_conflict(&pod, others.iter()) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return Err(Rejection::predicate("NodePorts", why));
    }
    if !taints::are_tolerated(&node.spec.taints, &pod.spec.tolerations, &[NO_EXECUTE]) {
        return Err(Rejection::predicate("TaintToleration", "node(s) had untolerated taint(s)"));
    }
    Ok(())
}

/// Decides whether a node has the resources for a pod beside others.
pub fn fits(pod: &Pod, node: &Node, others: &[&Pod]) -> Result<(), Rejection> {
    let (Some(pod), Some(node)) = (project::<PodView>(pod), project::<NodeView>(node)) else { return Ok(()) };
    let others: Vec<PodView> = others.iter().filter_map(project).collect();
    check_resources(&pod, &node, &others)
}

fn project<T: DeserializeOwned>(object: &impl Serialize) -> Option<T> {
    serde_json::to_value(object).and_then(serde_json::from_value).ok()
}

fn check_resources(pod: &PodView, node: &NodeView, others: &[PodView]) -> Result<(), Rejection> {
    let capacity = |name: &str| node.status.allocatable.get(name).copied();
    let (count, pods) = (others.len(), capacity("pods").unwrap_or_default().units());
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    if count >= pods {
        return Err(Rejection::out_of("pods", 1, count, pods));
    }
    let used: Vec<_> = others.iter().map(PodView::requests).collect();
    for (name, request) in pod.requests() {
        // What no device plugin offers is not the node's to check, as `removeMissingExtendedResources` has it.
        let is_foreign = name.contains('/') && capacity(&name).is_none();
        if request.is_zero() || is_foreign {
            continue;
        }
        let used: Quantity = used.iter().filter_map(|requests| requests.get(&name)).copied().sum();
        let total = capacity(&name).unwrap_or_default();
        if request > total - used {
            let number = if name == "cpu" { Quantity::millis } else { Quantity::units };
            return Err(Rejection::out_of(&name, number(request), number(used), number(total)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(taints: &Value) -> Node {
        let allocatable = json!({ "cpu": "2", "memory": "1Gi", "pods": "2", "example.com/gpu": "1" });
        let node = json!({
            "metadata": { "name": "n", "labels": { "disk": "ssd" } },
            "spec": { "taints": taints }, "status": { "allocatable": allocatable },
        });
        serde_json::from_value(node).unwrap()
    }

    fn pod(spec: &Value, container: &Value) -> Pod {
        let mut full = json!({ "name": "c" });
        full.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let mut spec = spec.clone();
        spec["containers"] = json!([full]);
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
    }

    fn asks(name: &str, amount: &str) -> Value {
        json!({ "resources": { "requests": { name: amount } } })
    }

    fn rejected(pod: &Pod, others: &[&Pod]) -> String {
        let outcome = admit(pod, &node(&json!([])), others);
        outcome
            .err()
            .map(|rejection| format!("{}: {}", rejection.reason, rejection.message))
            .unwrap_or_default()
    }

    #[test]
    fn resources_have_to_be_free() {
        let none = json!({});
        let of = |name: &str, amount: &str| pod(&none, &asks(name, amount));
        let half = of("cpu", "1500m");
        assert_eq!(rejected(&half, &[]), "");
        assert_eq!(
            rejected(&of("cpu", "1"), &[&half]),
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"
        );
        assert_eq!(
            rejected(&of("memory", "2Gi"), &[]),
            "OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824"
        );
        assert!(rejected(&of("example.com/gpu", "2"), &[]).starts_with("OutOfexample.com/gpu: "));
        assert_eq!(rejected(&of("example.com/unknown", "2"), &[]), "");
        let small = pod(&none, &none);
        assert_eq!(
            rejected(&small, &[&small, &small]),
            "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"
        );
    }

    #[test]
    fn predicates_are_named() {
        let selecting = pod(&json!({ "nodeSelector": { "disk": "hdd" } }), &json!({}));
        assert_eq!(
            rejected(&selecting, &[]),
            "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        );
        let port = pod(&json!({}), &json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] }));
        assert_eq!(rejected(&port, &[]), "");
        assert_eq!(
            rejected(&port, &[&port]),
            "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
        );
        let any = pod(&json!({}), &json!({}));
        let cases = [("NoSchedule", true), ("NoExecute", false)];
        for (effect, is_admitted) in cases {
            let tainted = node(&json!([{ "key": "a", "effect": effect }]));
            assert_eq!(admit(&any, &tainted, &[]).is_ok(), is_admitted, "{effect}");
        }
    }
}
