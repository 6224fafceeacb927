//! Creating, reading, changing and deleting objects, as the contract has it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    clippy::similar_names,
    reason = "a test that cannot go on has failed"
)]

mod support;

use serde_json::{Value, json};
use support::{Events, api, eventually, send, send_typed};

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn an_object_lives_and_dies() {
    let api = api().await;
    let made = send(&api, "POST", MAPS, config_map("x")).await.expect(201);
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["metadata"]["namespace"], "default");
    assert!(made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string());
    let again = send(&api, "POST", MAPS, config_map("x")).await;
    assert_eq!((again.code, again.message()), (409, "configmaps \"x\" already exists"));
    assert_eq!(again.body["reason"], "AlreadyExists");
    let path = format!("{MAPS}/x");
    let read = send(&api, "GET", &path, None).await.expect(200);
    assert_eq!(read, made);

    let mut changed = read.clone();
    changed["data"]["a"] = "2".into();
    let updated = send(&api, "PUT", &path, changed.clone()).await.expect(200);
    assert_ne!(updated["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let stale = send(&api, "PUT", &path, changed).await;
    assert_eq!((stale.code, stale.body["reason"].as_str()), (409, Some("Conflict")));
    let same = send(&api, "PUT", &path, updated.clone()).await.expect(200);
    assert_eq!(
        same["metadata"]["resourceVersion"], updated["metadata"]["resourceVersion"],
        "a no-op writes nothing"
    );

    let gone = send(&api, "DELETE", &path, None).await.expect(200);
    assert_eq!(gone["status"], "Success");
    assert_eq!(gone["details"]["kind"], "configmaps");
    let missing = send(&api, "GET", &path, None).await;
    assert_eq!((missing.code, missing.message()), (404, "configmaps \"x\" not found"));
}

#[tokio::test]
async fn bad_requests_get_a_status() {
    let api = api().await;
    for (method, path, code, message) in [
        (
            "GET",
            "/apis/apps/v1/namespaces/default/nonsense",
            404,
            "the server could not find the requested resource",
        ),
        (
            "POST",
            "/api/v1/configmaps",
            405,
            "the server does not allow this method on the requested resource",
        ),
        ("GET", "/api/v1/namespaces/default/configmaps?labelSelector==", 400, ""),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps?fieldSelector=foo",
            400,
            "invalid selector: 'foo'; can't understand 'foo'",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps?fieldSelector=spec.foo=1",
            400,
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        let reply = send(&api, method, path, None).await;
        assert_eq!(reply.code, code, "{path}: {:?}", reply.body);
        assert_eq!(reply.body["kind"], "Status");
        assert!(message.is_empty() || reply.message() == message, "{path}: {}", reply.message());
    }
    let unknown_group = send(&api, "GET", "/apis/no.such.group/v1/things", None).await;
    assert_eq!((unknown_group.code, &unknown_group.bytes[..]), (404, &b"404 page not found\n"[..]));
    let mismatch = json!({"metadata": {"name": "a", "namespace": "other"}});
    let reply = send(&api, "POST", MAPS, mismatch).await;
    assert_eq!(
        reply.message(),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let reply = send(&api, "POST", "/api/v1/namespaces/nons/configmaps", config_map("x")).await;
    assert_eq!((reply.code, reply.message()), (404, "namespaces \"nons\" not found"));
    let reply = send(&api, "POST", &format!("{MAPS}?dryRun=Bogus"), config_map("x")).await;
    assert_eq!(
        reply.message(),
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Bogus\"]: supported values: \"All\""
    );
    let mut versioned = config_map("x");
    versioned["metadata"]["resourceVersion"] = "5".into();
    let reply = send(&api, "POST", MAPS, versioned).await;
    assert_eq!(
        (reply.code, reply.message()),
        (500, "resourceVersion should not be set on objects to be created")
    );
}

#[tokio::test]
async fn unknown_fields_warn_or_fail() {
    let api = api().await;
    let mut object = config_map("x");
    object["bogus"] = 1.into();
    let reply = send(&api, "POST", MAPS, object.clone()).await;
    assert_eq!(reply.warnings(), ["299 - \"unknown field \\\"bogus\\\"\""]);
    assert!(reply.expect(201).get("bogus").is_none());
    let reply = send(&api, "POST", &format!("{MAPS}?fieldValidation=Strict"), object).await;
    assert_eq!(
        (reply.code, reply.message()),
        (
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"bogus\""
        )
    );
    let patch = json!({"bogus": 1});
    let path = format!("{MAPS}/x?fieldValidation=Strict");
    let reply = send_typed(&api, "PATCH", &path, "application/merge-patch+json", patch).await;
    assert_eq!(reply.code, 422);
    assert!(reply.message().starts_with(" \"\" is invalid: patch: Invalid value: "), "{}", reply.message());
}

#[tokio::test]
async fn a_dry_run_leaves_nothing_behind() {
    let api = api().await;
    let made = send(&api, "POST", &format!("{MAPS}?dryRun=All"), config_map("x")).await.expect(201);
    assert!(made["metadata"]["uid"].is_string() && made["metadata"].get("resourceVersion").is_none());
    send(&api, "GET", &format!("{MAPS}/x"), None).await.expect(404);
}

#[tokio::test]
async fn names_are_generated() {
    let api = api().await;
    let object = json!({"metadata": {"generateName": "made-"}});
    let made = send(&api, "POST", MAPS, object).await.expect(201);
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("made-") && name.len() == 10, "{name}");
    assert_eq!(made["metadata"]["generateName"], "made-");
}

#[tokio::test]
async fn lists_come_in_pages_of_one_moment() {
    let api = api().await;
    for name in ["a", "b", "c", "d"] {
        send(&api, "POST", MAPS, config_map(name)).await.expect(201);
    }
    let first = send(&api, "GET", &format!("{MAPS}?limit=2"), None).await.expect(200);
    assert_eq!(first["kind"], "ConfigMapList");
    assert!(first["items"][0].get("kind").is_none(), "items of built-in lists have no kind");
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    send(&api, "DELETE", &format!("{MAPS}/c"), None).await.expect(200);
    send(&api, "POST", MAPS, config_map("cc")).await.expect(201);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = send(&api, "GET", &format!("{MAPS}?limit=5&continue={token}"), None).await.expect(200);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let names: Vec<_> =
        second["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["c", "d", "kube-root-ca.crt"]);
    let reply =
        send(&api, "GET", &format!("{MAPS}?resourceVersion=1&resourceVersionMatch=Exact"), None).await;
    assert_eq!(reply.code, 200, "history begins at 1");
    let reply = send(&api, "GET", &format!("{MAPS}?resourceVersionMatch=Exact"), None).await;
    assert!(
        reply.message().ends_with("resourceVersionMatch is forbidden unless resourceVersion is provided")
    );
}

#[tokio::test]
async fn watches_follow_selectors() {
    let api = api().await;
    let rv = send(&api, "GET", MAPS, None).await.expect(200)["metadata"]["resourceVersion"].clone();
    let rv = rv.as_str().unwrap();
    let mut all = Events::open(&api, &format!("{MAPS}?watch=1&resourceVersion={rv}")).await;
    let mut red =
        Events::open(&api, &format!("{MAPS}?watch=1&resourceVersion={rv}&labelSelector=c%3Dred")).await;
    let mut object = config_map("x");
    send(&api, "POST", MAPS, object.clone()).await.expect(201);
    object["metadata"]["labels"] = json!({"c": "red"});
    send(&api, "PUT", &format!("{MAPS}/x"), object.clone()).await.expect(200);
    object["metadata"]["labels"] = json!({"c": "blue"});
    send(&api, "PUT", &format!("{MAPS}/x"), object).await.expect(200);
    send(&api, "DELETE", &format!("{MAPS}/x"), None).await.expect(200);
    for kind in ["ADDED", "MODIFIED", "MODIFIED", "DELETED"] {
        assert_eq!(all.brief().await.0, kind);
    }
    assert_eq!(red.brief().await.0, "ADDED");
    let left = red.next().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    assert_eq!(
        left["object"]["metadata"]["labels"]["c"], "red",
        "leaving shows the last state that was selected"
    );
}

#[tokio::test]
async fn a_watch_begins_with_what_is_there() {
    let api = api().await;
    send(&api, "POST", MAPS, config_map("x")).await.expect(201);
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut events = Events::open(&api, &path).await;
    assert_eq!(events.brief().await, ("ADDED".into(), "kube-root-ca.crt".into()));
    assert_eq!(events.brief().await, ("ADDED".into(), "x".into()));
    let mark = events.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    send(&api, "POST", MAPS, config_map("y")).await.expect(201);
    assert_eq!(events.brief().await, ("ADDED".into(), "y".into()));
    api.drop_watches();
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn finalizers_hold_objects_back() {
    let api = api().await;
    let mut object = config_map("x");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    send(&api, "POST", MAPS, object).await.expect(201);
    let path = format!("{MAPS}/x");
    let held = send(&api, "DELETE", &path, None).await.expect(200);
    assert_eq!(held["kind"], "ConfigMap");
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = send(&api, "POST", MAPS, config_map("x")).await;
    assert_eq!(again.message(), "object is being deleted: configmaps \"x\" already exists");
    let patch = json!({"metadata": {"finalizers": null}});
    let last = send_typed(&api, "PATCH", &path, "application/merge-patch+json", patch).await.expect(200);
    assert_eq!(last["metadata"]["resourceVersion"], held["metadata"]["resourceVersion"]);
    send(&api, "GET", &path, None).await.expect(404);
}

#[tokio::test]
async fn deletion_can_be_conditional() {
    let api = api().await;
    let made = send(&api, "POST", MAPS, config_map("x")).await.expect(201);
    let options = json!({"preconditions": {"uid": "other"}});
    let reply = send(&api, "DELETE", &format!("{MAPS}/x"), options).await;
    assert_eq!(reply.code, 409);
    assert!(reply.message().starts_with(
        "Operation cannot be fulfilled on ConfigMap \"x\": the UID in the precondition (other)"
    ));
    let options = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
    send(&api, "DELETE", &format!("{MAPS}/x"), options).await.expect(200);
}

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
    object
}

#[tokio::test]
async fn dependents_go_with_their_owner_or_stay() {
    let api = api().await;
    for (policy, stays) in [("Background", false), ("Foreground", false), ("Orphan", true)] {
        let owner = send(&api, "POST", MAPS, config_map("owner")).await.expect(201);
        send(&api, "POST", MAPS, owned("child", &owner, true)).await.expect(201);
        let options = json!({"propagationPolicy": policy});
        send(&api, "DELETE", &format!("{MAPS}/owner"), options).await.expect(200);
        eventually(async || send(&api, "GET", &format!("{MAPS}/owner"), None).await.code == 404).await;
        if stays {
            let child = send(&api, "GET", &format!("{MAPS}/child"), None).await.expect(200);
            assert!(child["metadata"].get("ownerReferences").is_none(), "{policy}");
        } else {
            eventually(async || send(&api, "GET", &format!("{MAPS}/child"), None).await.code == 404).await;
        }
    }
}

#[tokio::test]
async fn a_namespace_goes_with_all_that_is_in_it() {
    let api = api().await;
    let namespace = json!({"metadata": {"name": "team"}});
    let made = send(&api, "POST", "/api/v1/namespaces", namespace).await.expect(201);
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "team");
    send(&api, "GET", "/api/v1/namespaces/team/serviceaccounts/default", None).await.expect(200);
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    send(&api, "POST", "/api/v1/namespaces/team/configmaps", held).await.expect(201);
    let gone = send(&api, "DELETE", "/api/v1/namespaces/team", None).await.expect(200);
    assert_eq!(gone["status"]["phase"], "Terminating");
    let refused = send(&api, "POST", "/api/v1/namespaces/team/configmaps", config_map("late")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message(),
        "configmaps \"late\" is forbidden: unable to create new content in namespace team because it is being terminated"
    );
    eventually(async || {
        let namespace = send(&api, "GET", "/api/v1/namespaces/team", None).await.body;
        namespace["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["type"] == "NamespaceFinalizersRemaining"))
    })
    .await;
    let patch = json!({"metadata": {"finalizers": null}});
    let path = "/api/v1/namespaces/team/configmaps/held";
    send_typed(&api, "PATCH", path, "application/merge-patch+json", patch).await.expect(200);
    eventually(async || send(&api, "GET", "/api/v1/namespaces/team", None).await.code == 404).await;
    let kept = send(&api, "DELETE", "/api/v1/namespaces/default", None).await;
    assert_eq!(kept.message(), "namespaces \"default\" is forbidden: this namespace may not be deleted");
}

#[tokio::test]
async fn a_watch_finds_its_event_behind_many_that_are_not() {
    let api = api().await;
    let rv = api.store().version();
    for n in 0..1000 {
        let map = json!({"metadata": {"name": format!("m{n}")}});
        send(&api, "POST", "/api/v1/namespaces/kube-public/configmaps", map).await.expect(201);
    }
    send(&api, "POST", "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "wanted"}}))
        .await
        .expect(201);
    let path = format!("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={rv}");
    assert_eq!(support::Events::open(&api, &path).await.brief().await, ("ADDED".into(), "wanted".into()));
}

#[tokio::test]
async fn an_owner_in_the_foreground_does_not_wait_for_what_another_keeps() {
    let api = api().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut owners = Vec::new();
    for name in ["goes", "stays"] {
        let owner = send(&api, "POST", maps, json!({"metadata": {"name": name}})).await.expect(201);
        owners.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}));
    }
    send(&api, "POST", maps, json!({"metadata": {"name": "shared", "ownerReferences": owners}}))
        .await
        .expect(201);
    send(&api, "DELETE", &format!("{maps}/goes"), json!({"propagationPolicy": "Foreground"}))
        .await
        .expect(200);
    support::eventually(async || send(&api, "GET", &format!("{maps}/goes"), None).await.code == 404).await;
    let shared = send(&api, "GET", &format!("{maps}/shared"), None).await.expect(200);
    assert_eq!(shared["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_applied_object_is_written_as_a_created_one() {
    let api = api().await;
    let apply = |body: serde_json::Value| {
        let path = "/api/v1/namespaces/default/pods/p?fieldManager=a&force=true";
        support::send_typed(&api, "PATCH", path, "application/apply-patch+yaml", body)
    };
    let pod = |cpu: serde_json::Value, labels: serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}, "spec": {"containers":
            [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
    };
    let applied = apply(pod(json!(1), json!({"a": "b"}))).await.expect(201);
    assert_eq!(applied["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    let refused = apply(pod(json!("1"), json!({"a": 1}))).await;
    assert_eq!(refused.code, 500, "{}", refused.message());
}

#[tokio::test]
async fn a_watch_ends_in_time_however_busy_it_is() {
    let api = api().await;
    send(&api, "POST", MAPS, config_map("busy")).await.expect(201);
    let mut events = Events::open(&api, &format!("{MAPS}?watch=true&timeoutSeconds=1")).await;
    let began = std::time::Instant::now();
    let write = async {
        for n in 0.. {
            let change = json!({"data": {"n": n.to_string()}});
            send_typed(&api, "PATCH", &format!("{MAPS}/busy"), "application/merge-patch+json", change).await;
            tokio::task::yield_now().await;
        }
    };
    let read = async { while events.next().await.is_some() {} };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}
