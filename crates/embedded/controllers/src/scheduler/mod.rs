//! The scheduler: binds pods to nodes.
//!
//! One decision over all pods and nodes, so it is an [`Index`]: the state of all nodes is in memory, with bindings that are
//! being written counted as if they had taken effect.

mod budgets;
mod filters;
mod plan;
mod preemption;
mod queue;
mod score;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use filters::have_port_conflict;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use quintet_controller::cache::{Entry, ObjectMetadata, WatchSpec};
use quintet_controller::index::{Index, IndexSettings, IndexSetup, Update, Write, WriteOutcome};
use quintet_controller::object::Uid;
use quintet_controller::{ApiKind, Error, ObjectKey, Runtime};

use crate::Context;
use crate::node::NodeView;
use crate::pod::PodView;
use budgets::Budgets;
use queue::Queue;
use state::{Placed, State};

/// The scheduler that pods ask for unless they name another.
const NAME: &str = "default-scheduler";

/// Adds the scheduler.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let caches = runtime.caches();
    let nodes = caches.watch(NodeView::watch())?;
    let namespaces = caches.watch(WatchSpec::metadata(ApiKind::of::<Namespace>()))?;
    let claims = caches.watch(WatchSpec::<PersistentVolumeClaim>::typed())?;
    let volumes = caches.watch(WatchSpec::<PersistentVolume>::typed())?;
    let classes = caches.watch(WatchSpec::<StorageClass>::typed())?;
    let budgets = caches.watch(WatchSpec::<PodDisruptionBudget>::typed())?;
    let settings = IndexSettings { seed: context.seed, ..IndexSettings::default() };
    IndexSetup::new(runtime, &context.clock, settings, Scheduler::default())
        .feed(&context.pods, Event::Pod)
        .feed(&nodes, Event::Node)
        .feed(&namespaces, Event::Namespace)
        .feed(&claims, Event::Claim)
        .feed(&volumes, Event::Volume)
        .feed(&classes, Event::Class)
        .feed(&budgets, Event::Budget)
        .start();
    Ok(())
}

/// A change of an observed object.
pub(crate) enum Event {
    Pod(Update<PodView>),
    Node(Update<NodeView>),
    Namespace(Update<ObjectMetadata>),
    Claim(Update<PersistentVolumeClaim>),
    Volume(Update<PersistentVolume>),
    Class(Update<StorageClass>),
    Budget(Update<PodDisruptionBudget>),
}

/// What a write is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A pod is bound to a node.
    Bind { pod: ObjectKey, uid: Uid },
    /// A pod is reported as unschedulable.
    Report,
    /// A node is selected for the claims of a pod.
    SelectNode,
    /// A pod is preempted.
    Preempt { victim: ObjectKey },
}

/// The model of all pods and nodes.
#[derive(Default)]
pub(crate) struct Scheduler {
    state: State,
    budgets: Budgets,
    /// Pods that wait for a node.
    pending: BTreeMap<ObjectKey, Arc<Entry<PodView>>>,
    queue: Queue,
    /// Bindings that are being written.
    assumed: BTreeMap<ObjectKey, Assumed>,
    /// Nodes that pods wait for because others are being preempted for them.
    nominated: BTreeMap<ObjectKey, (String, Placed)>,
    /// Pods to preempt, and the uids of the pods for which.
    victims: BTreeMap<ObjectKey, Victim>,
}

/// A binding that is being written.
#[derive(Clone, Debug)]
struct Assumed {
    uid: Uid,
    node: String,
    /// Its outcome is unknown: the same is written again.
    is_lost: bool,
}

/// A pod that is being preempted.
#[derive(Clone, Debug)]
struct Victim {
    uid: Uid,
    preemptor: Uid,
    node: String,
    /// A write is outstanding.
    is_written: bool,
}

/// Whether a pod waits for this scheduler.
fn is_pending(pod: &Entry<PodView>) -> bool {
    let spec = &pod.object.spec;
    spec.node_name.is_none()
        && spec.scheduling_gates.is_empty()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == NAME)
        && pod.object.is_active()
}

impl Scheduler {
    fn apply_pod(&mut self, update: Update<PodView>) {
        let key = update.key().clone();
        let Update::Applied(pod) = update else {
            self.unplace(&key);
            self.assumed.remove(&key);
            self.nominated.remove(&key);
            self.victims.remove(&key);
            self.pending.remove(&key);
            self.queue.remove(&key);
            return;
        };
        if self.victims.get(&key).is_some_and(|victim| victim.uid != pod.uid || pod.deleting) {
            self.victims.remove(&key);
        }
        if is_pending(&pod) {
            return self.apply_pending(key, pod);
        }
        self.assumed.remove(&key);
        self.nominated.remove(&key);
        self.pending.remove(&key);
        self.queue.remove(&key);
        match pod.object.spec.node_name.clone().filter(|_| !pod.object.is_terminal()) {
            Some(node) => self.place(&node, pod),
            None => self.unplace(&key),
        }
    }

    /// A pod without a node. A binding of this incarnation that is being written stays.
    fn apply_pending(&mut self, key: ObjectKey, pod: Arc<Entry<PodView>>) {
        if self.assumed.get(&key).is_none_or(|assumed| assumed.uid != pod.uid) {
            self.assumed.remove(&key);
            self.unplace(&key);
        }
        if let Some(node) = pod.object.status.nominated_node_name.clone() {
            self.nominated.insert(key.clone(), (node, Placed::new(Arc::clone(&pod))));
        }
        self.queue.add(&pod);
        self.pending.insert(key, pod);
    }

    /// Counts a bound pod. Unless only its status has changed, another pod may have waited for that: to be near it, or for the
    /// room that a smaller request leaves.
    fn place(&mut self, node: &str, pod: Arc<Entry<PodView>>) {
        let before = self.state.placed(&pod.key);
        let is_same =
            before.is_some_and(|before| before.pod.uid == pod.uid && before.pod.content == pod.content);
        self.state.place(node, Placed::new(pod));
        if !is_same {
            self.queue.wake();
        }
    }

    /// Frees the room of a pod.
    fn unplace(&mut self, key: &ObjectKey) {
        if self.state.unplace(key) {
            self.queue.wake();
        }
    }

    fn apply_node(&mut self, update: Update<NodeView>) {
        match update {
            Update::Applied(node) => {
                let state = self.state.node(node.key.name());
                let before = state.node.as_ref().map(|before| schedulable_part(&before.object));
                let has_changed = before.is_none_or(|before| before != schedulable_part(&node.object));
                state.node = Some(node);
                if has_changed {
                    self.queue.wake();
                }
            }
            Update::Deleted(key) => {
                self.state.node(key.name()).node = None;
                self.state.tidy(key.name());
            }
        }
    }
}

/// What scheduling depends on; conditions change with every heartbeat.
fn schedulable_part(node: &NodeView) -> (&crate::node::Metadata, &crate::node::Spec, &state::Amounts) {
    (&node.metadata, &node.spec, &node.status.allocatable)
}

/// Inserts or removes an object by its name.
fn follow<K: Ord, T>(all: &mut BTreeMap<K, Arc<Entry<T>>>, update: Update<T>, key: impl Fn(&ObjectKey) -> K) {
    match update {
        Update::Applied(entry) => all.insert(key(&entry.key), entry),
        Update::Deleted(of) => all.remove(&key(&of)),
    };
}

impl Index for Scheduler {
    type Event = Event;
    type Decision = Decision;

    const NAME: &'static str = NAME;

    fn apply(&mut self, event: Event, _: Timestamp) {
        let name = |key: &ObjectKey| key.name().to_owned();
        match event {
            Event::Pod(update) => self.apply_pod(update),
            Event::Node(update) => self.apply_node(update),
            Event::Namespace(update) => follow(&mut self.state.namespaces, update, name),
            Event::Budget(update) => follow(&mut self.budgets.0, update, ObjectKey::clone),
            Event::Claim(update) => {
                follow(&mut self.state.claims, update, ObjectKey::clone);
                self.queue.wake();
            }
            Event::Volume(update) => {
                follow(&mut self.state.volumes, update, name);
                self.queue.wake();
            }
            Event::Class(update) => {
                follow(&mut self.state.classes, update, name);
                self.queue.wake();
            }
        }
    }

    fn decide(&mut self, now: Timestamp, room: usize) -> Vec<Write<Decision>> {
        plan::decide(self, now, room)
    }

    fn outcome(&mut self, decision: Decision, outcome: WriteOutcome, now: Timestamp) {
        match decision {
            Decision::Bind { pod, uid } => {
                let Some(assumed) = self.assumed.get_mut(&pod).filter(|assumed| assumed.uid == uid) else {
                    return;
                };
                match outcome {
                    // The bound pod was applied before, unless it is gone; then its deletion is.
                    WriteOutcome::Written { .. } | WriteOutcome::Superseded => {}
                    WriteOutcome::Lost => assumed.is_lost = true,
                    WriteOutcome::Conflict | WriteOutcome::Refused(_) => {
                        self.assumed.remove(&pod);
                        self.unplace(&pod);
                        if let Some(pod) = self.pending.get(&pod) {
                            self.queue.failed(pod, now);
                            self.queue.wake();
                        }
                    }
                }
            }
            Decision::Preempt { victim } => {
                if let Some(victim) = self.victims.get_mut(&victim) {
                    victim.is_written = false;
                }
            }
            Decision::Report | Decision::SelectNode => {}
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    fn empty(&self) -> Self {
        Self::default()
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (name, node) in &self.state.nodes {
            let bound: BTreeSet<_> = node.pods.keys().collect();
            (name, node.node.as_ref().map(|node| node.version), bound).hash(&mut hasher);
        }
        self.queue.keys().collect::<Vec<_>>().hash(&mut hasher);
        hasher.finish()
    }
}
