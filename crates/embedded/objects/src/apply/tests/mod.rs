use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::path::Path;
use crate::schema::Structural;
use crate::types;

const NOW: &str = "2026-01-02T03:04:05Z";

fn deployment() -> Node<'static> {
    Node::builtin(types::kind("apps/v1", "Deployment").unwrap())
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "apps/v1", subresource: "", now: NOW, ignored: &["status"] }
}

fn config(spec: Value) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": spec })
}

fn fields(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries
        .iter()
        .find(|entry| entry["manager"] == manager)
        .map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

fn do_apply(live: Option<&Value>, spec: Value, manager: &str) -> Result<Value, ApplyError> {
    apply(live, &config(spec), deployment(), &writer(manager), false)
}

#[test]
fn apply_owns_the_leaves() {
    let object = do_apply(
        None,
        json!({ "replicas": 1, "selector": { "matchLabels": { "a": "b" } }, "template": {
            "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i", "ports": [{ "containerPort": 80 }], "env": [] }] } } }),
        "m",
    )
    .unwrap();
    assert_eq!(
        fields(&object, "m"),
        json!({ "f:spec": { "f:replicas": {}, "f:selector": {}, "f:template": {
            "f:metadata": { "f:labels": { "f:a": {} } },
            "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:image": {}, "f:name": {},
                "f:ports": { "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} } } } } }
        } } })
    );
    assert_eq!(object["metadata"]["managedFields"][0]["time"], NOW);
    assert_eq!(object["metadata"]["managedFields"][0]["operation"], "Apply");
}

#[test]
fn creates_and_updates_own_what_they_change() {
    let mut object = config(json!({ "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
        "strategy": { "type": "RollingUpdate" },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } }));
    object["metadata"]["labels"] = json!({ "l": "1" });
    update(None, &mut object, deployment(), &writer("creator"));
    assert_eq!(
        fields(&object, "creator"),
        json!({ "f:metadata": { "f:labels": { ".": {}, "f:l": {} } }, "f:spec": { "f:replicas": {}, "f:selector": {},
            "f:strategy": { "f:type": {} },
            "f:template": { "f:metadata": { "f:labels": { ".": {}, "f:a": {} } },
                "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:image": {}, "f:name": {}, "f:resources": {} } } } } } })
    );
    let mut scaled = object.clone();
    scaled["spec"]["replicas"] = json!(3);
    let by_scale = Writer { subresource: "scale", ..writer("hpa") };
    update(Some(&object), &mut scaled, deployment(), &by_scale);
    assert_eq!(fields(&scaled, "hpa"), json!({ "f:spec": { "f:replicas": {} } }));
    assert!(fields(&scaled, "creator")["f:spec"].get("f:replicas").is_none());
    let error = do_apply(Some(&scaled), json!({ "replicas": 5 }), "m").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    let mut same = scaled.clone();
    update(Some(&scaled), &mut same, deployment(), &writer("nobody"));
    assert_eq!(same, scaled);
}

#[test]
fn conflicts_are_named_and_forced() {
    let one = do_apply(None, json!({ "replicas": 1, "paused": true }), "m1").unwrap();
    let shared = do_apply(Some(&one), json!({ "replicas": 1 }), "m2").unwrap();
    assert_eq!(fields(&shared, "m1")["f:spec"]["f:replicas"], json!({}));
    assert!(
        shared["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["manager"] == "m2" && entry.get("time").is_none()),
        "an apply that changes nothing has no time"
    );
    let error = do_apply(Some(&one), json!({ "replicas": 2 }), "m2").unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas");
    let ApplyError::Conflict(conflicts) = error else { panic!() };
    assert_eq!(conflicts.status()["details"]["causes"][0]["field"], ".spec.replicas");
    let error = do_apply(Some(&one), json!({ "replicas": 2, "paused": false }), "m2").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .spec.paused\n- .spec.replicas"
    );
    let forced =
        apply(Some(&one), &config(json!({ "replicas": 2 })), deployment(), &writer("m2"), true).unwrap();
    assert_eq!(forced["spec"], json!({ "replicas": 2, "paused": true }));
    assert_eq!(fields(&forced, "m1"), json!({ "f:spec": { "f:paused": {} } }));
    assert_eq!(fields(&forced, "m2"), json!({ "f:spec": { "f:replicas": {} } }));
}

#[test]
fn what_is_given_up_goes_unless_somebody_else_has_it() {
    let spec = json!({ "replicas": 1, "template": { "spec": { "containers": [
        { "name": "a", "image": "1" }, { "name": "b", "image": "2", "env": [{ "name": "X", "value": "1" }, { "name": "Y", "value": "2" }] }] } } });
    let one = do_apply(None, spec, "m").unwrap();
    let mut two = one.clone();
    two["spec"]["template"]["spec"]["containers"][0]["tty"] = json!(true);
    two["metadata"]["labels"] = json!({ "x": "y" });
    update(Some(&one), &mut two, deployment(), &writer("u"));
    let three = do_apply(
        Some(&two),
        json!({ "template": { "spec": { "containers": [{ "name": "b", "image": "2", "env": [{ "name": "Y", "value": "2" }] }] } } }),
        "m",
    )
    .unwrap();
    assert!(three["spec"].get("replicas").is_none());
    assert_eq!(
        three["spec"]["template"]["spec"]["containers"],
        json!([{ "name": "b", "image": "2", "env": [{ "name": "Y", "value": "2" }] }]),
    );
    assert_eq!(three["metadata"]["labels"], json!({ "x": "y" }));
}

#[test]
fn names_outlive_the_labels_beside_them() {
    let mut labelled = config(json!({ "replicas": 1 }));
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    let one = apply(None, &labelled, deployment(), &writer("m"), false).unwrap();
    let two = do_apply(Some(&one), json!({ "replicas": 1 }), "m").unwrap();
    assert_eq!(two["metadata"]["name"], "web");
    assert!(two["metadata"].get("labels").is_none());
}

#[test]
fn items_follow_the_order_of_the_configuration() {
    let names = |object: &Value| -> Vec<String> {
        let all = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let spec = |names: &[&str]| {
        let all: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        json!({ "template": { "spec": { "containers": all } } })
    };
    let one = do_apply(None, spec(&["x", "a", "b"]), "m1").unwrap();
    let two = do_apply(Some(&one), spec(&["b", "n", "a"]), "m2").unwrap();
    assert_eq!(names(&two), ["x", "b", "n", "a"]);
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let spec =
        json!({ "replicas": 1, "template": { "spec": { "containers": [{ "name": "a", "image": "1" }] } } });
    let one = do_apply(None, spec.clone(), "m").unwrap();
    let later = Writer { now: "2027-01-01T00:00:00Z", ..writer("m") };
    let two = apply(Some(&one), &config(spec), deployment(), &later, false).unwrap();
    assert_eq!(one, two);
}

#[test]
fn schema_errors_say_where() {
    let mut bogus = config(json!({ "bogus": 1 }));
    bogus["metadata"]["name"] = json!("ssa");
    let error = apply(None, &bogus, deployment(), &writer("m"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (/ssa; apps/v1, Kind=Deployment): .spec.bogus: field not declared in schema"
    );
    let twice = json!({ "template": { "spec": { "containers": [{ "name": "c" }, { "name": "c" }] } } });
    assert!(
        do_apply(None, twice, "m")
            .unwrap_err()
            .to_string()
            .ends_with(".spec.template.spec.containers: duplicate entries for key [name=\"c\"]")
    );
    let mut managed = config(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    assert_eq!(
        apply(None, &managed, deployment(), &writer("m"), false).unwrap_err().to_string(),
        "metadata.managedFields must be nil"
    );
}

#[test]
fn custom_resources_follow_their_schema() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "list": { "type": "array", "items": { "type": "string" } },
        "whole": { "type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": { "type": "string" } },
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }
    } } } });
    let schema = Structural::parse(&schema, &Path::ROOT).unwrap();
    let node = Node::custom(&schema);
    let object =
        |spec: Value| json!({ "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "n" }, "spec": spec });
    let by = |manager| Writer { manager, api_version: "x/v1", subresource: "", now: NOW, ignored: &[] };
    let mut created = object(json!({ "list": ["a"] }));
    update(None, &mut created, node, &by("c"));
    assert_eq!(fields(&created, "c"), json!({ "f:spec": { ".": {}, "f:list": {} } }));

    let one = apply(
        None,
        &object(json!({ "set": ["a"], "list": ["x"], "whole": { "k": "v" }, "free": { "q": [1] } })),
        node,
        &by("m1"),
        false,
    )
    .unwrap();
    assert_eq!(
        fields(&one, "m1"),
        json!({ "f:spec": { "f:free": { "f:q": {} }, "f:list": {}, "f:set": { "v:\"a\"": {} }, "f:whole": {} } })
    );
    let two = apply(Some(&one), &object(json!({ "set": ["b"] })), node, &by("m2"), false).unwrap();
    assert_eq!(two["spec"]["set"], json!(["a", "b"]));
    let three = apply(Some(&two), &object(json!({ "set": ["a"] })), node, &by("m2"), false).unwrap();
    assert_eq!(three["spec"]["set"], json!(["a"]));
    let error = apply(Some(&two), &object(json!({ "list": ["y"] })), node, &by("m2"), false).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"m1\": .spec.list");
}

#[test]
fn a_whole_number_is_the_same_with_and_without_a_fraction() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "least": { "type": "number" },
        "bounds": { "type": "array", "items": { "type": "object", "properties": { "at": { "type": "number" } } } },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "number" } }
    } } } });
    let schema = Structural::parse(&schema, &Path::ROOT).unwrap();
    let node = Node::custom(&schema);
    let object =
        |spec: Value| json!({ "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "n" }, "spec": spec });
    let by = |manager| Writer { manager, api_version: "x/v1", subresource: "", now: NOW, ignored: &[] };
    let whole = object(json!({ "least": 0, "bounds": [{ "at": -3 }], "set": [2] }));
    let one = apply(None, &whole, node, &by("m1"), false).unwrap();
    let float = object(json!({ "least": 0.0, "bounds": [{ "at": -3.0 }], "set": [2.0] }));
    let two = apply(Some(&one), &float, node, &by("m2"), false).expect("no conflict");
    assert_eq!(two["spec"]["set"].as_array().map(Vec::len), Some(1), "{two}");
    assert_eq!(fields(&two, "m1"), fields(&two, "m2"), "both own all of it");
    let other = object(json!({ "least": 0.5 }));
    assert!(apply(Some(&one), &other, node, &by("m2"), false).is_err());
}

#[test]
fn managed_fields_can_be_reset_and_come_back_with_the_first_apply() {
    let one = do_apply(None, json!({ "replicas": 1 }), "m").unwrap();
    let mut reset = one.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    update(Some(&one), &mut reset, deployment(), &writer("u"));
    assert!(reset["metadata"].get("managedFields").is_none());
    let mut still = reset.clone();
    still["spec"]["replicas"] = json!(2);
    update(Some(&reset), &mut still, deployment(), &writer("u"));
    assert!(still["metadata"].get("managedFields").is_none());
    let applied =
        apply(Some(&reset), &config(json!({ "paused": true })), deployment(), &writer("m"), false).unwrap();
    assert_eq!(fields(&applied, BEFORE_FIRST_APPLY), json!({ "f:spec": { "f:replicas": {} } }));
}

#[test]
fn many_updaters_become_ancient() {
    let mut object = config(json!({}));
    update(None, &mut object, deployment(), &writer("u0"));
    for number in 0..14 {
        let mut next = object.clone();
        next["metadata"]["annotations"][format!("k{number}")] = json!("v");
        let now = format!("2026-01-01T00:00:{number:02}Z");
        let name = format!("u{number}");
        update(Some(&object), &mut next, deployment(), &Writer { now: &now, ..writer(&name) });
        object = next;
        if object["metadata"].get("managedFields").is_none() {
            update(None, &mut object, deployment(), &Writer { now: &now, ..writer(&name) });
        }
    }
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert!(fields(&object, ANCIENT_NAME)["f:metadata"]["f:annotations"].get("f:k0").is_some());
}

const ANCIENT_NAME: &str = "ancient-changes";

#[test]
fn kubectl_takes_over_what_it_applied_before() {
    let mut live = config(json!({ "replicas": 1 }));
    live["metadata"]["annotations"] = json!({ LAST_APPLIED: config(json!({ "replicas": 1 })).to_string() });
    update(None, &mut live, deployment(), &writer("kubectl-client-side-apply"));
    let applied = do_apply(Some(&live), json!({ "replicas": 2 }), "kubectl").unwrap();
    assert_eq!(applied["spec"]["replicas"], 2);
    assert!(applied["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap().contains("\"replicas\":2"));
}

fn any_spec() -> impl Strategy<Value = Value> {
    let leaf = (0_i64..3).prop_map(|number| json!(number));
    let container =
        ("[abc]", proptest::option::of("[xy]"), proptest::collection::btree_map("[pq]", "[12]", 0..3))
            .prop_map(|(name, image, env)| {
                let env: Vec<Value> =
                    env.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
                let mut one = json!({ "name": name });
                if let Some(image) = image {
                    one["image"] = json!(image);
                }
                if !env.is_empty() {
                    one["env"] = json!(env);
                }
                one
            });
    let containers = proptest::collection::vec(container, 0..3).prop_map(|all| {
        let mut seen = std::collections::BTreeSet::new();
        all.into_iter().filter(|one| seen.insert(one["name"].to_string())).collect::<Vec<_>>()
    });
    (proptest::option::of(leaf), containers, any::<bool>()).prop_map(|(replicas, containers, paused)| {
        let mut spec = json!({});
        if let Some(replicas) = replicas {
            spec["replicas"] = replicas;
        }
        if !containers.is_empty() {
            spec["template"] = json!({ "spec": { "containers": containers } });
        }
        if paused {
            spec["paused"] = json!(true);
        }
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Applying twice is applying once; what is applied is there afterwards; and nobody owns what is not there.
    #[test]
    fn apply_is_idempotent_and_complete(specs in proptest::collection::vec((any_spec(), 0_usize..3), 1..6)) {
        let mut live: Option<Value> = None;
        for (spec, who) in specs {
            let manager = ["m0", "m1", "m2"][who];
            let object = apply(live.as_ref(), &config(spec.clone()), deployment(), &writer(manager), true).unwrap();
            let again = apply(Some(&object), &config(spec.clone()), deployment(), &writer(manager), false).unwrap();
            prop_assert_eq!(&object, &again);
            let wanted = FieldSet::of(&config(spec.clone()), deployment());
            let there = FieldSet::of(&object, deployment());
            if spec != json!({}) {
                prop_assert!(wanted.paths().iter().all(|path| there.contains(path)));
            }
            let mut managed = Managers::parse(object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()).union();
            managed.subtract(&there);
            // An empty spec is owned as a whole, also when others fill it.
            managed.subtract(&FieldSet::parse(&json!({ "f:spec": {} })));
            prop_assert!(managed.is_empty(), "{:?}", managed.paths());
            live = Some(object);
        }
    }

    /// Field sets survive being written and read.
    #[test]
    fn sets_survive_printing(spec in any_spec()) {
        let set = FieldSet::of(&config(spec), deployment());
        prop_assert_eq!(FieldSet::parse(&set.print()), set);
    }
}
