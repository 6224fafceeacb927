//! Node health: nodes that stop reporting are marked and tainted, and their pods evicted.

mod eviction;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use quintet_controller::cache::{Cache, Entry, Selector, WatchSpec};
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan, Runtime};
use serde::{Deserialize, Serialize};

use crate::Context;
use crate::node::NodeView;
use crate::pod::{BY_NODE, PodView};

/// The namespace in which nodes renew their leases.
const LEASES: &str = "kube-node-lease";

/// Everything that a decision about one node needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    node: Arc<Entry<NodeView>>,
    /// When its lease was renewed.
    renewed: Option<Timestamp>,
    /// Whether another node is ready: if none is, the fault is probably not with the nodes.
    another_is_ready: bool,
    /// The pods on it.
    pods: Vec<Arc<Entry<PodView>>>,
    now: Timestamp,
}

/// The controller of node health.
struct NodeController {
    nodes: Cache<NodeView>,
    leases: Cache<Lease>,
    context: Context,
}

/// Adds the controllers of node health and of evictions by taints.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let nodes = runtime.caches().watch(NodeView::watch())?;
    let leases = WatchSpec::<Lease>::typed().select(Selector::all().in_namespace(LEASES));
    let leases = runtime.caches().watch(leases)?;
    let controller =
        NodeController { nodes: nodes.clone(), leases: leases.clone(), context: context.clone() };
    runtime
        .add(controller, &nodes, context.concurrency)
        // A first renewal of a lease is news; later ones are found when the time of the last one is over.
        .watches_changes(&leases, |change| match (&change.old, &change.new) {
            (None, Some(lease)) => vec![ObjectKey::cluster(lease.key.name())],
            _ => Vec::new(),
        })
        .done();
    eviction::add(runtime, context, &nodes);
    Ok(())
}

impl Controller for NodeController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "node-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(None) };
        let lease = self.leases.get(&ObjectKey::new(LEASES, key.name()));
        let renewed = lease.and_then(|lease| Some(lease.object.spec.as_ref()?.renew_time.as_ref()?.0));
        let others = self.nodes.all();
        let another_is_ready = others.iter().any(|other| other.key != *key && plan::is_ready(&other.object));
        let pods = self.context.pods.by_index(BY_NODE, key.name());
        Ok(Some(Observed { node, renewed, another_is_ready, pods, now: self.context.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
