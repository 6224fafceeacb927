//! The writer's books: which writes wait, which are inflight, and which objects are held back.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{Write, WriteOutcome};
use crate::{object::ObjectKey, plan::Action, queue::LaneId};

/// Which object: its kind's lane and its key.
pub(super) type Target = (LaneId, ObjectKey);

/// A write that waits or is inflight.
pub(super) struct Pending<D> {
    pub(super) write: Write<D>,
    /// Attempts that failed.
    pub(super) attempts: u32,
}

/// How an attempt failed.
pub(super) enum Failure {
    /// The same attempt may succeed later.
    Passing {
        /// Whether this attempt may have taken effect.
        unknown: bool,
        /// Whether there is no use in another attempt.
        last: bool,
    },
    /// Nothing but another decision helps.
    Final(WriteOutcome),
}

/// What became of a decision.
pub(super) type Report<D> = (D, WriteOutcome);

/// All objects with writes, and those that are held back after a failure.
pub(super) struct Slots<D> {
    by_object: HashMap<Target, Slot<D>>,
    counts: Counts,
    /// How long an attempt that had no answer may still take effect.
    straggler: Duration,
}

/// How many writes there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Waiting or inflight.
    pub(super) outstanding: usize,
    /// Those that take up room. Writes to objects that the API server rejected are not among them: a broken webhook of
    /// one namespace must not stop decisions about all others.
    pub(super) load: usize,
}

struct Slot<D> {
    waiting: Option<Pending<D>>,
    inflight: bool,
    failed: Option<Failed>,
    /// An attempt without an answer may take effect until then.
    unknown_until: Option<Instant>,
}

/// The last write to an object, if it failed for good.
struct Failed {
    action: Action,
    /// Whether it was rejected, in contrast to lost.
    rejected: bool,
}

impl<D> Default for Slot<D> {
    fn default() -> Self {
        Self { waiting: None, inflight: false, failed: None, unknown_until: None }
    }
}

impl<D> Slot<D> {
    fn counts(&self) -> Counts {
        let (waiting, inflight) = (usize::from(self.waiting.is_some()), usize::from(self.inflight));
        let is_held_back = self.failed.as_ref().is_some_and(|failed| failed.rejected);
        Counts { outstanding: waiting + inflight, load: inflight + if is_held_back { 0 } else { waiting } }
    }

    fn is_void(&self) -> bool {
        !self.inflight && self.waiting.is_none() && self.failed.is_none() && self.unknown_until.is_none()
    }

    fn is_unknown(&self, now: Instant) -> bool {
        self.unknown_until.is_some_and(|until| now < until)
    }
}

impl<D> Slots<D> {
    pub(super) fn new(straggler: Duration) -> Self {
        Self { by_object: HashMap::new(), counts: Counts::default(), straggler }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a decision in. Returns what became of the one it replaces, and whether the write has to go out at once
    /// although the object is held back: a rejected write that is decided again unchanged waits for the backoff.
    pub(super) fn submit(
        &mut self,
        target: Target,
        write: Write<D>,
        now: Instant,
    ) -> (Option<Report<D>>, bool) {
        self.change(target, |slot| {
            let differs =
                slot.failed.as_ref().is_some_and(|failed| failed.rejected && failed.action != write.action);
            if differs {
                slot.failed = None;
            }
            let replaced = slot.waiting.replace(Pending { write, attempts: 0 });
            let report = replaced.map(|older| {
                let may_take_effect = older.attempts > 0 && slot.is_unknown(now);
                let outcome = if may_take_effect { WriteOutcome::Lost } else { WriteOutcome::Superseded };
                (older.write.decision, outcome)
            });
            (report, differs)
        })
    }

    /// The write to send now.
    pub(super) fn take(&mut self, target: &Target) -> Option<Pending<D>> {
        self.change(target.clone(), |slot| {
            let pending = slot.waiting.take()?;
            slot.inflight = true;
            slot.failed = None;
            Some(pending)
        })
    }

    /// Nothing is to be sent to an object any more. Returns for how long it has to be remembered.
    pub(super) fn expire(&mut self, target: &Target, now: Instant) -> Option<Duration> {
        self.change(target.clone(), |slot| {
            slot.failed = None;
            if !slot.is_unknown(now) {
                slot.unknown_until = None;
            }
            slot.unknown_until.map(|until| until - now)
        })
    }

    /// A write has taken effect. Older attempts cannot any more: the version of the object has changed.
    pub(super) fn succeed(&mut self, target: &Target) {
        self.change(target.clone(), |slot| {
            slot.inflight = false;
            slot.unknown_until = None;
        });
    }

    /// An attempt failed: the write waits for another one, or this is what became of it.
    pub(super) fn fail(
        &mut self,
        target: &Target,
        mut pending: Pending<D>,
        failure: Failure,
        now: Instant,
    ) -> Option<Report<D>> {
        let straggler = self.straggler;
        self.change(target.clone(), |slot| {
            slot.inflight = false;
            pending.attempts += 1;
            let outcome = match failure {
                Failure::Passing { unknown, last } => {
                    if unknown {
                        slot.unknown_until = Some(now + straggler);
                    }
                    if !last && slot.waiting.is_none() {
                        slot.waiting = Some(pending);
                        return None;
                    }
                    if slot.waiting.is_some() && !slot.is_unknown(now) {
                        WriteOutcome::Superseded
                    } else {
                        WriteOutcome::Lost
                    }
                }
                // An earlier attempt may yet take effect, whatever was said to this one.
                Failure::Final(_) if slot.is_unknown(now) => WriteOutcome::Lost,
                Failure::Final(outcome) => outcome,
            };
            let rejected = matches!(outcome, WriteOutcome::Conflict | WriteOutcome::Refused(_));
            slot.failed = Some(Failed { action: pending.write.action, rejected });
            Some((pending.write.decision, outcome))
        })
    }

    /// Whether an earlier attempt to write an object may still take effect.
    pub(super) fn is_unknown(&self, target: &Target, now: Instant) -> bool {
        self.by_object.get(target).is_some_and(|slot| slot.is_unknown(now))
    }

    fn change<R>(&mut self, target: Target, change: impl FnOnce(&mut Slot<D>) -> R) -> R {
        let mut slot = self.by_object.remove(&target).unwrap_or_default();
        let before = slot.counts();
        let result = change(&mut slot);
        let after = slot.counts();
        let Counts { outstanding, load } = &mut self.counts;
        *outstanding = *outstanding + after.outstanding - before.outstanding;
        *load = *load + after.load - before.load;
        if !slot.is_void() {
            self.by_object.insert(target, slot);
        }
        result
    }
}
