//! What happens around a turn: panics, refusals, calls, events, stopping.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use quintet_controller::{
    Action, Controller, Error, Event, Next, ObjectKey, Plan, Setback,
    cache::{Cache, WatchSpec},
};
use serde_json::{Value, json};
use support::{garden::config_map_kind, process::Process, server::Server, simulate, store::Place};

/// Does what the data of a ConfigMap tells it to.
struct Puppet {
    strings: Cache<Value>,
    called: Arc<AtomicU32>,
}

impl Controller for Puppet {
    type Seen = (ObjectKey, Value);

    const NAME: &'static str = "puppet";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Self::Seen>, Error> {
        let Some(entry) = self.strings.get(key) else {
            return Ok(None);
        };
        if entry.object["data"]["do"] == "hang" {
            std::future::pending::<()>().await;
        }
        Ok(Some((key.clone(), entry.object.clone())))
    }

    fn plan(&self, (key, object): &Self::Seen) -> Plan {
        let actions = match object["data"]["do"].as_str().unwrap_or_default() {
            "panic" => panic!("as told"),
            "call" => vec![Action::Call { name: "ring".to_owned(), input: json!({"times": 3}) }],
            "nameless" => {
                vec![Action::create(config_map_kind(), &json!({"metadata": {"generateName": "x-"}}))]
            }
            "steal" => vec![Action::create(
                config_map_kind(),
                &json!({"metadata": {"name": "theirs", "namespace": key.namespace()}}),
            )],
            _ => Vec::new(),
        };
        let next = match object["data"]["do"].as_str() {
            Some("tick") => Next::After(Duration::from_mins(1)),
            _ => Next::AwaitChange,
        };
        let events = match object["data"]["say"].as_str() {
            Some(note) => vec![Event::normal("Said", "Say", note)],
            None => Vec::new(),
        };
        Plan { steps: actions.into_iter().map(Into::into).collect(), events, next, ..Plan::default() }
    }

    fn setback(&self, _: &Self::Seen, action: &Action, error: &Error) -> Setback {
        let kind = action.kind().map(ToString::to_string).unwrap_or_default();
        let event = Event::warning("Refused", "Create", format!("{kind}: {error}"));
        Setback { events: vec![event], ..Setback::default() }
    }

    async fn call(&self, name: &str, input: &Value) -> Result<(), Error> {
        assert_eq!((name, &input["times"]), ("ring", &json!(3)));
        self.called.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn start(server: &Server) -> (Process, Arc<AtomicU32>) {
    let process = Process::bare(server, 1, None);
    let strings = WatchSpec::projected(config_map_kind(), |text| serde_json::from_str(text));
    let strings = process.runtime.caches().watch(strings).unwrap();
    let called = Arc::new(AtomicU32::new(0));
    let puppet = Puppet { strings: strings.clone(), called: Arc::clone(&called) };
    process.runtime.add(puppet, &strings, 2).done();
    process.runtime.start();
    (process, called)
}

fn place(name: &str) -> Place {
    ("v1/configmaps".to_owned(), "default".to_owned(), name.to_owned())
}

fn tell(server: &Server, name: &str, data: &Value) {
    server.store(|store| store.create(&place(name), json!({"metadata": {}, "data": data})).unwrap());
}

fn events(server: &Server) -> Vec<Value> {
    let is_event = |place: &Place| place.0.ends_with("events");
    server.store(|store| {
        store.objects.iter().filter(|(place, _)| is_event(place)).map(|(_, event)| event.clone()).collect()
    })
}

#[test]
fn a_panic_is_one_failed_turn_and_users_hear_of_it() {
    simulate(async {
        let server = Server::new(1);
        let (process, called) = start(&server);
        tell(&server, "bad", &json!({"do": "panic"}));
        tell(&server, "good", &json!({"do": "call"}));
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(called.load(Ordering::SeqCst), 1);
        let metrics = process.registry.encode();
        assert!(
            metrics
                .contains("controller_runtime_reconcile_errors_total{controller=\"puppet\",result=\"bug\"}")
        );
        assert!(metrics.contains("controller_runtime_reconcile_panics_total{controller=\"puppet\"}"));
        assert!(
            metrics
                .contains("controller_runtime_reconcile_total{controller=\"puppet\",result=\"success\"} 1")
        );
        let events = events(&server);
        assert_eq!(events.len(), 1, "a series, not a flood");
        assert_eq!(events[0]["type"], "Warning");
        assert_eq!(events[0]["note"], "cannot reconcile ConfigMap default/bad: panic: as told");
        assert!(events[0]["series"]["count"].as_u64().unwrap() > 3);
        let failing = &process.runtime.queue().report()[0].failing;
        assert_eq!(failing[0].0.name(), "bad");
        process.stop().await;
    });
}

#[test]
fn a_turn_that_hangs_is_given_up_and_holds_nobody_up() {
    simulate(async {
        let server = Server::new(1);
        let (process, called) = start(&server);
        tell(&server, "hangs", &json!({"do": "hang"}));
        tell(&server, "good", &json!({"do": "call"}));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(called.load(Ordering::SeqCst), 1);
        tokio::time::sleep(Duration::from_mins(2)).await;
        let metrics = process.registry.encode();
        assert!(metrics.contains("errors_total{controller=\"puppet\",result=\"transient\"} 1"), "{metrics}");
        server.store(|store| store.delete(&place("hangs"), None).unwrap());
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(process.runtime.queue().report()[0].failing.is_empty(), "the object is gone and forgotten");
        process.stop().await;
    });
}

#[test]
fn a_generated_name_is_refused_with_the_reason() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = start(&server);
        tell(&server, "bad", &json!({"do": "nameless"}));
        server.until("an event", |store| store.objects.keys().any(|place| place.0.ends_with("events"))).await;
        let note = events(&server)[0]["note"].as_str().unwrap().to_owned();
        assert!(note.contains("derive one that every attempt would choose again"), "{note}");
        process.stop().await;
    });
}

#[test]
fn an_object_of_somebody_else_is_not_taken_for_ours() {
    simulate(async {
        let server = Server::new(1);
        tell(&server, "theirs", &json!({"of": "them"}));
        let (process, _) = start(&server);
        tell(&server, "thief", &json!({"do": "steal"}));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(process.runtime.queue().report()[0].failing[0].0.name(), "thief");
        let heard = events(&server);
        assert!(heard.iter().any(|event| event["reason"] == "Refused"), "{heard:?}");
        assert_eq!(server.store(|store| store.objects[&place("theirs")]["data"]["of"].clone()), "them");
        process.stop().await;
    });
}

#[test]
fn a_plan_can_ask_to_be_looked_at_again() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = start(&server);
        tell(&server, "clock", &json!({"do": "tick"}));
        tokio::time::sleep(Duration::from_secs(630)).await;
        let metrics = process.registry.encode();
        assert!(metrics.contains("{controller=\"puppet\",result=\"requeue_after\"} 11"), "{metrics}");
        process.stop().await;
    });
}

#[test]
fn events_are_as_kubectl_describe_wants_them() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = start(&server);
        tell(&server, "talks", &json!({"say": "ä".repeat(2000)}));
        server.until("an event", |store| store.objects.keys().any(|place| place.0.ends_with("events"))).await;
        let event = events(&server).remove(0);
        let uid = server.store(|store| store.objects[&place("talks")]["metadata"]["uid"].clone());
        let regarding = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "talks", "uid": uid});
        assert_eq!(event["regarding"], regarding);
        assert_eq!(event["note"].as_str().unwrap().len(), 1024);
        assert_eq!(
            (&event["reason"], &event["action"], &event["type"]),
            (&json!("Said"), &json!("Say"), &json!("Normal"))
        );
        assert_eq!(event["reportingController"], "puppet");
        let time: jiff::Timestamp = event["eventTime"].as_str().unwrap().parse().unwrap();
        assert_eq!(time.strftime("%F").to_string(), "2026-01-01");
        process.stop().await;
    });
}

#[test]
fn a_noisy_object_is_quietened() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = start(&server);
        tell(&server, "noisy", &json!({"say": "0"}));
        for number in 1..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server
                .store(|store| {
                    store.update(&place("noisy"), false, |object| {
                        object["data"]["say"] = json!(number.to_string());
                        Ok(())
                    })
                })
                .unwrap();
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(events(&server).len(), 25);
        process.stop().await;
    });
}

#[test]
fn stopping_lets_turns_under_way_end() {
    simulate(async {
        let server = Server::new(1);
        let process = Process::start(&server, 1, None);
        let garden = ("test.quintet.dev/v1/gardens".to_owned(), "default".to_owned(), "rose".to_owned());
        server.store(|store| {
            store.create(&garden, json!({"metadata": {}, "spec": {"plants": 3, "colour": "red"}})).unwrap()
        });
        server.until("begun", |store| store.objects.keys().any(|place| place.0 == "v1/configmaps")).await;
        process.stop().await;
        let plants =
            server.store(|store| store.objects.keys().filter(|place| place.0 == "v1/configmaps").count());
        assert_eq!(plants, 4, "the turn was carried out to its end");
        assert!(process.tasks.running().is_empty());
    });
}
