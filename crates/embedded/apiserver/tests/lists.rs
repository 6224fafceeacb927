//! Long lists: what slow readers cost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "support/process.rs"]
mod process;
mod support;

use std::sync::{Arc, Mutex};

use http::Response;
use http_body_util::{BodyExt as _, Full};
use process::ServerProcess;
use quintet_apiserver::{
    Api,
    request::body::ResponseBody,
    store::{Expect, Put, Write},
};
use serde_json::{Value, json};
use support::{admin, api, backend::Backend, send_as};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Stores config maps of so many bytes each.
async fn fill(api: &Api, count: usize, size: usize) {
    for number in 0..count {
        let name = format!("map-{number}");
        let metadata = json!({"name": name, "namespace": "default", "uid": name});
        let object = json!({"metadata": metadata, "data": {"text": "yes: no\n".repeat(size / 8)}});
        let write = Write {
            bucket: "core/configmaps".into(),
            key: format!("default/{name}").into(),
            expect: Expect::Absent,
            put: Some(Put::new("v1".into(), &object, 0)),
            parents: Vec::new(),
        };
        api.store().write(write).await.unwrap();
    }
}

const OBJECTS: usize = 1000;
const LIST_MEGABYTES: usize = 80;

#[test]
fn server_process() {
    process::serve_if_asked(async |api: &Api| fill(api, OBJECTS, (LIST_MEGABYTES << 20) / OBJECTS).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_stalled_readers_of_a_long_list_share_its_memory() {
    let server = ServerProcess::start(4096);
    let admin = server.connector(true);
    let (before, _) = server.memory();
    let accepted = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json",
        "application/yaml",
        "application/json",
        "application/json",
    ];
    let mut readers = Vec::new();
    for accept in accepted.iter().cycle().take(40) {
        let mut reader = server.connect(&admin).await.unwrap();
        let line = format!("GET {MAPS}?includeObject=Object HTTP/1.1\r\nhost: localhost");
        reader.write_all(format!("{line}\r\naccept: {accept}\r\n\r\n").as_bytes()).await.unwrap();
        let mut status = [0; 12];
        reader.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200", "{accept}");
        readers.push(reader);
    }
    let (after, peak) = server.memory();
    let megabytes = |bytes: u64| bytes >> 20;
    let shown = [before, after, peak].map(megabytes);
    assert!(megabytes(before) > LIST_MEGABYTES as u64, "the objects are there: {shown:?}");
    assert!(megabytes(peak) < 400, "megabytes before, after and at the peak: {shown:?}");
    // A reader that goes on gets all of it.
    let mut text = Vec::new();
    let mut reader = readers.swap_remove(0);
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        let length = reader.read_buf(&mut text).await.unwrap();
        assert!(length > 0, "cut off after {} bytes", text.len());
    }
    assert!(text.len() > LIST_MEGABYTES << 20, "{} bytes", text.len());
}

#[tokio::test]
async fn a_long_list_is_the_same_in_every_format_as_a_short_one() {
    let api = api().await;
    fill(&api, 20, 40 << 10).await;
    let get = async |accept: &str, query: &str| {
        let request = http::Request::get(format!("{MAPS}{query}")).header("accept", accept);
        let reply = send_as(&api, admin(), request.body(bytes::Bytes::new()).unwrap()).await;
        assert_eq!(reply.code, 200);
        reply.bytes
    };
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    // All pages with few enough objects to be encoded at once.
    let mut pages = [Vec::new(), Vec::new()];
    for (accept, field, found) in [("application/json", "items", 0), (table, "rows", 1)] {
        let mut token = String::new();
        loop {
            let page = json(&get(accept, &format!("?limit=3&continue={token}")).await);
            pages[found].extend(page[field].as_array().unwrap().iter().cloned());
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                break;
            }
        }
    }
    let [items, rows] = pages;
    assert_eq!(items.len(), 21, "with the certificate of the cluster");
    let list = json(&get("application/json", "").await);
    assert_eq!(list["items"], json!(items));
    assert_eq!(json(&get("application/json", "?pretty=true").await), list);
    let yaml = get("application/yaml", "").await;
    assert_eq!(serde_saphyr::from_str::<Value>(std::str::from_utf8(&yaml).unwrap()).unwrap(), list);
    let protobuf = get("application/vnd.kubernetes.protobuf", "").await;
    let read = quintet_objects::protobuf::decode(&protobuf, None).unwrap();
    assert_eq!((&read["items"], &read["kind"]), (&list["items"], &json!("ConfigMapList")));
    let shown = json(&get(table, "").await);
    assert_eq!(shown["kind"], "Table");
    // The first one has an age, which may have changed.
    assert_eq!(shown["rows"].as_array().unwrap()[1..], rows[1..]);
    assert_eq!(shown["columnDefinitions"][0]["name"], "Name");
}

#[tokio::test]
async fn a_list_of_a_kind_that_does_not_change_cannot_be_continued_for_ever() {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let api = api().await;
    fill(&api, 3, 8).await;
    let get = async |query: String| support::send(&api, "GET", &format!("{MAPS}?limit=2{query}"), None).await;
    let token = |reply: &support::Reply| reply.body["metadata"]["continue"].as_str().unwrap().to_owned();
    let first = get(String::new()).await;
    let fresh = token(&first);
    let rest = get(format!("&continue={fresh}")).await.expect(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
    let mut aged: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&fresh).unwrap()).unwrap();
    let begun = aged["begun"].as_i64().expect("when the list began");
    aged["begun"] = json!(begun - 301);
    let expired = get(format!("&continue={}", URL_SAFE_NO_PAD.encode(aged.to_string()))).await;
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let inconsistent = get(format!("&continue={}", token(&expired))).await.expect(200);
    assert_eq!(inconsistent["items"], rest["items"], "the client may go on from the same key");
}

const PADDING: usize = 32 << 10;

/// Answers conversion reviews, and counts the objects of each.
async fn converter(reviews: &Arc<Mutex<Vec<usize>>>, fails_from: usize) -> Backend {
    let reviews = Arc::clone(reviews);
    Backend::start(&["localhost"], move |request| {
        let mut review: Value = serde_json::from_slice(request.body()).unwrap();
        let version = review["request"]["desiredAPIVersion"].take();
        let mut objects = review["request"]["objects"].as_array().unwrap().clone();
        for object in &mut objects {
            object["apiVersion"] = version.clone();
            object["second"] = object["first"].take();
        }
        let mut reviews = reviews.lock().unwrap();
        reviews.push(objects.len());
        let status = if reviews.len() > fails_from { "Failure" } else { "Success" };
        let response = json!({"uid": review["request"]["uid"], "convertedObjects": objects,
            "result": {"status": status, "message": "no more"}});
        review["response"] = response;
        Response::new(Full::new(review.to_string().into()))
    })
    .await
}

/// An API with objects that a webhook converts from their stored version v1 to v2.
async fn converted_api(count: usize, webhook: &Backend) -> Api {
    let api = api().await;
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let url = format!("https://localhost:{}/convert", webhook.address.port());
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"}, "spec": {"group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version("v1"), version("v2")],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": webhook.ca}}}}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    support::send(&api, "POST", definitions, definition).await.expect(201);
    let widgets = "/apis/ex.io/v1/namespaces/default/widgets";
    support::eventually(async || support::send(&api, "GET", widgets, None).await.code == 200).await;
    for number in 0..count {
        let widget = json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": format!("w{number:03}")},
            "first": number, "padding": "x".repeat(PADDING)});
        support::send(&api, "POST", widgets, widget).await.expect(201);
    }
    api
}

async fn open_list(api: &Api, query: &str) -> http::Response<ResponseBody> {
    let request = http::Request::get(format!("/apis/ex.io/v2/namespaces/default/widgets{query}"));
    api.handle(request.body(bytes::Bytes::new()).unwrap(), admin()).await
}

#[tokio::test]
async fn a_long_list_is_converted_part_by_part_as_it_is_read() {
    let reviews = Arc::default();
    let webhook = converter(&reviews, usize::MAX).await;
    let count = 32;
    let api = converted_api(count, &webhook).await;
    let response = open_list(&api, "").await;
    assert_eq!(response.status(), 200);
    let at_once = reviews.lock().unwrap().clone();
    assert_eq!(at_once.len(), 1, "the rest is converted when the client reads it: {at_once:?}");
    let list = response.into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&list).unwrap();
    let items = list["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["apiVersion"] == "ex.io/v2"));
    assert!(items.iter().enumerate().all(|(number, item)| item["second"] == number), "{items:?}");
    assert_eq!(items.len(), count);
    let all = std::mem::take(&mut *reviews.lock().unwrap());
    assert_eq!(all.iter().sum::<usize>(), count);
    assert!((3..10).contains(&all.len()), "objects are converted together: {all:?}");
    // So are those of a short list.
    assert_eq!(open_list(&api, "?limit=4").await.status(), 200);
    assert_eq!(*reviews.lock().unwrap(), [4]);
}

#[tokio::test]
async fn a_list_that_cannot_be_converted_to_its_end_does_not_look_complete() {
    let reviews = Arc::default();
    let webhook = converter(&reviews, 1).await;
    let api = converted_api(32, &webhook).await;
    let response = open_list(&api, "").await;
    assert_eq!(response.status(), 200, "the first objects were converted");
    let error = response.into_body().collect().await.unwrap_err();
    assert!(error.to_string().ends_with("failed: no more"), "{error}");
    let response = open_list(&api, "").await;
    assert_eq!(response.status(), 500, "none was");
}
