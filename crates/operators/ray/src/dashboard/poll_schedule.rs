//! When to ask what: the next question is found without looking at the others.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use quintet_controller::ObjectKey;
use tokio::time::Instant;

/// One question of one root, at its time.
pub(super) struct Item<Q> {
    at: Instant,
    /// The latest ticket of a question is the one that counts; earlier ones are void.
    pub(super) ticket: u64,
    pub(super) root: ObjectKey,
    pub(super) question: Q,
}

/// How a question fared the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fared {
    /// It was answered, is new, or somebody waits for it.
    Well,
    /// It was not: it may take long, and must not hold the others up.
    Badly,
}

/// Questions by the time they are due, those that fared badly apart.
pub(super) struct Agenda<Q> {
    well: BinaryHeap<Reverse<Item<Q>>>,
    badly: BinaryHeap<Reverse<Item<Q>>>,
    tickets: u64,
}

impl<Q> Default for Agenda<Q> {
    fn default() -> Self {
        Self { well: BinaryHeap::new(), badly: BinaryHeap::new(), tickets: 0 }
    }
}

impl<Q> Agenda<Q> {
    /// Puts a question down, and returns the ticket that it is valid by.
    pub(super) fn add(&mut self, at: Instant, fared: Fared, root: ObjectKey, question: Q) -> u64 {
        self.tickets += 1;
        let item = Item { at, ticket: self.tickets, root, question };
        match fared {
            Fared::Well => self.well.push(Reverse(item)),
            Fared::Badly => self.badly.push(Reverse(item)),
        }
        self.tickets
    }

    /// Takes the question that has been due longest. `with_bad` says whether it may be one that fared badly.
    pub(super) fn take(
        &mut self,
        now: Instant,
        with_bad: bool,
        is_valid: impl Fn(&Item<Q>) -> bool,
    ) -> Option<(Item<Q>, Fared)> {
        let well = next(&mut self.well, &is_valid);
        let badly = next(&mut self.badly, &is_valid).filter(|_| with_bad);
        let fared = match (well, badly) {
            (Some(well), Some(badly)) if badly < well => Fared::Badly,
            (Some(_), _) => Fared::Well,
            (None, Some(_)) => Fared::Badly,
            (None, None) => return None,
        };
        let line = match fared {
            Fared::Well => &mut self.well,
            Fared::Badly => &mut self.badly,
        };
        let is_due = line.peek().is_some_and(|Reverse(item)| item.at <= now);
        is_due.then(|| line.pop()).flatten().map(|Reverse(item)| (item, fared))
    }

    /// When the next question is due.
    pub(super) fn next_due(
        &mut self,
        with_bad: bool,
        is_valid: impl Fn(&Item<Q>) -> bool,
    ) -> Option<Instant> {
        let well = next(&mut self.well, &is_valid);
        let badly = next(&mut self.badly, &is_valid).filter(|_| with_bad);
        well.into_iter().chain(badly).min()
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
