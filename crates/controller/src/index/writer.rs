//! Carries out the writes of an index: parallel, but one at a time per object.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Index, IndexSettings, Refusal, Write, WriteOutcome,
    inbox::{Inbox, Message},
    metrics::MetricsOfIndex,
    slots::{Counts, Failure, Pending, Report, Slots, Target},
};
use crate::{
    cache::{Caches, Knowledge},
    error::{Class, Error},
    events::{Recorder, Regarding},
    executor::{Executor, Written},
    leader::Leadership,
    object::{ApiKind, ObjectKey},
    plan::{Action, Event},
    queue::{self, Job, LaneId, Queue, Reason},
    tasks::{Tasks, panic_text},
};

/// Where writes go, and where their outcomes go.
pub(super) struct Writer<I: Index> {
    pub(super) settings: IndexSettings,
    pub(super) executor: Executor,
    pub(super) caches: Caches,
    pub(super) leadership: Leadership,
    pub(super) recorder: Recorder,
    pub(super) metrics: MetricsOfIndex,
    pub(super) inbox: Arc<Inbox<I>>,
    /// Which object is written next, and which has to wait: a lane for each kind.
    pub(super) queue: Queue,
    pub(super) lanes: Mutex<Vec<(ApiKind, LaneId)>>,
    pub(super) slots: Mutex<Slots<I::Decision>>,
}

impl<I: Index> Writer<I> {
    /// Starts the workers. They end before the lease is released.
    pub(super) fn start(self: &Arc<Self>, workers: &Tasks) {
        for number in 0..self.settings.parallelism.max(1) {
            let (writer, tasks) = (Arc::clone(self), workers.clone());
            workers.spawn(format!("writer {number} of {}", I::NAME), async move {
                loop {
                    let job = tokio::select! {
                        biased;
                        () = tasks.stopping() => return,
                        job = writer.queue.next() => job,
                    };
                    let Some(job) = job else { return };
                    writer.work(job).await;
                }
            });
        }
    }

    /// How many writes there is room for.
    pub(super) fn room(&self) -> usize {
        self.settings.capacity.max(1).saturating_sub(self.counts().load)
    }

    pub(super) fn counts(&self) -> Counts {
        self.slots.lock().counts()
    }

    /// Takes a decision in. Never waits.
    pub(super) fn submit(&self, write: Write<I::Decision>) {
        let (Some(kind), Some(key)) = (write.action.kind(), write.action.target()) else {
            let message = format!("cannot {}: an index writes Kubernetes objects only", write.action);
            tracing::error!(index = I::NAME, "{message}");
            let refusal = Refusal { message, ..Refusal::default() };
            return self.report((write.decision, WriteOutcome::Refused(refusal)));
        };
        let lane = self.lane(kind);
        let (replaced, at_once) = self.slots.lock().submit((lane, key.clone()), write, Instant::now());
        let reason = if at_once { Reason::Changed("decision") } else { Reason::Decision };
        self.queue.add(lane, key, reason);
        if let Some(report) = replaced {
            self.report(report);
        }
        self.metrics.outstanding(self.counts().outstanding);
    }

    fn lane(&self, kind: &ApiKind) -> LaneId {
        let mut lanes = self.lanes.lock();
        if let Some((_, lane)) = lanes.iter().find(|(known, _)| known == kind) {
            return *lane;
        }
        let lane = self.queue.add_lane(I::NAME, self.settings.parallelism);
        self.queue.open(lane);
        lanes.push((kind.clone(), lane));
        lane
    }

    fn report(&self, (decision, outcome): Report<I::Decision>) {
        self.metrics.wrote(outcome.label());
        self.inbox.send(Message::Outcome(decision, outcome));
    }

    async fn work(&self, job: Job) {
        let target = (job.lane, job.key.clone());
        let pending = self.slots.lock().take(&target);
        let Some(pending) = pending else {
            let remember = self.slots.lock().expire(&target, Instant::now());
            let next = remember.map_or(queue::Outcome::Done, queue::Outcome::After);
            return self.queue.finish(job, next);
        };
        let (report, next) = match self.attempt(&pending.write.action).await {
            Ok(written) => (Some(self.succeeded(&target, pending, written)), queue::Outcome::Done),
            Err(error) => self.failed(&target, pending, error).await,
        };
        // The index may decide again as soon as it knows: by then the object has to be held back.
        self.queue.finish(job, next);
        self.metrics.outstanding(self.counts().outstanding);
        if let Some(report) = report {
            self.report(report);
        }
    }

    async fn attempt(&self, action: &Action) -> Result<Option<Written>, Error> {
        let act = AssertUnwindSafe(self.executor.act(action)).catch_unwind();
        match tokio::time::timeout(self.settings.timeout, act).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => {
                let cause = format!("panic: {}", panic_text(&*panic));
                Err(Error::new(Class::Bug, format!("cannot {action}"), cause))
            }
            Err(_) => {
                let cause = format!("not finished after {:?}", self.settings.timeout);
                Err(Error::new(Class::Transient, format!("cannot {action}"), cause))
            }
        }
    }

    fn succeeded(
        &self,
        target: &Target,
        pending: Pending<I::Decision>,
        written: Option<Written>,
    ) -> Report<I::Decision> {
        self.slots.lock().succeed(target);
        let Write { decision, action, events } = pending.write;
        if !events.is_empty()
            && let Some(kind) = action.kind()
        {
            self.record(kind, &target.1, events);
        }
        (decision, WriteOutcome::Written { version: written.and_then(|written| written.version) })
    }

    fn record(&self, kind: &ApiKind, key: &ObjectKey, events: Vec<Event>) {
        let Knowledge::Present(known) = self.caches.knowledge(kind, key, &[].into()) else {
            return;
        };
        for event in events {
            let regarding = Regarding { kind: kind.clone(), key: key.clone(), uid: known.uid.clone() };
            self.recorder.record(I::NAME, regarding, event);
        }
    }

    async fn failed(
        &self,
        target: &Target,
        pending: Pending<I::Decision>,
        error: Error,
    ) -> (Option<Report<I::Decision>>, queue::Outcome) {
        let (class, asked) = (error.class(), error.retry_after());
        match class {
            Class::Conflict => tracing::debug!(index = I::NAME, attempts = pending.attempts, "{error}"),
            _ if error.is_quiet() => tracing::debug!(index = I::NAME, attempts = pending.attempts, "{error}"),
            Class::Bug => tracing::error!(index = I::NAME, attempts = pending.attempts, "{error}"),
            _ => tracing::warn!(index = I::NAME, attempts = pending.attempts, "{error}"),
        }
        let last = pending.attempts + 1 >= self.settings.attempts || self.leadership.is_lost();
        let failure = match final_outcome(&error) {
            None => Failure::Passing { unknown: class == Class::Transient, last },
            Some(outcome) if self.is_settled(target, &outcome, &pending.write.action).await => {
                Failure::Final(outcome)
            }
            Some(_) => Failure::Passing { unknown: false, last },
        };
        let report = self.slots.lock().fail(target, pending, failure, Instant::now());
        (report, queue::Outcome::Failed(queue::Failure { class, asked, next: None }))
    }

    /// Sees to it that the index knows the current state of an object before it hears that a write to it failed.
    async fn is_settled(&self, target: &Target, outcome: &WriteOutcome, action: &Action) -> bool {
        let is_unknown = self.slots.lock().is_unknown(target, Instant::now());
        if !is_unknown && *outcome != WriteOutcome::Conflict {
            return true;
        }
        let Some(kind) = action.kind() else { return true };
        // Asked before the read: by the time it is answered there may be another incarnation.
        let known = self.caches.knowledge(kind, &target.1, &[].into());
        match self.executor.api().get(kind, &target.1).await {
            Ok(Some(text)) => self.caches.written(kind, &text),
            Ok(None) => {
                if let Knowledge::Present(known) = known {
                    self.caches.gone(kind, &target.1, &known.uid);
                }
            }
            Err(error) => {
                if !error.is_quiet() {
                    tracing::warn!(index = I::NAME, "{error}");
                }
                return false;
            }
        }
        true
    }
}

/// What an error means for the decision; `None` if the same write may succeed later.
fn final_outcome(error: &Error) -> Option<WriteOutcome> {
    let already_exists = error.status().is_some_and(kube::core::Status::is_already_exists);
    match error.class() {
        Class::Conflict if !already_exists => Some(WriteOutcome::Conflict),
        Class::Throttled => None,
        Class::Transient if !error.is_not_found() => None,
        Class::Conflict | Class::Transient | Class::Invalid | Class::Bug => {
            Some(WriteOutcome::Refused(Refusal::from(error)))
        }
    }
}
