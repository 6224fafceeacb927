//! The scheduling queue: which pods wait, in which order, and when they are tried again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;

use crate::pod::PodView;
use crate::time;

/// The first and the longest wait after a failed attempt, in seconds; upstream's `podInitialBackoffSeconds` and
/// `podMaxBackoffSeconds`.
const FIRST_BACKOFF: i64 = 1;
const LONGEST_BACKOFF: i64 = 10;
/// An unschedulable pod is tried again after this many seconds, whatever happens; upstream's `podMaxInUnschedulablePodsDuration`.
const FLUSH: i64 = 300;

/// Pods without a node, the most important first.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    order: BTreeSet<Position>,
    positions: BTreeMap<ObjectKey, Position>,
    unschedulable: BTreeMap<ObjectKey, Attempt>,
    /// Counts events that may make pods schedulable.
    events: u64,
}

type Position = (Reverse<i32>, Option<Timestamp>, ObjectKey);

/// The last failed attempt to schedule a pod.
#[derive(Clone, Debug)]
struct Attempt {
    failures: u32,
    at: Timestamp,
    /// The events that had happened before.
    events: u64,
    /// Hash of the pod's spec and metadata.
    content: u64,
}

impl Attempt {
    /// When the pod is tried again.
    fn due(&self, events: u64) -> Timestamp {
        if events == self.events {
            return time::after(self.at, FLUSH);
        }
        let doublings = self.failures.saturating_sub(1).min(8);
        time::after(self.at, (FIRST_BACKOFF << doublings).min(LONGEST_BACKOFF))
    }
}

impl Queue {
    /// Adds a pod, or updates one. A pod whose spec or metadata changed is tried again at once.
    pub(super) fn add(&mut self, pod: &Entry<PodView>) {
        self.unposition(&pod.key);
        let position =
            (Reverse(pod.object.spec.priority), pod.object.metadata.creation_timestamp, pod.key.clone());
        self.order.insert(position.clone());
        self.positions.insert(pod.key.clone(), position);
        if self.unschedulable.get(&pod.key).is_some_and(|attempt| attempt.content != pod.content) {
            self.unschedulable.remove(&pod.key);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.unposition(key);
        self.unschedulable.remove(key);
    }

    fn unposition(&mut self, key: &ObjectKey) {
        if let Some(position) = self.positions.remove(key) {
            self.order.remove(&position);
        }
    }

    /// Something happened that may make unschedulable pods schedulable.
    pub(super) fn wake(&mut self) {
        self.events += 1;
    }

    /// An attempt failed.
    pub(super) fn failed(&mut self, pod: &Entry<PodView>, now: Timestamp) {
        let failures = self.unschedulable.get(&pod.key).map_or(0, |attempt| attempt.failures);
        let attempt = Attempt { failures: failures + 1, at: now, events: self.events, content: pod.content };
        self.unschedulable.insert(pod.key.clone(), attempt);
    }

    /// The pods to try now, in order.
    pub(super) fn due(&self, now: Timestamp) -> Vec<ObjectKey> {
        let is_due = |key: &ObjectKey| {
            self.unschedulable.get(key).is_none_or(|attempt| attempt.due(self.events) <= now)
        };
        self.order.iter().map(|(_, _, key)| key).filter(|key| is_due(key)).cloned().collect()
    }

    /// When the next pod is tried though nothing happens.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.unschedulable.values().map(|attempt| attempt.due(self.events)).min()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.positions.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i32, created: i64) -> Entry<PodView> {
        let mut pod = PodView::default();
        pod.spec.priority = priority;
        pod.metadata.creation_timestamp = Some(Timestamp::from_second(created).unwrap());
        Entry::new(ObjectKey::new("ns", name), pod)
    }

    fn names(queue: &Queue, second: i64) -> Vec<String> {
        queue.due(at(second)).iter().map(|key| key.name().to_owned()).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn important_pods_come_first_then_older_ones() {
        let mut queue = Queue::default();
        for pod in [pod("young", 0, 9), pod("old", 0, 1), pod("important", 5, 20)] {
            queue.add(&pod);
        }
        assert_eq!(names(&queue, 30), ["important", "old", "young"]);
        queue.remove(&ObjectKey::new("ns", "old"));
        assert_eq!(names(&queue, 30), ["important", "young"]);
    }

    #[test]
    fn unschedulable_pods_wait_for_an_event_and_a_backoff() {
        let mut queue = Queue::default();
        let one = pod("one", 0, 0);
        queue.add(&one);
        queue.failed(&one, at(100));
        assert_eq!(names(&queue, 399), [""; 0], "nothing happened");
        assert_eq!(names(&queue, 400), ["one"], "after five minutes in any case");
        queue.wake();
        assert_eq!(queue.next_due(), Some(at(101)));
        assert_eq!(names(&queue, 101), ["one"]);
        for failures in 2..6 {
            queue.failed(&one, at(200));
            queue.wake();
            let wait = [0, 1, 2, 4, 8, 10][failures];
            assert_eq!(queue.next_due(), Some(at(200 + wait)), "{failures} failures");
        }
        let mut changed = pod("one", 0, 0);
        changed.content = 7;
        queue.add(&changed);
        assert_eq!(names(&queue, 200), ["one"], "a changed pod is tried at once");
    }
}
