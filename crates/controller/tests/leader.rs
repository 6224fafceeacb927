//! Leader election: one writes, the others wait, and never two at a time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::time::Duration;

use quintet_controller::{ObjectKey, Runtime, cache::Caches, clock::Clock, leader::Loss};
use serde_json::{Value, json};
use support::{
    garden::{Gardener, config_map_kind, garden_of},
    process::Process,
    server::Server,
    simulate,
    store::Place,
};
use tokio::time::Instant;

fn lease() -> Place {
    ("coordination.k8s.io/v1/leases".to_owned(), "default".to_owned(), "quintet".to_owned())
}

fn holder(server: &Server) -> Value {
    server
        .store(|store| store.objects.get(&lease()).map(|lease| lease["spec"]["holderIdentity"].clone()))
        .into()
}

fn garden(namespace: &str, name: &str) -> Place {
    ("test.quintet.dev/v1/gardens".to_owned(), namespace.to_owned(), name.to_owned())
}

fn plant(server: &Server, name: &str) {
    plant_in(server, &garden("default", name));
}

fn plant_in(server: &Server, place: &Place) {
    let object = json!({"metadata": {}, "spec": {"plants": 2, "colour": "red"}});
    server.store(|store| store.create(place, object).unwrap());
}

async fn grown(server: &Server, name: &str) {
    grown_in(server, &garden("default", name)).await;
}

async fn grown_in(server: &Server, place: &Place) {
    server.until("grown", |store| store.objects[place]["status"]["grown"] == 2).await;
}

#[test]
fn a_standby_waits_with_warm_caches_and_follows_at_once_when_the_leader_leaves() {
    simulate(async {
        let server = Server::new(1);
        let first = Process::start(&server, 1, Some("first"));
        first.leadership.acquired().await;
        let second = Process::start(&server, 2, Some("second"));
        plant(&server, "rose");
        grown(&server, "rose").await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(second.runtime.caches().missing().is_empty());
        assert_eq!(second.runtime.caches().report()[1].objects, 3, "warm");
        assert!(!second.leadership.report().leading);
        let status = |process: &Process| {
            let metrics = process.registry.encode();
            metrics.contains("leader_election_master_status{name=\"quintet\"} 1")
        };
        assert_eq!((status(&first), status(&second)), (true, false));
        assert_eq!(holder(&server), "first");
        server.take_requests();
        first.stop().await;
        assert_eq!(holder(&server), "", "given back");
        let left = Instant::now();
        second.leadership.acquired().await;
        assert!(left.elapsed() < Duration::from_secs(4), "{:?}", left.elapsed());
        plant(&server, "tulip");
        grown(&server, "tulip").await;
        let requests = server.take_requests();
        let lists = requests.iter().filter(|request| request.contains("limit=")).count();
        assert_eq!(lists, 2, "one of each kind shows what the last leader did: {requests:?}");
        let spec = server.store(|store| store.objects[&lease()]["spec"].clone());
        assert_eq!(spec["leaseTransitions"], 1, "{spec}");
        second.stop().await;
    });
}

#[test]
fn a_leader_that_is_cut_off_stops_writing_before_another_may_begin() {
    for seed in 0..50 {
        simulate(async {
            let server = Server::new(seed);
            let first = Process::start(&server, seed, Some("first"));
            first.leadership.acquired().await;
            let second = Process::start(&server, seed, Some("second"));
            tokio::time::sleep(Duration::from_millis(4000 + 137 * seed)).await;
            first.connection.kill();
            let cut = Instant::now();
            let mut stopped = None;
            while !second.leadership.report().leading {
                if stopped.is_none() && !first.leadership.report().leading {
                    stopped = Some(Instant::now());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let stopped = stopped.expect("the first stopped before the second began");
            assert!(stopped.elapsed() >= Duration::from_secs(2), "seed {seed}: {:?}", stopped.elapsed());
            assert!(cut.elapsed() < Duration::from_secs(25), "seed {seed}: {:?}", cut.elapsed());
            // A replica that lost the lease ends, to start afresh.
            first.tasks.stopping().await;
            let Some(Loss::NotRenewed { reason }) = first.leadership.loss() else {
                panic!("seed {seed}: {:?}", first.leadership.loss());
            };
            assert!(reason.starts_with("no response within"), "seed {seed}: {reason}");
            assert!(first.api.contact().is_lost(), "seed {seed}");
            assert!(!second.api.contact().is_lost(), "seed {seed}");
            first.kill();
            plant(&server, "rose");
            grown(&server, "rose").await;
            second.stop().await;
        });
    }
}

#[test]
fn of_many_that_start_together_one_leads() {
    for seed in 0..20 {
        simulate(async {
            let server = Server::new(seed);
            let names = ["a", "b", "c", "d"];
            let all: Vec<_> = names.iter().map(|name| Process::start(&server, seed, Some(name))).collect();
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let leading = all.iter().filter(|process| process.leadership.report().leading).count();
                assert!(leading <= 1, "seed {seed}");
            }
            assert_eq!(all.iter().filter(|process| process.leadership.report().leading).count(), 1);
            for process in all {
                process.stop().await;
            }
        });
    }
}

#[test]
fn a_short_outage_of_the_server_does_not_cost_the_lease() {
    simulate(async {
        let server = Server::new(5);
        let process = Process::start(&server, 5, Some("only"));
        process.leadership.acquired().await;
        server.with_faults(|faults| faults.away_until = Some(Instant::now() + Duration::from_secs(4)));
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert!(process.leadership.report().leading);
        process.stop().await;
    });
}

#[test]
fn a_leader_that_is_replaced_says_by_whom() {
    simulate(async {
        let server = Server::new(5);
        let process = Process::start(&server, 5, Some("first"));
        process.leadership.acquired().await;
        assert_eq!(process.leadership.loss(), None);
        server.store(|store| {
            let take = |lease: &mut Value| {
                lease["spec"]["holderIdentity"] = json!("usurper");
                Ok(())
            };
            store.update(&lease(), false, take).unwrap();
        });
        process.tasks.stopping().await;
        assert_eq!(process.leadership.loss(), Some(Loss::Taken { by: "usurper".into() }));
        process.kill();
    });
}

#[test]
fn a_lost_race_on_the_lease_is_not_a_lost_lease() {
    simulate(async {
        let server = Server::new(5);
        let process = Process::start(&server, 5, Some("only"));
        process.leadership.acquired().await;
        // Another client annotates the lease, again and again.
        server.with_faults(|faults| faults.rates.conflict = 300);
        tokio::time::sleep(Duration::from_mins(1)).await;
        server.with_faults(|faults| faults.rates.conflict = 0);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(process.leadership.report().leading && !process.leadership.is_lost());
        process.stop().await;
    });
}

#[test]
fn a_replica_without_the_lease_does_not_write() {
    simulate(async {
        let server = Server::new(5);
        let process = Process::bare(&server, 5, Some("first"));
        process.leadership.acquired().await;
        let standby = Process::bare(&server, 6, Some("second"));
        let write = async |process: &Process, name: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "default"}});
            let key = ObjectKey::new("default", name);
            process.api.fenced(process.leadership.clone()).create(&config_map_kind(), &key, &object).await
        };
        write(&process, "a").await.unwrap();
        let refused = write(&standby, "b").await.unwrap_err();
        assert!(refused.to_string().ends_with("this replica does not hold the lease"), "{refused}");
        // Only the lease cannot be reached; everything else could still be written.
        server.store(|store| store.served.remove("coordination.k8s.io/v1/leases"));
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(write(&process, "c").await.is_err());
        let written: Vec<_> =
            server.take_writes().into_iter().filter(|write| write.contains("configmaps")).collect();
        assert_eq!(written.len(), 1, "{written:?}");
        process.kill();
        standby.kill();
    });
}

#[test]
fn a_runtime_that_only_reads_cannot_write() {
    simulate(async {
        let server = Server::new(5);
        let (client, _) = server.client();
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let (reader, _) = Runtime::reader(client, &clock, &[]);
        let key = ObjectKey::new("default", "a");
        let object = json!({"metadata": {"name": "a", "namespace": "default"}});
        let refused = reader.api().create(&config_map_kind(), &key, &object).await.unwrap_err();
        assert!(refused.to_string().ends_with("this replica does not hold the lease"), "{refused}");
        assert_eq!(reader.api().get(&config_map_kind(), &key).await.unwrap(), None, "it reads");
        assert_eq!(server.take_writes(), Vec::<String>::new());
    });
}

/// A replica with the gardener at work in two namespaces that takes the lead over while one of them cannot be read.
async fn takes_over_when_unreadable(server: &Server, code: u16) -> (Process, Caches) {
    let first = Process::bare(server, 1, Some("first"));
    first.leadership.acquired().await;
    let second = Process::bare(server, 2, Some("second"));
    let caches = second.runtime.caches().clone().in_namespaces(&["here", "there"].map(str::to_owned));
    let gardener = Gardener::new(&caches);
    let (gardens, plants) = (gardener.gardens.clone(), gardener.plants.clone());
    second.runtime.add(gardener, &gardens, 2).watches(&plants, |entry| vec![garden_of(entry)]).done();
    second.runtime.start();
    gardens.synced().await;
    plants.synced().await;
    assert!(caches.missing().is_empty());
    plant_in(server, &garden("here", "rose"));
    server.with_faults(|faults| faults.unreadable = Some(("/namespaces/there/", code)));
    first.stop().await;
    second.leadership.acquired().await;
    (second, caches)
}

#[test]
fn a_namespace_that_may_no_longer_be_read_does_not_keep_a_new_leader_from_the_others() {
    simulate(async {
        let server = Server::new(1);
        let (leader, caches) = takes_over_when_unreadable(&server, 403).await;
        grown_in(&server, &garden("here", "rose")).await;
        assert_eq!(caches.missing(), Vec::<String>::new());
        // The right is given back.
        server.with_faults(|faults| faults.unreadable = None);
        plant_in(&server, &garden("there", "tulip"));
        grown_in(&server, &garden("there", "tulip")).await;
        leader.stop().await;
    });
}

#[test]
fn a_leader_whose_caches_have_not_caught_up_is_not_ready() {
    simulate(async {
        let server = Server::new(1);
        let (leader, caches) = takes_over_when_unreadable(&server, 503).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let missing = caches.missing();
        assert!(
            missing.len() == 2 && missing.iter().all(|one| one.starts_with("cannot list ")),
            "{missing:?}"
        );
        let place = garden("here", "rose");
        assert!(server.store(|store| store.objects[&place]["status"].is_null()), "it does not begin");
        server.with_faults(|faults| faults.unreadable = None);
        grown_in(&server, &place).await;
        assert!(caches.missing().is_empty());
        leader.stop().await;
    });
}
