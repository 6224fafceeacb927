//! Cancelled requests: a client that disconnects or times out never splits a write from what follows it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use std::{
    collections::HashSet,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use quintet_apiserver::{
    Api,
    store::{Expect, Put, Write, WritePause},
};
use serde_json::{Value, json};
use support::{Disk, admin, api_on, eventually, send};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMESPACES: &str = "/api/v1/namespaces";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Sends a request and drops its future at the `point`-th await point, with the writes of the store paused: a write that
/// the last poll hands over is still in the queue. `None` if the request was done before.
///
/// Writes are paused during every poll, so that each write is an await point, however late this thread is scheduled.
async fn cancel_at(api: &Api, point: usize, method: &str, path: &str, body: &Value) -> Option<WritePause> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Bytes::from(body.to_string())).unwrap();
    let mut response = pin!(api.handle(request, admin()));
    let mut polls = 0;
    std::future::poll_fn(|context| {
        polls += 1;
        let pause = api.store().pause_writes();
        match response.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending if polls == point => Poll::Ready(Some(pause)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Waits until everything that was queued before is in the store.
async fn drain(api: &Api) {
    send(
        api,
        "POST",
        &format!("{NAMESPACES}/kube-system/configmaps"),
        json!({"metadata": {"generateName": "drain-"}}),
    )
    .await
    .expect(201);
}

/// Lets writes go on, and blocks this thread with all its tasks until everything that was in the queue is stored.
fn store_queued(api: &Api, pause: Option<WritePause>) {
    let name = format!("after-{}", api.store().version());
    let object = json!({"metadata": {"name": name, "namespace": "kube-system"}});
    let last = Write {
        bucket: "core/configmaps".into(),
        key: format!("kube-system/{name}").into(),
        expect: Expect::Absent,
        put: Some(Put::new("v1".into(), &object, 0)),
        parents: Vec::new(),
    };
    let mut last = pin!(tokio::task::unconstrained(api.store().write(last)));
    let mut poll = || last.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // The first poll puts it in the queue, behind all others.
    let mut stored = poll();
    drop(pause);
    while stored.is_pending() {
        std::thread::yield_now();
        stored = poll();
    }
}

fn definition(number: usize) -> Value {
    let plural = format!("widget{number}s");
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.ex.io")},
        "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": plural, "kind": format!("Widget{number}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[tokio::test]
async fn a_stored_definition_is_established_wherever_its_request_was_cancelled() {
    let disk = Disk::new("cancelled-definitions");
    let api = api_on(disk.store()).await;
    let mut stored = 0;
    for point in 1.. {
        let definition = definition(point);
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let Some(pause) = cancel_at(&api, point, "POST", DEFINITIONS, &definition).await else { break };
        drop(pause);
        drain(&api).await;
        let found = send(&api, "GET", &format!("{DEFINITIONS}/{name}"), None).await;
        if found.code == 404 {
            continue;
        }
        stored += 1;
        eventually(async || {
            let definition = send(&api, "GET", &format!("{DEFINITIONS}/{name}"), None).await.expect(200);
            let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
        })
        .await;
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
        let objects = format!("/apis/ex.io/v1/namespaces/default/{plural}");
        eventually(async || send(&api, "GET", &objects, None).await.code == 200).await;
    }
    assert!(stored > 0, "no request was cancelled after its write");
}

#[tokio::test]
async fn a_stored_namespace_is_completed_wherever_its_request_was_cancelled() {
    let disk = Disk::new("cancelled-namespaces");
    let api = api_on(disk.store()).await;
    let mut stored = 0;
    for point in 1.. {
        let name = format!("n{point}");
        let body = json!({"metadata": {"name": name}});
        let Some(pause) = cancel_at(&api, point, "POST", NAMESPACES, &body).await else { break };
        drop(pause);
        drain(&api).await;
        if send(&api, "GET", &format!("{NAMESPACES}/{name}"), None).await.code == 404 {
            continue;
        }
        stored += 1;
        let account = format!("{NAMESPACES}/{name}/serviceaccounts/default");
        eventually(async || send(&api, "GET", &account, None).await.code == 200).await;
    }
    assert!(stored > 0, "no request was cancelled after its write");
}

#[tokio::test]
async fn a_service_address_is_given_once_although_requests_are_cancelled() {
    let disk = Disk::new("cancelled-services");
    let api = api_on(disk.store()).await;
    let service = |name: &str, number: usize| {
        json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "clusterIP": format!("10.96.200.{number}"),
            "ports": [{"port": 80, "nodePort": 32_000 + number}]}})
    };
    for point in 1.. {
        let first = service(&format!("first{point}"), point);
        let Some(pause) = cancel_at(&api, point, "POST", SERVICES, &first).await else { break };
        // Somebody else wants the same address and port while the first write is still in the queue.
        let rival = cancel_at(&api, 1, "POST", SERVICES, &service(&format!("second{point}"), point)).await;
        drop((pause, rival));
        drain(&api).await;
        let services = send(&api, "GET", SERVICES, None).await.expect(200);
        let services = services["items"].as_array().unwrap();
        let addresses = services.iter().map(|one| one["spec"]["clusterIP"].to_string());
        let distinct: HashSet<String> = addresses.collect();
        assert_eq!(distinct.len(), services.len(), "an address was given twice: {services:#?}");
    }
}

#[tokio::test]
async fn an_address_is_free_again_after_a_cancelled_delete() {
    let disk = Disk::new("cancelled-deletes");
    let api = api_on(disk.store()).await;
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": "10.96.201.1", "ports": [{"port": 80}]}});
    for point in 1.. {
        let (name, next) = (format!("old{point}"), format!("new{point}"));
        send(&api, "POST", SERVICES, service(&name)).await.expect(201);
        let path = format!("{SERVICES}/{name}");
        let pause = cancel_at(&api, point, "DELETE", &path, &json!({})).await;
        let is_done = pause.is_none();
        drop(pause);
        drain(&api).await;
        let is_gone = send(&api, "GET", &path, None).await.code == 404;
        assert!(is_gone || !is_done);
        let code = send(&api, "POST", SERVICES, service(&next)).await.code;
        assert_eq!(code, if is_gone { 201 } else { 422 });
        let left = if is_gone { next } else { name };
        send(&api, "DELETE", &format!("{SERVICES}/{left}"), None).await.expect(200);
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn a_quota_holds_wherever_creates_were_cancelled() {
    let disk = Disk::new("cancelled-quotas");
    let api = api_on(disk.store()).await;
    let count = async || send(&api, "GET", MAPS, None).await.expect(200)["items"].as_array().unwrap().len();
    let used = async || {
        let quota = send(&api, "GET", &format!("{QUOTAS}/q"), None).await.expect(200);
        quota["status"]["used"]["configmaps"].as_str().unwrap_or_default().to_owned()
    };
    let most = count().await + 1;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": most.to_string()}}});
    send(&api, "POST", QUOTAS, quota).await.expect(201);
    let mut stored = 0;
    for point in 1.. {
        eventually(async || used().await == (most - 1).to_string()).await;
        let names = [format!("first{point}"), format!("second{point}")];
        let pause = cancel_at(&api, point, "POST", MAPS, &json!({"metadata": {"name": names[0]}})).await;
        let is_done = pause.is_none();
        // Time for a recount that cannot see an object that is still in the queue.
        tokio::time::sleep(Duration::from_millis(50)).await;
        store_queued(&api, pause);
        let second = send(&api, "POST", MAPS, json!({"metadata": {"name": names[1]}})).await.code;
        assert!(matches!(second, 201 | 403), "{second}");
        assert!(count().await <= most, "cancelled at point {point}, the quota admitted one too many");
        drain(&api).await;
        eventually(async || used().await == count().await.to_string()).await;
        for name in names {
            let code = send(&api, "DELETE", &format!("{MAPS}/{name}"), None).await.code;
            stored += usize::from(code == 200 && name.starts_with("first"));
        }
        if is_done {
            break;
        }
    }
    assert!(stored > 1, "no request was cancelled after its write");
}
