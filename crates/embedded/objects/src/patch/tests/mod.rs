use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::types;

fn strategic(mut target: Value, patch: Value) -> Value {
    strategic_merge(&mut target, &patch, types::kind("apps/v1", "Deployment").unwrap()).unwrap();
    target
}

fn strategic_error(mut target: Value, patch: Value) -> String {
    strategic_merge(&mut target, &patch, types::kind("apps/v1", "Deployment").unwrap())
        .unwrap_err()
        .to_string()
}

fn pod(containers: Value) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": containers } } } })
}

fn names(object: &Value) -> Vec<&str> {
    object["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect()
}

#[test]
fn lists_with_keys_merge() {
    let target = pod(
        json!([{ "name": "a", "image": "1", "ports": [{ "containerPort": 80 }] }, { "name": "b", "image": "2" }]),
    );
    let merged =
        strategic(target.clone(), pod(json!([{ "name": "b", "image": "3" }, { "name": "n", "image": "4" }])));
    assert_eq!(names(&merged), ["a", "b", "n"]);
    assert_eq!(merged["spec"]["template"]["spec"]["containers"][1]["image"], "3");
    let merged = strategic(target.clone(), pod(json!([{ "name": "n", "image": "4" }])));
    assert_eq!(names(&merged), ["n", "a", "b"], "new items come before those only the server has");
    let deleted = strategic(target.clone(), pod(json!([{ "name": "a", "$patch": "delete" }])));
    assert_eq!(names(&deleted), ["b"]);
    let replaced = strategic(target.clone(), pod(json!([{ "name": "z" }, { "$patch": "replace" }])));
    assert_eq!(names(&replaced), ["z"]);
    let ordered = strategic(
        target.clone(),
        json!({ "spec": { "template": { "spec": { "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }] } } } }),
    );
    assert_eq!(names(&ordered), ["b", "a"]);
    assert_eq!(
        strategic_error(target.clone(), pod(json!([{ "image": "q" }]))),
        "map: map[image:q] does not contain declared merge key: name"
    );
    assert_eq!(
        strategic_error(target.clone(), json!({ "spec": { "$patch": "foo" } })),
        "unknown patch type: foo in map: map[$patch:foo]"
    );
    assert!(
        strategic_error(
            target,
            json!({ "spec": { "template": { "spec": {
                "$setElementOrder/containers": [{ "name": "a" }], "containers": [{ "name": "b" }] } } } })
        )
        .starts_with("The order in patch list:")
    );
}

#[test]
fn directives_on_maps_and_scalars() {
    let target = json!({ "metadata": { "labels": { "a": "1", "b": "2" }, "finalizers": ["x/a", "x/b"] },
        "spec": { "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } } } });
    let merged = strategic(
        target.clone(),
        json!({ "metadata": { "labels": { "a": null, "c": "3" }, "finalizers": ["x/c"] } }),
    );
    assert_eq!(
        merged["metadata"],
        json!({ "labels": { "b": "2", "c": "3" }, "finalizers": ["x/c", "x/a", "x/b"] })
    );
    let merged = strategic(
        target.clone(),
        json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["x/a"], "labels": { "$patch": "replace", "z": "1" } } }),
    );
    assert_eq!(merged["metadata"], json!({ "labels": { "z": "1" }, "finalizers": ["x/b"] }));
    let merged = strategic(
        target.clone(),
        json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } }),
    );
    assert_eq!(merged["spec"]["strategy"], json!({ "type": "Recreate" }));
    let merged = strategic(target, json!({ "metadata": { "labels": { "$patch": "delete" } } }));
    assert_eq!(merged["metadata"]["labels"], json!({}));
    assert_eq!(
        strategic_error(json!({ "spec": { "bogus": [2] } }), json!({ "spec": { "bogus": [1] } })),
        "unable to find api field in struct DeploymentSpec for the json field \"bogus\""
    );
}

#[test]
fn untyped_lists_are_replaced() {
    let target = pod(json!([{ "name": "a", "command": ["x", "y"] }]));
    let merged = strategic(target, pod(json!([{ "name": "a", "command": ["z"] }])));
    assert_eq!(merged["spec"]["template"]["spec"]["containers"][0]["command"], json!(["z"]));
}

#[test]
fn json_patches_do_all_or_nothing() {
    let mut target = json!({ "a": [1, 2], "b": { "c/d": 1 } });
    json_patch(
        &mut target,
        &json!([
            { "op": "add", "path": "/a/-", "value": 3 }, { "op": "add", "path": "/a/0", "value": 0 },
            { "op": "replace", "path": "/b/c~1d", "value": 2 }, { "op": "copy", "from": "/a/1", "path": "/e" },
            { "op": "move", "from": "/e", "path": "/f" }, { "op": "test", "path": "/f", "value": 1 },
            { "op": "remove", "path": "/a/0" }
        ]),
    )
    .unwrap();
    assert_eq!(target, json!({ "a": [1, 2, 3], "b": { "c/d": 2 }, "f": 1 }));
    let before = target.clone();
    let error = json_patch(
        &mut target,
        &json!([{ "op": "remove", "path": "/a" }, { "op": "remove", "path": "/zzz" }]),
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "the server rejected our request due to an error in our request"
    );
    assert_eq!(target, before);
    assert!(json_patch(&mut target, &json!([{ "op": "test", "path": "/f", "value": 2 }])).is_err());
    assert!(json_patch(&mut target, &json!({})).is_err());
}

#[test]
fn merge_patches_follow_the_rfc() {
    let mut target = json!({ "a": "b", "c": { "d": "e", "f": "g" } });
    merge_patch(&mut target, &json!({ "a": "z", "c": { "f": null }, "n": { "x": null, "y": 1 } }));
    assert_eq!(target, json!({ "a": "z", "c": { "d": "e" }, "n": { "y": 1 } }));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i8>().prop_map(|number| json!(number)),
        "[a-c]{0,2}".prop_map(Value::String)
    ];
    leaf.prop_recursive(6, 64, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map(
                "spec|template|containers|name|ports|containerPort|env|volumes|\\$patch|\\$retainKeys|\\$setElementOrder/containers|a|b",
                inner,
                0..4
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn patches_never_panic(target in any_json(), patch in any_json()) {
        let mut one = target.clone();
        let _ = strategic_merge(&mut one, &patch, types::kind("v1", "PodTemplate").unwrap());
        let mut two = target.clone();
        merge_patch(&mut two, &patch);
        let mut three = target;
        let _ = json_patch(&mut three, &json!([{ "op": "add", "path": "/a/b/0", "value": patch }]));
    }

    /// A merge patch applied twice is applied once.
    #[test]
    fn merge_patch_is_idempotent(target in any_json(), patch in any_json()) {
        let mut once = target;
        merge_patch(&mut once, &patch);
        let mut twice = once.clone();
        merge_patch(&mut twice, &patch);
        prop_assert_eq!(once, twice);
    }
}
