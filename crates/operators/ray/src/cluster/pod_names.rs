//! Names of pods to make.
//!
//! A pod's name has to look random, to differ from those of its predecessors (the autoscaler knows pods by
//! name), and to be chosen again by every attempt until the pod was seen: a creation whose answer is lost is then
//! repeated under the same name, and there are never two. So a name follows from what the pod is for, a number drawn
//! once per process, and how often a pod in that place was seen to go.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;
use quintet_controller::{cache::Change, object::Uid};

use crate::{labels, names, pod_view::PodView};

/// What a pod is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) group: Box<str>,
    /// `None` where pods carry no index: one count serves all of them.
    pub(super) place: Option<(u32, u32)>,
}

impl Slot {
    pub(super) fn head() -> Self {
        Self { group: labels::HEAD_GROUP.into(), place: None }
    }

    fn of(pod: &PodView) -> Self {
        let number = |label| pod.label(label).parse().ok();
        let place = number(labels::REPLICA_INDEX)
            .map(|replica| (replica, number(labels::HOST_INDEX).unwrap_or_default()));
        Self { group: pod.label(labels::GROUP).into(), place }
    }
}

type Rounds = HashMap<Slot, u32>;

/// What this process has seen go.
pub(super) struct Memory {
    seed: u64,
    by_cluster: Mutex<HashMap<Uid, Arc<Rounds>>>,
}

impl Memory {
    pub(super) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Self { seed, by_cluster: Mutex::default() }
    }

    /// Takes note of a pod that went.
    pub(super) fn heed(&self, change: &Change<PodView>) {
        let (Some(pod), None) = (&change.old, &change.new) else {
            return;
        };
        let Some(cluster) = &pod.object.controller else {
            return;
        };
        let mut by_cluster = self.by_cluster.lock();
        let rounds = by_cluster.entry(Uid::from(&**cluster)).or_default();
        *Arc::make_mut(rounds).entry(Slot::of(&pod.object)).or_default() += 1;
    }

    pub(super) fn forget(&self, cluster: &Uid) {
        self.by_cluster.lock().remove(cluster);
    }

    pub(super) fn names(&self, cluster: &Uid) -> PodNames {
        let rounds = self.by_cluster.lock().get(cluster).cloned().unwrap_or_default();
        PodNames { seed: self.seed, cluster: cluster.clone(), rounds }
    }
}

/// The names of one cluster's next pods.
#[derive(Clone, Debug)]
pub(super) struct PodNames {
    seed: u64,
    cluster: Uid,
    rounds: Arc<Rounds>,
}

impl PodNames {
    pub(super) fn name(&self, prefix: &str, slot: &Slot) -> String {
        format!("{prefix}{}", self.suffix("pod", slot))
    }

    /// Five characters for a slot and a purpose.
    pub(super) fn suffix(&self, purpose: &str, slot: &Slot) -> String {
        let round = |slot: &Slot| self.rounds.get(slot).copied().unwrap_or_default();
        let shared = Slot { group: slot.group.clone(), place: None };
        let rounds = (round(slot), round(&shared));
        names::suffix((self.seed, self.cluster.as_str(), purpose, slot, rounds))
    }
}

#[cfg(test)]
mod tests {
    use quintet_controller::{ObjectKey, cache::Cause};

    use super::*;

    fn gone(memory: &Memory, cluster: &str, group: &str, replica: Option<u32>) {
        let mut pod = PodView { controller: Some(cluster.into()), ..PodView::default() };
        pod.labels.insert(labels::GROUP.to_owned(), group.to_owned());
        if let Some(replica) = replica {
            pod.labels.insert(labels::REPLICA_INDEX.to_owned(), replica.to_string());
        }
        let entry = quintet_controller::cache::Entry::new(ObjectKey::new("ns", "pod"), pod);
        memory.heed(&Change { old: Some(Arc::new(entry)), new: None, cause: Cause::Watch });
    }

    fn slot(replica: u32) -> Slot {
        Slot { group: "small".into(), place: Some((replica, 0)) }
    }

    #[test]
    fn a_name_stays_until_its_pod_was_seen_to_go() {
        let memory = Memory::new(Some(1));
        let uid = Uid::from("u");
        let name = |replica| memory.names(&uid).name("c-small-worker-", &slot(replica));
        let (first, second) = (name(0), name(1));
        assert_ne!(first, second);
        assert_eq!(first, name(0));
        gone(&memory, "u", "small", Some(0));
        assert_ne!(first, name(0), "a successor has a name of its own");
        assert_eq!(second, name(1), "and others keep theirs");
        gone(&memory, "other", "small", Some(1));
        assert_eq!(second, name(1));
        gone(&memory, "u", "small", None);
        assert_ne!(second, name(1), "a pod without an index may have been any of them");
    }

    #[test]
    fn another_process_chooses_other_names() {
        let uid = Uid::from("u");
        let name = |seed| Memory::new(Some(seed)).names(&uid).name("p-", &Slot::head());
        assert_ne!(name(1), name(2));
    }
}
