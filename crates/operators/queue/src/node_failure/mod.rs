//! Failed nodes of admitted Workloads: `status.unhealthyNodes` tells the scheduler what to replace.
//!
//! A node has failed for a Workload if it is gone, or if it is not ready or has a taint that the pods do not tolerate, and
//! no pod of the Workload runs there any more. The scheduler replaces one failed node; with a second one the Workload is
//! evicted. Pods that wait for a node of no use to them are failed, so that their job makes others. As
//! `node_controller.go` of Kueue's `pkg/controller/tas`, which decides per node.

mod health;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use quintet_api::kueue::v1beta2::{ResourceFlavor, Workload};
use quintet_controller::cache::{Cache, Change, Entry, WatchSpec};
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;
use crate::topology::{self, PODS_BY_AWAITED_NODE, PodView};
use crate::watches::{self, BY_NODE};
use crate::{Context, jobs};
use health::ObservedNode;

/// How long changes of pods are collected. All pods on a node end together, and whoever has created one may write its status
/// before it is found to wait in vain. As `reconcileBatchPeriod` of Kueue.
const BATCH_PERIOD: Duration = Duration::from_millis(100);

/// The controller.
struct NodeFailures {
    settings: Arc<Settings>,
    clock: quintet_controller::clock::Clock,
    caches: NodeFailureCaches,
}

#[derive(Clone)]
struct NodeFailureCaches {
    workloads: Cache<Workload>,
    pods: Cache<PodView>,
    nodes: Cache<Node>,
    flavors: Cache<ResourceFlavor>,
}

/// A Workload, its pods, and the nodes that they are on or wait for.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    workload: Arc<Entry<Workload>>,
    pods: Vec<Arc<Entry<PodView>>>,
    /// Those that exist.
    nodes: BTreeMap<String, ObservedNode>,
    /// Those that it was assigned, for their tolerations.
    flavors: BTreeMap<String, ResourceFlavor>,
    settings: Arc<Settings>,
    now: Timestamp,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let watched = context.runtime.caches();
    let caches = NodeFailureCaches {
        workloads: watched.watch(watches::workloads())?,
        pods: watched.watch(topology::pods())?,
        nodes: watched.watch(WatchSpec::typed())?,
        flavors: watched.watch(watches::resource_flavors())?,
    };
    let (workloads, pods, nodes) = (caches.workloads.clone(), caches.pods.clone(), caches.nodes.clone());
    let (of_pod, of_node) = (caches.clone(), caches.clone());
    let (settings, clock) = (Arc::clone(&context.settings), context.clock.clone());
    context
        .runtime
        .add(NodeFailures { settings, clock, caches }, &workloads, context.concurrency)
        .watches_batches(&pods, BATCH_PERIOD, move |change| of_pod.workloads_of_pod(change))
        .watches_changes(&nodes, move |change| of_node.workloads_of_node(change))
        .done();
    Ok(())
}

impl NodeFailureCaches {
    /// Those whose pod has left a node, or waits for one.
    fn workloads_of_pod(&self, change: &Change<PodView>) -> Vec<ObjectKey> {
        let place = |entry: &Arc<Entry<PodView>>| {
            let pod = &entry.object;
            let is_running = !entry.deleting && !pod.has_ended();
            let node = pod.node().filter(|_| is_running).map(str::to_owned);
            (node, pod.awaited_node().map(str::to_owned))
        };
        let before = change.old.as_ref().map(place).unwrap_or_default();
        if change.new.as_ref().map(place).unwrap_or_default() == before {
            return Vec::new();
        }
        change.states().next().map(|entry| topology::workloads_of(entry, &self.workloads)).unwrap_or_default()
    }

    /// Those that have a node whose health has changed, and those whose pods wait for it.
    fn workloads_of_node(&self, change: &Change<Node>) -> Vec<ObjectKey> {
        let health = |entry: &Arc<Entry<Node>>| ObservedNode::of(&entry.object);
        if change.old.as_ref().map(health) == change.new.as_ref().map(health) {
            return Vec::new();
        }
        let Some(entry) = change.states().next() else { return Vec::new() };
        let name = entry.key.name();
        let assigned = self.workloads.by_index(BY_NODE, name);
        let awaiting = self.pods.by_index(PODS_BY_AWAITED_NODE, name);
        let awaiting = awaiting.iter().flat_map(|pod| topology::workloads_of(pod, &self.workloads));
        let keys: BTreeSet<ObjectKey> =
            assigned.iter().map(|workload| workload.key.clone()).chain(awaiting).collect();
        keys.into_iter().collect()
    }

    fn observe(&self, key: &ObjectKey, settings: &Arc<Settings>, now: Timestamp) -> Option<Observed> {
        let workload = self.workloads.get(key)?;
        let pods = topology::pods_of(&workload, &self.pods);
        let awaited = pods.iter().filter_map(|pod| pod.object.awaited_node().map(str::to_owned));
        let names: BTreeSet<String> =
            topology::assigned_nodes(&workload.object).into_iter().chain(awaited).collect();
        let nodes = names.into_iter().filter_map(|name| {
            let node = self.nodes.get(&ObjectKey::cluster(&name))?;
            Some((name, ObservedNode::of(&node.object)))
        });
        let flavors = jobs::flavors_of(&workload.object).into_iter().filter_map(|name| {
            let flavor = self.flavors.get(&ObjectKey::cluster(&name))?;
            Some((name, flavor.object.clone()))
        });
        let (nodes, flavors) = (nodes.collect(), flavors.collect());
        Some(Observed { workload, pods, nodes, flavors, settings: Arc::clone(settings), now })
    }
}

impl Controller for NodeFailures {
    type Observed = Observed;
    type Call = NoCall;

    /// Kueue's events about topologies have one reporter.
    const NAME: &'static str = "tas-resource-flavor-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.caches.observe(key, &self.settings, self.clock.now()))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
