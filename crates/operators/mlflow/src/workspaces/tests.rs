use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_controller::cache::{Entry, ObjectMetadata};
use quintet_controller::{Action, ObjectKey};
use serde_json::{Value, json};

use super::{Observed, plan::plan};
use crate::watches::{RoleBindingView, RoleRefView};

fn observed(auth: &Value) -> Observed {
    let namespace = ObjectMetadata {
        labels: [("opendatahub.io/global-mlflow-workspace".into(), "mlflow".into())].into(),
        ..ObjectMetadata::default()
    };
    Observed {
        namespace: Arc::new(Entry::new(ObjectKey::cluster("ws"), namespace)),
        role_prefix: "pre-".to_owned(),
        owner: Some(OwnerReference { name: "mlflow".to_owned(), ..OwnerReference::default() }),
        auth: Some(serde_json::from_value(json!({"spec": auth})).unwrap()),
        view_binding: None,
        edit_binding: None,
    }
}

fn bound(role: &str) -> Arc<Entry<RoleBindingView>> {
    let role_ref = RoleRefView { kind: "ClusterRole".to_owned(), name: role.to_owned() };
    let key = ObjectKey::new("ws", "odh-group-mlflow-view");
    Arc::new(Entry::new(key, RoleBindingView { role_ref }))
}

fn steps(observed: &Observed) -> Vec<String> {
    plan(observed).steps.iter().map(|step| step.action.to_string()).collect()
}

#[test]
fn admins_may_edit_and_all_may_view_once() {
    let plan = plan(&observed(&json!({"adminGroups": ["a", "both"], "allowedGroups": ["b", "both"]})));
    let names = |step: usize| {
        let Action::Apply { object, .. } = &plan.steps[step].action else { panic!("{plan:?}") };
        let subjects = object["subjects"].as_array().unwrap();
        subjects.iter().map(|subject| subject["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(0), names(1)),
        (vec!["b".into(), "both".into(), "a".into()], vec!["a".into(), "both".into()])
    );
}

#[test]
fn a_binding_of_another_role_is_replaced() {
    let mut observed = observed(&json!({}));
    observed.view_binding = Some(bound("view"));
    let expected = [
        "delete RoleBinding.rbac.authorization.k8s.io ws/odh-group-mlflow-view",
        "apply RoleBinding.rbac.authorization.k8s.io ws/odh-group-mlflow-view",
        "apply RoleBinding.rbac.authorization.k8s.io ws/odh-group-mlflow-edit",
    ];
    assert_eq!(steps(&observed), expected);
    observed.view_binding = Some(bound("pre-mlflow-view"));
    assert_eq!(steps(&observed), expected[1..]);
}

#[test]
fn without_label_mlflow_or_auth_bindings_are_deleted() {
    let mut without = [observed(&json!({})), observed(&json!({})), observed(&json!({}))];
    without[0].namespace = Arc::new(Entry::new(ObjectKey::cluster("ws"), ObjectMetadata::default()));
    without[1].owner = None;
    without[2].auth = None;
    for mut observed in without {
        assert!(plan(&observed).is_empty(), "nothing is there to delete");
        observed.view_binding = Some(bound("view"));
        assert_eq!(
            steps(&observed),
            ["delete RoleBinding.rbac.authorization.k8s.io ws/odh-group-mlflow-view"]
        );
    }
}

#[test]
fn malformed_groups_change_nothing() {
    for auth in [json!({"adminGroups": "a"}), json!({"allowedGroups": [1]})] {
        let plan = plan(&observed(&auth));
        assert!(plan.is_empty() && plan.awaits.len() == 1, "{plan:?}");
    }
}
