//! The poll schedule: which poll is due next, found without a scan.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use quintet_controller::ObjectKey;
use tokio::time::Instant;

/// One poll of one root, at its time.
pub(super) struct Item<Q> {
    at: Instant,
    /// The latest ticket of a poll is the one that counts; earlier ones are void.
    pub(super) ticket: u64,
    pub(super) root: ObjectKey,
    pub(super) poll: Q,
}

/// How a poll ended the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastPoll {
    /// It was answered, is new, or is urgent.
    Succeeded,
    /// It was not answered: it may take long, and must not delay the others.
    Failed,
}

/// Polls by the time they are due; those that failed the last time are kept separately.
pub(super) struct PollSchedule<Q> {
    succeeded: BinaryHeap<Reverse<Item<Q>>>,
    failed: BinaryHeap<Reverse<Item<Q>>>,
    tickets: u64,
}

impl<Q> Default for PollSchedule<Q> {
    fn default() -> Self {
        Self { succeeded: BinaryHeap::new(), failed: BinaryHeap::new(), tickets: 0 }
    }
}

impl<Q> PollSchedule<Q> {
    /// Schedules a poll, and returns the ticket that it is valid by.
    pub(super) fn add(&mut self, at: Instant, last: LastPoll, root: ObjectKey, poll: Q) -> u64 {
        self.tickets += 1;
        let item = Item { at, ticket: self.tickets, root, poll };
        match last {
            LastPoll::Succeeded => self.succeeded.push(Reverse(item)),
            LastPoll::Failed => self.failed.push(Reverse(item)),
        }
        self.tickets
    }

    /// Takes the poll that has been due longest. `with_failed` says whether it may be one that failed the last time.
    pub(super) fn take(
        &mut self,
        now: Instant,
        with_failed: bool,
        is_valid: impl Fn(&Item<Q>) -> bool,
    ) -> Option<(Item<Q>, LastPoll)> {
        let succeeded = next(&mut self.succeeded, &is_valid);
        let failed = next(&mut self.failed, &is_valid).filter(|_| with_failed);
        let last = match (succeeded, failed) {
            (Some(succeeded), Some(failed)) if failed < succeeded => LastPoll::Failed,
            (Some(_), _) => LastPoll::Succeeded,
            (None, Some(_)) => LastPoll::Failed,
            (None, None) => return None,
        };
        let line = match last {
            LastPoll::Succeeded => &mut self.succeeded,
            LastPoll::Failed => &mut self.failed,
        };
        let is_due = line.peek().is_some_and(|Reverse(item)| item.at <= now);
        is_due.then(|| line.pop()).flatten().map(|Reverse(item)| (item, last))
    }

    /// When the next poll is due.
    pub(super) fn next_due(
        &mut self,
        with_failed: bool,
        is_valid: impl Fn(&Item<Q>) -> bool,
    ) -> Option<Instant> {
        let succeeded = next(&mut self.succeeded, &is_valid);
        let failed = next(&mut self.failed, &is_valid).filter(|_| with_failed);
        succeeded.into_iter().chain(failed).min()
    }
}

/// The time of the first valid item; void ones before it go.
fn next<Q>(line: &mut BinaryHeap<Reverse<Item<Q>>>, is_valid: impl Fn(&Item<Q>) -> bool) -> Option<Instant> {
    while let Some(Reverse(item)) = line.peek() {
        if is_valid(item) {
            return Some(item.at);
        }
        line.pop();
    }
    None
}

impl<Q> PartialEq for Item<Q> {
    fn eq(&self, other: &Self) -> bool {
        self.ticket == other.ticket
    }
}

impl<Q> Eq for Item<Q> {}

impl<Q> PartialOrd for Item<Q> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<Q> Ord for Item<Q> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.ticket).cmp(&(other.at, other.ticket))
    }
}
