#![expect(clippy::needless_pass_by_value, reason = "tables are easier to read so")]

use quintet_api::config::codeflare::AppWrapperConfiguration;
use serde_json::json;

use super::*;

fn appwrapper(component: Value) -> AppWrapper {
    serde_json::from_value(json!({
        "metadata": {"name": "w", "namespace": "ns", "uid": "u"}, "spec": {"components": [component]},
    }))
    .unwrap()
}

fn rendered(component: Value, config: &AppWrapperConfiguration) -> Result<Value, String> {
    let appwrapper = appwrapper(component);
    let component = &appwrapper.spec.components[0];
    let pod_sets = super::super::podsets::of_component(component);
    render(&appwrapper, component, &pod_sets, &name_of(&appwrapper, 0, 0), config)
}

fn deployment(template: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}})
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

#[test]
fn components_and_their_pods_know_their_appwrapper() {
    let component =
        json!({"template": deployment(json!({"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()}))});
    let object = rendered(component, &AppWrapperConfiguration::default()).unwrap();
    assert_eq!(object["metadata"]["namespace"], "ns");
    assert_eq!(object["metadata"]["labels"][APP_WRAPPER], "w");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u");
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    assert_eq!(*labels, json!({"a": "b", APP_WRAPPER: "w"}));
}

#[test]
fn what_admission_assigns_is_added() {
    let info = json!({
        "annotations": {"x": "1"}, "labels": {"y": "2"}, "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "k", "operator": "Exists"}], "schedulingGates": [{"name": "g"}, {"name": "h"}],
    });
    let mut spec = pod_spec();
    spec["tolerations"] = json!([{"key": "own"}]);
    spec["schedulingGates"] = json!([{"name": "g"}]);
    let component = json!({"template": deployment(json!({"spec": spec})), "podSetInfos": [info]});
    let object = rendered(component, &AppWrapperConfiguration::default()).unwrap();
    let template = &object["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"], json!({"x": "1"}));
    assert_eq!(template["metadata"]["labels"]["y"], "2");
    assert_eq!(template["spec"]["nodeSelector"], json!({"zone": "a"}));
    assert_eq!(template["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(template["spec"]["schedulingGates"], json!([{"name": "g"}, {"name": "h"}]));
}

#[test]
fn conflicts_cannot_be_retried() {
    let rows = [
        (json!({"labels": {"a": "2"}}), "conflict updating labels: conflict for key=a, value1=1, value2=2"),
        (
            json!({"annotations": {"a": "2"}}),
            "conflict updating annotations: conflict for key=a, value1=1, value2=2",
        ),
        (
            json!({"nodeSelector": {"a": "2"}}),
            "conflict updating nodeSelector: conflict for key=a, value1=1, value2=2",
        ),
    ];
    for (info, expected) in rows {
        let mut spec = pod_spec();
        spec["nodeSelector"] = json!({"a": "1"});
        let template = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"a": "1"}}, "spec": spec});
        let component = json!({"template": deployment(template), "podSetInfos": [info]});
        assert_eq!(rendered(component, &AppWrapperConfiguration::default()).unwrap_err(), expected);
    }
    let mut elsewhere = deployment(json!({"spec": pod_spec()}));
    elsewhere["metadata"]["namespace"] = json!("other");
    assert!(rendered(json!({"template": elsewhere}), &AppWrapperConfiguration::default()).is_err());
    let labels = json!({"labels": {APP_WRAPPER: "other"}, "name": "p"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": labels, "spec": pod_spec()});
    let error = rendered(json!({"template": pod}), &AppWrapperConfiguration::default()).unwrap_err();
    assert!(
        error.starts_with("conflict updating labels: conflict for key=workload.codeflare.dev/appwrapper")
    );
}

#[test]
fn the_configured_scheduler_is_that_of_pods_without_one() {
    let config =
        AppWrapperConfiguration { scheduler_name: "mine".into(), ..AppWrapperConfiguration::default() };
    let mut own = pod_spec();
    own["schedulerName"] = json!("own");
    for (spec, name) in [(pod_spec(), "mine"), (own, "own")] {
        let object = rendered(json!({"template": deployment(json!({"spec": spec}))}), &config).unwrap();
        assert_eq!(object["spec"]["template"]["spec"]["schedulerName"], name);
    }
}

#[test]
fn pods_with_gpus_avoid_unhealthy_nodes() {
    let affinity = |resources: Value| {
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        let component = json!({"template": deployment(json!({"spec": spec}))});
        let object = rendered(component, &AppWrapperConfiguration::default()).unwrap();
        object["spec"]["template"]["spec"]["affinity"].clone()
    };
    let expression =
        |values: Value| json!({"key": "autopilot.ibm.com/gpuhealth", "operator": "NotIn", "values": values});
    let expected = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression(json!(["TESTING", "EVICT"]))]}]},
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 50, "preference": {"matchExpressions": [expression(json!(["WARN"]))]}}],
    }});
    assert_eq!(affinity(json!({"limits": {"nvidia.com/gpu": "1"}})), expected);
    assert_eq!(affinity(json!({"requests": {"nvidia.com/gpu": 1}})), expected);
    assert_eq!(affinity(json!({"limits": {"nvidia.com/gpu": "0"}, "requests": {"cpu": "1"}})), Value::Null);
}

#[test]
fn generated_names_are_the_same_for_every_attempt() {
    let mut appwrapper = appwrapper(json!({"template": {"metadata": {"generateName": "gen-"}}}));
    let name = name_of(&appwrapper, 0, 0);
    assert!(name.starts_with("gen-") && name.len() == 9);
    assert_eq!(name_of(&appwrapper, 0, 0), name);
    assert_ne!(name_of(&appwrapper, 0, 1), name, "the next try makes other objects");
    appwrapper.spec.components[0].template = json!({"metadata": {"name": "p"}});
    assert_eq!(name_of(&appwrapper, 0, 1), "p");
}
