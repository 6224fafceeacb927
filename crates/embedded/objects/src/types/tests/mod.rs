use serde_json::json;

use super::*;

#[test]
fn every_line_of_the_table_is_understood() {
    let text = include_str!("../generated/types.txt");
    let fields = text.lines().filter(|line| line.starts_with(' ')).count();
    assert_eq!(all().iter().map(|kind| kind.fields.len()).sum::<usize>(), fields);
    assert!(all().windows(2).all(|pair| pair[0].name < pair[1].name));
}

#[test]
fn fields_know_how_they_merge() {
    let container = by_name("io.k8s.api.core.v1.Container").unwrap();
    let ports = container.field("ports").unwrap();
    assert_eq!(ports.merge_key, Some("containerPort"));
    assert_eq!(ports.list, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
    let port = ports.shape.element().and_then(Shape::as_struct).unwrap();
    assert_eq!(port.field("protocol").unwrap().default, Some(json!("TCP")));
    let volume = by_name("io.k8s.api.core.v1.Volume").unwrap();
    assert!(volume.field("configMap").is_some(), "embedded structs are flat in JSON");
    let pod = kind("v1", "Pod").unwrap();
    assert!(pod.field("apiVersion").is_some());
    assert!(by_name("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").unwrap().is_atomic);
}

#[test]
fn decoding_drops_what_go_would_drop() {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "bogus": 1,
        "metadata": { "name": "a", "creationTimestamp": null, "labels": {} },
        "spec": { "hostNetwork": false, "containers": [{
            "name": "c", "bad": true,
            "resources": { "limits": { "cpu": 0.5, "memory": "1024Mi" } }
        }] }
    });
    let decoded = decode(kind("v1", "Pod").unwrap(), &mut pod).unwrap();
    assert_eq!(decoded.unknown, ["bogus", "spec.containers[0].bad"]);
    assert_eq!(
        pod,
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": { "containers": [{
            "name": "c", "resources": { "limits": { "cpu": "500m", "memory": "1Gi" } }
        }] } })
    );
}

#[test]
fn wrong_types_are_named_as_go_names_them() {
    let error = |version, name, mut value: Value| {
        decode(kind(version, name).unwrap(), &mut value).unwrap_err().to_string()
    };
    assert_eq!(
        error("v1", "ConfigMap", json!({ "data": { "a": 1 } })),
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    );
    assert_eq!(
        error("apps/v1", "Deployment", json!({ "spec": { "replicas": "three" } })),
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
    );
    assert!(
        error(
            "v1",
            "Pod",
            json!({ "spec": { "containers": [{ "resources": { "limits": { "cpu": "x" } } }] } })
        )
        .starts_with("quantities must match the regular expression")
    );
}

#[test]
fn depth_is_bounded() {
    let mut schema = json!({ "type": "object" });
    for _ in 0..100 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
    }
    let mut crd = json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }] } });
    let outcome = decode(kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap(), &mut crd);
    assert_eq!(outcome, Err(DecodeError::Depth));
}
