//! The plan for one DaemonSet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::Pod;
use quintet_api::owners::controller_reference;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, StatusPatch, Step};

use super::objects::{self, node_of};
use super::{Observed, selector, status};
use crate::deployment::scaled;
use crate::node::NodeView;
use crate::pod::{Availability, Phase, PodView};
use crate::revision::{self, POD_REVISION, Update};
use crate::taints::{self, NO_EXECUTE, NO_SCHEDULE};
use crate::{claim, names, pod_events, time};

/// Pods created or deleted in one reconcile, as upstream's `BurstReplicas`.
const MAX_PER_RECONCILE: usize = 250;
const FAILED_DAEMON_POD: &str = "FailedDaemonPod";
const SUCCEEDED_DAEMON_POD: &str = "SucceededDaemonPod";

type Daemon<'a> = &'a Entry<PodView>;

/// A DaemonSet with its pods by node.
pub(super) struct Daemons<'a> {
    pub(super) observed: &'a Observed,
    pub(super) spec: &'a DaemonSetSpec,
    pub(super) update: Update,
    /// Pods by the node they are meant for, the oldest first.
    pub(super) by_node: BTreeMap<&'a str, Vec<Daemon<'a>>>,
}

/// What the set wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// A pod should be started.
    pub(super) should_run: bool,
    /// A pod that runs may stay.
    pub(super) may_stay: bool,
}

#[derive(Default)]
struct Draft {
    create_on: Vec<String>,
    delete: Vec<Step>,
    due: Option<Timestamp>,
}

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let set = &observed.set;
    let (Some(spec), Some(owner)) = (&set.object.spec, controller_reference(&set.object)) else {
        return Plan::nothing();
    };
    let Some(selector) = selector(&set.object) else { return Plan::nothing() };
    let kind = ApiKind::of::<Pod>();
    let claimed = claim::claim(&owner, set.deleting, Some(&selector), &kind, &observed.pods);
    let daemons = Daemons::new(observed, spec, &claimed.owned);
    let mut steps = claimed.steps;
    let mut draft = Draft::default();
    if !set.deleting {
        steps.extend(daemons.update.step.clone());
        daemons.place(&mut draft);
        if draft.create_on.is_empty() && draft.delete.is_empty() {
            daemons.roll(&mut draft);
        }
        draft.create_on.truncate(MAX_PER_RECONCILE);
        draft.delete.truncate(MAX_PER_RECONCILE);
        steps.extend(daemons.create(&draft.create_on, &claimed.owned));
        steps.extend(draft.delete);
        steps.extend(daemons.clean_up_history());
    }
    let current = set.object.status.clone().unwrap_or_default();
    let outlook = status::status(&daemons, &current);
    Plan {
        steps,
        status: StatusPatch::between(set, &current, &outlook.status),
        awaits: status::awaits(&outlook.status),
        next: time::earliest(observed.now, draft.due.into_iter().chain(outlook.due)),
        ..Plan::default()
    }
}

impl<'a> Daemons<'a> {
    fn new(observed: &'a Observed, spec: &'a DaemonSetSpec, owned: &[Daemon<'a>]) -> Self {
        let set = &observed.set.object;
        let revisions: Vec<_> = observed.revisions.iter().map(|revision| &**revision).collect();
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let mut by_node: BTreeMap<&str, Vec<Daemon<'a>>> = BTreeMap::new();
        for pod in owned {
            if let Some(node) = node_of(&pod.object) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_key(|pod| (pod.object.metadata.creation_timestamp, pod.key.clone()));
        }
        let update = revision::update(set, &spec.template, collisions, &revisions);
        Self { observed, spec, update, by_node }
    }

    fn set(&self) -> &'a DaemonSet {
        &self.observed.set.object
    }

    pub(super) fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or_default()
    }

    pub(super) fn pods_on(&self, node: &str) -> &[Daemon<'a>] {
        self.by_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a pod of the current template may run on a node, as upstream's `NodeShouldRunDaemonPod`.
    pub(super) fn placement(&self, node: &NodeView) -> Placement {
        let pod = objects::pod(self.set(), "", &node.metadata.name, String::new());
        let pod: PodView = serde_json::to_value(&pod).and_then(serde_json::from_value).unwrap_or_default();
        let is_selected = node.is_selected_by(&pod);
        let tolerates =
            |effects: &[&str]| taints::are_tolerated(&node.spec.taints, &pod.spec.tolerations, effects);
        Placement {
            should_run: is_selected && tolerates(&[NO_SCHEDULE, NO_EXECUTE]),
            may_stay: is_selected && tolerates(&[NO_EXECUTE]),
        }
    }

    /// Creates pods where there are none, and removes those that are too many or not wanted.
    fn place(&self, draft: &mut Draft) {
        for node in &self.observed.nodes {
            let pods = self.pods_on(node.key.name());
            let placement = self.placement(&node.object);
            if placement.should_run && pods.is_empty() {
                draft.create_on.push(node.key.name().to_owned());
            } else if placement.may_stay {
                self.keep_one(pods, draft);
            } else {
                draft.delete.extend(
                    pods.iter().filter(|pod| !pod.object.is_deleting()).map(|pod| pod_events::delete(pod)),
                );
            }
        }
    }

    /// Replaces ended pods, and keeps the oldest of several; with a surge, one of each revision.
    fn keep_one(&self, pods: &[Daemon<'_>], draft: &mut Draft) {
        let mut running = Vec::new();
        for pod in pods.iter().filter(|pod| !pod.object.is_deleting()) {
            match pod.object.status.phase {
                Phase::Failed | Phase::Succeeded => self.replace_ended(pod, draft),
                _ => running.push(*pod),
            }
        }
        if self.surge() == 0 {
            draft.delete.extend(running.iter().skip(1).map(|pod| pod_events::delete(pod)));
            return;
        }
        let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| self.is_updated(pod));
        // The old pod goes when the new one is available.
        let is_replaced = new.iter().any(|pod| self.is_available(pod, draft));
        let kept = usize::from(!is_replaced);
        draft.delete.extend(old.iter().skip(kept).map(|pod| pod_events::delete(pod)));
        draft.delete.extend(new.iter().skip(1).map(|pod| pod_events::delete(pod)));
    }

    fn replace_ended(&self, pod: Daemon<'_>, draft: &mut Draft) {
        let due = self.observed.replace_at.get(pod.uid.as_str()).copied().unwrap_or(self.observed.now);
        if due > self.observed.now {
            draft.due = Some(draft.due.map_or(due, |other| other.min(due)));
            return;
        }
        let node = pod.object.spec.node_name.as_deref().unwrap_or_default();
        let event = if pod.object.status.phase == Phase::Failed {
            let note = format!("Found failed daemon pod {} on node {node}, will try to kill it", pod.key);
            Event::warning(FAILED_DAEMON_POD, "Delete", note)
        } else {
            let note =
                format!("Found succeeded daemon pod {} on node {node}, will try to delete it", pod.key);
            Event::normal(SUCCEEDED_DAEMON_POD, "Delete", note)
        };
        draft.delete.push(Action::delete(ApiKind::of::<Pod>(), pod).with_event(event));
    }

    pub(super) fn is_updated(&self, pod: Daemon<'_>) -> bool {
        let hash = pod.object.metadata.labels.get(POD_REVISION);
        hash.is_some_and(|hash| *hash == self.update.hash)
    }

    fn is_available(&self, pod: Daemon<'_>, draft: &mut Draft) -> bool {
        match pod.object.availability(self.min_ready_seconds(), self.observed.now) {
            Availability::Available => true,
            Availability::From(due) => {
                draft.due = Some(draft.due.map_or(due, |other| other.min(due)));
                false
            }
            Availability::Unavailable => false,
        }
    }

    /// How many nodes may have a pod too many.
    fn surge(&self) -> usize {
        let rolling =
            self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
        let nodes = i32::try_from(self.observed.nodes.len()).unwrap_or(i32::MAX);
        usize::try_from(surge.map_or(0, |surge| scaled(surge, nodes, true))).unwrap_or_default()
    }

    fn max_unavailable(&self) -> usize {
        let rolling =
            self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let max = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let nodes = i32::try_from(self.observed.nodes.len()).unwrap_or(i32::MAX);
        usize::try_from(max.map_or(1, |max| scaled(max, nodes, true))).unwrap_or_default()
    }

    /// Replaces pods of old revisions: at once where they are unavailable, else within the budget.
    fn roll(&self, draft: &mut Draft) {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
            return;
        }
        let (surge, mut unavailable, mut surging) = (self.surge(), 0, 0);
        let mut candidates = Vec::new();
        for node in self.observed.nodes.iter().filter(|node| self.placement(&node.object).should_run) {
            let pods = self.pods_on(node.key.name());
            let alive: Vec<_> = pods.iter().copied().filter(|pod| pod.object.is_active()).collect();
            let old = alive.iter().copied().find(|pod| !self.is_updated(pod));
            let has_available = alive.iter().any(|pod| self.is_available(pod, draft));
            unavailable += usize::from(!has_available);
            surging += usize::from(alive.len() > 1);
            if let Some(old) = old.filter(|_| alive.len() == 1) {
                candidates.push((node.key.name(), old, has_available));
            }
        }
        let mut budget = self.max_unavailable().saturating_sub(unavailable);
        let mut room = surge.saturating_sub(surging);
        for (node, old, is_available) in candidates {
            if !is_available {
                draft.delete.push(pod_events::delete(old));
            } else if surge > 0 && room > 0 {
                draft.create_on.push(node.to_owned());
                room -= 1;
            } else if surge == 0 && budget > 0 {
                draft.delete.push(pod_events::delete(old));
                budget -= 1;
            }
        }
    }

    fn create(&self, nodes: &[String], owned: &[Daemon<'_>]) -> Vec<Step> {
        let prefix = names::prefix(self.observed.set.key.name());
        let is_taken = |name: &String| owned.iter().any(|pod| pod.key.name() == name);
        let name = |node: &String| self.observed.entropy.names(&prefix, node).find(|name| !is_taken(name));
        nodes
            .iter()
            .filter_map(|node| {
                let pod = objects::pod(self.set(), &self.update.hash, node, name(node)?);
                Some(pod_events::create(&pod))
            })
            .collect()
    }

    fn clean_up_history(&self) -> Vec<Step> {
        let pods = self.by_node.values().flatten();
        let used: Vec<_> = pods.filter_map(|pod| pod.object.metadata.labels.get(POD_REVISION)).collect();
        let revisions: Vec<_> = self.observed.revisions.iter().map(|revision| &**revision).collect();
        let is_used = |revision: &Entry<_>| {
            let hash = revision::hash_of(revision);
            revision.key.name() == self.update.name || used.iter().any(|one| *one == hash)
        };
        revision::clean_up(&revisions, self.spec.revision_history_limit, is_used)
    }
}
