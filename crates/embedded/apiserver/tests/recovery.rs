//! Recovery: after restarts, failures and concurrent writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "tasks of a test or benchmark end with it")]

mod support;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, mpsc},
};

use futures::future::join_all;
use http::Response;
use http_body_util::Full;
use quintet_apiserver::{
    Api, Controller, Store,
    store::{Expect, Put, Write},
};
use serde_json::{Value, json};
use support::{Disk, api, api_on, backend::Backend, eventually, send, send_typed};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/ex.io/v1/namespaces/default/widgets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MERGE: &str = "application/merge-patch+json";

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"},
        "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn widget(name: &str, finalizers: &[&str]) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": name, "finalizers": finalizers}})
}

async fn is_gone(api: &Api, path: &str) -> bool {
    send(api, "GET", path, None).await.code == 404
}

/// A webhook that nobody answers, for deletions in namespaces with a label.
fn broken_hook(resources: &[&str]) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "broken"}, "webhooks": [{"name": "broken.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "rules": [{"operations": ["DELETE"], "apiGroups": ["", "ex.io"], "apiVersions": ["v1"], "resources": resources}]}]})
}

#[tokio::test]
async fn a_definition_that_was_being_deleted_goes_after_a_restart() {
    let disk = Disk::new("definition");
    {
        let api = api_on(disk.store()).await;
        send(&api, "POST", DEFINITIONS, definition()).await.expect(201);
        send(&api, "POST", WIDGETS, widget("held", &["ex.io/hold"])).await.expect(201);
        send(&api, "POST", WIDGETS, widget("free", &[])).await.expect(201);
        // Nothing is served any more, and still everything must go.
        send(&api, "DELETE", &format!("{DEFINITIONS}/widgets.ex.io"), None).await.expect(200);
        eventually(async || is_gone(&api, &format!("{WIDGETS}/free")).await).await;
        api.stop().await;
    }
    let api = api_on(disk.store()).await;
    let path = format!("{DEFINITIONS}/widgets.ex.io");
    let waiting = send(&api, "GET", &path, None).await.expect(200);
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    send_typed(&api, "PATCH", &format!("{WIDGETS}/held"), MERGE, json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    eventually(async || is_gone(&api, &path).await).await;
}

#[tokio::test]
async fn objects_of_a_definition_that_serves_nothing_go_with_it() {
    let api = api().await;
    send(&api, "POST", DEFINITIONS, definition()).await.expect(201);
    send(&api, "POST", WIDGETS, widget("w", &[])).await.expect(201);
    let path = format!("{DEFINITIONS}/widgets.ex.io");
    let mut unserved = send(&api, "GET", &path, None).await.expect(200);
    unserved["spec"]["versions"][0]["served"] = false.into();
    send(&api, "PUT", &path, unserved).await.expect(200);
    send(&api, "DELETE", &path, None).await.expect(200);
    eventually(async || is_gone(&api, &path).await).await;
    assert_eq!(api.store().count("ex.io/widgets"), 0);
}

#[tokio::test]
async fn what_follows_from_a_write_is_done_at_the_next_start() {
    let store = Store::in_memory();
    let write = |bucket: &str, key: &str, object: &Value| Write {
        bucket: bucket.into(),
        key: key.into(),
        expect: Expect::Absent,
        put: Some(Put::new("v1".into(), object, 0)),
        parents: Vec::new(),
    };
    // As if the process had ended between the write and what follows from it.
    let mut crd = definition();
    crd["metadata"]["uid"] = "u1".into();
    crd["status"] =
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]});
    crd["spec"]["names"]["singular"] = "widget".into();
    crd["spec"]["names"]["listKind"] = "WidgetList".into();
    let place = "apiextensions.k8s.io/customresourcedefinitions";
    store.write(write(place, "widgets.ex.io", &crd)).await.unwrap();
    let namespace = json!({"metadata": {"name": "n", "uid": "u2"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    store.write(write("core/namespaces", "n", &namespace)).await.unwrap();
    let api = api_on(store).await;
    send(&api, "POST", WIDGETS, widget("w", &[])).await.expect(201);
    send(&api, "GET", "/api/v1/namespaces/n/serviceaccounts/default", None).await.expect(200);
}

#[tokio::test]
async fn garbage_collection_is_retried() {
    let api = api().await;
    send(&api, "POST", HOOKS, broken_hook(&["configmaps"])).await.expect(201);
    let owner = json!({"metadata": {"name": "owner"}});
    let secrets = "/api/v1/namespaces/default/secrets";
    let owner = send(&api, "POST", secrets, owner).await.expect(201);
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner["metadata"]["uid"]}]}});
    send(&api, "POST", MAPS, dependent).await.expect(201);
    send(&api, "DELETE", &format!("{secrets}/owner"), None).await.expect(200);

    let namespaces = "/api/v1/namespaces";
    send(&api, "POST", namespaces, json!({"metadata": {"name": "leaving"}})).await.expect(201);
    let secret = json!({"metadata": {"name": "s"}});
    send(&api, "POST", &format!("{namespaces}/leaving/secrets"), secret).await.expect(201);
    send(&api, "DELETE", &format!("{namespaces}/leaving"), None).await.expect(200);
    // What can go goes, and the rest is told.
    eventually(async || is_gone(&api, &format!("{namespaces}/leaving/secrets/s")).await).await;
    eventually(async || {
        let namespace = send(&api, "GET", &format!("{namespaces}/leaving"), None).await.expect(200);
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|one| one["type"] == "NamespaceDeletionContentFailure" && one["status"] == "True")
    })
    .await;
    send(&api, "GET", &format!("{MAPS}/dependent"), None).await.expect(200);

    send(&api, "DELETE", &format!("{HOOKS}/broken"), None).await.expect(200);
    eventually(async || is_gone(&api, &format!("{MAPS}/dependent")).await).await;
    eventually(async || is_gone(&api, &format!("{namespaces}/leaving")).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_created_in_a_namespace_that_went_meanwhile() {
    let (reached, is_reached) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (reached, released) = (Mutex::new(reached), Mutex::new(released));
    let hook = Backend::start(&["localhost"], move |request| {
        let review: Value = serde_json::from_slice(request.body()).unwrap();
        reached.lock().unwrap().send(()).unwrap();
        tokio::task::block_in_place(|| released.lock().unwrap().recv().unwrap());
        let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": review["request"]["uid"], "allowed": true}});
        Response::new(Full::new(answer.to_string().into()))
    })
    .await;
    let api = api().await;
    let mut configuration = broken_hook(&["secrets"]);
    configuration["webhooks"][0]["clientConfig"] =
        json!({"url": format!("https://localhost:{}/", hook.address.port()), "caBundle": hook.ca});
    configuration["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE"]);
    configuration["webhooks"][0]["timeoutSeconds"] = 20.into();
    send(&api, "POST", HOOKS, configuration).await.expect(201);
    send(&api, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "short"}})).await.expect(201);
    let create = tokio::spawn({
        let api = api.clone();
        async move {
            let secret = json!({"metadata": {"name": "late"}});
            send(&api, "POST", "/api/v1/namespaces/short/secrets", secret).await
        }
    });
    tokio::task::block_in_place(|| is_reached.recv().unwrap());
    send(&api, "DELETE", "/api/v1/namespaces/short", None).await.expect(200);
    eventually(async || is_gone(&api, "/api/v1/namespaces/short").await).await;
    release.send(()).unwrap();
    let reply = create.await.unwrap();
    assert_eq!((reply.code, reply.message()), (404, "namespaces \"short\" not found"));
    assert_eq!(api.store().count("core/secrets"), 0);
}

#[tokio::test]
async fn no_two_services_get_the_same_address_or_port() {
    let disk = Disk::new("services");
    let api = Arc::new(api_on(disk.store()).await);
    let services = "/api/v1/namespaces/default/services";
    let creates = (0..60).map(|n| {
        let api = Arc::clone(&api);
        let service = json!({"metadata": {"name": format!("s{n}")}, "spec": {"type": "NodePort",
            "ports": [{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]}});
        async move { send(&api, "POST", services, service).await.expect(201) }
    });
    let made = join_all(creates).await;
    let addresses: HashSet<_> = made.iter().map(|one| one["spec"]["clusterIP"].to_string()).collect();
    assert_eq!(addresses.len(), 60);
    for port in [0, 1] {
        let ports: HashSet<_> =
            made.iter().map(|one| one["spec"]["ports"][port]["nodePort"].to_string()).collect();
        assert_eq!(ports.len(), 60);
    }
    // TCP and UDP of one number are two ports.
    let number = made[0]["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    let taken: HashSet<_> =
        made.iter().map(|one| one["spec"]["ports"][1]["nodePort"].as_i64().unwrap()).collect();
    let shared = |protocol: &str| {
        json!({"metadata": {"name": format!("shared-{}", protocol.to_lowercase())}, "spec": {"type": "NodePort",
            "ports": [{"port": 1, "protocol": protocol, "nodePort": number}]}})
    };
    if !taken.contains(&number) {
        send(&api, "POST", services, shared("UDP")).await.expect(201);
    }
    let refused = send(&api, "POST", services, shared("TCP")).await;
    assert!(refused.message().ends_with("provided port is already allocated"), "{}", refused.message());
}

#[tokio::test]
async fn a_budget_is_not_spent_twice() {
    let disk = Disk::new("budget");
    let api = Arc::new(api_on(disk.store()).await);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let pods = "/api/v1/namespaces/default/pods";
    let budget = json!({"metadata": {"name": "pdb"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    send(&api, "POST", budgets, budget).await.expect(201);
    for name in ["a", "b", "c"] {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        send(&api, "POST", pods, pod).await.expect(201);
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        send_typed(&api, "PATCH", &format!("{pods}/{name}/status"), MERGE, running).await.expect(200);
    }
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1,
        "currentHealthy": 2, "expectedPods": 2}});
    send_typed(&api, "PATCH", &format!("{budgets}/pdb/status"), MERGE, status).await.expect(200);
    let evict = |name: &'static str, query: &'static str| {
        let api = Arc::clone(&api);
        async move {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
            send(&api, "POST", &format!("{pods}/{name}/eviction{query}"), eviction).await.code
        }
    };
    assert_eq!(evict("a", "?dryRun=All").await, 201, "and nothing is spent");
    let mut codes = join_all(vec![evict("a", ""), evict("b", ""), evict("c", "")]).await;
    codes.sort_unstable();
    assert_eq!(codes, [201, 429, 429]);
}

#[tokio::test]
async fn definitions_of_the_program_are_written_only_when_they_change() {
    let define = |api: Api, colour: &'static str| async move {
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "boxes.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
                "versions": [{"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {colour: {"type": "string"}}}}}}}]}});
        let maker: quintet_api::crd::Maker = Box::new(move || Some(definition));
        api.define("tester", [maker]).await.unwrap();
        let entry =
            api.store().get("apiextensions.k8s.io/customresourcedefinitions", "boxes.example.com").unwrap();
        (entry.rv, String::from_utf8_lossy(&entry.body).contains(colour))
    };
    let api = support::api().await;
    let (first, _) = define(api.clone(), "red").await;
    assert_eq!(define(api.clone(), "red").await, (first, true), "nothing changed");
    let (second, is_there) = define(api.clone(), "green").await;
    assert!(second > first && is_there);
    assert_eq!(define(api.clone(), "green").await, (second, true), "nothing changed");
    let path = "/apis/example.com/v1/namespaces/default/boxes";
    let green = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"green": "x", "red": "y"}});
    let made = support::send(&api, "POST", path, green).await.expect(201);
    assert_eq!(made["spec"], json!({"green": "x"}), "what the new definition does not know is gone");
}

#[tokio::test]
async fn a_cluster_starts_though_a_webhook_is_in_the_way() {
    let disk = support::Disk::new("webhook-in-the-way");
    let api = support::api_on(disk.store()).await;
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "no"}, "webhooks": [{"name": "no.example.com", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}]});
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:discovery";
    let nothing = json!({"rules": []});
    support::send_typed(&api, "PATCH", role, "application/merge-patch+json", nothing).await.expect(200);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    support::send(&api, "POST", path, hook).await.expect(201);
    api.stop().await;
    drop(api);
    let api = support::api_on(disk.store()).await;
    support::send(&api, "DELETE", &format!("{path}/no"), None).await.expect(200);
    api.stop().await;
    drop(api);
    let api = support::api_on(disk.store()).await;
    let role = support::send(&api, "GET", role, None).await.expect(200);
    assert!(!role["rules"].as_array().unwrap().is_empty(), "repaired once nothing blocks it");
}

#[tokio::test]
async fn a_disabled_garbage_collector_collects_nothing() {
    let api = support::api_of(Store::in_memory(), |parts| {
        parts.disabled_controllers.insert(Controller::GarbageCollector);
    })
    .await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "7"}]);
    let orphan = |name: &str| json!({"metadata": {"name": name, "ownerReferences": owner}});
    send(&api, "POST", MAPS, orphan("orphan")).await.expect(201);
    // Namespaces are emptied all the same: that is another controller's.
    send(&api, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await.expect(201);
    send(&api, "POST", "/api/v1/namespaces/other/configmaps", orphan("orphan")).await.expect(201);
    send(&api, "DELETE", "/api/v1/namespaces/other", None).await.expect(200);
    eventually(async || is_gone(&api, "/api/v1/namespaces/other").await).await;
    assert!(!is_gone(&api, &format!("{MAPS}/orphan")).await);
}

#[tokio::test]
async fn endpoints_are_not_at_special_addresses() {
    let api = api().await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    for (kind, address, why) in [
        ("IPv4", "169.254.169.254", "link-local range"),
        ("IPv6", "fe80::1", "link-local range"),
        ("IPv4", "224.0.0.251", "link-local multicast range"),
        ("IPv6", "ff02::fb", "link-local multicast range"),
        ("IPv4", "0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("IPv6", "::ffff:169.254.169.254", "must be an IPv6 address"),
        ("IPv4", "::ffff:169.254.169.254", "link-local range"),
        ("IPv4", "elsewhere", "must be a valid IP address"),
    ] {
        let slice =
            json!({"metadata": {"name": "s"}, "addressType": kind, "endpoints": [{"addresses": [address]}]});
        let reply = send(&api, "POST", slices, slice).await;
        assert_eq!(
            (reply.code, reply.message().contains(why)),
            (422, true),
            "{address}: {}",
            reply.message()
        );
    }
    let endpoints =
        json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "169.254.169.254"}]}]});
    send(&api, "POST", "/api/v1/namespaces/default/endpoints", endpoints).await.expect(422);
    // On one machine, endpoints may be there.
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}]});
    send(&api, "POST", slices, slice).await.expect(201);
}
