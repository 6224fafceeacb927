//! Names of pods to make.
//!
//! A pod's name has to look random, to differ from those of its predecessors (the autoscaler knows pods by
//! name), and to be chosen again by every attempt until the pod was seen: a creation whose answer is lost is then
//! repeated under the same name, and there are never two. So a name follows from what the pod is for, a number drawn
//! once per process, and how often a pod in that place was seen to go.

use std::{
    collections::{BTreeMap, HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;
use quintet_controller::{cache::Change, object::Uid};
use serde::{Deserialize, Serialize};

use crate::{labels, names, pod_view::PodView};

/// What a pod is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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

type Rounds = BTreeMap<Slot, u32>;

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
    pub(super) fn record_deletion(&self, change: &Change<PodView>) {
        let (Some(pod), None) = (&change.old, &change.new) else {
            return;
        };
        let Some(cluster) = &pod.object.controller else {
            return;
        };
        // Children go after their cluster: what is forgotten stays forgotten.
        if let Some(rounds) = self.by_cluster.lock().get_mut(&Uid::from(&**cluster)) {
            *Arc::make_mut(rounds).entry(Slot::of(&pod.object)).or_default() += 1;
        }
    }

    /// Keeps count for a cluster from now on.
    pub(super) fn remember(&self, cluster: &Uid) {
        self.by_cluster.lock().entry(cluster.clone()).or_default();
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PodNames {
    seed: u64,
    cluster: Uid,
    #[serde(with = "pairs")]
    rounds: Arc<Rounds>,
}

impl PodNames {
    /// The name of a slot: the first free one of its series. Five characters are few enough to meet twice in a
    /// large group.
    pub(super) fn name(&self, prefix: &str, slot: &Slot, is_taken: impl Fn(&str) -> bool) -> String {
        self.series("pod", slot)
            .map(|suffix| format!("{prefix}{suffix}"))
            .find(|name| !is_taken(name))
            .unwrap_or_default()
    }

    /// The name of a replica of several hosts: the first free one of its series.
    pub(super) fn replica_name(&self, slot: &Slot, is_taken: impl Fn(&str) -> bool) -> String {
        let names = self.series("replica", slot).map(|suffix| format!("{}-{suffix}", slot.group));
        names.into_iter().find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// Five characters for a slot and a purpose, again and again others.
    fn series(&self, purpose: &'static str, slot: &Slot) -> impl Iterator<Item = String> {
        let round = |slot: &Slot| self.rounds.get(slot).copied().unwrap_or_default();
        let shared = Slot { group: slot.group.clone(), place: None };
        let rounds = (round(slot), round(&shared));
        (0_u32..).map(move |attempt| {
            names::suffix((self.seed, self.cluster.as_str(), purpose, slot, rounds, attempt))
        })
    }
}

/// JSON has no maps with keys that are not text: a list of pairs instead.
mod pairs {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Rounds, Slot};

    pub(super) fn serialize<S: Serializer>(rounds: &Arc<Rounds>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(rounds.iter())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Rounds>, D::Error> {
        let pairs = Vec::<(Slot, u32)>::deserialize(deserializer)?;
        Ok(Arc::new(pairs.into_iter().collect()))
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
        memory.record_deletion(&Change { old: Some(Arc::new(entry)), new: None, cause: Cause::Watch });
    }

    fn slot(replica: u32) -> Slot {
        Slot { group: "small".into(), place: Some((replica, 0)) }
    }

    #[test]
    fn a_name_stays_until_its_pod_was_seen_to_go() {
        let memory = Memory::new(Some(1));
        let uid = Uid::from("u");
        memory.remember(&uid);
        let name = |replica| memory.names(&uid).name("c-small-worker-", &slot(replica), |_| false);
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
    fn a_name_that_is_taken_is_passed_over() {
        let names = Memory::new(Some(1)).names(&Uid::from("u"));
        let first = names.name("p-", &slot(0), |_| false);
        let second = names.name("p-", &slot(0), |name| name == first);
        assert_ne!(first, second);
        assert_eq!(second, names.name("p-", &slot(0), |name| name == first), "and always for the same one");
    }

    #[test]
    fn what_is_forgotten_stays_forgotten() {
        let memory = Memory::new(Some(1));
        memory.remember(&Uid::from("u"));
        gone(&memory, "u", "small", Some(0));
        memory.forget(&Uid::from("u"));
        gone(&memory, "u", "small", Some(1));
        assert!(memory.by_cluster.lock().is_empty());
    }

    #[test]
    fn another_process_chooses_other_names() {
        let uid = Uid::from("u");
        let name = |seed| Memory::new(Some(seed)).names(&uid).name("p-", &Slot::head(), |_| false);
        assert_ne!(name(1), name(2));
    }
}
