//! One controller's objects in the queue.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::{LaneReport, Priority, Reason};
use crate::{metrics::QueueMetrics, object::ObjectKey};

pub(super) struct Lane {
    controller: &'static str,
    workers: usize,
    pub(super) open: bool,
    items: HashMap<ObjectKey, Item>,
    /// Those whose turn comes by a change, in order of arrival. A key whose item is elsewhere is void.
    changes: VecDeque<ObjectKey>,
    background: VecDeque<ObjectKey>,
    ready: usize,
    /// Objects being reconciled that count against `workers`.
    running: usize,
    /// Objects being reconciled that do not: they wait for something slow.
    detached: usize,
    metrics: QueueMetrics,
}

struct Item {
    place: Place,
    reason: Reason,
    failures: u32,
    since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Ready(Priority),
    /// Until the timer with this ticket.
    Waiting(u64),
    /// Being worked on; why it has to run again, if it has to; and whether it counts against `workers`.
    Running {
        again: Option<Reason>,
        has_slot: bool,
    },
}

impl Lane {
    pub(super) fn new(controller: &'static str, workers: usize, metrics: QueueMetrics) -> Self {
        Self {
            controller,
            workers: workers.max(1),
            open: false,
            items: HashMap::new(),
            changes: VecDeque::new(),
            background: VecDeque::new(),
            ready: 0,
            running: 0,
            detached: 0,
            metrics,
        }
    }

    /// Returns whether somebody has to be woken.
    pub(super) fn add(&mut self, key: ObjectKey, reason: Reason) -> bool {
        let Some(item) = self.items.get_mut(&key) else {
            self.enqueue(key, reason, 0);
            return true;
        };
        match item.place {
            Place::Running { ref mut again, .. } => {
                let keep = again.is_some_and(|before| before.priority() == Priority::Change);
                if !keep {
                    *again = Some(reason);
                }
                false
            }
            Place::Ready(Priority::Background) if reason.priority() == Priority::Change => {
                item.place = Place::Ready(Priority::Change);
                item.reason = reason;
                self.changes.push_back(key);
                true
            }
            Place::Ready(_) => false,
            // A restart or resync is no reason to cut a backoff short.
            Place::Waiting(_) if reason.priority() == Priority::Background => false,
            Place::Waiting(_) => {
                let failures = item.failures;
                self.enqueue(key, reason, failures);
                true
            }
        }
    }

    /// Whether there is a turn to be had.
    pub(super) fn can_give(&self) -> bool {
        self.open && self.ready > 0 && self.running < self.workers
    }

    pub(super) fn take(&mut self, priority: Priority, now: Instant) -> Option<(ObjectKey, Reason, u32)> {
        if !self.open || self.running >= self.workers {
            return None;
        }
        let line = match priority {
            Priority::Change => &mut self.changes,
            Priority::Background => &mut self.background,
        };
        while let Some(key) = line.pop_front() {
            let Some(item) = self.items.get_mut(&key) else {
                continue;
            };
            if item.place != Place::Ready(priority) {
                continue;
            }
            item.place = Place::Running { again: None, has_slot: true };
            self.ready -= 1;
            self.running += 1;
            self.metrics.depth.dec();
            self.metrics.waited.observe(now.duration_since(item.since).as_secs_f64());
            return Some((key, item.reason, item.failures));
        }
        None
    }

    /// Ends a turn that left nothing to do.
    pub(super) fn settle(&mut self, key: &ObjectKey) {
        if let Some(Item { place: Place::Running { again, has_slot }, .. }) = self.items.remove(key) {
            self.end(has_slot);
            if let Some(reason) = again {
                self.enqueue(key.clone(), reason, 0);
            }
        }
    }

    /// Ends a turn that has to be followed by another.
    pub(super) fn again(&mut self, key: &ObjectKey, reason: Reason) {
        if let Some(Item { place: Place::Running { again, has_slot }, .. }) = self.items.remove(key) {
            self.end(has_slot);
            self.enqueue(key.clone(), again.unwrap_or(reason), 0);
        }
    }

    /// Ends a turn that wants another at a later time; returns whether the item now has to wait.
    pub(super) fn pause(&mut self, key: &ObjectKey, reason: Reason) -> bool {
        let Some(item) = self.items.get_mut(key) else {
            return false;
        };
        let Place::Running { again, has_slot } = item.place else {
            return false;
        };
        item.failures = 0;
        item.reason = reason;
        self.end(has_slot);
        if let Some(reason) = again {
            self.enqueue(key.clone(), reason, 0);
        }
        again.is_none()
    }

    /// Ends a turn that failed; returns how often it did in a row, and whether something changed meanwhile.
    ///
    /// Changes that came meanwhile do not end the backoff: most are the failed turn's own writes, and would turn it
    /// into a hot loop.
    pub(super) fn fail(&mut self, key: &ObjectKey) -> Option<(u32, bool)> {
        let item = self.items.get_mut(key)?;
        let Place::Running { again, has_slot } = item.place else {
            return None;
        };
        item.failures = item.failures.saturating_add(1);
        item.reason = Reason::Retry;
        let failures = item.failures;
        self.metrics.retries.inc();
        self.end(has_slot);
        Some((failures, again.is_some()))
    }

    /// Lets an object go on without counting against `workers`; returns whether that made room.
    pub(super) fn release_slot(&mut self, key: &ObjectKey) -> bool {
        let Some(Item { place: Place::Running { has_slot, .. }, .. }) = self.items.get_mut(key) else {
            return false;
        };
        if !std::mem::take(has_slot) {
            return false;
        }
        self.running -= 1;
        self.detached += 1;
        true
    }

    /// An object is no longer being worked on.
    fn end(&mut self, had_slot: bool) {
        if had_slot {
            self.running -= 1;
        } else {
            self.detached -= 1;
        }
    }

    /// How many objects wait for a time.
    pub(super) fn waiting(&self) -> usize {
        self.items.len() - self.ready - self.running - self.detached
    }

    /// Whether an object still waits for the timer with this ticket.
    pub(super) fn waits_for(&self, key: &ObjectKey, ticket: u64) -> bool {
        self.items.get(key).is_some_and(|item| item.place == Place::Waiting(ticket))
    }

    pub(super) fn wait(&mut self, key: &ObjectKey, ticket: u64) {
        if let Some(item) = self.items.get_mut(key) {
            item.place = Place::Waiting(ticket);
        }
    }

    pub(super) fn wake(&mut self, key: ObjectKey, ticket: u64) {
        if let Some(item) = self.items.get(&key)
            && item.place == Place::Waiting(ticket)
        {
            let (reason, failures) = (item.reason, item.failures);
            self.enqueue(key, reason, failures);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready == 0 && self.running == 0 && self.detached == 0
    }

    pub(super) fn report(&self) -> LaneReport {
        let ready = self.items.iter().filter(|(_, item)| matches!(item.place, Place::Ready(_)));
        let oldest = ready.min_by_key(|(_, item)| item.since);
        let mut failing: Vec<_> = self
            .items
            .iter()
            .filter(|(_, item)| item.failures > 0)
            .map(|(key, item)| (key.clone(), item.failures))
            .collect();
        failing.sort();
        LaneReport {
            controller: self.controller,
            open: self.open,
            ready: self.ready,
            running: self.running + self.detached,
            waiting: self.waiting(),
            oldest: oldest.map(|(key, item)| (key.clone(), item.since.elapsed().as_secs_f64())),
            failing,
        }
    }

    fn enqueue(&mut self, key: ObjectKey, reason: Reason, failures: u32) {
        let priority = reason.priority();
        let line = match priority {
            Priority::Change => &mut self.changes,
            Priority::Background => &mut self.background,
        };
        line.push_back(key.clone());
        self.ready += 1;
        self.metrics.depth.inc();
        self.metrics.adds.inc();
        let item = Item { place: Place::Ready(priority), reason, failures, since: Instant::now() };
        self.items.insert(key, item);
    }
}
