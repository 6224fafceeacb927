use serde_json::{Value, json};

use super::*;
use crate::field_errors::aggregate;
use crate::raycluster::inject::inject;
use crate::raycluster::tests::hardening;

/// A change, and what is said about it.
type Row = (fn(&mut Value), &'static str);

fn cluster() -> Value {
    let template = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "ray"}]}});
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r", "namespace": "ns"},
        "spec": {
            "headGroupSpec": {"template": template("head")},
            "workerGroupSpecs": [{"groupName": "g", "template": template("worker")}],
        },
    })
}

fn injected() -> Value {
    let mut cluster = cluster();
    inject(&mut cluster, &hardening(true, true, true), "example.com").unwrap();
    cluster
}

fn update(change: impl Fn(&mut Value)) -> Vec<String> {
    let mut cluster = injected();
    change(&mut cluster);
    check_update(&cluster, &hardening(true, true, true), "example.com")
}

#[test]
fn what_was_injected_is_accepted_and_injecting_again_changes_nothing() {
    assert_eq!(update(|_| {}), Vec::<String>::new());
    let mut again = injected();
    inject(&mut again, &hardening(true, true, true), "example.com").unwrap();
    assert_eq!(again, injected());
    assert_eq!(check_creation(&injected(), &hardening(true, true, true)), Vec::<String>::new());
}

#[test]
fn every_injected_part_is_immutable() {
    let rows: [Row; 10] = [
        (
            |new| new["spec"]["headGroupSpec"]["enableIngress"] = json!(true),
            "enableIngress: Invalid value: true",
        ),
        (|new| head(new)["containers"][1]["image"] = json!("x"), "template.spec.containers: Invalid value"),
        (|new| head(new)["containers"][1]["name"] = json!("x"), "template.spec.containers: Required value"),
        (|new| head(new)["volumes"][0]["secret"]["secretName"] = json!("x"), "OAuth Proxy TLS Secret volume"),
        (
            |new| head(new)["serviceAccountName"] = json!("mine"),
            "serviceAccountName: Invalid value: \"mine\"",
        ),
        (|new| head(new)["initContainers"] = json!([]), "initContainers: Required value: create-cert"),
        (|new| head(new)["containers"][0]["env"][1]["value"] = json!("0"), "containers.0.env: Invalid value"),
        (
            |new| worker(new)["containers"][0]["env"] = json!([]),
            "spec.workerGroupSpecs.0.template.spec.containers.0.env: Required value",
        ),
        (
            |new| worker(new)["volumes"][0]["name"] = json!("x"),
            "spec.workerGroupSpecs.0.template.spec.volumes: Required value",
        ),
        (
            |new| worker(new)["initContainers"][0]["command"] = json!(["x"]),
            "create-cert Init Container is immutable",
        ),
    ];
    for (number, (change, expected)) in rows.into_iter().enumerate() {
        let error = aggregate(update(change)).unwrap_or_default();
        assert!(!error.starts_with('[') && error.contains(expected), "row {number}: {error}");
    }
    let deleted = update(|new| {
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        head(new)["containers"] = json!([]);
    });
    assert_eq!(deleted, Vec::<String>::new(), "finalizers have to be removed");
}

#[test]
fn every_changed_variable_and_volume_is_named() {
    let errors = update(|new| {
        head(new)["containers"][0]["env"][1]["value"] = json!("0");
        head(new)["containers"][0]["env"][2]["value"] = json!("x");
        head(new)["containers"][0]["env"].as_array_mut().unwrap().truncate(3);
    });
    let of = |kind: &str| errors.iter().filter(|error| error.contains(kind)).count();
    assert_eq!((of("env: Invalid value"), of("env: Required value")), (2, 2), "{errors:?}");
    let volumes = update(|new| {
        head(new)["volumes"].as_array_mut().unwrap().remove(1);
        worker(new)["volumes"] = json!([]);
    });
    let path = "template.spec.volumes: Required value: ca-vol and server-cert Secret volumes are immutable";
    let expected = [
        format!("spec.headGroupSpec.{path}"),
        format!("spec.workerGroupSpecs.0.{path}"),
        format!("spec.workerGroupSpecs.0.{path}"),
    ];
    assert_eq!(volumes, expected);
}

#[test]
fn what_api_servers_fill_in_is_accepted() {
    let errors = update(|new| {
        let proxy = &mut head(new)["containers"][1];
        proxy["terminationMessagePath"] = json!("/dev/termination-log");
        proxy["imagePullPolicy"] = json!("IfNotPresent");
        proxy["ports"][0]["protocol"] = json!("TCP");
        proxy["args"].as_array_mut().unwrap().push(json!("--more"));
        head(new)["volumes"][0]["secret"]["defaultMode"] = json!(420);
    });
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn names_of_older_versions_are_accepted() {
    let hardening = hardening(true, false, true);
    let mut old = injected();
    old["metadata"]["annotations"] = Value::Null;
    let names = Names::new("r", "ns", false);
    *head(&mut old) = json!({
        "containers": [pods::oauth_proxy(&names, &hardening)], "volumes": [pods::serving_certificate(&names)],
        "serviceAccountName": "r-oauth-proxy",
    });
    assert_eq!(check_update(&old, &hardening, ""), Vec::<String>::new());
}

#[test]
fn a_group_without_containers_is_rejected() {
    let mut cluster = cluster();
    worker(&mut cluster)["containers"] = json!([]);
    let error = inject(&mut cluster, &hardening(false, true, false), "").unwrap_err();
    assert!(
        error.starts_with("spec.workerGroupSpecs[0].template.spec.containers: Required value"),
        "{error}"
    );
}

fn head(cluster: &mut Value) -> &mut Value {
    &mut cluster["spec"]["headGroupSpec"]["template"]["spec"]
}

fn worker(cluster: &mut Value) -> &mut Value {
    &mut cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]
}
