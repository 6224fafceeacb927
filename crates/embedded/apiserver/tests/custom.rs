//! CustomResourceDefinitions: served at once, checked by their schemas, converted, removed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

mod support;

use serde_json::{Value, json};
use support::{api, eventually, send, send_typed};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/ex.io/v1/namespaces/default/widgets";

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "integer", "default": 3, "minimum": 0},
            "replicas": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.size < 10", "message": "too big"}]},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.io"},
        "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                 "selectableFields": [{"jsonPath": ".spec.color"}],
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}},
                {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}]}})
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_definition_is_served_at_once() {
    let api = api().await;
    send(&api, "POST", DEFINITIONS, definition()).await.expect(201);
    let made = send(&api, "GET", &format!("{DEFINITIONS}/widgets.ex.io"), None).await.expect(200);
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    let conditions = made["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True"), "{made}");
    let resources = send(&api, "GET", "/apis/ex.io/v1", None).await.expect(200);
    let names: Vec<_> =
        resources["resources"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["widgets", "widgets/scale", "widgets/status"]);

    let made = send(&api, "POST", WIDGETS, widget("a", json!({"color": "red", "bogus": 1}))).await;
    assert_eq!(made.warnings(), ["299 - \"unknown field \\\"spec.bogus\\\"\""]);
    let made = made.expect(201);
    assert_eq!(made["spec"], json!({"color": "red", "size": 3}));
    assert_eq!(made["metadata"]["generation"], 1);
    let list = send(&api, "GET", WIDGETS, None).await.expect(200);
    assert_eq!(list["items"][0]["kind"], "Widget", "items of custom lists have a kind");
    let other = send(&api, "GET", "/apis/ex.io/v1beta1/namespaces/default/widgets/a", None).await.expect(200);
    assert_eq!(other["apiVersion"], "ex.io/v1beta1");
    for (selector, count) in [("spec.color%3Dred", 1), ("spec.color%3Dblue", 0)] {
        let list = send(&api, "GET", &format!("{WIDGETS}?fieldSelector={selector}"), None).await.expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), count);
    }
}

#[tokio::test]
async fn schemas_and_rules_refuse() {
    let api = api().await;
    send(&api, "POST", DEFINITIONS, definition()).await.expect(201);
    for (spec, message) in [
        (
            json!({}),
            "Widget.ex.io \"a\" is invalid: [spec.color: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
        ),
        (
            json!({"color": "green"}),
            "Widget.ex.io \"a\" is invalid: [spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
        ),
        (json!({"color": "red", "size": 12}), "Widget.ex.io \"a\" is invalid: spec: Invalid value: too big"),
    ] {
        let reply = send(&api, "POST", WIDGETS, widget("a", spec)).await;
        assert_eq!((reply.code, reply.message()), (422, message));
    }
    let untyped = send(&api, "POST", WIDGETS, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(untyped.code, 400);
    let mut unversioned = send(&api, "POST", WIDGETS, widget("a", json!({"color": "red"}))).await.expect(201);
    unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let reply = send(&api, "PUT", &format!("{WIDGETS}/a"), unversioned).await;
    assert_eq!(
        reply.message(),
        "Widget.ex.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test]
async fn status_and_scale_have_their_own_addresses() {
    let api = api().await;
    send(&api, "POST", DEFINITIONS, definition()).await.expect(201);
    let mut object = widget("a", json!({"color": "red", "replicas": 2}));
    object["status"] = json!({"phase": "early"});
    let made = send(&api, "POST", WIDGETS, object).await.expect(201);
    assert!(made.get("status").is_none(), "a new object has no status");
    let patch = json!({"spec": {"color": "blue"}, "status": {"phase": "Ready"}});
    let merge = "application/merge-patch+json";
    let patched = send_typed(&api, "PATCH", &format!("{WIDGETS}/a/status"), merge, patch).await.expect(200);
    assert_eq!((&patched["spec"]["color"], &patched["status"]["phase"]), (&json!("red"), &json!("Ready")));
    assert_eq!(patched["metadata"]["generation"], 1);
    let patch = json!({"spec": {"color": "blue"}, "status": {"phase": "Lost"}});
    let patched = send_typed(&api, "PATCH", &format!("{WIDGETS}/a"), merge, patch).await.expect(200);
    assert_eq!((&patched["spec"]["color"], &patched["status"]["phase"]), (&json!("blue"), &json!("Ready")));
    assert_eq!(patched["metadata"]["generation"], 2);
    let scale = send(&api, "GET", &format!("{WIDGETS}/a/scale"), None).await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    let patch = json!({"spec": {"replicas": 5}});
    let scale = send_typed(&api, "PATCH", &format!("{WIDGETS}/a/scale"), merge, patch).await.expect(200);
    assert_eq!(scale["spec"]["replicas"], 5);
    let read = send(&api, "GET", &format!("{WIDGETS}/a"), None).await.expect(200);
    assert_eq!(read["spec"]["replicas"], 5);
}

#[tokio::test]
async fn a_definition_goes_with_its_objects() {
    let api = api().await;
    send(&api, "POST", DEFINITIONS, definition()).await.expect(201);
    let mut object = widget("a", json!({"color": "red"}));
    object["metadata"]["finalizers"] = json!(["ex.io/hold"]);
    send(&api, "POST", WIDGETS, object).await.expect(201);
    send(&api, "DELETE", &format!("{DEFINITIONS}/widgets.ex.io"), None).await.expect(200);
    let refused = send(&api, "POST", WIDGETS, widget("b", json!({"color": "red"}))).await;
    assert_eq!(
        refused.message(),
        "widgets.ex.io \"b\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    eventually(async || {
        let read = send(&api, "GET", &format!("{WIDGETS}/a"), None).await.body;
        read["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let patch = json!({"metadata": {"finalizers": null}});
    send_typed(&api, "PATCH", &format!("{WIDGETS}/a"), "application/merge-patch+json", patch)
        .await
        .expect(200);
    eventually(async || send(&api, "GET", &format!("{DEFINITIONS}/widgets.ex.io"), None).await.code == 404)
        .await;
    let gone = send(&api, "GET", WIDGETS, None).await;
    assert_eq!((gone.code, &gone.bytes[..]), (404, &b"404 page not found\n"[..]));
}

#[tokio::test]
async fn a_watch_shows_what_a_new_schema_adds_and_ends_with_its_definition() {
    let api = api().await;
    send(&api, "POST", DEFINITIONS, definition()).await.expect(201);
    let mut events = support::Events::open(&api, &format!("{WIDGETS}?watch=true")).await;
    let path = format!("{DEFINITIONS}/widgets.ex.io");
    let mut changed = send(&api, "GET", &path, None).await.expect(200);
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["added"] =
        json!({"type": "string"});
    send(&api, "PUT", &path, changed).await.expect(200);
    send(&api, "POST", WIDGETS, widget("w", json!({"color": "red", "added": "yes"}))).await.expect(201);
    assert_eq!(events.next().await.expect("an event")["object"]["spec"]["added"], "yes");
    send(&api, "DELETE", &path, None).await.expect(200);
    assert_eq!(events.brief().await, ("DELETED".to_owned(), "w".to_owned()));
    assert!(events.next().await.is_none(), "nothing can come any more");
}

#[tokio::test]
async fn whole_floats_are_stored_as_integers() {
    let api = api().await;
    let mut definition = definition();
    let sizes = json!({"type": "array", "items": {"type": "number"}});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["sizes"] =
        sizes;
    send(&api, "POST", DEFINITIONS, definition).await.expect(201);
    let floats = widget("a", json!({"color": "red", "sizes": [0.0, -2.0, 1.5, 1e20, 1e-7]}));
    send(&api, "POST", WIDGETS, floats).await.expect(201);
    let found = send(&api, "GET", &format!("{WIDGETS}/a"), None).await;
    let text = String::from_utf8(found.bytes.to_vec()).unwrap();
    assert!(text.contains(r#""sizes":[0,-2,1.5,100000000000000000000,1e-7]"#), "{text}");
}
