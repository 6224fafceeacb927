//! What the scheduler knows of nodes and of the pods on them, bound or assumed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use quintet_api::Quantity;
use quintet_controller::ObjectKey;
use quintet_controller::cache::{Entry, ObjectMetadata};

use crate::node::NodeView;
use crate::pod::PodView;

pub(super) type Amounts = BTreeMap<String, Quantity>;

/// A pod on a node.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) pod: Arc<Entry<PodView>>,
    pub(super) requests: Amounts,
}

impl Placed {
    pub(super) fn new(pod: Arc<Entry<PodView>>) -> Self {
        Self { requests: pod.object.requests(), pod }
    }
}

/// A node and the pods on it.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeState {
    pub(super) node: Option<Arc<Entry<NodeView>>>,
    pub(super) pods: BTreeMap<ObjectKey, Placed>,
    /// What the pods request together.
    pub(super) used: Amounts,
}

impl NodeState {
    fn place(&mut self, placed: Placed) {
        for (name, amount) in &placed.requests {
            *self.used.entry(name.clone()).or_default() += *amount;
        }
        if let Some(before) = self.pods.insert(placed.pod.key.clone(), placed) {
            self.subtract(&before.requests);
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(placed) = self.pods.remove(key) {
            self.subtract(&placed.requests);
        }
    }

    fn subtract(&mut self, requests: &Amounts) {
        for (name, amount) in requests {
            *self.used.entry(name.clone()).or_default() -= *amount;
        }
    }
}

/// Everything that filters and scores read.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<String, NodeState>,
    /// The nodes of pods.
    places: HashMap<ObjectKey, String>,
    pub(super) namespaces: BTreeMap<String, Arc<Entry<ObjectMetadata>>>,
    pub(super) claims: BTreeMap<ObjectKey, Arc<Entry<PersistentVolumeClaim>>>,
    pub(super) volumes: BTreeMap<String, Arc<Entry<PersistentVolume>>>,
    pub(super) classes: BTreeMap<String, Arc<Entry<StorageClass>>>,
}

impl State {
    /// Nodes that exist, with the pods on them.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&NodeView, &NodeState)> {
        self.nodes.values().filter_map(|state| Some((&state.node.as_ref()?.object, state)))
    }

    pub(super) fn node(&mut self, name: &str) -> &mut NodeState {
        self.nodes.entry(name.to_owned()).or_default()
    }

    /// Counts a pod on a node, and nowhere else.
    pub(super) fn place(&mut self, node: &str, placed: Placed) {
        let key = placed.pod.key.clone();
        if self.places.get(&key).is_some_and(|on| on != node) {
            self.unplace(&key);
        }
        self.node(node).place(placed);
        self.places.insert(key, node.to_owned());
    }

    /// Counts a pod on no node; returns whether it was on one.
    pub(super) fn unplace(&mut self, key: &ObjectKey) -> bool {
        let Some(node) = self.places.remove(key) else { return false };
        self.node(&node).remove(key);
        self.tidy(&node);
        true
    }

    /// A pod on a node.
    pub(super) fn placed(&self, key: &ObjectKey) -> Option<&Placed> {
        self.nodes.get(self.places.get(key)?)?.pods.get(key)
    }

    /// Forgets a node that does not exist and has no pods.
    pub(super) fn tidy(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|state| state.node.is_none() && state.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }
}

/// A state in which some pods count as gone: what preemption would bring about.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) state: &'a State,
    pub(super) gone: &'a BTreeSet<ObjectKey>,
    /// Pods that are expected on a node because others are being preempted for them.
    pub(super) nominated: &'a BTreeMap<ObjectKey, (String, Placed)>,
}

impl<'a> View<'a> {
    /// The pods on a node.
    pub(super) fn pods_on(self, node: &'a NodeState) -> impl Iterator<Item = &'a Placed> {
        node.pods.values().filter(move |placed| !self.gone.contains(&placed.pod.key))
    }

    /// The pods on all nodes.
    pub(super) fn pods(self) -> impl Iterator<Item = (&'a NodeView, &'a Placed)> {
        self.state
            .nodes()
            .flat_map(move |(node, state)| self.pods_on(state).map(move |placed| (node, placed)))
    }

    /// Pods nominated for a node that go before `pod`.
    pub(super) fn nominated_on(
        self,
        node: &'a str,
        pod: &'a Entry<PodView>,
    ) -> impl Iterator<Item = &'a Placed> {
        let goes_before = |placed: &Placed| {
            placed.pod.key != pod.key && placed.pod.object.spec.priority >= pod.object.spec.priority
        };
        self.nominated
            .values()
            .filter(move |(on, placed)| on == node && goes_before(placed))
            .map(|(_, placed)| placed)
    }
}
