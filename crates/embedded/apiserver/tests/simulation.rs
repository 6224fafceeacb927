//! Simulations: forks of one API, each with its own clock, seed and faults.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{
    Api as Objects, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams, WatchParams,
};
use quintet_apiserver::{
    Api, Clock, Rng,
    faults::{Fault, Met},
    status::Failure,
};
use serde_json::{Value, json};
use support::send;

const START: &str = "2026-01-01T00:00:00Z";

fn widgets() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"}, "spec": {"group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties":
                    {"size": {"type": "integer", "default": 3}}}}}}}]}})
}

fn fork(template: &Api, seed: u64) -> Api {
    template.fork(Clock::simulated(START.parse().unwrap()), Rng::seeded(seed))
}

/// A short history in a world; everything that is in it afterwards.
async fn history(template: &Api, seed: u64) -> String {
    let api = fork(template, seed);
    let asked = AtomicU64::new(seed);
    api.faults().decide(move |met: Met<'_>| {
        let turn = asked.fetch_add(1, Ordering::Relaxed);
        match turn % 5 {
            0 if met.verb == "create" => Some(Fault::Fail(Failure::new(503, "ServiceUnavailable", "away"))),
            1 => Some(Fault::Delay(Duration::from_secs(turn % 7))),
            _ => None,
        }
    });
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("ex.io", "v1", "Widget"), "widgets");
    let widgets: Objects<DynamicObject> = Objects::namespaced_with(api.admin_client(), "default", &kind);
    let widget: DynamicObject = serde_json::from_value(json!({"apiVersion": "ex.io/v1", "kind": "Widget",
        "metadata": {"generateName": "w-"}, "spec": {}}))
    .unwrap();
    for _ in 0..4 {
        let _ = widgets.create(&PostParams::default(), &widget).await;
    }
    api.faults().clear();
    let list = widgets.list(&ListParams::default()).await.unwrap();
    assert!(list.items.iter().all(|one| one.data["spec"]["size"] == 3), "definitions come with the fork");
    api.stop().await;
    serde_json::to_string(&list).unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_hundred_worlds_repeat_by_their_seed() {
    let template = Api::in_memory(&[widgets()]).await.unwrap();
    let began = Instant::now();
    let mut histories = Vec::new();
    for seed in 0..200 {
        histories.push(history(&template, seed).await);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?} for 200 worlds is too slow to make thousands of them");
    for seed in [0, 7, 199] {
        assert_eq!(history(&template, seed).await, histories[usize::try_from(seed).unwrap()]);
    }
    histories.sort();
    histories.dedup();
    assert_eq!(histories.len(), 200, "every seed has a history of its own");
    let left = send(&template, "GET", "/apis/ex.io/v1/widgets", None).await.expect(200);
    assert_eq!(left["items"], json!([]), "what happens in a fork stays there");
}

#[tokio::test(start_paused = true)]
async fn one_clock_drives_timestamps_events_and_tokens() {
    let api = fork(&Api::in_memory(&[]).await.unwrap(), 1);
    let account = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = send(&api, "POST", account, json!({"spec": {"expirationSeconds": 600}})).await.expect(201);
    assert_eq!(token["metadata"]["creationTimestamp"], START);
    let review = json!({"spec": {"token": token["status"]["token"]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(
        send(&api, "POST", reviews, review.clone()).await.expect(201)["status"]["authenticated"],
        true
    );
    let events: Objects<Event> = Objects::default_namespaced(api.admin_client());
    let event: Event = serde_json::from_value(json!({"metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "lastTimestamp": START}))
    .unwrap();
    events.create(&PostParams::default(), &event).await.unwrap();

    tokio::time::sleep(Duration::from_mins(11)).await;
    assert!(send(&api, "POST", reviews, review).await.expect(201)["status"]["authenticated"].is_null());
    assert!(events.get("e").await.is_ok());
    tokio::time::sleep(Duration::from_mins(51)).await;
    assert!(events.get_opt("e").await.unwrap().is_none(), "events are forgotten after an hour");
    let map =
        send(&api, "POST", "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "m"}})).await;
    assert_eq!(map.expect(201)["metadata"]["creationTimestamp"], "2026-01-01T01:02:00Z");
}

#[tokio::test(start_paused = true)]
async fn answers_are_lost_and_watches_break() {
    use futures::TryStreamExt as _;
    let api = fork(&Api::in_memory(&[]).await.unwrap(), 1);
    let maps: Objects<ConfigMap> = Objects::default_namespaced(api.admin_client());
    let map =
        |name: &str| -> ConfigMap { serde_json::from_value(json!({"metadata": {"name": name}})).unwrap() };
    api.faults().decide(|met: Met<'_>| match met.verb {
        "create" => Some(Fault::Lost(Failure::new(504, "Timeout", "no answer"))),
        "watch" => Some(Fault::Break(1)),
        _ => None,
    });
    assert!(maps.create(&PostParams::default(), &map("a")).await.is_err());
    assert!(maps.get("a").await.is_ok(), "it was carried out all the same");
    let watch = maps.watch(&WatchParams::default(), "0").await.unwrap();
    // Everything that is there comes in one piece; then the watch is over.
    let seen: Vec<_> =
        tokio::time::timeout(Duration::from_mins(1), watch.try_collect()).await.unwrap().unwrap();
    assert_eq!(seen.len(), 2);
}
