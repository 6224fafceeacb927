//! A small index: guests wait for seats in rooms.
//!
//! A room has so many numbered seats. Its guests are ranked by priority and name, and the guest of rank `n` gets
//! seat `n`. Who has another seat has to leave it first, so no seat is ever given to two.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use quintet_controller::{
    ApiKind, ObjectKey, StatusPatch,
    cache::{Cache, Caches, Entry, WatchSpec},
    index::{Assumptions, Index, Update, Write, WriteOutcome},
    object::ResourceVersion,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How long a guest whose write was rejected is left alone.
const REST: Duration = Duration::from_secs(30);

pub fn kind(kind: &'static str, plural: &'static str) -> ApiKind {
    ApiKind::namespaced("test.quintet.dev", "v1", kind, plural)
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Room {
    pub spec: RoomSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct RoomSpec {
    pub seats: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Guest {
    pub spec: GuestSpec,
    #[serde(default)]
    pub status: GuestStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GuestSpec {
    pub room: String,
    pub priority: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestStatus {
    pub seat: Option<Seat>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seat {
    pub room: String,
    pub number: usize,
}

/// What is done wrong on purpose, to see whether the proof notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    #[default]
    None,
    /// Decisions do not count until the watch shows them.
    AssumesNothing,
    /// A lost write counts as one that did not take place.
    LostIsRefused,
    /// A lost write is never sent again.
    LostIsForgotten,
    /// A seat is free as soon as its guest was asked to leave.
    LeavingIsLeft,
    /// A conflict is ignored.
    ConflictIsIgnored,
    /// A guest that is gone keeps its seat.
    RemembersTheDead,
}

pub struct Caching {
    pub rooms: Cache<Room>,
    pub guests: Cache<Guest>,
}

impl Caching {
    pub fn new(caches: &Caches) -> Self {
        let rooms = WatchSpec::projected(kind("Room", "rooms"), |text| serde_json::from_str(text));
        let guests = WatchSpec::projected(kind("Guest", "guests"), |text| serde_json::from_str(text));
        Self { rooms: caches.watch(rooms).unwrap(), guests: caches.watch(guests).unwrap() }
    }
}

pub enum Event {
    Room(Update<Room>),
    Guest(Update<Guest>),
}

/// Which guest, in which state, was told to take or leave a seat.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub guest: ObjectKey,
    pub base: ResourceVersion,
}

#[derive(Default)]
pub struct Seats {
    mutant: Mutant,
    rooms: BTreeMap<String, usize>,
    guests: BTreeMap<ObjectKey, Arc<Entry<Guest>>>,
    assumed: Assumptions<Option<Seat>>,
    /// Guests that are left alone for a while.
    resting: BTreeMap<ObjectKey, Timestamp>,
    pub decided: u64,
}

impl Seats {
    pub fn new(mutant: Mutant) -> Self {
        Self { mutant, ..Self::default() }
    }

    /// Who should have which seat.
    fn wanted(&self) -> BTreeMap<ObjectKey, Seat> {
        let guests = self.guests.values();
        ranked(&self.rooms, guests.map(|guest| (guest.key.clone(), guest.object.spec.clone())))
    }

    /// Seats that are or may be taken.
    fn occupied(&self) -> BTreeSet<Seat> {
        let leaving = |guest: &Entry<Guest>| {
            self.mutant == Mutant::LeavingIsLeft && self.assumed.get(&guest.key) == Some(&None)
        };
        let observed = self.guests.values().filter(|guest| !leaving(guest));
        let observed = observed.filter_map(|guest| guest.object.status.seat.clone());
        observed.chain(self.assumed.iter().filter_map(|(_, seat)| seat.clone())).collect()
    }

    fn tell(&mut self, guest: &Entry<Guest>, seat: Option<Seat>) -> Option<Write<Decision>> {
        if self.mutant != Mutant::AssumesNothing {
            self.assumed.assume(guest.key.clone(), guest.version, seat.clone());
        }
        let patch = StatusPatch::between(guest, &guest.object.status, &GuestStatus { seat })?;
        let decision = Decision { guest: guest.key.clone(), base: guest.version };
        Some(Write::status(kind("Guest", "guests"), guest.key.clone(), patch, decision))
    }
}

/// The guest of rank `n` of a room gets its seat `n`.
pub fn ranked(
    rooms: &BTreeMap<String, usize>,
    guests: impl Iterator<Item = (ObjectKey, GuestSpec)>,
) -> BTreeMap<ObjectKey, Seat> {
    let mut ranks: BTreeMap<String, BTreeSet<(i64, ObjectKey)>> = BTreeMap::new();
    for (key, GuestSpec { room, priority }) in guests {
        ranks.entry(room).or_default().insert((-priority, key));
    }
    let seated = ranks.into_iter().flat_map(|(room, guests)| {
        let seats = rooms.get(&room).copied().unwrap_or_default();
        let seat = move |(number, (_, key))| (key, Seat { room: room.clone(), number });
        guests.into_iter().enumerate().take(seats).map(seat)
    });
    seated.collect()
}

impl Index for Seats {
    type Event = Event;
    type Decision = Decision;

    const NAME: &'static str = "seats";

    fn apply(&mut self, event: Event, _: Timestamp) {
        match event {
            Event::Room(Update::Applied(room)) => {
                self.rooms.insert(room.key.name().to_owned(), room.object.spec.seats);
            }
            Event::Room(Update::Deleted(key)) => drop(self.rooms.remove(key.name())),
            Event::Guest(update) => {
                self.assumed.observe(&update);
                self.resting.remove(update.key());
                match update {
                    Update::Applied(guest) => drop(self.guests.insert(guest.key.clone(), guest)),
                    Update::Deleted(_) if self.mutant == Mutant::RemembersTheDead => {}
                    Update::Deleted(key) => drop(self.guests.remove(&key)),
                }
            }
        }
    }

    fn decide(&mut self, now: Timestamp, room: usize) -> Vec<Write<Decision>> {
        self.decided += 1;
        self.resting.retain(|_, until| *until > now);
        let mut writes = Vec::new();
        for key in self.assumed.take_lost() {
            let (guest, seat) = (self.guests.get(&key).cloned(), self.assumed.get(&key).cloned());
            if let (Some(guest), Some(seat)) = (guest, seat)
                && self.mutant != Mutant::LostIsForgotten
            {
                writes.extend(self.tell(&guest, seat));
            }
        }
        let (wanted, mut occupied) = (self.wanted(), self.occupied());
        let guests: Vec<_> = self.guests.values().cloned().collect();
        for guest in guests {
            let (has, wants) = (&guest.object.status.seat, wanted.get(&guest.key));
            let is_waited_for = self.assumed.contains(&guest.key) || self.resting.contains_key(&guest.key);
            if has.as_ref() == wants || is_waited_for || writes.len() >= room {
                continue;
            }
            if has.is_some() {
                writes.extend(self.tell(&guest, None));
            } else if let Some(seat) = wants
                && occupied.insert(seat.clone())
            {
                writes.extend(self.tell(&guest, Some(seat.clone())));
            }
        }
        writes
    }

    fn outcome(&mut self, decision: Decision, outcome: WriteOutcome, now: Timestamp) {
        let Decision { guest, base } = decision;
        let outcome = match (self.mutant, outcome) {
            (Mutant::LostIsRefused, WriteOutcome::Lost) => WriteOutcome::Conflict,
            (Mutant::ConflictIsIgnored, WriteOutcome::Conflict) => return,
            (_, outcome) => outcome,
        };
        let is_current = self.guests.get(&guest).is_some_and(|guest| guest.version == base);
        if matches!(outcome, WriteOutcome::Refused(_)) && is_current {
            self.resting.insert(guest.clone(), now + REST);
        }
        self.assumed.outcome(&guest, base, &outcome);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.resting.values().min().copied()
    }

    fn empty(&self) -> Self {
        Self::default()
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.rooms.hash(&mut hasher);
        for guest in self.guests.values() {
            let Guest { spec, status } = &guest.object;
            (&guest.key, guest.version, &spec.room, spec.priority, &status.seat).hash(&mut hasher);
        }
        self.assumed.iter().for_each(|assumed| assumed.hash(&mut hasher));
        hasher.finish()
    }
}

pub fn guest(room: &str, priority: i64) -> serde_json::Value {
    json!({"metadata": {}, "spec": {"room": room, "priority": priority}})
}

pub fn room(seats: usize) -> serde_json::Value {
    json!({"metadata": {}, "spec": {"seats": seats}})
}
