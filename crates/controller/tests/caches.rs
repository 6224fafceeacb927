//! Caches against the in-memory API.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use quintet_controller::{
    ApiKind, ObjectKey,
    cache::{Cache, Cause, Phase, Selector, WatchSpec},
};
use serde_json::json;
use support::{
    faults::FaultRates,
    garden::{Plant, config_map_kind, garden_kind, project_plant},
    process::Process,
    server::Server,
    simulate,
    store::{Place, merge},
};

fn place(name: &str) -> Place {
    ("v1/configmaps".to_owned(), "default".to_owned(), name.to_owned())
}

fn make(server: &Server, name: &str, garden: &str) {
    let object = json!({"metadata": {"labels": {"garden": garden}}, "data": {"colour": "red"}});
    server.store(|store| store.create(&place(name), object).unwrap());
}

fn edit(server: &Server, name: &str, patch: &serde_json::Value) {
    server.store(|store| {
        store
            .update(&place(name), false, |object| {
                merge(object, patch);
                Ok(())
            })
            .unwrap()
    });
}

fn names<T: Send + Sync + 'static>(cache: &Cache<T>) -> Vec<String> {
    cache.all().iter().map(|entry| entry.key.name().to_owned()).collect()
}

/// Simulated time for news to arrive.
async fn soon() {
    tokio::time::sleep(Duration::from_mins(1)).await;
}

#[test]
fn one_watch_is_shared_by_equal_specs() {
    simulate(async {
        let server = Server::new(1);
        make(&server, "a", "x");
        let process = Process::bare(&server, 1, None);
        let caches = process.runtime.caches();
        let spec = || WatchSpec::projected(config_map_kind(), project_plant);
        let first = caches.watch(spec()).unwrap();
        first.synced().await;
        let second = caches.watch(spec().index("garden", |entry| vec![entry.object.garden.clone()])).unwrap();
        assert!(second.is_synced());
        assert_eq!(second.by_index("garden", "x").len(), 1, "an index added later holds what is there");
        let lists = server.take_requests().iter().filter(|request| !request.contains("watch=")).count();
        assert_eq!(lists, 1);
        let typed = caches.watch(WatchSpec::<ConfigMap>::typed()).unwrap();
        typed.synced().await;
        assert_eq!(names(&typed), ["a"], "another type has a watch of its own");
        process.stop().await;
    });
}

#[test]
fn a_watch_of_one_name_asks_for_it_and_takes_in_no_other_write() {
    simulate(async {
        let server = Server::new(1);
        make(&server, "a", "x");
        let process = Process::bare(&server, 1, None);
        let caches = process.runtime.caches();
        let spec = WatchSpec::projected(config_map_kind(), project_plant).select(Selector::all().named("a"));
        let cache = caches.watch(spec).unwrap();
        cache.synced().await;
        soon().await;
        let requests = server.take_requests();
        let selects = |request: &&String| request.contains("fieldSelector=metadata.name%3da");
        assert_eq!(requests.iter().filter(selects).count(), requests.len(), "{requests:?}");
        let written = |name: &str| json!({"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "9"}});
        for name in ["a", "b"] {
            caches.written(&config_map_kind(), &written(name).to_string());
        }
        assert_eq!(names(&cache), ["a"]);
        process.stop().await;
    });
}

#[test]
fn a_malformed_object_is_reported_and_stalls_nothing() {
    simulate(async {
        let server = Server::new(1);
        make(&server, "good", "x");
        make(&server, "bad", "x");
        edit(&server, "bad", &json!({"data": {"colour": {"no": "string"}}}));
        let process = Process::bare(&server, 1, None);
        let cache =
            process.runtime.caches().watch(WatchSpec::projected(config_map_kind(), project_plant)).unwrap();
        cache.synced().await;
        assert_eq!(names(&cache), ["good"]);
        assert!(cache.report().unreadable["default/bad"].contains("expected a string"));
        // The watch goes on, a readable object may become unreadable, and the other way round.
        edit(&server, "good", &json!({"data": {"colour": 7}}));
        make(&server, "later", "x");
        edit(&server, "bad", &json!({"data": {"colour": "blue"}}));
        soon().await;
        assert_eq!(names(&cache), ["bad", "good", "later"], "the last state that could be read stays");
        assert_eq!(cache.report().unreadable.keys().collect::<Vec<_>>(), ["default/good"]);
        assert!(
            process
                .registry
                .encode()
                .contains("quintet_unreadable_objects_total{group=\"\",kind=\"ConfigMap\"} 2")
        );
        process.stop().await;
    });
}

#[test]
fn an_optional_kind_is_waited_for_and_a_required_one_keeps_the_process_unready() {
    simulate(async {
        let server = Server::new(1);
        let mut kind = garden_kind();
        kind.plural = "sheds".into();
        kind.kind = "Shed".into();
        let process = Process::bare(&server, 1, None);
        let caches = process.runtime.caches();
        let spec = |kind: &ApiKind| WatchSpec::<Plant>::projected(kind.clone(), |_| Ok(Plant::default()));
        let optional = caches.watch(spec(&kind).optional()).unwrap();
        optional.synced().await;
        assert_eq!(optional.report().phase, Phase::Absent);
        assert!(!optional.is_served());
        assert!(caches.missing().is_empty());
        let mut barn = kind.clone();
        barn.plural = "barns".into();
        barn.kind = "Barn".into();
        let required = caches.watch(spec(&barn)).unwrap();
        soon().await;
        assert!(!required.is_synced());
        assert_eq!(caches.missing(), ["the cluster does not serve Barn.test.quintet.dev: install its CRD"]);
        for plural in ["sheds", "barns"] {
            server.serve("test.quintet.dev/v1", plural, "Shed", false);
            let place = (format!("test.quintet.dev/v1/{plural}"), "default".to_owned(), "a".to_owned());
            server.store(|store| store.create(&place, json!({"metadata": {}})).unwrap());
        }
        required.synced().await;
        soon().await;
        assert_eq!((optional.len(), required.len()), (1, 1));
        assert!(optional.is_served());
        assert!(caches.missing().is_empty());
        process.stop().await;
    });
}

#[test]
fn a_relist_after_a_gap_reports_what_was_removed_added_and_changed() {
    simulate(async {
        let server = Server::new(1);
        server.set_page(2);
        for name in ["stays", "changes", "goes", "returns"] {
            make(&server, name, "x");
        }
        let process = Process::bare(&server, 1, None);
        let cache =
            process.runtime.caches().watch(WatchSpec::projected(config_map_kind(), project_plant)).unwrap();
        cache.synced().await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        cache.subscribe(move |change| {
            let name = change.states().next().unwrap().key.name().to_owned();
            telling.lock().push((name, change.old.is_some(), change.new.is_some(), change.cause));
        });
        assert_eq!(told.lock().iter().filter(|(.., cause)| *cause == Cause::Initial).count(), 4);
        told.lock().clear();
        // The watch breaks off at the next event, and then its history is gone.
        server.with_faults(|faults| (faults.rates.watch_dropped, faults.rates.gap) = (1000, 1000));
        edit(&server, "changes", &json!({"data": {"colour": "blue"}}));
        server.store(|store| store.delete(&place("goes"), None).unwrap());
        server.store(|store| store.delete(&place("returns"), None).unwrap());
        make(&server, "returns", "x");
        make(&server, "comes", "x");
        soon().await;
        server.with_faults(|faults| faults.rates = FaultRates::default());
        soon().await;
        let mut told = told.lock().clone();
        told.sort_by(|a, b| a.0.cmp(&b.0));
        let relist = |name: &str, old, new| (name.to_owned(), old, new, Cause::Relist);
        assert_eq!(
            told,
            [
                relist("changes", true, true),
                relist("comes", false, true),
                relist("goes", true, false),
                relist("returns", true, true),
            ]
        );
        process.stop().await;
    });
}

#[test]
fn a_write_is_seen_at_once_and_leaving_the_selection_too() {
    simulate(async {
        let server = Server::new(1);
        // The watch is a day late: what is seen is seen by write-through.
        server.with_faults(|faults| faults.rates.watch_delay_ms = 86_400_000);
        let process = Process::bare(&server, 1, None);
        let caches = process.runtime.caches();
        let spec = WatchSpec::projected(config_map_kind(), project_plant);
        let cache = caches.watch(spec.select(Selector::all().label("garden", "x"))).unwrap();
        let metadata = caches.watch(WatchSpec::metadata(config_map_kind())).unwrap();
        cache.synced().await;
        metadata.synced().await;
        let (kind, key) = (config_map_kind(), ObjectKey::new("default", "a"));
        let object = json!({"metadata": {"name": "a", "namespace": "default", "labels": {"garden": "x"}}});
        let answer = process.api.create(&kind, &key, &object).await.unwrap();
        caches.written(&kind, &answer);
        assert_eq!((names(&cache), names(&metadata)), (vec!["a".to_owned()], vec!["a".to_owned()]));
        assert_eq!(&*metadata.get(&key).unwrap().object.labels["garden"], "x");
        let merge = quintet_controller::api::PatchKind::Merge;
        let patch = json!({"metadata": {"labels": {"garden": "y"}}});
        let answer = process.api.patch(&kind, &key, None, &merge, &patch).await.unwrap();
        caches.written(&kind, &answer);
        assert!(cache.is_empty(), "it is no longer selected");
        assert_eq!(&*metadata.get(&key).unwrap().object.labels["garden"], "y");
        process.kill();
    });
}

#[test]
fn metadata_watches_request_partial_object_metadata() {
    simulate(async {
        let server = Server::new(1);
        let process = Process::bare(&server, 1, None);
        let secrets = process.runtime.caches().watch(WatchSpec::metadata(ApiKind::of::<Secret>())).unwrap();
        secrets.synced().await;
        assert!(server.accepted().iter().all(|accept| accept.contains("as=PartialObjectMetadata")));
        process.stop().await;
    });
}
