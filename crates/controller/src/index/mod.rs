//! The index runtime: many objects, one decision.
//!
//! A [`Controller`](crate::Controller) decides about one object at a time. Some decisions are about all objects
//! at once: who gets the last free quota depends on everybody who asks. For these an [`Index`] holds a model of
//! all objects in memory. It is plain synchronous code without client, clock or randomness.
//!
//! ```text
//!   caches ── changes, per cache in order ──> inbox ──> apply ──┐
//!     ^                                         ^               ├─> model ── decide ──> writes
//!     │                                         └── outcome ────┘     (owner task)         │
//!     │                                               │                                    v
//!     └─────────────── responses ──────────────── writer: bounded, parallel, one write per object
//! ```
//!
//! - **Inbox**: holds the newest state of every changed object, so that memory is bounded by the number of
//!   objects. The owner task takes all of it before it decides: per cache, a decision is made on a state the
//!   cache really was in.
//! - **Decide** runs when something changed or a deadline that the index asked for is due, and only on the
//!   leader, after its caches show everything that the previous leader wrote. A standby keeps its model warm.
//! - **Writer**: writes to different objects are parallel, writes to one object are sequential, and a newer
//!   decision about an object replaces an older one that was not sent. While it is full, the index is not
//!   asked to decide.
//! - **Outcomes**: every write has exactly one, and it reaches the index after the response has reached the
//!   caches. What the outcomes mean for a decision that was assumed is told at [`WriteOutcome`], and
//!   [`Assumptions`] keeps the books.
//! - **Audit**: [`IndexHandle::audit`] feeds an empty index from the caches and compares fingerprints.
//!
//! A table has two seats, and guests wait for one:
//!
//! ```
//! use std::{collections::BTreeMap, sync::Arc};
//! use jiff::Timestamp;
//! use quintet_controller::index::{Assumptions, Index, Update, Write, WriteOutcome};
//! use quintet_controller::{ApiKind, ObjectKey, StatusPatch, cache::Entry, object::ResourceVersion};
//! use serde_json::json;
//! # use k8s_openapi::api::core::v1::ConfigMap as Guest;
//!
//! #[derive(Default)]
//! struct Table { guests: BTreeMap<ObjectKey, Arc<Entry<bool>>>, assumed: Assumptions<()> }
//!
//! impl Index for Table {
//!     type Event = Update<bool>; // whether a guest has a seat
//!     type Decision = (ObjectKey, ResourceVersion);
//!     const NAME: &'static str = "table";
//!
//!     fn apply(&mut self, event: Update<bool>, _: Timestamp) {
//!         self.assumed.observe(&event);
//!         match event {
//!             Update::Applied(guest) => self.guests.insert(guest.key.clone(), guest),
//!             Update::Deleted(key) => self.guests.remove(&key),
//!         };
//!     }
//!     fn decide(&mut self, _: Timestamp, _: usize) -> Vec<Write<Self::Decision>> {
//!         let lost: Vec<_> = self.assumed.take_lost().collect();
//!         let (taken, waiting): (Vec<_>, Vec<_>) =
//!             self.guests.values().cloned().partition(|guest| guest.object || self.assumed.contains(&guest.key));
//!         let again = lost.iter().filter_map(|key| self.guests.get(key).cloned());
//!         let seated = waiting.into_iter().take(2_usize.saturating_sub(taken.len())).chain(again);
//!         let write = |guest: Arc<Entry<bool>>| {
//!             self.assumed.assume(guest.key.clone(), guest.version, ());
//!             let patch = StatusPatch::between(&guest, &json!({}), &json!({"seated": true}))?;
//!             Some(Write::status(ApiKind::of::<Guest>(), guest.key.clone(), patch, (guest.key.clone(), guest.version)))
//!         };
//!         seated.filter_map(write).collect()
//!     }
//!     fn outcome(&mut self, (guest, base): Self::Decision, outcome: WriteOutcome, _: Timestamp) {
//!         self.assumed.outcome(&guest, base, &outcome);
//!     }
//!     fn empty(&self) -> Self { Self::default() }
//!     fn fingerprint(&self) -> u64 { self.guests.values().filter(|guest| guest.object).count() as u64 }
//! }
//! # let (mut table, now) = (Table::default(), Timestamp::UNIX_EPOCH);
//! # for name in ["ann", "bob", "cay"] {
//! #     table.apply(Update::Applied(Entry::new(ObjectKey::cluster(name), false).into()), now);
//! # }
//! # assert_eq!(table.decide(now, 10).len(), 2);
//! # assert_eq!(table.decide(now, 10).len(), 0, "both seats are assumed to be taken");
//! # table.outcome((ObjectKey::cluster("ann"), ResourceVersion(0)), WriteOutcome::Lost, now);
//! # assert_eq!(table.decide(now, 10).len(), 1, "what is lost is sent again");
//! # table.outcome((ObjectKey::cluster("ann"), ResourceVersion(0)), WriteOutcome::Conflict, now);
//! # assert_eq!(table.decide(now, 10).len(), 1, "a conflict frees the seat");
//! ```

mod assumptions;
mod audit;
mod inbox;
mod metrics;
mod owner;
mod setup;
mod slots;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    cache::Entry,
    error::Error,
    object::{ApiKind, ObjectKey, ResourceVersion},
    plan::{Action, Event, Regarding, StatusPatch},
};

pub use assumptions::Assumptions;
pub use audit::Audit;
pub(crate) use metrics::IndexMetrics;
pub use setup::{IndexHandle, IndexReport, IndexSettings, IndexSetup};

/// A model of many objects that decides about all of them.
///
/// Everything is synchronous and runs in one task: keep [`Index::decide`] well below a second, and let its cost
/// follow what changed. A panic stops the process in good order (see [`Tasks`](crate::tasks::Tasks)).
pub trait Index: Send + 'static {
    /// A change of an observed object, usually an enum with an [`Update`] per kind.
    type Event: Send + 'static;

    /// What a write is about; it comes back with the outcome of the write.
    type Decision: Send + 'static;

    /// Its name in metrics and logs.
    const NAME: &'static str;

    /// Takes one change in. Repeated and unknown deletions are possible, and so is another incarnation (another
    /// uid) under the name of an object whose deletion was never shown: only the newest state is kept for an index
    /// that is busy.
    fn apply(&mut self, event: Self::Event, now: Timestamp);

    /// Decides, and assumes that the writes will succeed: the next call may come before any of them is sent.
    ///
    /// `room` is how many writes the writer has room for. More are accepted, but the next call then waits; an index
    /// that stops at `room` is called again as soon as there is room.
    fn decide(&mut self, now: Timestamp, room: usize) -> Vec<Write<Self::Decision>>;

    /// Takes the outcome of a write in. Every write has exactly one.
    fn outcome(&mut self, decision: Self::Decision, outcome: WriteOutcome, now: Timestamp);

    /// Takes the events about objects of which nothing is written: those of a write are recorded once it has succeeded.
    /// Called after every decision.
    fn take_events(&mut self) -> Vec<(Regarding, Event)> {
        Vec::new()
    }

    /// When to decide even if nothing changes.
    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// An index with the same settings and without objects, for audits.
    #[must_use]
    fn empty(&self) -> Self
    where
        Self: Sized;

    /// A hash of everything that was derived from observed objects. Two indexes that were fed the same objects, in
    /// whatever order, and have no write outstanding have the same fingerprint.
    fn fingerprint(&self) -> u64;
}

/// The newest state of an observed object.
#[derive(Debug)]
pub enum Update<T> {
    /// It exists, and this is its state.
    Applied(Arc<Entry<T>>),
    /// It is gone, or no longer selected by the watch.
    Deleted(ObjectKey),
}

impl<T> Update<T> {
    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Applied(entry) => &entry.key,
            Self::Deleted(key) => key,
        }
    }
}

/// One write that an index has decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct Write<D> {
    /// What it is about.
    pub decision: D,
    /// The write. It may be sent more than once; with a resource version in it, at most one of these attempts takes
    /// effect. Its type rules out calls.
    pub action: Action,
    /// Recorded about the written object once the write has succeeded.
    pub events: Vec<Event>,
}

impl<D> Write<D> {
    /// A write without events.
    pub fn new(action: Action, decision: D) -> Self {
        Self { decision, action, events: Vec::new() }
    }

    /// Patches the status of exactly the state that `patch` was derived from.
    pub fn status(kind: ApiKind, key: ObjectKey, patch: StatusPatch, decision: D) -> Self {
        Self::new(Action::Status { kind, key, patch }, decision)
    }

    /// The same, with events.
    #[must_use]
    pub fn with_events(self, events: Vec<Event>) -> Self {
        Self { events, ..self }
    }
}

/// What became of a write.
///
/// For an index that assumed its decision:
///
/// | outcome | did it take effect? | the assumption |
/// |---|---|---|
/// | `Written` | yes | the new state was applied before: drop it |
/// | `Conflict` | no | the current state was applied before: drop it, decide again |
/// | `Refused` | no | drop it; decide again when something changed, or later |
/// | `Lost` | unknown, maybe later | **keep it**, and decide the same write again until its outcome is known |
/// | `Superseded` | no | the newer decision has replaced it; this alone is no reason to decide again |
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteOutcome {
    /// It took effect, or there was nothing to change.
    Written {
        /// The object's version afterwards, unless it is gone.
        version: Option<ResourceVersion>,
    },
    /// The object has changed since the write was decided.
    Conflict,
    /// The API server rejects it, and will until something changes.
    Refused(Refusal),
    /// No answer in time, or the lease was lost. It may have taken effect, or may yet.
    Lost,
    /// A newer decision about the same object replaced it.
    Superseded,
}

impl WriteOutcome {
    /// The metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Written { .. } => "written",
            Self::Conflict => "conflict",
            Self::Refused(_) => "refused",
            Self::Lost => "lost",
            Self::Superseded => "superseded",
        }
    }
}

/// Why the API server rejects a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// HTTP status code; zero if the request could not even be made.
    pub code: u16,
    /// Reason, as in `Status` objects.
    pub reason: String,
    /// What was tried and why it failed, in words.
    pub message: String,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        let status = error.status();
        Self {
            code: status.map(|status| status.code).unwrap_or_default(),
            reason: status.map(|status| status.reason.clone()).unwrap_or_default(),
            message: error.to_string(),
        }
    }
}
