//! One consumer's keys in the queue.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
};

use tokio::time::Instant;

use super::{LaneReport, Observer, Outcome, Priority, Reason};

/// A time, numbered because several keys may wait for the same.
type Timer = (Instant, u64);

pub(super) struct Lane<K> {
    name: &'static str,
    workers: usize,
    pub(super) open: bool,
    items: HashMap<K, Item>,
    /// Ready keys in order of arrival. A key whose item is in another state is skipped.
    changes: VecDeque<K>,
    background: VecDeque<K>,
    timers: BTreeMap<Timer, K>,
    timer_count: u64,
    ready: usize,
    /// Running keys that count against `workers`.
    running: usize,
    /// Running keys that do not.
    detached: usize,
    observer: Box<dyn Observer>,
}

struct Item {
    state: State,
    reason: Reason,
    failures: u32,
    since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready(Priority),
    Waiting(Timer),
    Running(Run),
}

/// A run in progress, and what was asked for meanwhile.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Run {
    again: Option<Reason>,
    at: Option<Instant>,
    /// It does not count against `workers`.
    is_detached: bool,
}

impl<K: Clone + Eq + Hash> Lane<K> {
    pub(super) fn new(name: &'static str, workers: usize, observer: Box<dyn Observer>) -> Self {
        Self {
            name,
            workers: workers.max(1),
            open: false,
            items: HashMap::new(),
            changes: VecDeque::new(),
            background: VecDeque::new(),
            timers: BTreeMap::new(),
            timer_count: 0,
            ready: 0,
            running: 0,
            detached: 0,
            observer,
        }
    }

    /// Makes a key ready; returns whether a worker has to be woken.
    pub(super) fn add(&mut self, key: K, reason: Reason) -> bool {
        let Some(item) = self.items.get_mut(&key) else {
            self.enqueue(key, reason, 0);
            return true;
        };
        match &mut item.state {
            State::Running(run) => {
                let is_change = |reason: Reason| reason.priority() == Priority::Change;
                if !run.again.is_some_and(is_change) {
                    run.again = Some(reason);
                }
                false
            }
            State::Ready(priority @ Priority::Background) if reason.priority() == Priority::Change => {
                *priority = Priority::Change;
                item.reason = reason;
                self.changes.push_back(key);
                true
            }
            State::Ready(_) => false,
            // Only changes cut a backoff short.
            State::Waiting(_) if reason.priority() == Priority::Background => false,
            State::Waiting(timer) => {
                self.timers.remove(timer);
                let failures = item.failures;
                self.enqueue(key, reason, failures);
                true
            }
        }
    }

    /// Makes a key ready at a time, unless it is ready earlier.
    pub(super) fn add_at(&mut self, key: K, at: Instant) {
        let failures = match self.items.get_mut(&key) {
            None => 0,
            Some(Item { state: State::Ready(_), .. }) => return,
            Some(Item { state: State::Running(run), .. }) => {
                run.at = Some(run.at.map_or(at, |before| before.min(at)));
                return;
            }
            Some(Item { state: State::Waiting(timer), .. }) if timer.0 <= at => return,
            Some(Item { state: State::Waiting(timer), failures, .. }) => {
                self.timers.remove(timer);
                *failures
            }
        };
        self.wait(key, at, Reason::Timer, failures);
    }

    /// Whether a key can be taken.
    pub(super) fn can_give(&self) -> bool {
        self.open && self.ready > 0 && self.running < self.workers
    }

    pub(super) fn take(&mut self, priority: Priority, now: Instant) -> Option<(K, Reason, u32)> {
        if !self.can_give() {
            return None;
        }
        let line = match priority {
            Priority::Change => &mut self.changes,
            Priority::Background => &mut self.background,
        };
        while let Some(key) = line.pop_front() {
            let Some(item) = self.items.get_mut(&key).filter(|item| item.state == State::Ready(priority))
            else {
                continue;
            };
            item.state = State::Running(Run::default());
            self.ready -= 1;
            self.running += 1;
            self.observer.taken(now.duration_since(item.since));
            return Some((key, item.reason, item.failures));
        }
        None
    }

    /// Stops counting a running key against the workers; returns whether that made room.
    pub(super) fn release_slot(&mut self, key: &K) -> bool {
        let Some(Item { state: State::Running(run), .. }) = self.items.get_mut(key) else { return false };
        if std::mem::replace(&mut run.is_detached, true) {
            return false;
        }
        self.running -= 1;
        self.detached += 1;
        true
    }

    /// Ends the run of a key.
    pub(super) fn finish(&mut self, key: K, reason: Reason, outcome: Outcome) {
        let Some(&Item { state: State::Running(run), failures, .. }) = self.items.get(&key) else {
            return;
        };
        self.items.remove(&key);
        *(if run.is_detached { &mut self.detached } else { &mut self.running }) -= 1;
        let now = Instant::now();
        match (outcome, run.again) {
            // Keys that were added meanwhile do not end the backoff: most were added because of the failed run's
            // own writes, which would make a hot loop.
            (Outcome::Retry { after, after_change }, again) => {
                self.observer.retried();
                let after = if again.is_some() { after_change } else { after };
                self.wait(key, now + after, Reason::Retry, failures.saturating_add(1));
            }
            (Outcome::Again, again) => self.enqueue(key, again.unwrap_or(reason), 0),
            (Outcome::Done | Outcome::After(_), Some(again)) => self.enqueue(key, again, 0),
            (Outcome::After(after), None) => {
                let at = run.at.map_or(now + after, |at| at.min(now + after));
                self.wait(key, at, Reason::Timer, 0);
            }
            (Outcome::Done, None) => {
                if let Some(at) = run.at {
                    self.wait(key, at, Reason::Timer, 0);
                }
            }
        }
    }

    /// Makes the keys ready whose time has come.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(timer) = self.timers.first_entry()
            && timer.key().0 <= now
        {
            let key = timer.remove();
            if let Some(&Item { reason, failures, .. }) = self.items.get(&key) {
                self.enqueue(key, reason, failures);
            }
        }
    }

    /// When the next key becomes ready by itself.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready == 0 && self.running == 0 && self.detached == 0
    }

    fn enqueue(&mut self, key: K, reason: Reason, failures: u32) {
        let priority = reason.priority();
        let line = match priority {
            Priority::Change => &mut self.changes,
            Priority::Background => &mut self.background,
        };
        line.push_back(key.clone());
        self.ready += 1;
        self.observer.added();
        let item = Item { state: State::Ready(priority), reason, failures, since: Instant::now() };
        self.items.insert(key, item);
    }

    fn wait(&mut self, key: K, at: Instant, reason: Reason, failures: u32) {
        self.timer_count += 1;
        let timer = (at, self.timer_count);
        self.timers.insert(timer, key.clone());
        let item = Item { state: State::Waiting(timer), reason, failures, since: Instant::now() };
        self.items.insert(key, item);
    }
}

impl<K: Clone + Eq + Hash + Ord> Lane<K> {
    pub(super) fn report(&self) -> LaneReport<K> {
        let ready = self.items.iter().filter(|(_, item)| matches!(item.state, State::Ready(_)));
        let oldest = ready.min_by_key(|(_, item)| item.since);
        let mut failing: Vec<_> = self
            .items
            .iter()
            .filter(|(_, item)| item.failures > 0)
            .map(|(key, item)| (key.clone(), item.failures))
            .collect();
        failing.sort();
        LaneReport {
            name: self.name,
            open: self.open,
            ready: self.ready,
            running: self.running + self.detached,
            waiting: self.timers.len(),
            oldest: oldest.map(|(key, item)| (key.clone(), item.since.elapsed().as_secs_f64())),
            failing,
        }
    }
}
