//! The work queue: which object is looked at next.
//!
//! One queue serves all controllers, a lane each. An object is in its lane at most once: waiting its
//! turn, waiting for a time, or being worked on; changes that arrive while it is worked on make it run
//! once more afterwards. So the queue is bounded by the number of objects, and no object is ever
//! reconciled twice at the same time.

mod lane;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::{sync::Notify, time::Instant};

use crate::{
    backoff::{Backoff, Random},
    error::Class,
    metrics::Metrics,
    object::ObjectKey,
};
use lane::Lane;

#[cfg(test)]
mod tests;

/// Why an object is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// It was there when the process started.
    Start,
    /// A list after a gap in a watch.
    Resync,
    /// Something changed: the kind that did.
    Changed(&'static str),
    /// The last attempt failed.
    Retry,
    /// The plan asked to look again at this time.
    Timer,
    /// An index decided to write it. That cuts no backoff short.
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

/// Which controller an object is queued for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId(usize);

impl LaneId {
    /// Lanes are numbered in the order they were added.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// One turn of one object.
#[derive(Debug)]
pub struct Job {
    /// The controller.
    pub lane: LaneId,
    /// The object.
    pub key: ObjectKey,
    /// Why.
    pub reason: Reason,
    /// Failures in a row before this turn.
    pub failures: u32,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again at once.
    Again,
    /// Look again after this long, or when something changes.
    After(Duration),
    /// Try again after a backoff.
    Failed(Failure),
}

/// How a turn failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of error it was.
    pub class: Class,
    /// How long the server asked us to wait at least.
    pub asked: Option<Duration>,
    /// When the plan wanted to look again, whatever came of it: a deadline passes though a write is refused.
    pub next: Option<Duration>,
}

impl Failure {
    /// A failure of which nothing else is known.
    pub fn of(class: Class) -> Self {
        Self { class, asked: None, next: None }
    }
}

/// The first wait and the longest, per class of error.
///
/// A conflict passes as soon as the watch has caught up. What the server refuses stays refused until
/// somebody acts, and acting is a change, which does not wait for the backoff.
fn backoff(class: Class) -> Backoff {
    let (first, cap) = match class {
        Class::Conflict => (Duration::from_millis(5), Duration::from_secs(5)),
        Class::Transient => (Duration::from_millis(100), Duration::from_secs(30)),
        Class::Throttled => (Duration::from_secs(1), Duration::from_mins(1)),
        Class::Invalid | Class::Bug => (Duration::from_secs(1), Duration::from_mins(5)),
    };
    Backoff { first, cap }
}

/// When something changed while an object was being refused, it may have been mended: look soon.
const MENDED: Duration = Duration::from_secs(5);

/// A plan whose write is refused is not repeated more often than this for the sake of its timer.
const PACED: Duration = Duration::from_secs(30);

/// So few timers are not worth tidying up.
const FEW_TIMERS: usize = 64;

/// Out of this many turns one goes to the background first, so that a stream of changes cannot starve it.
const BACKGROUND_SHARE: u64 = 8;

/// The queue of all controllers.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    ready: Notify,
    random: Random,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    lanes: Vec<Lane>,
    next_lane: usize,
    turns: u64,
    /// When to wake which item; an entry whose ticket the item no longer holds is void.
    timers: BinaryHeap<Reverse<(Instant, u64, usize, ObjectKey)>>,
    tickets: u64,
    closed: bool,
}

/// A lane as debug state shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneReport {
    /// The controller.
    pub controller: &'static str,
    /// Whether its caches are complete and it takes turns.
    pub open: bool,
    /// Objects that wait for their turn.
    pub ready: usize,
    /// Objects being worked on.
    pub running: usize,
    /// Objects that wait for a time: a retry or a timer.
    pub waiting: usize,
    /// The object that waits longest for its turn, and for how many seconds.
    pub oldest: Option<(ObjectKey, f64)>,
    /// Objects that failed the last time, and how often in a row.
    pub failing: Vec<(ObjectKey, u32)>,
}

impl Queue {
    /// An empty queue; a seed makes its jitter repeatable.
    pub fn new(metrics: Arc<Metrics>, seed: Option<u64>) -> Self {
        let random = seed.map_or_else(Random::from_entropy, Random::seeded);
        Self(Arc::new(Shared { state: Mutex::default(), ready: Notify::new(), random, metrics }))
    }

    /// Adds a controller that works on at most `workers` objects at a time. Its lane takes objects at
    /// once, and gives them out when it is opened.
    pub fn add_lane(&self, controller: &'static str, workers: usize) -> LaneId {
        let mut state = self.0.state.lock();
        state.lanes.push(Lane::new(controller, workers, self.0.metrics.queue(controller)));
        LaneId(state.lanes.len() - 1)
    }

    /// Lets a lane give out its objects.
    pub fn open(&self, lane: LaneId) {
        if let Some(lane) = self.0.state.lock().lanes.get_mut(lane.0) {
            lane.open = true;
        }
        self.0.ready.notify_waiters();
    }

    /// Sees that an object is looked at soon.
    pub fn add(&self, lane: LaneId, key: ObjectKey, reason: Reason) {
        let mut state = self.0.state.lock();
        if let Some(lane) = state.lanes.get_mut(lane.0)
            && lane.add(key, reason)
        {
            self.0.ready.notify_one();
        }
    }

    /// The next turn; `None` when the queue is closed.
    pub async fn next(&self) -> Option<Job> {
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
                state.timers.peek().map(|Reverse((at, ..))| *at)
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

    /// Ends a turn.
    pub fn finish(&self, job: Job, outcome: Outcome) {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        let Some(lane) = state.lanes.get_mut(job.lane.0) else {
            return;
        };
        let wait = match outcome {
            Outcome::Done => {
                lane.settle(&job.key);
                None
            }
            Outcome::Again => {
                lane.again(&job.key, job.reason);
                None
            }
            Outcome::After(wait) => lane.pause(&job.key, Reason::Timer).then_some(wait),
            Outcome::Failed(Failure { class, asked, next }) => {
                lane.fail(&job.key).map(|(failures, has_changed)| {
                    let wait = backoff(class).wait(failures, &self.0.random).max(asked.unwrap_or_default());
                    let is_refused = matches!(class, Class::Invalid | Class::Bug);
                    match next {
                        _ if is_refused && has_changed => wait.min(MENDED),
                        Some(next) if is_refused => wait.min(next.max(PACED)),
                        _ => wait,
                    }
                })
            }
        };
        if let Some(wait) = wait {
            state.tickets += 1;
            lane.wait(&job.key, state.tickets);
            state.timers.push(Reverse((Instant::now() + wait, state.tickets, job.lane.0, job.key)));
            state.drop_void_timers();
        }
        drop(guard);
        // A place among the workers of the lane has become free, and there may be a new timer.
        self.0.ready.notify_one();
    }

    /// Gives out no more turns. Those under way may still end.
    pub fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.ready.notify_waiters();
    }

    /// Whether nothing is ready or under way. Objects may still wait for a time.
    pub fn is_idle(&self) -> bool {
        self.0.state.lock().lanes.iter().all(Lane::is_idle)
    }

    /// The state of every lane.
    pub fn report(&self) -> Vec<LaneReport> {
        self.0.state.lock().lanes.iter().map(Lane::report).collect()
    }
}

impl State {
    fn take(&mut self, now: Instant) -> Option<Job> {
        self.wake(now);
        let background_first = self.turns % BACKGROUND_SHARE == BACKGROUND_SHARE - 1;
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
                self.turns += 1;
                return Some(Job { lane: LaneId(index), key, reason, failures });
            }
        }
        None
    }

    /// An object that changes often leaves a void timer behind each time; once most are void, they go.
    fn drop_void_timers(&mut self) {
        let waiting: usize = self.lanes.iter().map(Lane::waiting).sum();
        if self.timers.len() <= 2 * waiting + FEW_TIMERS {
            return;
        }
        let lanes = &self.lanes;
        self.timers.retain(|Reverse((_, ticket, lane, key))| {
            lanes.get(*lane).is_some_and(|lane| lane.waits_for(key, *ticket))
        });
    }

    fn wake(&mut self, now: Instant) {
        while let Some(Reverse((at, ..))) = self.timers.peek()
            && *at <= now
        {
            if let Some(Reverse((_, ticket, lane, key))) = self.timers.pop()
                && let Some(lane) = self.lanes.get_mut(lane)
            {
                lane.wake(key, ticket);
            }
        }
    }
}
