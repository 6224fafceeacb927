use k8s_openapi::api::{
    core::v1::{Node, Pod},
    rbac::v1::Role,
};

use super::{ApiKind, Form, Head, ObjectKey};

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n",
    "uid":"u-1","resourceVersion":"42","labels":{"app":"x"},
    "managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}],"annotations":{"k":"v"}},
    "spec":{"x":[1,2]},"status":{"phase":"Running"}}"#;

#[test]
fn a_head_is_read_without_the_rest() {
    let head = Head::read(POD, Form::Whole).unwrap();
    assert_eq!(head.key, ObjectKey::new("n", "a"));
    assert_eq!(head.uid.as_str(), "u-1");
    assert_eq!(head.version.0, 42);
    assert!(!head.deleting);
    assert_eq!(head.labels().unwrap()["app"], "x");
}

#[test]
fn the_lean_text_has_no_managed_fields_and_keeps_the_rest() {
    let lean = Head::read(POD, Form::Whole).unwrap().lean_text().into_owned();
    let lean: serde_json::Value = serde_json::from_str(&lean).unwrap();
    let mut whole: serde_json::Value = serde_json::from_str(POD).unwrap();
    whole["metadata"]["managedFields"] = serde_json::json!([]);
    assert_eq!(lean, whole);
}

#[test]
fn content_ignores_status_and_bookkeeping_but_nothing_else() {
    let content = |text: &str| Head::read(text, Form::Whole).unwrap().content;
    let same = [("Running", "Failed"), ("\"42\"", "\"43\""), ("f:a", "f:b")];
    let other = [("[1,2]", "[1,3]"), ("\"v\"", "\"w\""), ("\"x\"", "\"y\"")];
    for (from, to) in same {
        assert_eq!(content(POD), content(&POD.replace(from, to)), "{from} -> {to}");
    }
    for (from, to) in other {
        assert_ne!(content(POD), content(&POD.replace(from, to)), "{from} -> {to}");
    }
}

#[test]
fn an_object_without_a_name_is_rejected() {
    assert!(Head::read(r#"{"metadata":{}}"#, Form::Whole).is_err());
    assert!(Head::read("[]", Form::Whole).is_err());
}

#[test]
fn paths_follow_group_and_scope() {
    let key = ObjectKey::new("n", "a");
    assert_eq!(ApiKind::of::<Pod>().object_path(&key), "/api/v1/namespaces/n/pods/a");
    assert_eq!(
        ApiKind::of::<Role>().object_path(&key),
        "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles/a"
    );
    let node = ObjectKey::cluster("a");
    assert_eq!(ApiKind::of::<Node>().object_path(&node), "/api/v1/nodes/a");
    assert_eq!((node.namespace(), node.name()), (None, "a"));
}

#[test]
fn labels_that_cannot_be_decoded_are_an_error_and_not_absent() {
    let labels = |json: &str| {
        let text = format!(r#"{{"metadata":{{"name":"a","labels":{json}}}}}"#);
        Head::read(&text, Form::Whole).unwrap().labels().map(|labels| labels.len())
    };
    assert_eq!((labels("null").unwrap(), labels(r#"{"a":"b"}"#).unwrap()), (0, 1));
    assert!(labels(r#"{"a":1}"#).is_err());
}
