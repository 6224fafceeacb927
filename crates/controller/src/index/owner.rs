//! The task that owns an index: applies what arrives, lets it decide, hands its writes on.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Index, WriteOutcome,
    audit::{Audit, Snapshot, rebuild},
    inbox::{Inbox, Message},
    metrics::MetricsOfIndex,
    writer::Writer,
};
use crate::clock::Clock;

/// A deadline is compared with the clock at least this often: the time of day may jump.
const CLOCK_CHECK: Duration = Duration::from_mins(1);

/// An index that asks for a deadline in the past, or has more to decide though nothing arrives, must not spin.
const PACE: Duration = Duration::from_millis(100);

pub(super) struct Owner<I: Index> {
    pub(super) index: I,
    pub(super) clock: Clock,
    pub(super) inbox: Arc<Inbox<I>>,
    pub(super) writer: Arc<Writer<I>>,
    pub(super) snapshots: Vec<Snapshot<I>>,
    pub(super) metrics: MetricsOfIndex,
    pub(super) audit_interval: Option<Duration>,
    pub(super) state: State,
}

/// Whether and why the index has to decide.
pub(super) struct State {
    /// It knows everything and holds the lease.
    pub(super) leads: bool,
    /// Something arrived since it decided last.
    pub(super) is_due: bool,
    /// It used all the room and may have more to decide. An outcome makes room and is a reason to decide anyway; but writes
    /// to objects that are held back take up none and may have no outcome for long.
    pub(super) has_more: bool,
    /// When it decided last.
    pub(super) decided: Instant,
    pub(super) next_audit: Option<Instant>,
}

impl<I: Index> Drop for Owner<I> {
    /// However the task ends, also by a panic.
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl<I: Index> Owner<I> {
    /// Follows the caches until it is stopped, and decides once `knows_everything` has resolved.
    pub(super) async fn run(mut self, knows_everything: BoxFuture<'static, ()>) {
        let mut knows_everything = pin!(knows_everything);
        let inbox = Arc::clone(&self.inbox);
        loop {
            let wake = self.wake();
            tokio::select! {
                biased;
                () = &mut knows_everything, if !self.state.leads => {
                    (self.state.leads, self.state.is_due) = (true, true);
                }
                () = inbox.ready() => {}
                () = async { tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)).await }, if wake.is_some() => {}
            }
            self.step();
            // Whatever arrives meanwhile is decided about together.
            tokio::task::yield_now().await;
        }
    }

    /// Applies everything that has arrived, then decides if there is a reason and room.
    pub(super) fn step(&mut self) {
        let now = self.clock.now();
        let mut audits = Vec::new();
        for message in self.inbox.drain() {
            match message {
                Message::Event(event) => {
                    self.metrics.applied();
                    self.index.apply(event, now);
                    self.state.is_due = true;
                }
                Message::Outcome(decision, outcome) => {
                    // The index itself replaced what is superseded: that is no reason to decide again.
                    self.state.is_due |= outcome != WriteOutcome::Superseded;
                    self.index.outcome(decision, outcome, now);
                }
                Message::Read(read) => read(&self.index),
                Message::Audit(answer) => audits.push(answer),
            }
        }
        self.decide(now);
        for answer in audits {
            // Whoever asked may have left.
            let _ = answer.send(self.audit(now));
        }
        if self.state.next_audit.is_some_and(|at| at <= Instant::now()) {
            self.audit(now);
            self.state.next_audit = self.audit_interval.map(|interval| Instant::now() + interval);
        }
    }

    fn decide(&mut self, now: Timestamp) {
        let deadline_is_due = || self.index.next_deadline().is_some_and(|deadline| deadline <= now);
        let is_paced = self.state.decided + PACE <= Instant::now();
        let is_due = self.state.is_due || (is_paced && (self.state.has_more || deadline_is_due()));
        let room = self.writer.room();
        if !self.state.leads || room == 0 || !is_due {
            return;
        }
        let started = StdInstant::now();
        let writes = self.index.decide(now, room);
        self.metrics.decided(writes.len(), started.elapsed());
        self.state.decided = Instant::now();
        self.state.is_due = false;
        self.state.has_more = writes.len() >= room;
        for write in writes {
            self.writer.submit(write);
        }
        for (regarding, event) in self.index.take_events() {
            self.writer.recorder.record(I::NAME, regarding, event);
        }
    }

    /// When to wake up though nothing arrives. Room in the writer comes with an outcome, which arrives.
    fn wake(&self) -> Option<Instant> {
        let may_decide = self.state.leads && self.writer.room() > 0;
        let deadline = self.index.next_deadline().map(|deadline| {
            let wait = deadline.duration_since(self.clock.now());
            Instant::now() + Duration::try_from(wait).unwrap_or(Duration::ZERO).min(CLOCK_CHECK)
        });
        let more = self.state.has_more.then_some(self.state.decided);
        let decide = [deadline, more].into_iter().flatten().min().filter(|_| may_decide);
        let decide = decide.map(|at| at.max(self.state.decided + PACE));
        [decide, self.state.next_audit].into_iter().flatten().min()
    }

    fn audit(&mut self, now: Timestamp) -> Audit {
        let result = self.compare(now);
        self.metrics.audited(result.label());
        result
    }

    fn compare(&mut self, now: Timestamp) -> Audit {
        if self.writer.counts().outstanding > 0 || self.inbox.has_news() {
            return Audit::Busy;
        }
        let rebuilt = rebuild(&self.index, &self.snapshots, now);
        // What changed since the inbox was emptied is in it by now.
        if self.inbox.has_news() {
            return Audit::Busy;
        }
        if rebuilt.fingerprint() == self.index.fingerprint() {
            return Audit::Equal;
        }
        tracing::error!(
            index = I::NAME,
            "the index differs from one rebuilt from the caches, which replaces it"
        );
        self.index = rebuilt;
        self.state.is_due = true;
        Audit::Diverged
    }
}
