//! The API through a `kube::Client`, in process and over HTTPS: the same client code, the same answers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use quintet_apiserver::{
    Cluster, Settings,
    faults::{Fault, Met},
    status::Failure,
};
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap()
}

/// What every client does.
async fn walk(client: Client) {
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let events = maps.watch(&WatchParams::default(), &version).await.unwrap();
    let made = maps.create(&PostParams::default(), &config_map("x")).await.unwrap();
    assert_eq!(maps.get("x").await.unwrap(), made);
    let error = maps.create(&PostParams::default(), &config_map("x")).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.is_already_exists()));
    let apply = PatchParams::apply("tester");
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"b": "2"}});
    let applied = maps.patch("x", &apply, &Patch::Apply(&config)).await.unwrap();
    assert_eq!(applied.data.unwrap().len(), 2);
    let owners: Vec<_> =
        applied.metadata.managed_fields.unwrap().into_iter().map(|entry| entry.manager.unwrap()).collect();
    assert!(owners.contains(&"tester".to_owned()), "{owners:?}");
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"b": "3"}});
    let error = maps.patch("x", &PatchParams::apply("other"), &Patch::Apply(&config)).await.unwrap_err();
    assert!(
        matches!(error, kube::Error::Api(status) if status.message == "Apply failed with 1 conflict: conflict with \"tester\": .data.b")
    );
    let merged =
        maps.patch("x", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": null}}))).await.unwrap();
    assert_eq!(merged.data.unwrap().len(), 1);
    maps.delete("x", &DeleteParams::default()).await.unwrap();
    let kinds: Vec<&str> = events
        .take(4)
        .map_ok(|event| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(kinds, ["added", "modified", "modified", "deleted"]);
}

#[tokio::test]
async fn in_process() {
    walk(support::api().await.admin_client()).await;
}

#[tokio::test]
async fn over_https() {
    let cluster = Cluster::start(Settings::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig().unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    walk(Client::try_from(config).unwrap()).await;
    cluster.stop().await;
}

#[tokio::test]
async fn faults_happen_on_purpose_only() {
    let api = support::api().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(api.admin_client());
    maps.create(&PostParams::default(), &config_map("x")).await.unwrap();
    api.faults().decide(|met: Met<'_>| match (met.verb, met.name) {
        ("patch", _) => Some(Fault::Conflict),
        ("create", _) => Some(Fault::Fail(Failure::internal("on purpose"))),
        ("get", "x") => Some(Fault::Stale(1)),
        _ => None,
    });
    let patched = maps.patch("x", &PatchParams::default(), &Patch::Merge(json!({}))).await;
    assert!(matches!(patched.unwrap_err(), kube::Error::Api(status) if status.is_conflict()));
    let created = maps.create(&PostParams::default(), &config_map("y")).await;
    assert!(matches!(created.unwrap_err(), kube::Error::Api(status) if status.code == 500));
    assert!(maps.get("x").await.is_err(), "one change ago it was not there");
    api.faults().clear();
    maps.get("x").await.unwrap();
}

#[tokio::test]
async fn a_watch_ends_cleanly_when_the_server_stops() {
    let cluster = Cluster::start(Settings::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig().unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let events = maps.watch(&WatchParams::default(), "0").await.unwrap();
    let ((), seen) = tokio::join!(cluster.stop(), events.try_collect::<Vec<_>>());
    assert_eq!(seen.unwrap().len(), 1, "what was there, then the end");
}
