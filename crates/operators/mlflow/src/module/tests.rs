use std::sync::Arc;

use quintet_api::platform::MLflowOperator;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ObjectKey};
use serde_json::{Value, json};

use super::{Observed, plan::plan};

fn observed(module: Value) -> Observed {
    let module: MLflowOperator = serde_json::from_value(module).unwrap();
    Observed {
        module: Arc::new(Entry::new(ObjectKey::cluster("default-mlflowoperator"), module)),
        now: jiff::Timestamp::UNIX_EPOCH,
        version: "3.14.0".to_owned(),
        platform_version: None,
        instances: 0,
    }
}

fn protected(spec: &Value) -> Observed {
    observed(json!({
        "metadata": {"generation": 2, "finalizers": ["other", "mlflow.opendatahub.io/mlflow-operator-protection"]},
        "spec": spec,
    }))
}

fn status(observed: &Observed) -> Value {
    plan(observed).status.map(|status| status.status).unwrap_or_default()
}

#[test]
fn the_finalizer_comes_first() {
    let plan = plan(&observed(json!({"metadata": {}, "spec": {}})));
    let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(patch["metadata"]["finalizers"], json!(["mlflow.opendatahub.io/mlflow-operator-protection"]));
    assert!(plan.status.is_none());
}

#[test]
fn missing_settings_are_named() {
    let status = status(&protected(&json!({"gatewayName": "gw"})));
    assert_eq!(status["phase"], "Progressing");
    let ready = &status["conditions"][0];
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ConfigPending")));
    let message =
        "Waiting for MLflowOperator spec fields before managing MLflow custom resources: spec.sectionTitle";
    assert_eq!(ready["message"], message);
}

#[test]
fn releases_name_the_platform_before_mlflow() {
    let mut observed = protected(&json!({"gatewayName": "gw", "sectionTitle": "T"}));
    observed.platform_version = Some("3.0.0-rc1".to_owned());
    let status = status(&observed);
    assert_eq!((&status["phase"], &status["observedGeneration"]), (&json!("Ready"), &json!(2)));
    assert_eq!(status["releases"][0], json!({"name": "platform", "version": "3.0.0-rc1"}));
    assert_eq!(status["releases"][1]["version"], "3.14.0");
}

#[test]
fn a_malformed_platform_version_changes_nothing() {
    for version in ["not a version", "1.2.3.4", "1.2.x", "1.2.3-", "1.2.3-01", "1.2.3+a..b", &"1".repeat(70)]
    {
        let mut observed = protected(&json!({"gatewayName": "gw", "sectionTitle": "T"}));
        observed.platform_version = Some(version.to_owned());
        let plan = plan(&observed);
        assert!(plan.is_empty() && !plan.awaits.is_empty(), "{version}: {plan:?}");
    }
}

#[test]
fn platform_versions_may_be_short_and_begin_with_v() {
    for version in ["1", "v2.31", "2.31.0-rc.1+build", "01.2.3"] {
        let mut observed = protected(&json!({"gatewayName": "gw", "sectionTitle": "T"}));
        observed.platform_version = Some(version.to_owned());
        assert_eq!(status(&observed)["releases"][0]["version"], version);
    }
}

#[test]
fn the_condition_keeps_its_time_while_it_says_the_same() {
    let mut observed = protected(&json!({"gatewayName": "gw", "sectionTitle": "T"}));
    let first = status(&observed);
    let mut module = observed.module.object.clone();
    module.status = serde_json::from_value(first).unwrap();
    observed.module = Arc::new(Entry::new(observed.module.key.clone(), module.clone()));
    observed.now = jiff::Timestamp::from_second(100).unwrap();
    assert!(plan(&observed).is_empty());
    module.metadata.generation = Some(3);
    observed.module = Arc::new(Entry::new(observed.module.key.clone(), module));
    assert_eq!(status(&observed)["conditions"][0]["lastTransitionTime"], "1970-01-01T00:01:40Z");
}

#[test]
fn deletion_waits_for_mlflows() {
    let mut observed = protected(&json!({}));
    let mut entry = Entry::new(observed.module.key.clone(), observed.module.object.clone());
    entry.deleting = true;
    observed.module = Arc::new(entry);
    observed.instances = 1;
    let status = status(&observed);
    assert_eq!((&status["phase"], &status["observedGeneration"]), (&json!("Progressing"), &json!(2)));
    let ready = &status["conditions"][0];
    assert_eq!(ready["reason"], "MLflowInstancesPresent");
    assert_eq!(ready["message"], "cannot delete MLflowOperator while 1 MLflow instance(s) still exist");
    assert!(plan(&observed).steps.is_empty());
    observed.instances = 0;
    let plan = plan(&observed);
    let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
}
