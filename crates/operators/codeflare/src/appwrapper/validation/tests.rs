use quintet_api::appwrapper::AppWrapper;
use serde_json::{Value, json};

use super::*;
use crate::field_errors::aggregate;

/// A change, and the field that is rejected.
type Row = (fn(&mut Value), &'static str);

fn pod(name: &str) -> Value {
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}})
}

fn appwrapper(components: &[Value]) -> AppWrapper {
    let object = json!({"metadata": {"name": "w", "namespace": "ns"}, "spec": {"components": components}});
    serde_json::from_value(object).unwrap()
}

fn creation(components: &[Value]) -> String {
    aggregate(check_creation(&appwrapper(components), &[])).unwrap_or_default()
}

#[test]
fn every_mistake_of_a_new_appwrapper_is_named() {
    assert_eq!(creation(&[pod("a"), pod("b")]), "");
    assert_eq!(creation(&[]), "spec.components: Invalid value: []: components contains no podspecs");
    let nine: Vec<_> = (0..9).map(|number| pod(&number.to_string())).collect();
    assert!(creation(&nine).ends_with("components contains 9 podspecs; at most 8 are allowed"));
    let mut elsewhere = pod("a");
    elsewhere["template"]["metadata"]["namespace"] = json!("other");
    assert_eq!(
        creation(&[elsewhere]),
        "spec.components[0].template.metadata.namespace: Forbidden: AppWrappers cannot create objects in other namespaces"
    );
    let nested = json!({"template": {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper"}});
    assert_eq!(
        creation(&[nested, pod("a")]),
        "spec.components[0].template: Forbidden: Nested AppWrappers are forbidden"
    );
    let mut empty_path = pod("a");
    empty_path["podSets"] = json!([{"path": ""}]);
    let error = creation(&[empty_path]);
    assert!(
        error.contains("spec.components[0].podSets[0].path: Required value: podspec must specify path, ")
    );
    assert!(error.contains("PodSet with path 'template' is missing"), "{error}");
}

#[test]
fn what_the_user_may_not_create_cannot_be_wrapped() {
    let denied = [None, Some("User bob is not authorized to create secrets in ns".to_owned())];
    let secret = json!({"template": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}});
    let errors = check_creation(&appwrapper(&[pod("a"), secret]), &denied);
    assert_eq!(
        errors,
        ["spec.components[1].template: Forbidden: User bob is not authorized to create secrets in ns"]
    );
}

#[test]
fn long_values_are_cut() {
    let mut long = pod("a");
    long["template"]["spec"]["nonsense"] = json!("x".repeat(10_000));
    let error = creation(&[long]);
    assert!(error.len() < 2_000 && error.contains("unknown field \"nonsense\""), "{error}");
}

#[test]
fn a_component_whose_pod_sets_cannot_be_inferred_has_none() {
    let mut wrong = pod("a");
    wrong["template"]["spec"]["nonsense"] = json!(1);
    wrong["podSets"] = json!([{"path": "template"}]);
    let error = creation(&[wrong]);
    assert!(error.ends_with("components contains no podspecs]"), "{error}");
}

#[test]
fn an_empty_label_of_the_user_may_go() {
    let with = |labels: &Value| {
        let object = json!({"metadata": {"name": "w", "labels": labels}, "spec": {"components": [pod("a")]}});
        serde_json::from_value(object).unwrap()
    };
    let (user, id) = ("workload.codeflare.dev/user", "workload.codeflare.dev/userid");
    assert!(check_update(&with(&json!({user: "u", id: ""})), &with(&json!({user: "u"}))).is_empty());
}

#[test]
fn only_what_kueue_assigns_may_change() {
    let change = |change: fn(&mut Value)| {
        let mut deployment = pod("a");
        deployment["podSets"] = json!([{"path": "template", "replicas": 1}]);
        let labels = json!({"workload.codeflare.dev/user": "u"});
        let old = json!({
            "metadata": {"name": "w", "namespace": "ns", "labels": labels},
            "spec": {"components": [deployment], "managedBy": "m"},
        });
        let mut new = old.clone();
        change(&mut new);
        let [old, new] = [old, new].map(|object| serde_json::from_value(object).unwrap());
        aggregate(check_update(&old, &new)).unwrap_or_default()
    };
    let rows: [Row; 13] = [
        (|new| new["spec"]["suspend"] = json!(true), ""),
        (|new| new["spec"]["components"][0]["podSetInfos"] = json!([{}]), ""),
        (|new| new["spec"]["components"][0]["annotations"] = json!({"a": "b"}), ""),
        (|new| new["spec"]["components"][0]["podSets"][0]["annotations"] = json!({"a": "b"}), ""),
        (|new| new["spec"]["components"][0]["podSets"][0]["replicas"] = Value::Null, ""),
        (|new| new["spec"]["components"] = json!([]), "spec.components"),
        (
            |new| new["spec"]["components"][0]["template"]["spec"]["x"] = json!(1),
            "spec.components[0].template.raw",
        ),
        (|new| new["spec"]["components"][0]["podSets"] = json!([]), "spec.components[0].podsets"),
        (
            |new| new["spec"]["components"][0]["podSets"][0]["replicas"] = json!(2),
            "spec.components[0].podsets[0].replicas",
        ),
        (
            |new| new["spec"]["components"][0]["podSets"][0]["path"] = json!("x"),
            "spec.components[0].podsets[0].path",
        ),
        (|new| new["metadata"]["labels"] = json!({}), "metadata.labels[workload.codeflare.dev/user]"),
        (
            |new| {
                new["spec"]["components"] = json!([]);
                new["spec"]["managedBy"] = Value::Null;
            },
            "spec.components",
        ),
        (|new| new["spec"]["managedBy"] = Value::Null, "spec.managedBy"),
    ];
    for (number, (make, path)) in rows.into_iter().enumerate() {
        let expected = if path.is_empty() {
            String::new()
        } else {
            format!("{path}: Forbidden: attempt to change immutable field")
        };
        assert_eq!(change(make), expected, "row {number}");
    }
}
