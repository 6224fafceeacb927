//! Pods that do not end, because their node is unreachable: they are failed and deleted, if users allow it by annotation.
//! As `pod_termination_controller.go` of Kueue's `pkg/controller/failurerecovery`.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use quintet_controller::cache::{Cache, Change, Entry, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use crate::Context;
use crate::topology::{self, PODS_BY_NODE_TO_LEAVE, PodView};

/// The taint of a node that does not report.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The controller.
struct FailureRecovery {
    pods: Cache<PodView>,
    nodes: Cache<Node>,
    grace: Duration,
    clock: Clock,
}

/// A pod, and whether its node is unreachable.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    pod: Arc<Entry<PodView>>,
    is_node_unreachable: bool,
    /// How long after the pod should have ended.
    grace: Duration,
    now: Timestamp,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let (pods, nodes) = (caches.watch(topology::pods())?, caches.watch(WatchSpec::<Node>::typed())?);
    let grace = context.settings.configuration.failure_recovery.grace_period.0;
    let controller =
        FailureRecovery { pods: pods.clone(), nodes: nodes.clone(), grace, clock: context.clock.clone() };
    let of_node = pods.clone();
    context
        .runtime
        .add(controller, &pods, context.concurrency)
        .watches_changes(&nodes, move |change| pods_of_node(change, &of_node))
        .done();
    Ok(())
}

/// The pods that are to be gone, if their node has just become unreachable.
fn pods_of_node(change: &Change<Node>, pods: &Cache<PodView>) -> Vec<ObjectKey> {
    let became = change.new.as_ref().filter(|new| {
        is_unreachable(&new.object) && !change.old.as_ref().is_some_and(|old| is_unreachable(&old.object))
    });
    let Some(node) = became else { return Vec::new() };
    pods.by_index(PODS_BY_NODE_TO_LEAVE, node.key.name()).iter().map(|pod| pod.key.clone()).collect()
}

fn is_unreachable(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == UNREACHABLE)
}

impl Controller for FailureRecovery {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "kueue-pod-termination-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let pod = self.pods.get(key).filter(|pod| pod.object.forceful_deletion().is_some());
        let Some(pod) = pod else { return Ok(None) };
        let node = pod.object.node().and_then(|name| self.nodes.get(&ObjectKey::cluster(name)));
        let is_node_unreachable = node.is_some_and(|node| is_unreachable(&node.object));
        Ok(Some(Observed { pod, is_node_unreachable, grace: self.grace, now: self.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
