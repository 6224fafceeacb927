use std::sync::Arc;

use http::Request;
use jiff::Timestamp;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::ObjectKey;
use quintet_controller::index::{Index as _, Update};
use quintet_queue_engine::settings::Gates;
use serde_json::{Value, json};

use super::documents::Document;
use super::path::{Path, QueueRef, Window};
use super::*;
use crate::scheduler::SchedulerEvent;
use crate::testing::entry;

const ALL: Window = Window { offset: 0, limit: 1000 };

fn workload(name: &str, queue: &str, priority: i32, created: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "ns", "uid": name, "creationTimestamp": created,
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true }] },
        "spec": { "queueName": queue, "priority": priority, "podSets": [{ "name": "main", "count": 1,
            "template": { "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] } } }] },
    })
}

/// A queue without quota, two LocalQueues, and Workloads in them.
fn scheduler(workloads: &[Value]) -> Scheduler {
    let mut scheduler = Scheduler::new(Arc::default(), Gates::default());
    let now = Timestamp::UNIX_EPOCH;
    let queue = json!({ "metadata": { "name": "cq" }, "spec": { "namespaceSelector": {}, "resourceGroups": [{
        "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": [
            { "name": "cpu", "nominalQuota": "0" }] }] }] } });
    let local = |name: &str, queue: &str| json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": { "clusterQueue": queue } });
    let mut events = vec![
        SchedulerEvent::Namespace(Update::Applied(entry(&json!({ "metadata": { "name": "ns" } })))),
        SchedulerEvent::ResourceFlavor(Update::Applied(entry(&json!({ "metadata": { "name": "default" } })))),
        SchedulerEvent::ClusterQueue(Update::Applied(entry(&queue))),
    ];
    for (name, queue) in [("lq", "cq"), ("other", "cq"), ("astray", "missing")] {
        events.push(SchedulerEvent::LocalQueue(Update::Applied(entry(&local(name, queue)))));
    }
    events.extend(
        workloads.iter().map(|one| SchedulerEvent::Workload(Update::Applied(entry::<Workload>(one)))),
    );
    for event in events {
        scheduler.apply(event, now);
    }
    scheduler
}

fn waiting() -> Scheduler {
    scheduler(&[
        workload("a", "lq", 0, "2026-01-01T00:00:01Z"),
        workload("b", "other", 0, "2026-01-01T00:00:02Z"),
        workload("c", "lq", 5, "2026-01-01T00:00:03Z"),
        workload("d", "astray", 0, "2026-01-01T00:00:03Z"),
    ])
}

/// Names and positions.
fn listed(items: &[Value]) -> Vec<(&str, i64, i64)> {
    let position = |item: &Value, name: &str| item[name].as_i64().unwrap();
    let of = |item| (position(item, "positionInClusterQueue"), position(item, "positionInLocalQueue"));
    items.iter().map(|item| (item["metadata"]["name"].as_str().unwrap(), of(item).0, of(item).1)).collect()
}

#[test]
fn workloads_are_listed_in_the_order_in_which_they_are_tried() {
    let scheduler = waiting();
    let cluster_queue = QueueRef::ClusterQueue("cq".into());
    let all = scheduler.pending_workloads(&cluster_queue, ALL).unwrap();
    assert_eq!(listed(&all), [("c", 0, 0), ("a", 1, 1), ("b", 2, 0)]);
    assert_eq!(
        all[0],
        json!({
            "metadata": { "name": "c", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:03Z",
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u" }] },
            "priority": 5, "localQueueName": "lq", "positionInClusterQueue": 0, "positionInLocalQueue": 0,
        })
    );
    let some = scheduler.pending_workloads(&cluster_queue, Window { offset: 1, limit: 1 }).unwrap();
    assert_eq!(listed(&some), [("a", 1, 1)]);

    let local = |name: &str, window| {
        scheduler.pending_workloads(&QueueRef::LocalQueue(ObjectKey::new("ns", name)), window)
    };
    assert_eq!(listed(&local("lq", ALL).unwrap()), [("c", 0, 0), ("a", 1, 1)]);
    assert_eq!(listed(&local("lq", Window { offset: 1, limit: 5 }).unwrap()), [("a", 1, 1)]);
    assert_eq!(listed(&local("other", ALL).unwrap()), [("b", 2, 0)]);
    assert_eq!(local("astray", ALL), Some(Vec::new()), "its ClusterQueue does not exist");
    assert_eq!(local("none", ALL), None);
    assert_eq!(scheduler.pending_workloads(&QueueRef::ClusterQueue("missing".into()), ALL), None);
}

#[test]
fn limits_are_read_as_kueue_does() {
    let read = |query: &str| Window::read(query).map(|window| (window.offset, window.limit));
    for (query, expected) in [
        ("", (0, 1000)),
        ("limit=&offset=", (0, 1000)),
        ("limit=0", (0, 1000)),
        ("limit=2&offset=1", (1, 2)),
        ("limit=-1", (0, 0)),
        ("offset=-1", (0, 1000)),
        ("limit=9999999", (0, 100_000)),
        ("pretty=true&limit=7", (0, 7)),
    ] {
        assert_eq!(read(query), Ok(expected), "{query}");
    }
    let message = |query: &str| read(query).unwrap_err().message;
    assert_eq!(message("limit=x"), "strconv.ParseInt: parsing \"x\": invalid syntax");
    assert_eq!(
        message("offset=99999999999999999999"),
        "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
    );
}

#[test]
fn paths_name_queues_and_documents() {
    let pending = |version, queue| Some(Path::Pending { version, queue });
    let of_cluster_queue = pending("v1beta1", QueueRef::ClusterQueue("cq".into()));
    let of_local_queue = pending("v1beta2", QueueRef::LocalQueue(ObjectKey::new("ns", "lq")));
    let document = |document| Some(Path::Document(document));
    let root = "/apis/visibility.kueue.x-k8s.io";
    for (path, expected) in [
        (format!("{root}/v1beta1/clusterqueues/cq/pendingworkloads"), of_cluster_queue),
        (format!("{root}/v1beta2/namespaces/ns/localqueues/lq/pendingworkloads"), of_local_queue),
        (format!("{root}/v1beta2"), document(Document::Resources("v1beta2"))),
        (root.to_owned(), document(Document::Group)),
        ("/openapi/v2".to_owned(), document(Document::OpenApiV2)),
        ("/readyz".to_owned(), Some(Path::Healthy)),
        (format!("{root}/v1/clusterqueues/cq/pendingworkloads"), None),
        (format!("{root}/v1beta2/clusterqueues"), None),
        (format!("{root}/v1beta2/clusterqueues/cq"), None),
        ("/".to_owned(), None),
    ] {
        assert_eq!(Path::parse(&path), expected, "{path}");
    }
}

#[test]
fn every_reference_of_an_openapi_document_has_a_definition() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(ToOwned::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    for document in [Document::OpenApiV2, Document::OpenApiV3("v1beta1"), Document::OpenApiV3("v1beta2")] {
        let content = document.content();
        let mut found = Vec::new();
        references(&content, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(content.pointer(pointer).is_some(), "{reference}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_answered_is_a_status() {
    let api = super::api(&VisibilityServer::default(), &Source::default()).unwrap();
    let ask = async |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let (head, body) = (api.handler)(request.into_parts().0).await.into_parts();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        (head.status.as_u16(), body["reason"].as_str().unwrap_or_default().to_owned())
    };
    let path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
    assert_eq!(ask("GET", path).await, (503, "ServiceUnavailable".to_owned()), "nothing runs yet");
    assert_eq!(ask("POST", path).await, (405, "MethodNotAllowed".to_owned()));
    assert_eq!(ask("GET", "/other").await, (404, "NotFound".to_owned()));
    assert_eq!(ask("GET", "/apis").await.0, 200);
    assert_eq!(ask("GET", "/healthz").await.0, 200);
}
