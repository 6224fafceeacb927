//! DaemonSet: one pod on every node that matches.

mod backoff;
mod objects;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use quintet_api::selector::Selector;
use quintet_controller::cache::{Cache, Change, Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, OnError, Plan, Runtime};
use serde::{Deserialize, Serialize};

use backoff::Backoff;

use crate::claim::{self, BY_NAMESPACE, index_by_namespace};
use crate::names::Entropy;
use crate::node::NodeView;
use crate::pod::PodView;
use crate::{Context, pod_events, revision};

/// Everything that a decision about a DaemonSet needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    set: Arc<Entry<DaemonSet>>,
    /// Its pods, and those that it may adopt.
    pods: Vec<Arc<Entry<PodView>>>,
    /// Its revisions.
    revisions: Vec<Arc<Entry<ControllerRevision>>>,
    /// All nodes.
    nodes: Vec<Arc<Entry<NodeView>>>,
    /// When ended pods may be replaced, by their uids.
    replace_at: BTreeMap<String, Timestamp>,
    /// Where the names of new pods come from.
    entropy: Entropy,
    now: Timestamp,
}

/// The controller of DaemonSets.
struct DaemonSetController {
    sets: Cache<DaemonSet>,
    revisions: Cache<ControllerRevision>,
    nodes: Cache<NodeView>,
    backoff: Backoff,
    context: Context,
}

/// Adds the controller of DaemonSets.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let caches = runtime.caches();
    let sets = caches.watch(WatchSpec::<DaemonSet>::typed().index(BY_NAMESPACE, index_by_namespace))?;
    let nodes = caches.watch(NodeView::watch())?;
    let revisions = caches.watch(revision::watch())?;
    context.names.forget_owners(&sets);
    let controller = DaemonSetController {
        sets: sets.clone(),
        revisions: revisions.clone(),
        nodes: nodes.clone(),
        backoff: Backoff::default(),
        context: context.clone(),
    };
    controller.backoff.forget(&sets);
    let (kind, roots) = (ApiKind::of::<DaemonSet>(), sets.clone());
    let owners = move |pod: &Entry<PodView>| claim::roots_of(pod, &kind, &roots, selector);
    let (kind, roots) = (ApiKind::of::<DaemonSet>(), sets.clone());
    let all = sets.clone();
    runtime
        .add(controller, &sets, context.concurrency)
        .watches(&context.pods, owners)
        .watches(&revisions, move |revision| claim::roots_of(revision, &kind, &roots, |_| None))
        .watches_changes(&nodes, move |change| sets_of_changed_node(change, &all))
        .done();
    Ok(())
}

/// All DaemonSets, if what they depend on has changed: heartbeats of a node are no reason to reconcile.
fn sets_of_changed_node(change: &Change<NodeView>, sets: &Cache<DaemonSet>) -> Vec<ObjectKey> {
    let part = |node: &Option<Arc<Entry<NodeView>>>| {
        node.as_ref().map(|node| (node.object.metadata.labels.clone(), node.object.spec.clone()))
    };
    if part(&change.old) == part(&change.new) {
        return Vec::new();
    }
    sets.all().iter().map(|set| set.key.clone()).collect()
}

fn selector(set: &DaemonSet) -> Option<Selector> {
    claim::selector(&set.spec.as_ref()?.selector)
}

impl Controller for DaemonSetController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "daemonset-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(set) = self.sets.get(key) else { return Ok(None) };
        let Context { api, pods, names, clock, .. } = &self.context;
        let kind = ApiKind::of::<DaemonSet>();
        let pods = claim::candidates(pods, &set, &kind, selector(&set.object).as_ref(), api).await?;
        let revisions = self.revisions.by_index(claim::BY_CONTROLLER, set.uid.as_str());
        let (nodes, entropy, now) = (self.nodes.all(), names.entropy(&set.uid), clock.now());
        let replace_at = self.backoff.observe(&set, &pods, now);
        Ok(Some(Observed { set, pods, revisions, nodes, replace_at, entropy, now }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(_: &Observed, action: &Action, error: &Error) -> OnError {
        pod_events::on_error(action, error)
    }
}
