//! What happens around a reconcile: panics, errors, calls, concurrency, events, explanations, stopping.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use quintet_controller::{
    Action, ApiKind, Controller, Error, Event, Next, ObjectKey, OnError, Plan, StatusPatch,
    cache::{Cache, Change, ObjectMetadata, WatchSpec},
    object::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::{garden::config_map_kind, process::Process, server::Server, simulate, store::Place};

/// A call of the puppet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ring {
    times: u32,
}

impl std::fmt::Display for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ring")
    }
}

/// Does what the data of a ConfigMap tells it to.
struct Puppet {
    strings: Cache<Value>,
    called: Arc<AtomicU32>,
    calling: Arc<AtomicU32>,
}

impl Controller for Puppet {
    type Observed = (ObjectKey, Value);
    type Call = Ring;

    const NAME: &'static str = "puppet";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Self::Observed>, Error> {
        let Some(entry) = self.strings.get(key) else {
            return Ok(None);
        };
        if entry.object["data"]["do"] == "hang" {
            std::future::pending::<()>().await;
        }
        if entry.object["data"]["observe"] == "slowly" {
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        Ok(Some((key.clone(), entry.object.clone())))
    }

    fn plan((key, object): &Self::Observed) -> Plan<Ring> {
        let actions = match object["data"]["do"].as_str().unwrap_or_default() {
            "panic" => panic!("as told"),
            "call" => vec![Action::Call(Ring { times: 3 })],
            "call and hang" => vec![Action::Call(Ring { times: u32::MAX })],
            "overwrite" => vec![Action::merge(
                config_map_kind(),
                key.clone(),
                json!({"metadata": {"resourceVersion": object["data"]["version"]}, "data": {"done": "yes"}}),
            )],
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
        let version = match object["data"]["status"].as_str() {
            Some("of now") => {
                object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok())
            }
            Some("of long ago") => Some(0),
            _ => None,
        };
        let uid = Uid::from(object["metadata"]["uid"].as_str().unwrap_or_default());
        let is_done = object["status"]["done"] == true;
        let status = version.filter(|_| !is_done);
        Plan {
            steps: actions.into_iter().map(Into::into).collect(),
            status: status.map(|version| StatusPatch {
                uid,
                version,
                status: json!({"done": true}),
                applied: None,
            }),
            events: if is_done { Vec::new() } else { events },
            awaits: object["data"]["await"].as_str().map(str::to_owned).into_iter().collect(),
            next,
        }
    }

    fn on_error((key, object): &Self::Observed, action: &Action<Ring>, error: &Error) -> OnError {
        if object["data"]["otherwise"] == "rest" {
            let rest = json!({"data": {"do": "rest"}});
            return OnError {
                instead: Some(Action::merge(config_map_kind(), key.clone(), rest)),
                requeue: Some(Next::AwaitChange),
                ..OnError::default()
            };
        }
        let kind = action.kind().map(ToString::to_string).unwrap_or_default();
        let event = Event::warning("Refused", "Create", format!("{kind}: {error}"));
        OnError { events: vec![event], ..OnError::default() }
    }

    async fn call(&self, ring: &Ring) -> Result<(), Error> {
        self.calling.fetch_add(1, Ordering::SeqCst);
        if ring.times == u32::MAX {
            std::future::pending::<()>().await;
        }
        assert_eq!(ring.times, 3);
        self.called.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn start(server: &Server) -> (Process, Arc<AtomicU32>) {
    let (process, counts) = add(server, 2);
    process.runtime.start();
    (process, counts.called)
}

/// How many calls were begun, and how many have ended.
struct Counts {
    calling: Arc<AtomicU32>,
    called: Arc<AtomicU32>,
}

fn add(server: &Server, concurrency: usize) -> (Process, Counts) {
    add_to(Process::bare(server, 1, None), concurrency)
}

fn add_to(process: Process, concurrency: usize) -> (Process, Counts) {
    let strings = WatchSpec::projected(config_map_kind(), |text| serde_json::from_str(text));
    let strings = process.runtime.caches().watch(strings).unwrap();
    let counts = Counts { calling: Arc::default(), called: Arc::default() };
    let (called, calling) = (Arc::clone(&counts.called), Arc::clone(&counts.calling));
    let puppet = Puppet { strings: strings.clone(), called, calling };
    process.runtime.add(puppet, &strings, concurrency).done();
    (process, counts)
}

fn place(name: &str) -> Place {
    ("v1/configmaps".to_owned(), "default".to_owned(), name.to_owned())
}

fn tell(server: &Server, name: &str, data: &Value) {
    server.store(|store| store.create(&place(name), json!({"metadata": {}, "data": data})).unwrap());
}

fn retell(server: &Server, name: &str, data: &Value) {
    let change = |object: &mut Value| {
        object["data"] = data.clone();
        Ok(())
    };
    server.store(|store| store.update(&place(name), false, change)).unwrap();
}

fn events(server: &Server) -> Vec<Value> {
    let is_event = |place: &Place| place.0.ends_with("events");
    server.store(|store| {
        store.objects.iter().filter(|(place, _)| is_event(place)).map(|(_, event)| event.clone()).collect()
    })
}

#[test]
fn an_action_takes_the_place_of_one_that_failed() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = start(&server);
        tell(&server, "theirs", &json!({}));
        tell(&server, "thief", &json!({"do": "steal", "otherwise": "rest"}));
        tokio::time::sleep(Duration::from_mins(10)).await;
        let thief = server.store(|store| store.objects[&place("thief")].clone());
        assert_eq!(thief["data"]["do"], "rest");
        let metrics = process.registry.encode();
        assert!(!metrics.contains("controller_runtime_reconcile_errors_total{"), "it is no error: {metrics}");
        assert_eq!(events(&server), Vec::<Value>::new());
        process.stop().await;
    });
}

#[test]
fn a_panic_is_one_failed_reconcile_with_an_event() {
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
fn a_reconcile_that_hangs_is_cancelled_and_does_not_block_others() {
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
        tokio::time::sleep(Duration::from_mins(1)).await;
        let reasons: BTreeSet<_> = events(&server).iter().map(|event| event["reason"].to_string()).collect();
        assert_eq!(reasons, BTreeSet::from(["\"Refused\"".to_owned()]), "one event for one failure");
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
fn a_plan_can_ask_to_be_requeued() {
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
fn a_batch_of_changes_is_one_reconcile() {
    simulate(async {
        let server = Server::new(1);
        let process = Process::bare(&server, 1, None);
        let caches = process.runtime.caches();
        let strings =
            caches.watch(WatchSpec::projected(config_map_kind(), |text| serde_json::from_str(text)));
        let strings = strings.unwrap();
        let secrets = caches.watch(WatchSpec::metadata(ApiKind::of::<Secret>())).unwrap();
        let puppet = Puppet { strings: strings.clone(), called: Arc::default(), calling: Arc::default() };
        let root = |_: &Change<ObjectMetadata>| vec![ObjectKey::new("default", "root")];
        process
            .runtime
            .add(puppet, &strings, 2)
            .watches_batches(&secrets, Duration::from_secs(10), root)
            .done();
        process.runtime.start();
        tell(&server, "root", &json!({}));
        tokio::time::sleep(Duration::from_mins(1)).await;
        let reconciles = || {
            let metrics = process.registry.encode();
            let line =
                metrics.lines().find(|line| line.contains("{controller=\"puppet\",result=\"success\"}"));
            line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok()).unwrap_or_default()
        };
        let before = reconciles();
        for number in 0..5 {
            let place = ("v1/secrets".to_owned(), "default".to_owned(), format!("s{number}"));
            server.store(|store| store.create(&place, json!({"metadata": {}})).unwrap());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(reconciles(), before, "the batch is not complete");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(reconciles(), before + 1);
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
fn stopping_lets_reconciles_in_progress_end() {
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
        assert_eq!(plants, 4, "the reconcile was carried out to its end");
        assert!(process.tasks.running().is_empty());
    });
}

#[test]
fn a_controller_reconciles_as_many_objects_at_a_time_as_its_concurrency_says() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = add(&server, 100);
        process.runtime.start();
        for number in 0..150 {
            tell(&server, &format!("hangs-{number}"), &json!({"do": "hang"}));
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let lane = &process.runtime.queue().report()[0];
        assert_eq!((lane.running, lane.ready), (100, 50));
        let metrics = process.registry.encode();
        assert!(
            metrics.contains("controller_runtime_active_workers{controller=\"puppet\"} 100"),
            "{metrics}"
        );
        process.kill();
    });
}

#[test]
fn calls_that_hang_do_not_keep_other_objects_from_being_reconciled() {
    simulate(async {
        let server = Server::new(1);
        let (process, counts) = add(&server, 2);
        process.runtime.start();
        for number in 0..40 {
            tell(&server, &format!("hangs-{number}"), &json!({"do": "call and hang"}));
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(counts.calling.load(Ordering::SeqCst), 40);
        tell(&server, "good", &json!({"do": "call"}));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(counts.called.load(Ordering::SeqCst), 1);
        let lane = &process.runtime.queue().report()[0];
        assert_eq!((lane.running, lane.ready), (40, 0), "objects that wait for a call are in progress");
        process.kill();
    });
}

#[test]
fn calls_in_flight_are_bounded_and_reconciles_without_calls_go_on() {
    simulate(async {
        let server = Server::new(1);
        let (process, counts) = add(&server, 2);
        process.runtime.start();
        for number in 0..200 {
            tell(&server, &format!("hangs-{number}"), &json!({"do": "call and hang"}));
        }
        tell(&server, "talks", &json!({"say": "hello"}));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(counts.calling.load(Ordering::SeqCst), 128);
        assert_eq!(events(&server)[0]["note"], "hello");
        process.kill();
    });
}

#[test]
fn a_call_is_not_made_after_the_lease_is_lost() {
    simulate(async {
        let server = Server::new(1);
        let (process, counts) = add_to(Process::bare(&server, 1, Some("only")), 2);
        process.runtime.start();
        process.leadership.acquired().await;
        tell(&server, "prompt", &json!({"do": "call"}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(counts.calling.load(Ordering::SeqCst), 1, "with the lease it is made");
        tell(&server, "late", &json!({"do": "call", "observe": "slowly"}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.store(|store| store.served.remove("coordination.k8s.io/v1/leases"));
        process.leadership.lost().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(counts.calling.load(Ordering::SeqCst), 1, "without it, it is not");
        process.kill();
    });
}

#[test]
fn a_stale_read_records_no_event() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = start(&server);
        tell(&server, "old", &json!({"do": "overwrite", "version": "1"}));
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(process.runtime.queue().report()[0].failing[0].1 > 3, "the write conflicts");
        assert_eq!(events(&server), Vec::<Value>::new());
        // An error that reading again does not resolve is reported.
        tell(&server, "theirs", &json!({}));
        tell(&server, "thief", &json!({"do": "steal"}));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!events(&server).is_empty());
        process.stop().await;
    });
}

#[test]
fn events_of_a_plan_are_recorded_once_its_status_is_written_and_not_on_every_conflict() {
    simulate(async {
        let server = Server::new(1);
        let (process, _) = start(&server);
        tell(&server, "talks", &json!({"say": "done", "status": "of long ago"}));
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(process.runtime.queue().report()[0].failing[0].1 > 3, "the status write conflicts");
        assert_eq!(events(&server), Vec::<Value>::new());
        retell(&server, "talks", &json!({"say": "done", "status": "of now"}));
        tokio::time::sleep(Duration::from_mins(5)).await;
        let [event] = &events(&server)[..] else { panic!() };
        assert_eq!((&event["note"], &event["series"]), (&json!("done"), &Value::Null));
        process.stop().await;
    });
}

#[test]
fn an_explanation_says_what_is_observed_decided_and_awaited_without_acting() {
    simulate(async {
        let server = Server::new(1);
        let (process, counts) = add(&server, 2);
        let data = json!({"do": "call", "await": "a visitor"});
        tell(&server, "waits", &data);
        let key = ObjectKey::new("default", "waits");
        let explained = process.runtime.explain("configmaps", &key).await.unwrap();
        let [explanation] = &explained[..] else { panic!("{explained:?}") };
        assert_eq!(
            (explanation.controller, &explanation.awaits[..]),
            ("puppet", &["a visitor".to_owned()][..])
        );
        assert_eq!(explanation.observed[1]["data"], data);
        let replayed = serde_json::from_value(explanation.observed.clone()).unwrap();
        assert_eq!(serde_json::to_value(Puppet::plan(&replayed)).unwrap(), explanation.plan);
        assert_eq!(counts.calling.load(Ordering::SeqCst), 0, "nothing is carried out");
        let gone = process.runtime.explain("ConfigMap", &ObjectKey::new("default", "gone")).await.unwrap();
        assert_eq!(gone, []);
        let error = process.runtime.explain("pods", &key).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot explain pods default/waits: no controller reconciles this kind"
        );
        process.stop().await;
    });
}
