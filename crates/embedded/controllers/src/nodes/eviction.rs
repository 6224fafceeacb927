//! Evictions by taints with effect NoExecute.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Taint};
use parking_lot::Mutex;
use quintet_controller::api::PatchKind;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::object::Uid;
use quintet_controller::{Action, ApiKind, Controller, Error, Event, NoCall, ObjectKey, Plan, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::node::NodeView;
use crate::pod::{BY_NODE, PodView};
use crate::taints::{NO_EXECUTE, tolerates};
use crate::{Context, time};

const TAINT_MANAGER_EVICTION: &str = "TaintManagerEviction";
const DELETION_BY_TAINT_MANAGER: &str = "DeletionByTaintManager";

/// Everything that a decision about one pod on a tainted node needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Observed {
    pub(super) pod: Arc<Entry<PodView>>,
    /// The taints of its node with effect NoExecute.
    pub(super) taints: Vec<Taint>,
    /// Since when they are known.
    pub(super) since: Timestamp,
    pub(super) now: Timestamp,
}

/// The controller of pods on tainted nodes.
pub(super) struct EvictionController {
    nodes: Cache<NodeView>,
    /// When the taints of a pod's node were first seen.
    first_seen: Mutex<HashMap<Uid, Timestamp>>,
    context: Context,
}

pub(super) fn add(runtime: &Runtime, context: &Context, nodes: &Cache<NodeView>) {
    let controller =
        EvictionController { nodes: nodes.clone(), first_seen: Mutex::default(), context: context.clone() };
    let pods = context.pods.clone();
    runtime
        .add(controller, &context.pods, context.concurrency)
        .watches_changes(nodes, move |change| {
            let taints = |node: &Option<Arc<Entry<NodeView>>>| {
                node.as_ref().map(|node| node.object.spec.taints.clone()).unwrap_or_default()
            };
            let Some(node) = change.new.as_ref().filter(|_| taints(&change.old) != taints(&change.new))
            else {
                return Vec::new();
            };
            pods.by_index(BY_NODE, node.key.name()).iter().map(|pod| pod.key.clone()).collect()
        })
        .done();
}

impl Controller for EvictionController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "taint-eviction-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(pod) = self.context.pods.get(key) else { return Ok(None) };
        let node =
            pod.object.spec.node_name.as_ref().and_then(|node| self.nodes.get(&ObjectKey::cluster(node)));
        let mut taints = node.map(|node| node.object.spec.taints.clone()).unwrap_or_default();
        taints.retain(|taint| taint.effect == NO_EXECUTE);
        if taints.is_empty() {
            self.first_seen.lock().remove(&pod.uid);
            return Ok(None);
        }
        let now = self.context.clock.now();
        let since = *self.first_seen.lock().entry(pod.uid.clone()).or_insert(now);
        Ok(Some(Observed { pod, taints, since, now }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let pod = &observed.pod;
    if pod.object.is_deleting() || pod.object.is_terminal() {
        return Plan::nothing();
    }
    let Some(seconds) = tolerated_seconds(observed) else { return Plan::nothing() };
    let due = time::after(observed.since, seconds);
    if due > observed.now {
        return Plan {
            awaits: vec![format!("{due}, when it is evicted unless the taint is removed")],
            next: time::earliest(observed.now, [due]),
            ..Plan::default()
        };
    }
    let message = "Taint manager: deleting due to NoExecute taint";
    let conditions = pod.object.with_disruption(DELETION_BY_TAINT_MANAGER, message, observed.now);
    let patch = json!({
        "metadata": { "uid": pod.uid, "resourceVersion": pod.version.to_string() },
        "status": { "conditions": conditions },
    });
    let mark = Action::Patch {
        kind: ApiKind::of::<Pod>(),
        key: pod.key.clone(),
        subresource: Some("status".to_owned()),
        patch_kind: PatchKind::Merge,
        patch,
    };
    let event =
        Event::normal(TAINT_MANAGER_EVICTION, "Evict", format!("Marking for deletion Pod {}", pod.key));
    let delete = Action::delete(ApiKind::of::<Pod>(), pod).with_event(event);
    Plan { steps: vec![mark.into(), delete], ..Plan::default() }
}

/// For how long the taints are tolerated; `None` if without limit.
fn tolerated_seconds(observed: &Observed) -> Option<i64> {
    let mut least: Option<i64> = None;
    for taint in &observed.taints {
        let mut matching = observed
            .pod
            .object
            .spec
            .tolerations
            .iter()
            .filter(|toleration| tolerates(toleration, taint))
            .peekable();
        if matching.peek().is_none() {
            return Some(0);
        }
        let seconds = matching
            .filter_map(|toleration| toleration.toleration_seconds)
            .map(|seconds| seconds.max(0))
            .min();
        least = least.into_iter().chain(seconds).min();
    }
    least
}
