//! Backoff of pods that fail again and again on the same node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use parking_lot::Mutex;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::object::Uid;

use crate::pod::PodView;
use crate::time;

/// The first and the longest delay in seconds, as upstream's `FailedPodsBackoff`.
const FIRST: i64 = 1;
const LONGEST: i64 = 900;

/// The ended pods that this process has seen, by set and node.
#[derive(Clone, Default)]
pub(super) struct Backoff(Arc<Mutex<HashMap<Uid, HashMap<String, Ended>>>>);

struct Ended {
    /// The generation of the set: a new template resets the backoff.
    generation: Option<i64>,
    pod: Uid,
    failures: u32,
    due: Timestamp,
}

impl Backoff {
    /// Forgets sets that disappear.
    pub(super) fn forget(&self, sets: &Cache<DaemonSet>) {
        let backoff = self.clone();
        sets.subscribe(move |change| {
            let is_same = |uid: &Uid| change.new.as_ref().is_some_and(|new| new.uid == *uid);
            if let Some(old) = change.old.as_ref().filter(|old| !is_same(&old.uid)) {
                backoff.0.lock().remove(&old.uid);
            }
        });
    }

    /// When ended pods may be replaced, by their uids.
    pub(super) fn observe(
        &self,
        set: &Entry<DaemonSet>,
        pods: &[Arc<Entry<PodView>>],
        now: Timestamp,
    ) -> BTreeMap<String, Timestamp> {
        let mut all = self.0.lock();
        let by_node = all.entry(set.uid.clone()).or_default();
        let generation = set.object.metadata.generation;
        let ended = pods.iter().filter(|pod| pod.object.is_terminal() && !pod.object.is_deleting());
        ended
            .filter_map(|pod| Some((pod, pod.object.spec.node_name.clone()?)))
            .map(|(pod, node)| {
                let new = || Ended { generation, pod: Uid::default(), failures: 0, due: now };
                let ended = by_node.entry(node).or_insert_with(new);
                if ended.generation != generation {
                    *ended = new();
                }
                if ended.pod != pod.uid {
                    let delay = (FIRST << ended.failures.min(10)).min(LONGEST);
                    ended.failures += 1;
                    (ended.pod, ended.due) = (pod.uid.clone(), time::after(now, delay));
                }
                (pod.uid.to_string(), ended.due)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Phase;
    use quintet_controller::ObjectKey;

    #[test]
    fn every_failure_on_a_node_doubles_the_delay() {
        let backoff = Backoff::default();
        let mut set = Entry::new(ObjectKey::new("ns", "agent"), DaemonSet::default());
        let now = Timestamp::UNIX_EPOCH;
        let delay = |set: &Entry<DaemonSet>, uid: &str| {
            let mut pod = PodView::default();
            pod.spec.node_name = Some("a".to_owned());
            pod.status.phase = Phase::Failed;
            let mut entry = Entry::new(ObjectKey::new("ns", uid), pod);
            entry.uid = uid.into();
            backoff.observe(set, &[Arc::new(entry)], now)[uid].as_second()
        };
        assert_eq!([delay(&set, "1"), delay(&set, "1"), delay(&set, "2"), delay(&set, "3")], [1, 1, 2, 4]);
        for number in 4..20 {
            delay(&set, &number.to_string());
        }
        assert_eq!(delay(&set, "20"), 900);
        set.object.metadata.generation = Some(2);
        assert_eq!(delay(&set, "21"), 1, "a new template resets the backoff");
    }
}
