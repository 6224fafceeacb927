//! The controllers' work queue: one lane per controller, backoff by error class, metrics by controller-runtime's
//! names.

use std::{sync::Arc, time::Duration};

pub use quintet_foundation::workqueue::{LaneId, Reason};
use quintet_foundation::{
    backoff::Backoff,
    rng::Rng,
    workqueue::{self, WorkQueue},
};

use crate::{
    error::Class,
    metrics::{Metrics, QueueMetrics},
    object::ObjectKey,
};

#[cfg(test)]
mod tests;

/// One reconcile of one object.
pub type Job = workqueue::Job<ObjectKey>;

/// A controller's part of the queue, for debug state.
pub type LaneReport = workqueue::LaneReport<ObjectKey>;

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Requeue at once.
    Again,
    /// Requeue after this long, or when something changes.
    After(Duration),
    /// Requeue after a backoff.
    Failed(Failure),
}

/// How a reconcile failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of error it was.
    pub class: Class,
    /// The server's `Retry-After`.
    pub asked: Option<Duration>,
    /// The plan's own requeue time: a deadline passes though a write is rejected.
    pub next: Option<Duration>,
}

impl Failure {
    /// A failure of which nothing else is known.
    pub fn of(class: Class) -> Self {
        Self { class, asked: None, next: None }
    }

    /// When to retry after so many failures in a row.
    fn retry(self, failures: u32, rng: &Rng) -> workqueue::Outcome {
        let backoff = backoff(self.class).wait(failures, rng).max(self.asked.unwrap_or_default());
        if !matches!(self.class, Class::Invalid | Class::Bug) {
            return workqueue::Outcome::Retry { after: backoff, after_change: backoff };
        }
        let after = self.next.map_or(backoff, |next| backoff.min(next.max(MIN_REJECTED_INTERVAL)));
        workqueue::Outcome::Retry { after, after_change: backoff.min(AFTER_CHANGE) }
    }
}

/// The first wait and the longest, per class of error.
///
/// A conflict passes as soon as the watch has caught up. What the server rejects stays rejected until the object
/// or its surroundings change, and a change does not wait for the backoff.
fn backoff(class: Class) -> Backoff {
    let (first, cap) = match class {
        Class::Conflict => (Duration::from_millis(5), Duration::from_secs(5)),
        Class::Transient => (Duration::from_millis(100), Duration::from_secs(30)),
        Class::Throttled => (Duration::from_secs(1), Duration::from_mins(1)),
        Class::Invalid | Class::Bug => (Duration::from_secs(1), Duration::from_mins(5)),
    };
    Backoff { first, cap }
}

/// The longest backoff of an object that changed while it was being rejected: the change may have fixed it.
const AFTER_CHANGE: Duration = Duration::from_secs(5);

/// A plan whose write is rejected is not repeated more often than this because of its requeue time.
const MIN_REJECTED_INTERVAL: Duration = Duration::from_secs(30);

/// The queue of all controllers. Clones are the same queue.
#[derive(Clone)]
pub struct Queue {
    inner: WorkQueue<ObjectKey>,
    rng: Rng,
    metrics: Arc<Metrics>,
}

impl Queue {
    /// An empty queue; a seed makes its jitter repeatable.
    pub fn new(metrics: Arc<Metrics>, seed: Option<u64>) -> Self {
        Self { inner: WorkQueue::new(), rng: Rng::seeded_or_entropy(seed), metrics }
    }

    /// Adds a controller that reconciles at most `workers` objects at a time. Its lane accepts objects at once,
    /// and hands them out after [`Queue::open`].
    pub fn add_lane(&self, controller: &'static str, workers: usize) -> LaneId {
        self.inner.add_lane(controller, workers, self.metrics.queue(controller))
    }

    /// Lets a lane hand out its objects.
    pub fn open(&self, lane: LaneId) {
        self.inner.open(lane);
    }

    /// Queues an object.
    pub fn add(&self, lane: LaneId, key: ObjectKey, reason: Reason) {
        self.inner.add(lane, key, reason);
    }

    /// Queues an object after a delay, unless it is reconciled earlier.
    pub fn add_after(&self, lane: LaneId, key: ObjectKey, delay: Duration) {
        self.inner.add_after(lane, key, delay);
    }

    /// The next object to reconcile; `None` when the queue is closed.
    pub async fn next(&self) -> Option<Job> {
        self.inner.next().await
    }

    /// Gives the place of an object among the reconciles of its controller to another one. The object stays in
    /// progress until it is finished, so it is not reconciled twice at the same time.
    pub fn release_slot(&self, job: &Job) {
        self.inner.release_slot(job);
    }

    /// Ends a reconcile.
    pub fn finish(&self, job: Job, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Done => workqueue::Outcome::Done,
            Outcome::Again => workqueue::Outcome::Again,
            Outcome::After(wait) => workqueue::Outcome::After(wait),
            Outcome::Failed(failure) => failure.retry(job.failures.saturating_add(1), &self.rng),
        };
        self.inner.finish(job, outcome);
    }

    /// Hands out no more objects. Reconciles in progress may still finish.
    pub fn close(&self) {
        self.inner.close();
    }

    /// Whether no object is ready or being reconciled. Objects may still wait for a time.
    pub fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }

    /// The state of every lane.
    pub fn report(&self) -> Vec<LaneReport> {
        self.inner.report()
    }
}

impl workqueue::Observer for QueueMetrics {
    fn added(&self) {
        self.depth.inc();
        self.adds.inc();
    }

    fn taken(&self, waited: Duration) {
        self.depth.dec();
        self.waited.observe(waited.as_secs_f64());
    }

    fn retried(&self) {
        self.retries.inc();
    }
}
