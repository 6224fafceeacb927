//! Recent changes of a bucket: what watches resume from and what lists of the past are made of.
//!
//! A history is bounded by age, by number and by the bytes that it alone keeps in memory, whichever is reached first.
//! Clients that ask for more get `410 Gone` and list again, as they do after etcd has compacted its revisions.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    entry::{ChangeType, Entry, Event},
    state::TooOld,
};

/// How long a change is kept: as long as kube-apiserver keeps revisions in etcd (`--etcd-compaction-interval`).
pub(super) const AGE_AT_MOST: Duration = Duration::from_mins(5);
/// No bucket keeps more changes, however fast they come.
const EVENTS_AT_MOST: usize = 100_000;
/// Nor more bytes.
pub(super) const BYTES_AT_MOST: usize = 64 << 20;
/// What the encoded form of an event has beside the body of its object: types, names of versions and kinds.
const FRAME_OVERHEAD: usize = 256;

#[derive(Debug)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Changes up to this version are not known any more.
    forgotten: u64,
}

impl History {
    pub(super) fn new(floor: u64) -> Self {
        Self { events: VecDeque::new(), bytes: 0, forgotten: floor }
    }

    /// Bytes that are kept in memory for this history alone.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, event: Arc<Event>, now: Instant) {
        self.bytes += cost(&event);
        self.events.push_back(event);
        while self.events.len() > 1 && (self.events.len() > EVENTS_AT_MOST || self.bytes > BYTES_AT_MOST) {
            self.forget_oldest();
        }
        self.expire(now);
    }

    /// Forgets changes that are too old.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.events.front().is_some_and(|oldest| now.duration_since(oldest.at) > AGE_AT_MOST) {
            self.forget_oldest();
        }
    }

    /// Forgets the oldest change; whether there was one.
    pub(super) fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.events.pop_front() else { return false };
        self.bytes = self.bytes.saturating_sub(cost(&oldest));
        self.forgotten = oldest.rv;
        true
    }

    /// Changes after a version, oldest first.
    pub(super) fn after(&self, rv: u64) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, TooOld> {
        if rv < self.forgotten {
            return Err(TooOld { oldest: self.forgotten });
        }
        let start = self.events.partition_point(|event| event.rv <= rv);
        Ok(self.events.range(start..))
    }

    /// Bytes that are really in memory for the events, as far as they can be seen: superseded bodies and frames.
    #[cfg(test)]
    pub(super) fn resident(&self) -> usize {
        let resident = |event: &Arc<Event>| {
            event.previous.as_ref().map_or(0, |previous| previous.body.len())
                + event.frame.get().map_or(0, bytes::Bytes::len)
        };
        self.events.iter().map(resident).sum()
    }
}

/// What an event keeps in memory: itself, the object before the change, and its encoded form. The last is counted
/// from the start, although the first watcher encodes it: what is watched at all is encoded at once.
fn cost(event: &Event) -> usize {
    let superseded = event.previous.as_ref().map_or(0, |previous| previous.size());
    // The last state of a deleted object is a copy that shares the body with the one before.
    let last = if event.change == ChangeType::Deleted { event.entry.size_without_body() } else { 0 };
    let frame = event.entry.body.len() + FRAME_OVERHEAD;
    size_of::<Event>() + event.key.len() + superseded + last + frame
}

impl Entry {
    fn size(&self) -> usize {
        self.size_without_body() + self.body.len()
    }

    fn size_without_body(&self) -> usize {
        let pair = size_of::<(Box<str>, Box<str>)>();
        let labels = self.head.labels.iter().map(|(key, value)| pair + key.len() + value.len());
        let owners = self.head.owners.iter().map(|owner| size_of::<Box<str>>() + owner.len());
        size_of::<Self>() + self.head.uid.len() + labels.sum::<usize>() + owners.sum::<usize>()
    }
}
