//! A running index: when it decides, how it writes, and what becomes of its mistakes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use quintet_controller::{
    Action, ApiKind, Event, ObjectKey,
    cache::{Cache, WatchSpec},
    events::Regarding,
    index::{Audit, Index, IndexHandle, IndexSettings, IndexSetup, Update, Write, WriteOutcome},
};
use serde_json::{Value, json};
use support::{
    process::Process,
    server::Server,
    simulate,
    store::{Place, merge},
};
use tokio::time::Instant;

/// Writes `data.stamp` into every ConfigMap that has none, and notes what happens.
#[derive(Default)]
struct Stamps {
    unstamped: Vec<ObjectKey>,
    decided: Vec<Instant>,
    rooms: Vec<usize>,
    outcomes: Vec<(ObjectKey, &'static str)>,
    events: usize,
    deadline: Option<Timestamp>,
    panics: bool,
    forgets: bool,
    /// What is recorded about objects that need no stamp.
    told: Vec<(Regarding, Event)>,
}

impl Index for Stamps {
    type Event = Update<bool>;
    type Decision = ObjectKey;

    const NAME: &'static str = "stamps";

    fn apply(&mut self, event: Update<bool>, _: Timestamp) {
        assert!(!self.panics, "on purpose");
        self.events += 1;
        self.unstamped.retain(|key| key != event.key());
        let Update::Applied(entry) = event else { return };
        if entry.object && self.events == 1 {
            let kind = ApiKind::of::<ConfigMap>();
            let regarding = Regarding { kind, key: entry.key.clone(), uid: entry.uid.clone() };
            self.told.push((regarding, Event::normal("Known", "Stamp", "it had a stamp")));
        }
        if !entry.object && !self.forgets {
            self.unstamped.push(entry.key.clone());
        }
    }

    fn decide(&mut self, now: Timestamp, room: usize) -> Vec<Write<ObjectKey>> {
        self.decided.push(Instant::now());
        self.rooms.push(room);
        self.deadline = self.deadline.filter(|deadline| *deadline > now);
        let count = room.min(self.unstamped.len());
        let stamp = |key: ObjectKey| {
            let patch = json!({"data": {"stamp": "yes"}});
            let action = Action::merge(ApiKind::of::<ConfigMap>(), key.clone(), patch);
            Write::new(action, key).with_events(vec![Event::normal("Stamped", "Stamp", "it has a stamp")])
        };
        self.unstamped.drain(..count).map(stamp).collect()
    }

    fn outcome(&mut self, key: ObjectKey, outcome: WriteOutcome, _: Timestamp) {
        self.outcomes.push((key, outcome.label()));
    }

    fn take_events(&mut self) -> Vec<(Regarding, Event)> {
        std::mem::take(&mut self.told)
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn empty(&self) -> Self {
        Self::default()
    }

    fn fingerprint(&self) -> u64 {
        self.unstamped.len() as u64
    }
}

fn place(name: &str) -> Place {
    ("v1/configmaps".to_owned(), "default".to_owned(), name.to_owned())
}

fn create(server: &Server, name: &str, data: &Value) {
    server.store(|store| store.create(&place(name), json!({"metadata": {}, "data": data})).unwrap());
}

fn start(
    server: &Server,
    lease: Option<&str>,
    index: Stamps,
    capacity: usize,
) -> (Process, IndexHandle<Stamps>) {
    let process = Process::bare(server, 1, lease);
    let spec = WatchSpec::projected(ApiKind::of::<ConfigMap>(), |text| {
        Ok(serde_json::from_str::<Value>(text)?["data"]["stamp"].is_string())
    });
    let cache: Cache<bool> = process.runtime.caches().watch(spec).unwrap();
    let settings = IndexSettings { capacity, seed: Some(1), ..IndexSettings::default() };
    let index = IndexSetup::new(&process.runtime, &process.clock, settings, index)
        .feed(&cache, std::convert::identity)
        .start();
    process.runtime.start();
    (process, index)
}

async fn stamped(server: &Server, name: &str) {
    server.until("stamped", |store| store.objects[&place(name)]["data"]["stamp"] == "yes").await;
}

#[test]
fn events_need_no_write() {
    simulate(async {
        let server = Server::new(1);
        create(&server, "a", &json!({"stamp": "yes"}));
        let (process, _) = start(&server, None, Stamps::default(), 10);
        let is_event = |place: &Place| place.0.ends_with("events");
        server.until("an event", |store| store.objects.keys().any(is_event)).await;
        pause().await;
        let (events, uid) = server.store(|store| {
            let events = store.objects.iter().filter(|(place, _)| is_event(place));
            let events: Vec<Value> = events.map(|(_, event)| event.clone()).collect();
            (events, store.objects[&place("a")]["metadata"]["uid"].clone())
        });
        assert_eq!(events.len(), 1, "{events:?}");
        let event = &events[0];
        assert_eq!((&event["reason"], &event["reportingController"]), (&json!("Known"), &json!("stamps")));
        assert_eq!((&event["regarding"]["name"], &event["regarding"]["uid"]), (&json!("a"), &uid));
        process.stop().await;
    });
}

async fn pause() {
    tokio::time::sleep(Duration::from_mins(1)).await;
}

#[test]
fn it_decides_when_something_changed_and_never_else() {
    simulate(async {
        let server = Server::new(1);
        create(&server, "a", &json!({}));
        let (process, index) = start(&server, None, Stamps::default(), 10);
        stamped(&server, "a").await;
        pause().await;
        let before = index.read(|index| index.decided.len()).await.unwrap();
        tokio::time::sleep(Duration::from_hours(5)).await;
        assert_eq!(index.read(|index| index.decided.len()).await.unwrap(), before, "no timer");
        create(&server, "b", &json!({}));
        stamped(&server, "b").await;
        pause().await;
        assert!(index.read(|index| index.decided.len()).await.unwrap() > before);
        let written = index.read(|index| index.outcomes.clone()).await.unwrap();
        let key = |name| ObjectKey::new("default", name);
        assert_eq!(written, [(key("a"), "written"), (key("b"), "written")]);
        let metrics = process.registry.encode();
        for line in [
            "quintet_index_decisions_total{index=\"stamps\"} 2",
            "quintet_index_writes_total{index=\"stamps\",result=\"written\"} 2",
            "quintet_index_outstanding_writes{index=\"stamps\"} 0",
            "quintet_index_events_total{index=\"stamps\"} 4",
        ] {
            assert!(metrics.contains(line), "{line} in {metrics}");
        }
        process.stop().await;
    });
}

#[test]
fn it_decides_at_the_deadline_that_it_asked_for() {
    simulate(async {
        let server = Server::new(1);
        let begun = Instant::now();
        let deadline = "2026-01-01T01:30:00Z".parse().ok();
        let (process, index) = start(&server, None, Stamps { deadline, ..Stamps::default() }, 10);
        tokio::time::sleep(Duration::from_hours(5)).await;
        let decided = index.read(|index| index.decided.clone()).await.unwrap();
        assert_eq!(decided.len(), 2, "at the start and at the deadline");
        let at = decided[1] - begun;
        assert!(at >= Duration::from_mins(90) && at < Duration::from_mins(91), "{at:?}");
        process.stop().await;
        assert_eq!(index.read(|index| index.events).await, None, "its task has ended");
    });
}

#[test]
fn a_full_writer_pauses_decisions_and_never_the_owner() {
    simulate(async {
        let server = Server::new(1);
        for number in 0..50 {
            create(&server, &format!("object-{number}"), &json!({}));
        }
        let (process, index) = start(&server, None, Stamps::default(), 4);
        for number in 0..50 {
            stamped(&server, &format!("object-{number}")).await;
        }
        pause().await;
        let (rooms, outcomes) =
            index.read(|index| (index.rooms.clone(), index.outcomes.len())).await.unwrap();
        assert!(rooms.iter().all(|room| (1..=4).contains(room)), "{rooms:?}");
        assert_eq!(outcomes, 50);
        assert_eq!((index.report().outstanding, index.report().room), (0, 4));
        process.stop().await;
    });
}

#[test]
fn a_standby_keeps_its_model_warm_and_decides_nothing_until_it_leads() {
    simulate(async {
        let server = Server::new(1);
        let (first, _) = start(&server, Some("first"), Stamps::default(), 10);
        first.leadership.acquired().await;
        let (second, standby) = start(&server, Some("second"), Stamps::default(), 10);
        create(&server, "a", &json!({}));
        stamped(&server, "a").await;
        pause().await;
        let (events, decided) = standby.read(|index| (index.events, index.decided.len())).await.unwrap();
        assert_eq!((events, decided), (2, 0));
        assert_eq!(standby.audit().await, Some(Audit::Equal));
        first.stop().await;
        second.leadership.acquired().await;
        create(&server, "b", &json!({}));
        stamped(&server, "b").await;
        second.stop().await;
    });
}

#[test]
fn a_panic_in_the_model_stops_the_process_and_is_reported() {
    simulate(async {
        let server = Server::new(1);
        let (process, index) = start(&server, None, Stamps { panics: true, ..Stamps::default() }, 10);
        create(&server, "a", &json!({}));
        process.tasks.stopping().await;
        assert_eq!(process.tasks.panicked(), ["index stamps"]);
        assert_eq!(index.audit().await, None);
        process.stop().await;
    });
}

#[test]
fn an_audit_finds_a_model_that_went_wrong_and_replaces_it() {
    simulate(async {
        let server = Server::new(1);
        let (process, index) = start(&server, None, Stamps { forgets: true, ..Stamps::default() }, 10);
        create(&server, "a", &json!({}));
        pause().await;
        assert_eq!(index.audit().await, Some(Audit::Diverged));
        stamped(&server, "a").await;
        pause().await;
        assert_eq!(index.audit().await, Some(Audit::Equal));
        let metrics = process.registry.encode();
        assert!(
            metrics.contains("quintet_index_audits_total{index=\"stamps\",result=\"diverged\"} 1"),
            "{metrics}"
        );
        process.stop().await;
    });
}

#[test]
fn events_are_recorded_once_the_write_has_succeeded() {
    simulate(async {
        let server = Server::new(1);
        server.with_faults(|faults| faults.rates.conflict = 700);
        create(&server, "a", &json!({}));
        let (process, index) = start(&server, None, Stamps::default(), 10);
        let is_written = |index: &Stamps| index.outcomes.iter().any(|(_, outcome)| *outcome == "written");
        while !index.read(is_written).await.unwrap() {
            // The index assumes nothing: a change makes it decide again.
            server.store(|store| {
                let touch = json!({"data": {"touched": store.version.to_string()}});
                let touched = store.update(&place("a"), false, |object| {
                    merge(object, &touch);
                    Ok(())
                });
                drop(touched.unwrap());
            });
            pause().await;
        }
        assert!(index.read(|index| index.outcomes.len()).await.unwrap() > 1, "there were conflicts");
        server.with_faults(|faults| faults.rates.conflict = 0);
        stamped(&server, "a").await;
        pause().await;
        let is_event = |(collection, ..): &&Place| collection.ends_with("/events");
        let events = server.store(|store| store.objects.keys().filter(is_event).count());
        assert_eq!(events, 1);
        process.stop().await;
    });
}
