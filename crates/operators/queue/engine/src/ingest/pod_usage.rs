//! What pods outside topology aware scheduling use, by node.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::{IngestError, cluster};
use crate::names::Names;
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
}

impl PodUsage {
    /// A pod was created or changed.
    pub fn apply(&mut self, pod: &Pod, names: &mut Names) -> Result<(), IngestError> {
        let usage = cluster::pod_usage(pod, names)?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = (text(&pod.metadata.namespace), text(&pod.metadata.name));
        if self.pods.get(&key) == usage.as_ref() {
            return Ok(());
        }
        self.release(&key);
        if let Some((node, requests)) = usage {
            self.change(&node, &requests, 1);
            self.pods.insert(key, (node, requests));
        }
        Ok(())
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

    fn release(&mut self, key: &PodKey) {
        if let Some((node, requests)) = self.pods.remove(key) {
            self.change(&node, &requests, -1);
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
    use crate::names::{Names, ResourceId};

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
            usage.apply(&pod(name, "node", "Running", &json!({})), &mut names).unwrap();
        }
        assert_eq!(used(&usage), (1000, 2));
        assert_eq!(usage.take_changed().len(), 1);

        usage.apply(&pod("a", "node", "Running", &json!({})), &mut names).unwrap();
        assert!(usage.take_changed().is_empty(), "an update that changes nothing");

        usage.apply(&pod("a", "node", "Succeeded", &json!({})), &mut names).unwrap();
        assert_eq!(used(&usage), (500, 1), "a terminated pod uses nothing");
        usage.delete("ns", "b");
        assert_eq!(used(&usage), (0, 0));

        let required = json!({ "kueue.x-k8s.io/podset-required-topology": "rack" });
        usage.apply(&pod("c", "node", "Running", &required), &mut names).unwrap();
        assert_eq!(used(&usage), (0, 0), "topology aware scheduling accounts for it");
        usage.apply(&pod("d", "", "Pending", &json!({})), &mut names).unwrap();
        assert_eq!(used(&usage), (0, 0), "not bound yet");
    }
}
