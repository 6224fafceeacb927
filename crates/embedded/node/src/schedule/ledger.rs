//! The scheduling ledger: what is taken of every node, derived from the pod cache and the bindings being written.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use quintet_controller::ObjectKey;
use quintet_controller::cache::{Change, Entry};
use quintet_controller::object::Uid;

use super::{Amounts, Node, choose, is_pending, obstacle};
use crate::pod::Pod;

/// How many pending pods are tried again when room is freed; more could rarely use it.
const TRIED_AGAIN: usize = 32;

/// What pods take of which node, and which pods are pending.
///
/// Bound pods are counted as the cache shows them. A binding that is being written is assumed until the cache shows
/// its outcome, or until the write has failed.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Books>);

#[derive(Default)]
struct Books {
    /// The sum of `bound` and `assumed`.
    used: HashMap<String, Amounts>,
    bound: HashMap<ObjectKey, Share>,
    assumed: HashMap<ObjectKey, Share>,
    /// In the order of creation.
    pending: BTreeSet<(Option<Timestamp>, ObjectKey)>,
}

/// What one pod takes of a node.
struct Share {
    uid: Uid,
    node: String,
    requests: Amounts,
}

impl Books {
    fn add(used: &mut HashMap<String, Amounts>, share: &Share) {
        let used = used.entry(share.node.clone()).or_default();
        for (name, amount) in &share.requests {
            *used.entry(name.clone()).or_default() += *amount;
        }
    }

    fn subtract(used: &mut HashMap<String, Amounts>, share: &Share) {
        let used = used.entry(share.node.clone()).or_default();
        for (name, amount) in &share.requests {
            *used.entry(name.clone()).or_default() -= *amount;
        }
    }

    fn bind(&mut self, key: &ObjectKey, share: Share) {
        Self::add(&mut self.used, &share);
        if let Some(before) = self.bound.insert(key.clone(), share) {
            Self::subtract(&mut self.used, &before);
        }
    }

    fn unbind(&mut self, key: &ObjectKey) -> bool {
        let share = self.bound.remove(key);
        share.inspect(|share| Self::subtract(&mut self.used, share)).is_some()
    }

    fn assume(&mut self, key: &ObjectKey, share: Share) {
        Self::add(&mut self.used, &share);
        if let Some(before) = self.assumed.insert(key.clone(), share) {
            Self::subtract(&mut self.used, &before);
        }
    }

    /// Drops the assumption about a pod, unless it is one about the incarnation `unless`.
    fn forget(&mut self, key: &ObjectKey, unless: Option<&Uid>) -> bool {
        if self.assumed.get(key).is_some_and(|share| Some(&share.uid) == unless) {
            return false;
        }
        let share = self.assumed.remove(key);
        share.inspect(|share| Self::subtract(&mut self.used, share)).is_some()
    }
}

impl Ledger {
    /// Follows a change in the cache; returns the pods that may fit now.
    pub(crate) fn follow(&self, change: &Change<Pod>) -> Vec<ObjectKey> {
        let mut books = self.0.lock();
        if let Some(old) = &change.old {
            books.pending.remove(&(old.object.created, old.key.clone()));
        }
        let Some(key) = change.states().next().map(|entry| &entry.key) else { return Vec::new() };
        let freed = match &change.new {
            Some(new) if new.object.takes_room() => {
                let node = new.object.spec.node_name.clone().unwrap_or_default();
                books.bind(key, Share { uid: new.uid.clone(), node, requests: new.object.requests() });
                books.forget(key, None);
                false
            }
            Some(new) if is_pending(new) => {
                books.pending.insert((new.object.created, key.clone()));
                let unbound = books.unbind(key);
                books.forget(key, Some(&new.uid)) || unbound
            }
            _ => {
                let unbound = books.unbind(key);
                books.forget(key, None) || unbound
            }
        };
        if !freed {
            return Vec::new();
        }
        books.pending.iter().take(TRIED_AGAIN).map(|(_, key)| key.clone()).collect()
    }

    /// All pending pods.
    pub(crate) fn pending(&self) -> Vec<ObjectKey> {
        self.0.lock().pending.iter().map(|(_, key)| key.clone()).collect()
    }

    /// Chooses a node for a pod, or says why none will do. Books nothing.
    pub(super) fn choose(&self, pod: &Entry<Pod>, nodes: &[Arc<Entry<Node>>]) -> Result<String, String> {
        let books = self.0.lock();
        choose(&pod.object, &pod.object.requests(), nodes.iter().map(|node| &node.object), &books.used)
    }

    /// Counts a pod on a node while its binding is written, if there is still room. The assumption ends with
    /// the guard, unless the binding was [confirmed](Assumption::confirm).
    pub(super) fn assume<'l>(&'l self, pod: &Entry<Pod>, node: &Node) -> Result<Assumption<'l>, String> {
        let mut books = self.0.lock();
        let (requests, nothing) = (pod.object.requests(), Amounts::new());
        let used = books.used.get(&node.metadata.name).unwrap_or(&nothing);
        if let Some(reason) = obstacle(&pod.object, &requests, node, used) {
            return Err(reason);
        }
        let (uid, node) = (pod.uid.clone(), node.metadata.name.clone());
        books.assume(&pod.key, Share { uid, node, requests });
        Ok(Assumption { ledger: self, key: pod.key.clone(), uid: pod.uid.clone(), is_written: false })
    }
}

/// A binding that is being written.
pub(super) struct Assumption<'l> {
    ledger: &'l Ledger,
    key: ObjectKey,
    uid: Uid,
    is_written: bool,
}

impl Assumption<'_> {
    /// The binding was written: the pod is counted until the cache shows it bound or gone.
    pub(super) fn confirm(mut self) {
        self.is_written = true;
    }
}

impl Drop for Assumption<'_> {
    /// The binding failed or was cancelled. If it was written nevertheless, the cache will show it.
    fn drop(&mut self) {
        let mut books = self.ledger.0.lock();
        if !self.is_written && books.assumed.get(&self.key).is_some_and(|share| share.uid == self.uid) {
            books.forget(&self.key, None);
        }
    }
}
