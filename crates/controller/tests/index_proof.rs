//! The proof of the index runtime: whatever goes wrong, no seat is given twice and the end is the same.
//!
//! `QUINTET_SEEDS=5000 cargo test -p quintet-controller --test index_proof` searches longer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{collections::BTreeMap, panic::AssertUnwindSafe, time::Duration};

use quintet_controller::{
    ObjectKey,
    index::{Audit, IndexHandle, IndexSettings, IndexSetup},
    rng::Rng,
};
use serde_json::{Value, json};
use support::{
    faults::FaultRates,
    process::Process,
    seats::{Caching, Event, GuestSpec, Mutant, Seat, Seats, guest, ranked, room},
    server::Server,
    simulate,
    store::{Place, Store, merge},
};

const NAMESPACE: &str = "default";
const ROOMS: &str = "test.quintet.dev/v1/rooms";
const GUESTS: &str = "test.quintet.dev/v1/guests";

/// How many seeds to run: as many as `QUINTET_SEEDS` says, for a long search, or else `usual`.
fn seeds(usual: u64) -> u64 {
    std::env::var("QUINTET_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn place(collection: &str, name: &str) -> Place {
    (collection.to_owned(), NAMESPACE.to_owned(), name.to_owned())
}

/// One thing that a user does.
#[derive(Clone, Debug)]
enum Step {
    Room { name: String, seats: usize },
    CloseRoom { name: String },
    Arrive { name: String, room: String, priority: i64 },
    Change { name: String, patch: Value },
    Leave { name: String },
}

impl Step {
    fn random(random: &Rng) -> Self {
        let name = |prefix: &str, of: u64| format!("{prefix}{}", random.below(of));
        let priority = || i64::try_from(random.below(8)).unwrap();
        match random.below(16) {
            0 | 1 => Self::Room { name: name("room-", 2), seats: usize::try_from(random.below(4)).unwrap() },
            2 => Self::CloseRoom { name: name("room-", 2) },
            3..=6 => Self::Arrive { name: name("guest-", 8), room: name("room-", 2), priority: priority() },
            7..=10 => {
                Self::Change { name: name("guest-", 8), patch: json!({"spec": {"priority": priority()}}) }
            }
            11 => {
                Self::Change { name: name("guest-", 8), patch: json!({"spec": {"room": name("room-", 2)}}) }
            }
            12 => Self::Change {
                name: name("guest-", 8),
                patch: json!({"metadata": {"labels": {"touched": random.below(100).to_string()}}}),
            },
            _ => Self::Leave { name: name("guest-", 8) },
        }
    }

    /// Does it, if it can be done: who is there does not arrive, and who is not there does not leave.
    fn take(&self, store: &mut Store) {
        let _ = match self {
            Self::Room { name, seats } => {
                let place = place(ROOMS, name);
                if store.objects.contains_key(&place) {
                    change(store, &place, &json!({"spec": {"seats": seats}}))
                } else {
                    store.create(&place, room(*seats))
                }
            }
            Self::CloseRoom { name } => store.delete(&place(ROOMS, name), None),
            Self::Arrive { name, room, priority } => {
                store.create(&place(GUESTS, name), guest(room, *priority))
            }
            Self::Change { name, patch } => change(store, &place(GUESTS, name), patch),
            Self::Leave { name } => store.delete(&place(GUESTS, name), None),
        };
    }
}

fn change(store: &mut Store, place: &Place, patch: &Value) -> Result<Value, support::store::Refusal> {
    store.update(place, false, |object| {
        merge(object, patch);
        Ok(())
    })
}

/// What users do in a run: two rooms and some guests first, then anything.
fn script(seed: u64) -> Vec<Step> {
    let random = Rng::seeded(seed ^ 0x5eed);
    let room = |number, seats| Step::Room { name: format!("room-{number}"), seats };
    let arrive = |number: i64| Step::Arrive {
        name: format!("guest-{number}"),
        room: format!("room-{}", number % 2),
        priority: number % 3,
    };
    let mut steps = vec![room(0, 2), room(1, 1)];
    steps.extend((0..5).map(arrive));
    steps.extend((0..25).map(|_| Step::random(&random)));
    steps
}

fn of_kind<'a>(store: &'a Store, collection: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let objects = store.objects.iter().filter(move |((found, ..), _)| found == collection);
    objects.map(|((.., name), object)| (name, object))
}

fn seat_of(guest: &Value) -> Option<Seat> {
    serde_json::from_value(guest["status"]["seat"].clone()).unwrap()
}

/// Who has a seat.
fn seated(store: &Store) -> BTreeMap<ObjectKey, Seat> {
    let key = |name: &String| ObjectKey::new(NAMESPACE, name);
    of_kind(store, GUESTS).filter_map(|(name, guest)| Some((key(name), seat_of(guest)?))).collect()
}

/// Who should have one.
fn wanted(store: &Store) -> BTreeMap<ObjectKey, Seat> {
    let seats = |room: &Value| usize::try_from(room["spec"]["seats"].as_u64().unwrap()).unwrap();
    let rooms = of_kind(store, ROOMS).map(|(name, room)| (name.clone(), seats(room))).collect();
    let spec = |guest: &Value| serde_json::from_value::<GuestSpec>(guest["spec"].clone()).unwrap();
    let guests = of_kind(store, GUESTS).map(|(name, guest)| (ObjectKey::new(NAMESPACE, name), spec(guest)));
    ranked(&rooms, guests)
}

fn is_settled(store: &Store) -> bool {
    seated(store) == wanted(store)
}

/// At no time did two guests have the same seat.
fn assert_no_seat_was_shared(store: &Store, name: &str) {
    let mut taken: BTreeMap<Seat, String> = BTreeMap::new();
    for event in store.log.iter().filter(|event| event.place.0 == GUESTS) {
        let guest = &event.place.2;
        taken.retain(|_, holder| holder != guest);
        if event.kind != "DELETED"
            && let Some(seat) = seat_of(&event.object)
            && let Some(other) = taken.insert(seat.clone(), guest.clone())
        {
            panic!("{name}: {other} and {guest} share {seat:?} at version {}", event.version);
        }
    }
}

struct Replica {
    process: Process,
    index: IndexHandle<Seats>,
}

impl Replica {
    fn start(server: &Server, seed: u64, lease: Option<&str>, run: &Run) -> Self {
        let process = Process::bare(server, seed, lease);
        let Caching { rooms, guests } = Caching::new(process.runtime.caches());
        let settings = IndexSettings {
            parallelism: 3,
            capacity: run.capacity,
            seed: Some(seed),
            ..IndexSettings::default()
        };
        let settings = IndexSettings { straggler: run.straggler, attempts: run.attempts, ..settings };
        let index = IndexSetup::new(&process.runtime, &process.clock, settings, Seats::new(run.mutant))
            .feed(&rooms, Event::Room)
            .feed(&guests, Event::Guest)
            .start();
        process.runtime.start();
        Self { process, index }
    }

    /// Whether it has ended by itself, as after losing the lease.
    fn is_over(&self) -> bool {
        self.process.tasks.is_stopping()
    }

    async fn audit(&self, name: &str) {
        assert_eq!(self.index.audit().await, Some(Audit::Equal), "{name}");
        assert_eq!(self.process.tasks.panicked(), Vec::<String>::new(), "{name}");
    }
}

/// How a run is disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trouble {
    /// By the fault rates alone.
    #[default]
    FaultRates,
    /// The process dies at some writes.
    Crashes,
    /// Processes are killed and started again between steps.
    Kills,
    /// Two replicas; the leader is cut off now and then.
    CutOff,
    /// Two replicas; the leader is stopped in good order now and then.
    Handover,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    rates: FaultRates,
    trouble: Trouble,
    mutant: Mutant,
    capacity: usize,
    straggler: Duration,
    attempts: u32,
    /// The longest pause between steps.
    pause_ms: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            rates: FaultRates::default(),
            trouble: Trouble::FaultRates,
            mutant: Mutant::None,
            capacity: 1024,
            straggler: Duration::from_mins(1),
            attempts: 5,
            pause_ms: 20_000,
        }
    }
}

/// What a run has shown.
#[derive(Debug, PartialEq, Eq)]
struct End {
    seated: BTreeMap<ObjectKey, Seat>,
    faults: u64,
}

/// A run in progress.
struct World {
    server: Server,
    random: Rng,
    run: Run,
    replicas: Vec<Replica>,
    started: u64,
    seed: u64,
}

impl World {
    fn new(seed: u64, run: Run) -> Self {
        let server = Server::new(seed);
        server.serve("test.quintet.dev/v1", "rooms", "Room", false);
        server.serve("test.quintet.dev/v1", "guests", "Guest", true);
        server.with_faults(|faults| faults.rates = run.rates);
        if seed.is_multiple_of(3) {
            server.set_page(3);
        }
        let mut world =
            Self { server, random: Rng::seeded(seed), run, replicas: Vec::new(), started: 0, seed };
        for _ in 0..if world.has_lease() { 2 } else { 1 } {
            world.start();
        }
        world
    }

    fn has_lease(&self) -> bool {
        matches!(self.run.trouble, Trouble::CutOff | Trouble::Handover)
    }

    fn start(&mut self) {
        self.started += 1;
        let identity = self.has_lease().then(|| format!("replica-{}", self.started));
        let seed = self.seed.wrapping_mul(1000) + self.started;
        self.replicas.push(Replica::start(&self.server, seed, identity.as_deref(), &self.run));
        if self.run.trouble == Trouble::Crashes && self.started < 6 {
            let crash = (1 + self.random.below(12), self.random.below(2) == 0);
            self.server.with_faults(|faults| {
                faults.crash = Some((faults.writes() + crash.0, crash.1));
                faults.crashed = false;
            });
        }
    }

    /// Replaces what has crashed or ended.
    async fn supervise(&mut self) {
        if self.server.with_faults(|faults| std::mem::take(&mut faults.crashed)) {
            let dead = self.replicas.remove(0);
            dead.process.kill();
            self.start();
        }
        for number in (0..self.replicas.len()).rev() {
            if self.replicas[number].is_over() {
                let over = self.replicas.remove(number);
                assert_eq!(over.process.tasks.panicked(), Vec::<String>::new());
                over.process.runtime.shut_down().await;
                self.start();
            }
        }
    }

    async fn disturb(&mut self) {
        if self.random.below(3) > 0 {
            return;
        }
        let leader = self.replicas.iter().position(|replica| replica.process.leadership.report().leading);
        match (self.run.trouble, leader) {
            (Trouble::Kills | Trouble::CutOff, Some(leader)) => {
                self.replicas.remove(leader).process.kill();
                self.start();
            }
            (Trouble::Handover, Some(leader)) => {
                self.replicas.remove(leader).process.runtime.shut_down().await;
                self.start();
            }
            _ => {}
        }
    }

    async fn settle(&mut self, name: &str) {
        let server = self.server.clone();
        // Replicas may have to be replaced on the way.
        for _ in 0..1_000 {
            if tokio::time::timeout(Duration::from_secs(5), server.until(name, is_settled)).await.is_ok() {
                return;
            }
            self.supervise().await;
        }
        panic!(
            "{name}: never settled: {:?} of {:?}",
            server.store(|s| seated(s)),
            server.store(|s| wanted(s))
        );
    }

    /// Writes other than renewals of the lease.
    fn take_writes(&self) -> Vec<String> {
        let mut writes = self.server.take_writes();
        writes.retain(|write| !write.contains("/leases"));
        writes
    }

    /// Nothing is written once everything is settled, not even by a process that starts afresh, and all models are
    /// what their objects make of them.
    async fn assert_quiet(&mut self, name: &str) {
        self.server.with_faults(|faults| (faults.rates, faults.crash) = (FaultRates::default(), None));
        // Late watch events and stragglers; a replica may lose the lease once more.
        tokio::time::sleep(Duration::from_mins(3)).await;
        self.supervise().await;
        self.settle(name).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        self.take_writes();
        // Renewals of the lease make time expensive.
        tokio::time::sleep(Duration::from_mins(if self.has_lease() { 2 } else { 10 })).await;
        assert_eq!(self.take_writes(), Vec::<String>::new(), "{name}: writes in a settled system");
        for replica in &self.replicas {
            replica.audit(name).await;
        }
        for replica in self.replicas.drain(..) {
            replica.process.stop().await;
        }
        let fresh = Replica::start(&self.server, 1, None, &self.run);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(self.take_writes(), Vec::<String>::new(), "{name}: writes of a fresh process");
        fresh.audit(name).await;
        fresh.process.stop().await;
    }
}

/// Runs the script of a seed.
fn end_of(seed: u64, run: Run) -> End {
    let name = format!("seed {seed}, {:?}, {:?}", run.trouble, run.mutant);
    simulate(async {
        let mut world = World::new(seed, run);
        for step in script(seed) {
            world.server.store(|store| step.take(store));
            let pause = world.random.below(run.pause_ms + 1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            world.supervise().await;
            world.disturb().await;
        }
        world.settle(&name).await;
        world.assert_quiet(&name).await;
        world.server.store(|store| {
            assert!(is_settled(store), "{name}");
            assert_no_seat_was_shared(store, &name);
        });
        let faults = world.server.with_faults(|faults| faults.injected) + world.started - 1;
        End { seated: world.server.store(|store| seated(store)), faults }
    })
}

/// Every kind of fault at once.
fn all_faults() -> FaultRates {
    FaultRates {
        refused: 120,
        answer_lost: 100,
        conflict: 100,
        rejected: 80,
        late: 100,
        slow: 60,
        ..FaultRates::all_faults()
    }
}

/// The disturbed run of a seed: every fifth seed has the same trouble.
fn disturbed(seed: u64) -> Run {
    let random = Rng::seeded(seed ^ 0xfau64);
    let one_of = |choices: [usize; 3]| choices[usize::try_from(random.below(3)).unwrap()];
    let (capacity, attempts) = (one_of([1, 4, 1024]), u32::try_from(one_of([1, 2, 5])).unwrap());
    let run =
        Run { rates: all_faults(), capacity, attempts, pause_ms: 1 << random.below(16), ..Run::default() };
    match seed % 5 {
        0 => run,
        1 => Run { trouble: Trouble::Crashes, ..run },
        2 => Run { trouble: Trouble::Kills, ..run },
        3 => Run { trouble: Trouble::CutOff, ..run },
        // A leader that leaves in good order gives the lease back at once: a write of its own that takes effect
        // seconds later is beyond what a lease can promise.
        _ => Run { trouble: Trouble::Handover, rates: FaultRates { late: 0, ..run.rates }, ..run },
    }
}

/// Runs a seed calm and disturbed, and compares. Returns how many faults there were.
fn assert_same_end(seed: u64, run: Run) -> u64 {
    let (calm, disturbed) = (end_of(seed, Run::default()), end_of(seed, run));
    assert_eq!(calm.faults, 0, "seed {seed}");
    assert_eq!(calm.seated, disturbed.seated, "seed {seed}");
    disturbed.faults
}

#[test]
fn every_seed_ends_as_without_faults_and_no_seat_is_given_twice() {
    let (mut faults, seeds) = (0, seeds(100));
    for seed in 0..seeds {
        faults += assert_same_end(seed, disturbed(seed));
    }
    println!("{seeds} seeds, {faults} faults, 0 divergences");
    assert!(faults > seeds * 20, "{faults}");
}

#[test]
fn a_crash_between_any_two_writes_changes_nothing() {
    let calm = end_of(1, Run::default());
    let mut crashes = 0;
    for after in [false, true] {
        for write in 1.. {
            let name = format!("crash {} write {write}", if after { "after" } else { "before" });
            let crashed = simulate(async {
                let mut world = World::new(1, Run::default());
                world.server.with_faults(|faults| faults.crash = Some((write, after)));
                for step in script(1) {
                    world.server.store(|store| step.take(store));
                    world.settle(&name).await;
                }
                world.assert_quiet(&name).await;
                world.server.store(|store| {
                    assert_eq!(seated(store), calm.seated, "{name}");
                    assert_no_seat_was_shared(store, &name);
                });
                world.started > 1
            });
            if !crashed {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes >= 20, "{crashes}");
}

/// A run in which the outcome of most writes is doubtful and ranks change all the time.
fn doubtful(seed: u64) -> Run {
    let rates = FaultRates { answer_lost: 250, late: 250, rejected: 150, slow: 100, ..all_faults() };
    let pause_ms = 1 << Rng::seeded(seed).below(13);
    Run { rates, attempts: 1 + u32::try_from(seed % 2).unwrap(), pause_ms, ..Run::default() }
}

/// How many seeds it takes until a run with a mistake in it is noticed.
fn seeds_until_noticed(run: impl Fn(u64) -> Run) -> Option<u64> {
    (0..300).find(|seed| {
        let run = AssertUnwindSafe(|| end_of(*seed, run(*seed)));
        std::panic::catch_unwind(run).is_err()
    })
}

#[test]
fn mistakes_are_noticed() {
    let of = |mutant| move |seed| Run { mutant, ..doubtful(seed) };
    let noticed = BTreeMap::from([
        ("nothing is assumed", seeds_until_noticed(of(Mutant::AssumesNothing))),
        ("lost is taken for refused", seeds_until_noticed(of(Mutant::LostIsRefused))),
        ("lost is not sent again", seeds_until_noticed(of(Mutant::LostIsForgotten))),
        ("a seat is free before it is left", seeds_until_noticed(of(Mutant::LeavingIsLeft))),
        ("conflicts are ignored", seeds_until_noticed(of(Mutant::ConflictIsIgnored))),
        ("deletions are ignored", seeds_until_noticed(of(Mutant::RemembersTheDead))),
        (
            "stragglers are ignored",
            seeds_until_noticed(|seed| Run { straggler: Duration::ZERO, ..doubtful(seed) }),
        ),
    ]);
    println!("first seed that notices: {noticed:?}");
    assert!(noticed.values().all(Option::is_some), "{noticed:?}");
}

#[test]
fn doubtful_outcomes_change_nothing() {
    for seed in 0..seeds(30) {
        end_of(seed, doubtful(seed));
    }
}

#[test]
fn the_same_seed_runs_the_same() {
    for seed in 0..5 {
        assert_eq!(end_of(seed, disturbed(seed)), end_of(seed, disturbed(seed)), "seed {seed}");
    }
}
