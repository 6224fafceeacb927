//! The executor's promises, one by one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::time::Duration;

use quintet_controller::{
    Action, Class, Error, Event, NoCall, ObjectKey, Plan, StatusPatch, Step,
    api::PatchKind,
    cache::{Cache, Selector, WatchSpec},
    executor::{Done, Executor},
};
use serde_json::{Value, json};
use support::{
    garden::{config_map_kind, garden_kind},
    process::Process,
    server::Server,
    simulate,
    store::{Place, merge},
};

/// A root, an executor, and a watch that shows nothing of what happens after the start.
struct Fixture {
    server: Server,
    process: Process,
    executor: Executor,
    roots: Cache<Value>,
    children: Cache<Value>,
}

fn root_key() -> ObjectKey {
    ObjectKey::new("default", "root")
}

fn root_place() -> Place {
    ("test.quintet.dev/v1/gardens".to_owned(), "default".to_owned(), "root".to_owned())
}

fn child_place(name: &str) -> Place {
    ("v1/configmaps".to_owned(), "default".to_owned(), name.to_owned())
}

fn child(colour: &str) -> Value {
    json!({
        "metadata": {
            "name": "child", "namespace": "default",
            "ownerReferences": [{"kind": "Garden", "name": "root", "uid": "uid-1", "controller": true}],
        },
        "data": {"colour": colour},
    })
}

/// How many requests there were, but for watches.
fn requests(server: &Server) -> usize {
    server.take_requests().iter().filter(|request| !request.contains("watch=true")).count()
}

impl Fixture {
    async fn new() -> Self {
        let server = Server::new(1);
        server.with_faults(|faults| faults.rates.watch_delay_ms = 1_000_000_000);
        server.store(|store| {
            store.create(&root_place(), json!({"metadata": {}, "spec": {"plants": 1}})).unwrap()
        });
        let process = Process::bare(&server, 1, None);
        let caches = process.runtime.caches();
        let whole = |text: &str| serde_json::from_str(text);
        let roots = caches.watch(WatchSpec::projected(garden_kind(), whole)).unwrap();
        let children = caches.watch(WatchSpec::projected(config_map_kind(), whole)).unwrap();
        roots.synced().await;
        children.synced().await;
        server.take_requests();
        let executor = Executor::new(process.api.clone(), caches.clone());
        Self { server, process, executor, roots, children }
    }

    async fn carry_out(&self, plan: Plan) -> Result<Done, Error> {
        let no_calls = |_: NoCall| std::future::ready(Ok(()));
        let written = self.executor.act_out(&plan.steps, no_calls, |_| ()).await;
        let written = written.map_err(|failed| failed.error)?;
        self.executor.set_status(&garden_kind(), &root_key(), plan.status.as_ref(), written).await
    }

    async fn act(&self, action: Action) -> Result<Done, Error> {
        self.carry_out(Plan { steps: vec![action.into()], ..Plan::default() }).await
    }

    fn another_client_edits(&self, place: &Place, patch: &Value) {
        self.server.store(|store| {
            store
                .update(place, false, |object| {
                    merge(object, patch);
                    Ok(())
                })
                .unwrap()
        });
    }

    fn status(&self, grown: u32) -> Option<StatusPatch> {
        let root = self.roots.get(&root_key()).unwrap();
        StatusPatch::between(&root, &root.object["status"], &json!({"grown": grown}))
    }
}

#[test]
fn a_repeated_create_finds_the_object_of_the_first() {
    simulate(async {
        let fixture = Fixture::new().await;
        let create = || Action::create(config_map_kind(), &child("red"));
        // The first takes effect, but its answer is lost.
        fixture.server.with_faults(|faults| faults.rates.answer_lost = 1000);
        assert_eq!(fixture.act(create()).await.unwrap_err().class(), Class::Transient);
        assert!(fixture.children.is_empty(), "the cache does not know of it");
        fixture.server.with_faults(|faults| faults.rates.answer_lost = 0);
        fixture.act(create()).await.unwrap();
        assert_eq!(fixture.children.len(), 1);
        assert_eq!(fixture.server.store(|store| store.creations["child"]), 1);
        fixture.process.kill();
    });
}

#[test]
fn a_created_subresource_shows_in_the_cache_at_once() {
    simulate(async {
        let fixture = Fixture::new().await;
        let action = Action::CreateSubresource {
            kind: garden_kind(),
            key: root_key(),
            subresource: "binding".to_owned(),
            body: json!({"spec": {"bound": true}}),
        };
        let done = fixture.act(action).await.unwrap();
        let root = fixture.roots.get(&root_key()).unwrap();
        assert_eq!(root.object["spec"]["bound"], true, "the response does not show the object");
        assert_eq!(done.written[0].version, Some(root.version));
        fixture.process.kill();
    });
}

#[test]
fn a_status_is_written_only_on_the_state_it_was_derived_from() {
    simulate(async {
        let fixture = Fixture::new().await;
        let status = fixture.status(3);
        fixture.another_client_edits(&root_place(), &json!({"spec": {"plants": 9}}));
        let refused = fixture.carry_out(Plan { status, ..Plan::default() }).await.unwrap_err();
        assert_eq!(refused.class(), Class::Conflict, "{refused}");
        assert_eq!(fixture.server.store(|store| store.objects[&root_place()].get("status").cloned()), None);
        fixture.process.kill();
    });
}

#[test]
fn a_status_that_did_not_change_is_no_patch() {
    simulate(async {
        let fixture = Fixture::new().await;
        let status = fixture.status(3);
        fixture.carry_out(Plan { status, ..Plan::default() }).await.unwrap();
        assert_eq!(fixture.status(3), None, "seen at once, though the watch has shown nothing");
        assert_eq!(fixture.status(4).unwrap().status, json!({"grown": 4}));
        fixture.process.kill();
    });
}

#[test]
fn a_plan_that_changes_the_root_leaves_the_status_to_the_next() {
    simulate(async {
        let fixture = Fixture::new().await;
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let plan = Plan {
            steps: vec![Action::merge(garden_kind(), root_key(), label).into()],
            status: fixture.status(3),
            ..Plan::default()
        };
        assert!(fixture.carry_out(plan).await.unwrap().status_waits);
        let status = fixture.status(3);
        let done = fixture.carry_out(Plan { status, ..Plan::default() }).await.unwrap();
        assert!(!done.status_waits);
        assert_eq!(done.written.len(), 1);
        fixture.process.kill();
    });
}

#[test]
fn an_apply_that_changes_nothing_is_not_sent() {
    simulate(async {
        let fixture = Fixture::new().await;
        let apply = |colour: &str| Action::apply(config_map_kind(), "us", &child(colour));
        assert_eq!(fixture.act(apply("red")).await.unwrap().written.len(), 1);
        assert_eq!(requests(&fixture.server), 1, "absent: no look before");
        assert!(fixture.act(apply("red")).await.unwrap().written.is_empty());
        assert!(requests(&fixture.server) == 0, "remembered: not even a look");
        assert_eq!(fixture.act(apply("blue")).await.unwrap().written.len(), 1);
        assert_eq!(requests(&fixture.server), 1, "another configuration: not read before");
        // A process that has just started looks once, and writes nothing.
        let fresh = Process::bare(&fixture.server, 2, None);
        let whole = |text: &str| serde_json::from_str::<Value>(text);
        let children = fresh.runtime.caches().watch(WatchSpec::projected(config_map_kind(), whole)).unwrap();
        children.synced().await;
        let executor = Executor::new(fresh.api.clone(), fresh.runtime.caches().clone());
        fixture.server.take_requests();
        for looks in [1, 0] {
            let no_calls = |_: NoCall| std::future::ready(Ok(()));
            let written = executor.act_out(&[apply("blue").into()], no_calls, |_| ()).await.unwrap();
            assert!(written.is_empty());
            assert_eq!(requests(&fixture.server), looks);
        }
        fixture.process.kill();
        fresh.kill();
    });
}

#[test]
fn a_watch_that_would_select_an_object_knows_that_it_is_not_there() {
    simulate(async {
        let server = Server::new(1);
        let process = Process::bare(&server, 1, None);
        let caches = process.runtime.caches();
        let spec = WatchSpec::projected(config_map_kind(), |text| serde_json::from_str::<Value>(text));
        let cache = caches.watch(spec.select(Selector::all().label("garden", "rose"))).unwrap();
        cache.synced().await;
        let executor = Executor::new(process.api.clone(), caches.clone());
        requests(&server);
        for (name, garden, expected) in
            [("selected", "rose", 1), ("other", "tulip", 2), ("other", "tulip", 1)]
        {
            let metadata = json!({"name": name, "namespace": "default", "labels": {"garden": garden}});
            let apply = Action::apply(config_map_kind(), "us", &json!({"metadata": metadata}));
            let no_calls = |_: NoCall| std::future::ready(Ok(()));
            executor.act_out(&[apply.into()], no_calls, |_| ()).await.unwrap();
            assert_eq!(requests(&server), expected, "{name}");
        }
        process.stop().await;
    });
}

#[test]
fn only_the_named_namespaces_are_watched() {
    simulate(async {
        let server = Server::new(1);
        let process = Process::bare(&server, 1, None);
        let all = process.runtime.caches().clone();
        let namespaces = ["here", "there"].map(str::to_owned);
        let caches = all.in_namespaces(&namespaces);
        let object = |name: &str| json!({"metadata": {"name": name}, "data": {}});
        let place =
            |namespace: &str, name: &str| ("v1/configmaps".to_owned(), namespace.to_owned(), name.to_owned());
        for namespace in ["here", "there", "elsewhere"] {
            server.store(|store| store.create(&place(namespace, "one"), object("one")).unwrap());
        }
        let spec = WatchSpec::projected(config_map_kind(), |text| serde_json::from_str::<Value>(text));
        let cache = caches.watch(spec).unwrap();
        cache.synced().await;
        let held = || cache.all().iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>();
        assert_eq!(held(), ["here/one", "there/one"]);
        let lists: Vec<_> =
            server.take_requests().into_iter().filter(|request| request.contains("configmaps")).collect();
        let is_named = |request: &String| {
            request.contains("/namespaces/here/") || request.contains("/namespaces/there/")
        };
        assert!(!lists.is_empty() && lists.iter().all(is_named), "{lists:?}");

        server.store(|store| store.create(&place("there", "two"), object("two")).unwrap());
        server.store(|store| store.delete(&place("here", "one"), None).unwrap());
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(held(), ["there/one", "there/two"]);
        assert_eq!(caches.report().len(), 1, "one cache, whatever feeds it");
        process.stop().await;
    });
}

#[test]
fn a_delete_is_for_its_uid_only() {
    simulate(async {
        let fixture = Fixture::new().await;
        fixture.act(Action::create(config_map_kind(), &child("red"))).await.unwrap();
        let old = fixture.children.all().remove(0);
        fixture.server.store(|store| {
            store.delete(&child_place("child"), None).unwrap();
            store.create(&child_place("child"), child("blue")).unwrap();
        });
        let done = fixture.act(Action::delete(config_map_kind(), &old)).await.unwrap();
        assert!(done.written.is_empty(), "it is gone already");
        assert!(fixture.children.is_empty(), "and so it is in the cache");
        let living = fixture.server.store(|store| store.objects[&child_place("child")].clone());
        assert_eq!(living["data"]["colour"], "blue");
        fixture.process.kill();
    });
}

#[test]
fn the_response_of_a_subresource_is_not_taken_for_the_object() {
    simulate(async {
        let fixture = Fixture::new().await;
        let before = fixture.roots.get(&root_key()).unwrap().version;
        let scale = Action::Patch {
            kind: garden_kind(),
            key: root_key(),
            subresource: Some("scale".to_owned()),
            patch_kind: PatchKind::Merge,
            patch: json!({"spec": {"plants": 7}}),
        };
        fixture.act(scale).await.unwrap();
        assert_eq!(fixture.roots.get(&root_key()).unwrap().version, before);
        fixture.process.kill();
    });
}

#[test]
fn a_rejected_action_ends_the_plan() {
    simulate(async {
        let fixture = Fixture::new().await;
        let plan = Plan {
            steps: vec![
                Action::apply(config_map_kind(), "us", &child("red")).into(),
                Action::apply(config_map_kind(), "us", &json!({"metadata": {"name": "x"}})).into(),
                Action::apply(
                    config_map_kind(),
                    "us",
                    &json!({"metadata": {"name": "y", "namespace": "default"}}),
                )
                .into(),
            ],
            status: fixture.status(3),
            ..Plan::default()
        };
        let refused = fixture.carry_out(plan).await.unwrap_err();
        assert_eq!(refused.to_string(), "cannot write ConfigMap x: it has no namespace");
        assert_eq!(fixture.server.take_writes().len(), 1);
        fixture.process.kill();
    });
}

#[test]
fn every_step_that_took_place_has_its_event_though_another_failed() {
    simulate(async {
        let fixture = Fixture::new().await;
        let create = |name: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "default"}});
            let event = Event::normal("Created", "Create", name);
            Action::create(config_map_kind(), &object).with_event(event)
        };
        let nameless = Action::create(config_map_kind(), &json!({"metadata": {}}));
        let after = Action::merge(config_map_kind(), root_key(), json!({}));
        let steps = [create("a"), create("b"), nameless.into(), create("c"), after.into()];
        let told = std::cell::RefCell::new(Vec::new());
        let no_calls = |_: NoCall| std::future::ready(Ok(()));
        let tell = |event: &Event| told.borrow_mut().push(event.note.clone());
        let failed = fixture.executor.act_out(&steps, no_calls, tell).await.unwrap_err();
        assert_eq!(failed.action, steps[2].action);
        let mut told = told.into_inner();
        told.sort();
        assert_eq!(told, ["a", "b"], "creations are independent of one another");
        assert_eq!(fixture.server.take_writes().len(), 2, "and what comes after them does not take place");
        fixture.process.kill();
    });
}

fn create_named(number: usize) -> Step {
    let object = json!({"metadata": {"name": format!("child-{number}"), "namespace": "default"}});
    Action::create(config_map_kind(), &object).into()
}

#[test]
fn creations_beyond_a_quota_cost_a_few_requests_and_not_hundreds() {
    simulate(async {
        let fixture = Fixture::new().await;
        fixture.server.with_faults(|faults| faults.quota = Some(3));
        let carry_out = async |steps: Vec<Step>| {
            let failed = fixture.carry_out(Plan { steps, ..Plan::default() }).await.unwrap_err();
            assert!(failed.to_string().contains("exceeded quota"), "{failed}");
            fixture.server.take_writes().len()
        };
        assert_eq!(carry_out((0..200).map(create_named).collect()).await, 7, "1 + 2 succeed, 4 are rejected");
        assert_eq!(fixture.children.len(), 3);
        assert_eq!(carry_out((3..200).map(create_named).collect()).await, 1, "a retry asks once");
        fixture.process.kill();
    });
}

#[test]
fn a_batch_stops_at_the_first_failure() {
    simulate(async {
        let fixture = Fixture::new().await;
        fixture.server.with_faults(|faults| faults.quota = Some(100));
        let steps = (0..200).map(create_named).collect();
        fixture.carry_out(Plan { steps, ..Plan::default() }).await.unwrap_err();
        let requests = fixture.server.take_writes().len();
        assert!(
            requests <= 100 + 8,
            "{requests} requests: no more than are in progress at a time are in vain"
        );
        fixture.process.kill();
    });
}

#[test]
fn creations_without_a_quota_take_few_round_trips() {
    simulate(async {
        let fixture = Fixture::new().await;
        let started = tokio::time::Instant::now();
        let steps = (0..200).map(create_named).collect();
        fixture.carry_out(Plan { steps, ..Plan::default() }).await.unwrap();
        assert_eq!(fixture.children.len(), 200);
        // A request takes up to 10 ms: one after the other would take about a second.
        assert!(started.elapsed() < Duration::from_millis(400), "{:?}", started.elapsed());
        fixture.process.kill();
    });
}

#[test]
fn ensure_accepts_an_object_of_another_owner() {
    simulate(async {
        let fixture = Fixture::new().await;
        fixture.server.store(|store| store.create(&child_place("child"), json!({"metadata": {}})).unwrap());
        assert!(fixture.act(Action::create(config_map_kind(), &child("red"))).await.is_err());
        let done = fixture.act(Action::ensure(config_map_kind(), &child("red"))).await.unwrap();
        assert!(done.written.is_empty(), "it is left alone");
        fixture.process.kill();
    });
}

#[test]
fn an_action_is_named_without_its_contents() {
    let secret = json!({"metadata": {"name": "a", "namespace": "b"}, "data": {"token": "hush"}});
    let kind = quintet_controller::ApiKind::of::<k8s_openapi::api::core::v1::Secret>();
    assert_eq!(Action::<NoCall>::create(kind, &secret).to_string(), "create Secret b/a");
}

#[test]
fn a_request_without_a_response_ends_at_its_deadline() {
    simulate(async {
        let fixture = Fixture::new().await;
        fixture.process.connection.kill();
        let started = tokio::time::Instant::now();
        let error = fixture.act(Action::create(config_map_kind(), &child("red"))).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot create ConfigMap default/child: no response within 30s");
        assert!(started.elapsed() < Duration::from_secs(31));
        fixture.process.kill();
    });
}
