//! Pod garbage collection: pods that no kubelet will remove.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use quintet_controller::api::PatchKind;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::plan::Propagation;
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan, Runtime, Step};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::node::NodeView;
use crate::pod::{BY_NODE, Phase, PodView};
use crate::{Context, time};

/// A node has to be gone for this many seconds, as upstream's `quarantineTime`.
const QUARANTINE: i64 = 40;
const DELETION_BY_POD_GC: &str = "DeletionByPodGC";

/// Everything that a decision about one pod needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    pod: Arc<Entry<PodView>>,
    /// Since when its node is known to be gone; confirmed by an uncached read when the quarantine is over.
    node_gone_since: Option<Timestamp>,
    now: Timestamp,
}

/// The controller of pods that no kubelet will remove.
struct PodGcController {
    nodes: Cache<NodeView>,
    gone: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    context: Context,
}

/// Adds pod garbage collection.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let nodes = runtime.caches().watch(NodeView::watch())?;
    let controller = PodGcController { nodes: nodes.clone(), gone: Arc::default(), context: context.clone() };
    let pods = context.pods.clone();
    runtime
        .add(controller, &context.pods, context.concurrency)
        .watches_changes(&nodes, move |change| match (&change.old, &change.new) {
            (Some(old), None) => {
                pods.by_index(BY_NODE, old.key.name()).iter().map(|pod| pod.key.clone()).collect()
            }
            _ => Vec::new(),
        })
        .done();
    Ok(())
}

impl Controller for PodGcController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "pod-garbage-collector";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(pod) = self.context.pods.get(key) else { return Ok(None) };
        let now = self.context.clock.now();
        let node = pod.object.spec.node_name.clone();
        let node_gone_since = match node {
            Some(node) => self.gone_since(&node, now).await?,
            None => None,
        };
        Ok(Some(Observed { pod, node_gone_since, now }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

impl PodGcController {
    /// Since when a node is gone. The cache may be behind, so that only an uncached read is believed at the end.
    async fn gone_since(&self, node: &str, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        let key = ObjectKey::cluster(node);
        if self.nodes.get(&key).is_some() {
            self.gone.lock().remove(node);
            return Ok(None);
        }
        let since = *self.gone.lock().entry(node.to_owned()).or_insert(now);
        let is_over = time::after(since, QUARANTINE) <= now;
        let kind = ApiKind::of::<k8s_openapi::api::core::v1::Node>();
        if is_over && self.context.api.get(&kind, &key).await?.is_some() {
            self.gone.lock().remove(node);
            return Ok(None);
        }
        Ok(Some(since))
    }
}

/// Computes the plan.
fn plan(observed: &Observed) -> Plan {
    let pod = &observed.pod;
    if let Some(since) = observed.node_gone_since {
        let due = time::after(since, QUARANTINE);
        if due > observed.now {
            return Plan {
                awaits: vec![format!("{due}, when its node has been gone for {QUARANTINE} seconds")],
                next: time::earliest(observed.now, [due]),
                ..Plan::default()
            };
        }
        let mut steps = Vec::new();
        if !pod.object.is_terminal() {
            steps.push(fail(observed));
        }
        steps.push(delete(pod));
        return Plan { steps, ..Plan::default() };
    }
    // No kubelet will ever end a pod that is on no node.
    let is_unscheduled = pod.object.spec.node_name.is_none() && pod.object.is_deleting();
    Plan { steps: is_unscheduled.then(|| delete(pod)).into_iter().collect(), ..Plan::default() }
}

/// A pod of a node that is gone has failed.
fn fail(observed: &Observed) -> Step {
    let pod = &observed.pod;
    let message = "PodGC: node no longer exists";
    let conditions = pod.object.with_disruption(DELETION_BY_POD_GC, message, observed.now);
    let patch = json!({
        "metadata": { "uid": pod.uid, "resourceVersion": pod.version.to_string() },
        "status": { "phase": Phase::Failed, "conditions": conditions },
    });
    let action = Action::Patch {
        kind: ApiKind::of::<Pod>(),
        key: pod.key.clone(),
        subresource: Some("status".to_owned()),
        patch_kind: PatchKind::Merge,
        patch,
    };
    action.into()
}

fn delete(pod: &Entry<PodView>) -> Step {
    let action = Action::Delete {
        kind: ApiKind::of::<Pod>(),
        key: pod.key.clone(),
        uid: pod.uid.clone(),
        propagation: Propagation::Background,
        grace_seconds: Some(0),
    };
    action.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_controller::Next;

    fn observed(change: impl FnOnce(&mut PodView), gone_seconds: Option<i64>) -> Observed {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut pod = PodView::default();
        change(&mut pod);
        Observed {
            pod: Arc::new(Entry::new(ObjectKey::new("ns", "pod"), pod)),
            node_gone_since: gone_seconds.map(|seconds| time::after(now, -seconds)),
            now,
        }
    }

    #[test]
    fn pods_of_a_node_that_stays_gone_fail_and_are_deleted() {
        let bound = |pod: &mut PodView| pod.spec.node_name = Some("gone".to_owned());
        assert!(plan(&observed(bound, None)).is_empty());
        let waiting = plan(&observed(bound, Some(10)));
        assert!(waiting.is_empty());
        assert_eq!(waiting.next, Next::After(std::time::Duration::from_secs(30)));
        let steps = plan(&observed(bound, Some(40))).steps;
        let Action::Patch { patch, .. } = &steps[0].action else { panic!("{steps:?}") };
        assert_eq!(patch["status"]["phase"], "Failed");
        assert_eq!(patch["status"]["conditions"][0]["reason"], DELETION_BY_POD_GC);
        assert!(matches!(steps[1].action, Action::Delete { grace_seconds: Some(0), .. }));
        let ended = |pod: &mut PodView| {
            bound(pod);
            pod.status.phase = Phase::Succeeded;
        };
        assert_eq!(plan(&observed(ended, Some(40))).steps.len(), 1, "an ended pod is only deleted");
    }

    #[test]
    fn a_terminating_pod_on_no_node_is_deleted_at_once() {
        let terminating = |pod: &mut PodView| pod.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(plan(&observed(terminating, None)).steps.len(), 1);
        assert!(plan(&observed(|_| {}, None)).is_empty());
    }
}
