//! A keyed work queue: de-duplicating, delayed, with per-key failure counts.
//!
//! A queue has one lane per consumer. A key is in its lane at most once: ready, waiting for a time, or
//! running. A key that is added while it runs becomes ready once more afterwards. So a lane is bounded by the
//! number of distinct keys, and no key is ever processed twice at the same time.
//!
//! The queue does not decide how long to back off: consumers pass the delay of a retry to
//! [`WorkQueue::finish`], because it depends on the kind of failure.

mod lane;
#[cfg(test)]
mod tests;

use std::{hash::Hash, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::{sync::Notify, time::Instant};

use lane::Lane;

/// Why a key was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// It existed when the process started.
    Start,
    /// A relist after a gap in a watch.
    Resync,
    /// Something changed: the kind that did.
    Changed(&'static str),
    /// The last attempt failed.
    Retry,
    /// A requested delay is over.
    Timer,
    /// A decision to write it was made. Its backoff stands.
    Decision,
}

impl Reason {
    /// Real changes go before restarts and resyncs, which may be many and are rarely urgent.
    fn priority(self) -> Priority {
        match self {
            Self::Start | Self::Resync | Self::Decision => Priority::Background,
            Self::Changed(_) | Self::Retry | Self::Timer => Priority::Change,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Priority {
    Change,
    Background,
}

/// Identifies a lane of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId(usize);

impl LaneId {
    /// Lanes are numbered in the order they were added.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A key that was taken from the queue and is running until [`WorkQueue::finish`].
#[derive(Debug)]
pub struct Job<K> {
    /// The lane.
    pub lane: LaneId,
    /// The key.
    pub key: K,
    /// Why it was queued.
    pub reason: Reason,
    /// Failures in a row before this run.
    pub failures: u32,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until the key is added again.
    Done,
    /// Run again at once.
    Again,
    /// Run again after this long, or earlier if the key is added.
    After(Duration),
    /// Run again after a backoff, and count a failure.
    Retry {
        /// The backoff.
        after: Duration,
        /// The backoff if the key was added while it ran.
        after_change: Duration,
    },
}

/// Receives what metrics are made of. Called with the queue locked.
pub trait Observer: Send {
    /// A key became ready.
    fn added(&self) {}
    /// A ready key was taken, so long after it became ready.
    fn taken(&self, _waited: Duration) {}
    /// A run failed and the key will be retried.
    fn retried(&self) {}
}

/// Observes nothing.
impl Observer for () {}

/// The state of a lane, for debugging.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneReport<K> {
    /// Name of the lane.
    pub name: &'static str,
    /// Whether keys are handed out.
    pub open: bool,
    /// Keys ready to run.
    pub ready: usize,
    /// Keys that run.
    pub running: usize,
    /// Keys that wait for a time: a retry or a timer.
    pub waiting: usize,
    /// The key that has been ready for longest, and for how many seconds.
    pub oldest: Option<(K, f64)>,
    /// Keys that failed the last time, and how often in a row.
    pub failing: Vec<(K, u32)>,
}

/// One out of this many runs is taken from the background first, so that a stream of changes cannot starve it.
const BACKGROUND_SHARE: u64 = 8;

/// A work queue. Clones are the same queue.
pub struct WorkQueue<K>(Arc<Shared<K>>);

struct Shared<K> {
    state: Mutex<State<K>>,
    ready: Notify,
}

struct State<K> {
    lanes: Vec<Lane<K>>,
    /// The lane that is asked first, so that lanes alternate.
    next_lane: usize,
    taken: u64,
    closed: bool,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        let state = State { lanes: Vec::new(), next_lane: 0, taken: 0, closed: false };
        Self(Arc::new(Shared { state: Mutex::new(state), ready: Notify::new() }))
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// A queue without lanes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a lane of which at most `workers` keys run at a time. It accepts keys at once, and hands them out
    /// after [`WorkQueue::open`].
    pub fn add_lane(&self, name: &'static str, workers: usize, observer: impl Observer + 'static) -> LaneId {
        let mut state = self.0.state.lock();
        state.lanes.push(Lane::new(name, workers, Box::new(observer)));
        LaneId(state.lanes.len() - 1)
    }

    /// Lets a lane hand out its keys.
    pub fn open(&self, lane: LaneId) {
        if let Some(lane) = self.0.state.lock().lanes.get_mut(lane.0) {
            lane.open = true;
        }
        self.0.ready.notify_waiters();
    }

    /// Makes a key ready. Ends a delay it waits for, unless the reason is of low priority (a restart,
    /// resync or decision).
    pub fn add(&self, lane: LaneId, key: K, reason: Reason) {
        let mut state = self.0.state.lock();
        if let Some(lane) = state.lanes.get_mut(lane.0)
            && lane.add(key, reason)
        {
            self.0.ready.notify_one();
        }
    }

    /// Makes a key ready after a delay. A key that is ready or becomes so earlier runs earlier, and only once:
    /// a key that ran too early has to be added again.
    pub fn add_after(&self, lane: LaneId, key: K, delay: Duration) {
        let mut state = self.0.state.lock();
        if let Some(lane) = state.lanes.get_mut(lane.0) {
            lane.add_at(key, Instant::now() + delay);
            // Whoever waits for a later timer has to learn of an earlier one.
            self.0.ready.notify_one();
        }
    }

    /// The next key; `None` when the queue is closed.
    pub async fn next(&self) -> Option<Job<K>> {
        loop {
            let mut woken = std::pin::pin!(self.0.ready.notified());
            // From here on no wake-up is missed.
            woken.as_mut().enable();
            let timer = {
                let mut state = self.0.state.lock();
                if state.closed {
                    return None;
                }
                if let Some(job) = state.take(Instant::now()) {
                    // Timers that were due together wake one worker: it wakes the next.
                    if state.lanes.iter().any(Lane::can_give) {
                        self.0.ready.notify_one();
                    }
                    return Some(job);
                }
                state.lanes.iter().filter_map(Lane::next_timer).min()
            };
            match timer {
                Some(at) => tokio::select! {
                    () = woken => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => woken.await,
            }
        }
    }

    /// Stops counting a running key against the workers of its lane, because it waits for something slow. It runs
    /// until it is finished, so it is not handed out meanwhile.
    pub fn release_slot(&self, job: &Job<K>) {
        if let Some(lane) = self.0.state.lock().lanes.get_mut(job.lane.0)
            && lane.release_slot(&job.key)
        {
            self.0.ready.notify_one();
        }
    }

    /// Ends a run.
    pub fn finish(&self, job: Job<K>, outcome: Outcome) {
        if let Some(lane) = self.0.state.lock().lanes.get_mut(job.lane.0) {
            lane.finish(job.key, job.reason, outcome);
        }
        // A worker of the lane has become free, and there may be a new timer.
        self.0.ready.notify_one();
    }

    /// Hands out no more keys. Those that run may still finish.
    pub fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.ready.notify_waiters();
    }

    /// Whether no key is ready or running. Keys may still wait for a time.
    pub fn is_idle(&self) -> bool {
        self.0.state.lock().lanes.iter().all(Lane::is_idle)
    }
}

impl<K: Clone + Eq + Hash + Ord> WorkQueue<K> {
    /// The state of every lane.
    pub fn report(&self) -> Vec<LaneReport<K>> {
        self.0.state.lock().lanes.iter().map(Lane::report).collect()
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn take(&mut self, now: Instant) -> Option<Job<K>> {
        self.lanes.iter_mut().for_each(|lane| lane.wake(now));
        let background_first = self.taken % BACKGROUND_SHARE == BACKGROUND_SHARE - 1;
        let order = if background_first {
            [Priority::Background, Priority::Change]
        } else {
            [Priority::Change, Priority::Background]
        };
        for priority in order {
            for step in 0..self.lanes.len() {
                let index = (self.next_lane + step) % self.lanes.len();
                let Some((key, reason, failures)) = self.lanes[index].take(priority, now) else {
                    continue;
                };
                self.next_lane = index + 1;
                self.taken += 1;
                return Some(Job { lane: LaneId(index), key, reason, failures });
            }
        }
        None
    }
}
