//! What pods outside topology aware scheduling use, by node.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::PodOnNode;
use super::pod::requests;
use crate::names::{Names, ResourceId};
use crate::requests::{Requests, Total};

/// Namespace and name of a pod.
type PodKey = (String, String);

/// A ledger of pods and the nodes they use.
#[derive(Clone, Debug, Default)]
pub struct PodUsage {
    pods: HashMap<PodKey, (Arc<str>, Requests)>,
    nodes: BTreeMap<Arc<str>, Total>,
    /// Nodes whose usage changed since [`PodUsage::take_changed`].
    changed: BTreeSet<Arc<str>>,
    /// Nodes where something became free since [`PodUsage::take_freed`].
    freed: BTreeSet<Arc<str>>,
}

impl PodUsage {
    /// A pod was created or changed. Without a node it uses nothing.
    pub fn apply(&mut self, namespace: &str, name: &str, pod: Option<&PodOnNode>, names: &mut Names) {
        let usage = pod.map(|pod| {
            let mut usage = requests(&pod.requests, names);
            usage.set(ResourceId::PODS, usage.get(ResourceId::PODS).saturating_add(1));
            (Arc::from(&*pod.node), usage)
        });
        let key = (namespace.to_owned(), name.to_owned());
        if self.pods.get(&key) == usage.as_ref() {
            return;
        }
        self.release(&key);
        if let Some((node, requests)) = usage {
            self.change(&node, &requests, 1);
            self.pods.insert(key, (node, requests));
        }
    }

    /// A pod was deleted.
    pub fn delete(&mut self, namespace: &str, name: &str) {
        self.release(&(namespace.to_owned(), name.to_owned()));
    }

    /// What the pods of a node use.
    pub fn of_node(&self, node: &str) -> Requests {
        self.nodes.get(node).map_or_else(Requests::new, Total::requests)
    }

    /// The nodes whose usage changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed)
    }

    /// Whether something became free since [`PodUsage::take_freed`].
    pub fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The nodes where something became free since the last call.
    pub fn take_freed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.freed)
    }

    fn release(&mut self, key: &PodKey) {
        if let Some((node, requests)) = self.pods.remove(key) {
            self.change(&node, &requests, -1);
            self.freed.insert(node);
        }
    }

    fn change(&mut self, node: &Arc<str>, requests: &Requests, factor: i128) {
        let total = self.nodes.entry(Arc::clone(node)).or_default();
        for (resource, value) in requests.iter() {
            total.add(resource, i128::from(value) * factor);
        }
        if total.is_zero() {
            self.nodes.remove(node);
        }
        self.changed.insert(Arc::clone(node));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::PodUsage;
    use crate::ingest::pod_on_node;
    use crate::names::{Names, ResourceId};

    fn apply(usage: &mut PodUsage, pod: &Pod, names: &mut Names) {
        let on_node = pod_on_node(pod).unwrap();
        usage.apply("ns", pod.metadata.name.as_deref().unwrap(), on_node.as_ref(), names);
    }

    fn pod(name: &str, node: &str, phase: &str, annotations: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": name, "annotations": annotations },
            "spec": { "nodeName": node, "containers": [
                { "name": "c", "resources": { "requests": { "cpu": "500m" } } }] },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn usage_follows_pods_and_names_the_nodes_that_changed() {
        let mut names = Names::default();
        let mut usage = PodUsage::default();
        let used = |usage: &PodUsage| {
            let of = usage.of_node("node");
            (of.get(ResourceId::CPU), of.get(ResourceId::PODS))
        };
        for name in ["a", "b"] {
            apply(&mut usage, &pod(name, "node", "Running", &json!({})), &mut names);
        }
        assert_eq!(used(&usage), (1000, 2));
        assert_eq!(usage.take_changed().len(), 1);

        apply(&mut usage, &pod("a", "node", "Running", &json!({})), &mut names);
        assert!(usage.take_changed().is_empty(), "an update that changes nothing");
        assert!(!usage.has_freed());

        apply(&mut usage, &pod("a", "node", "Succeeded", &json!({})), &mut names);
        assert_eq!(used(&usage), (500, 1), "a terminated pod uses nothing");
        assert_eq!(usage.take_freed().len(), 1);
        usage.delete("ns", "b");
        assert_eq!(used(&usage), (0, 0));

        let required = json!({ "kueue.x-k8s.io/podset-required-topology": "rack" });
        apply(&mut usage, &pod("c", "node", "Running", &required), &mut names);
        assert_eq!(used(&usage), (0, 0), "topology aware scheduling accounts for it");
        apply(&mut usage, &pod("d", "", "Pending", &json!({})), &mut names);
        assert_eq!(used(&usage), (0, 0), "not bound yet");
    }
}
