//! Fault injection: whatever fails on the way, controllers converge to the state of a run without faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use support::{
    faults::FaultRates,
    garden::NAMESPACE,
    process::Process,
    server::Server,
    simulate,
    store::{Place, Store, merge},
};
use tokio::time::Instant;

fn garden(name: &str) -> Place {
    ("test.quintet.dev/v1/gardens".to_owned(), NAMESPACE.to_owned(), name.to_owned())
}

/// How many seeds to run: as many as `QUINTET_SEEDS` says, for a long search, or else `usual`.
fn seeds(usual: u64) -> u64 {
    std::env::var("QUINTET_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// What users do, one step after the other.
const STEPS: usize = 6;

fn user_does(step: usize, store: &mut Store) {
    let edit = |store: &mut Store, name: &str, patch: Value| {
        store
            .update(&garden(name), false, |object| {
                merge(object, &patch);
                Ok(())
            })
            .unwrap();
    };
    let plant = |store: &mut Store, name: &str, plants: u32| {
        let object = json!({"metadata": {}, "spec": {"plants": plants, "colour": "red"}});
        store.create(&garden(name), object).unwrap();
    };
    match step {
        0 => plant(store, "rose", 3),
        1 => plant(store, "tulip", 2),
        2 => edit(store, "rose", json!({"spec": {"colour": "white"}})),
        3 => edit(store, "rose", json!({"spec": {"plants": 5}})),
        4 => drop(store.delete(&garden("tulip"), None).unwrap()),
        _ => edit(store, "rose", json!({"spec": {"plants": 1}})),
    }
}

/// Whether the controller has done what the steps so far ask for.
fn is_settled(step: usize, store: &Store) -> bool {
    // Gardens with their plants and colour after each step.
    let expected: &[(&str, usize, &str)] = match step {
        0 => &[("rose", 3, "red")],
        1 => &[("rose", 3, "red"), ("tulip", 2, "red")],
        2 => &[("rose", 3, "white"), ("tulip", 2, "red")],
        3 => &[("rose", 5, "white"), ("tulip", 2, "red")],
        4 => &[("rose", 5, "white")],
        _ => &[("rose", 1, "white")],
    };
    let mut wanted = BTreeMap::new();
    for (name, plants, colour) in expected {
        wanted.insert(format!("{name}-shed"), "brown");
        wanted.extend((0..*plants).map(|number| (format!("{name}-{number}"), *colour)));
    }
    let plants = store.objects.iter().filter(|((collection, ..), _)| collection == "v1/configmaps");
    let found: BTreeMap<_, _> =
        plants.map(|((.., name), plant)| (name.clone(), plant["data"]["colour"].as_str().unwrap())).collect();
    let gardens = store.objects.keys().filter(|(collection, ..)| collection.ends_with("gardens")).count();
    found == wanted
        && gardens == expected.len()
        && expected.iter().all(|(name, plants, _)| {
            let object = &store.objects[&garden(name)];
            object["status"]["grown"] == *plants
                && object["status"]["observedGeneration"] == object["metadata"]["generation"]
        })
}

/// Everything that matters of a state: all but versions, identities and events.
fn essence(store: &Store) -> Vec<Value> {
    let objects = store.objects.iter().filter(|((collection, ..), _)| {
        collection.ends_with("gardens") || collection.ends_with("configmaps")
    });
    let essential = |object: &Value| {
        let mut object = object.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "ownerReferences"] {
            metadata.remove(field);
        }
        object
    };
    objects.map(|(_, object)| essential(object)).collect()
}

/// Nothing is written once everything is settled, not even by a process that starts afresh.
async fn assert_quiet(server: &Server, process: &Process, name: &str) {
    // The last reconciles, and watch events that arrive late.
    tokio::time::sleep(Duration::from_mins(5)).await;
    server.take_writes();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.take_writes(), Vec::<String>::new(), "{name}: writes in a settled system");
    assert!(process.runtime.queue().is_idle(), "{name}");
    process.stop().await;
    let fresh = Process::start(server, 1, None);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.take_writes(), Vec::<String>::new(), "{name}: writes of a fresh process");
    fresh.stop().await;
}

/// The end without any fault, and how often each object was created on the way.
fn calm_end() -> (Vec<Value>, BTreeMap<String, u32>) {
    simulate(async {
        let server = Server::new(0);
        let process = Process::start(&server, 0, None);
        for step in 0..STEPS {
            server.store(|store| user_does(step, store));
            server.until("settled", |store| is_settled(step, store)).await;
        }
        assert_quiet(&server, &process, "calm").await;
        server.store(|store| (essence(store), plants_created(store)))
    })
}

fn plants_created(store: &Store) -> BTreeMap<String, u32> {
    let is_event = |name: &str| name.contains('.');
    store.creations.iter().filter(|(name, _)| !is_event(name)).map(|(name, n)| (name.clone(), *n)).collect()
}

#[test]
fn a_converged_system_makes_no_writes() {
    let (_, created) = calm_end();
    assert!(created.values().all(|times| *times == 1), "{created:?}");
    assert_eq!(created.len(), 2 + 5 + 2 + 2, "{created:?}");
}

#[test]
fn a_crash_between_any_two_writes_changes_nothing() {
    let calm = calm_end();
    let mut crashes = 0;
    for after in [false, true] {
        for write in 1.. {
            let name = format!("crash {} write {write}", if after { "after" } else { "before" });
            let happened = simulate(async {
                let server = Server::new(write);
                server.with_faults(|faults| faults.crash = Some((write, after)));
                let mut process = Process::start(&server, write, None);
                for step in 0..STEPS {
                    server.store(|store| user_does(step, store));
                    tokio::select! {
                        () = server.until("settled", |store| is_settled(step, store)) => continue,
                        () = server.crashed() => {}
                    }
                    process.kill();
                    server.with_faults(|faults| (faults.crash, faults.crashed) = (None, false));
                    process = Process::start(&server, write + 1, None);
                    crashes += 1;
                    server.until("settled", |store| is_settled(step, store)).await;
                }
                let happened = server.with_faults(|faults| faults.crash.is_none());
                assert_quiet(&server, &process, &name).await;
                assert_eq!(server.store(|store| (essence(store), plants_created(store))), calm, "{name}");
                happened
            });
            if !happened {
                break;
            }
        }
    }
    // Three writes per object and more: the loop did not end early.
    assert!(crashes > 60, "{crashes}");
}

/// Runs all steps under faults, each to its end, and compares.
fn assert_same_end(name: &str, usual: u64, prepare: impl Fn(&Server)) {
    let calm = calm_end();
    for seed in 0..seeds(usual) {
        let name = format!("{name}, seed {seed}");
        simulate(async {
            let server = Server::new(seed);
            prepare(&server);
            let process = Process::start(&server, seed, None);
            for step in 0..STEPS {
                server.store(|store| user_does(step, store));
                server.until(&name, |store| is_settled(step, store)).await;
            }
            server.with_faults(|faults| faults.rates = FaultRates::default());
            assert_quiet(&server, &process, &name).await;
            assert_eq!(server.store(|store| (essence(store), plants_created(store))), calm, "{name}");
        });
    }
}

#[test]
fn stale_caches_change_nothing() {
    assert_same_end("stale cache", 40, |server| {
        server.with_faults(|faults| {
            faults.rates = FaultRates { watch_delay_ms: 300_000, ..FaultRates::default() }
        });
    });
}

/// The writes of a whole run, without what only tells users.
fn writes_of_a_run(watch_delay_ms: u64) -> Vec<String> {
    simulate(async {
        let server = Server::new(7);
        server.with_faults(|faults| faults.rates.watch_delay_ms = watch_delay_ms);
        let process = Process::start(&server, 7, None);
        for step in 0..STEPS {
            server.store(|store| user_does(step, store));
            server.until("settled", |store| is_settled(step, store)).await;
        }
        tokio::time::sleep(Duration::from_hours(2)).await;
        process.stop().await;
        let mut writes = server.take_writes();
        writes.retain(|write| !write.contains("/events"));
        writes.sort();
        writes
    })
}

#[test]
fn a_stale_cache_leads_to_no_write_that_a_fresh_one_would_not() {
    assert_eq!(writes_of_a_run(0), writes_of_a_run(300_000));
}

#[test]
fn conflicts_change_nothing() {
    assert_same_end("conflicts", 40, |server| {
        server.with_faults(|faults| faults.rates = FaultRates { conflict: 400, ..FaultRates::default() });
    });
}

#[test]
fn lost_responses_change_nothing() {
    assert_same_end("lost answers", 40, |server| {
        server.with_faults(|faults| {
            faults.rates = FaultRates { answer_lost: 400, watch_delay_ms: 60_000, ..FaultRates::default() }
        });
    });
}

#[test]
fn dropped_watches_and_gaps_change_nothing() {
    assert_same_end("gaps", 40, |server| {
        server.set_page(2);
        server.with_faults(|faults| {
            faults.rates =
                FaultRates { watch_dropped: 500, gap: 500, watch_delay_ms: 5_000, ..FaultRates::default() };
        });
    });
}

#[test]
fn a_slow_server_changes_nothing() {
    assert_same_end("slow", 40, |server| {
        server.with_faults(|faults| faults.rates = FaultRates { slow: 500, ..FaultRates::default() });
    });
}

#[test]
fn everything_at_once_changes_nothing() {
    assert_same_end("storm", 200, |server| {
        server.with_faults(|faults| faults.rates = FaultRates::all_faults());
    });
}

#[test]
fn a_server_that_is_away_for_a_minute_changes_nothing() {
    let calm = calm_end();
    for seed in 0..seeds(40) {
        simulate(async {
            let server = Server::new(seed);
            let process = Process::start(&server, seed, None);
            for step in 0..STEPS {
                server.store(|store| user_does(step, store));
                // Away from a moment in the middle of the work on.
                tokio::time::sleep(Duration::from_millis(3 * seed)).await;
                let until = Instant::now() + Duration::from_mins(1);
                server.with_faults(|faults| faults.away_until = Some(until));
                tokio::time::sleep_until(until).await;
                server.until("settled", |store| is_settled(step, store)).await;
            }
            assert_quiet(&server, &process, "away").await;
            assert_eq!(server.store(|store| (essence(store), plants_created(store))), calm, "seed {seed}");
        });
    }
}

#[test]
fn changes_in_quick_succession_under_faults_and_crashes_end_the_same() {
    let (calm, _) = calm_end();
    for seed in 0..seeds(200) {
        simulate(async {
            let server = Server::new(seed);
            server.with_faults(|faults| faults.rates = FaultRates::all_faults());
            let mut process = Process::start(&server, seed, None);
            for step in 0..STEPS {
                server.store(|store| user_does(step, store));
                tokio::time::sleep(Duration::from_millis(seed * 37 % 5000)).await;
                if (seed + step as u64).is_multiple_of(4) {
                    process.kill();
                    process = Process::start(&server, seed + 1000, None);
                }
            }
            server.until("settled", |store| is_settled(STEPS - 1, store)).await;
            server.with_faults(|faults| faults.rates = FaultRates::default());
            assert_quiet(&server, &process, "succession").await;
            assert_eq!(server.store(|store| essence(store)), calm, "seed {seed}");
        });
    }
}

#[test]
fn drift_is_repaired_and_foreign_fields_are_left_alone() {
    simulate(async {
        let server = Server::new(3);
        let process = Process::start(&server, 3, None);
        server.store(|store| user_does(0, store));
        server.until("settled", |store| is_settled(0, store)).await;
        let plant = ("v1/configmaps".to_owned(), NAMESPACE.to_owned(), "rose-1".to_owned());
        server
            .store(|store| {
                let vandal = json!({"data": {"colour": "black", "note": "mine"}});
                store.update(&plant, false, |object| {
                    merge(object, &vandal);
                    Ok(())
                })
            })
            .unwrap();
        server.until("repaired", |store| is_settled(0, store)).await;
        assert_eq!(server.store(|store| store.objects[&plant]["data"]["note"].clone()), "mine");
        assert_quiet(&server, &process, "drift").await;
    });
}
