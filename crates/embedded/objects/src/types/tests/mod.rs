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

/// Objects of a type with one byte field each, which holds `text`.
fn with_byte_field(kind: &'static Type, text: &str, depth: usize) -> Vec<Value> {
    let wrap = |shape: &Shape| wrap_byte_field(shape, text, depth);
    let fields = kind.json_fields().into_iter();
    fields
        .flat_map(|field| wrap(&field.shape).into_iter().map(|inner| json!({ field.name: inner })))
        .collect()
}

fn wrap_byte_field(shape: &Shape, text: &str, depth: usize) -> Vec<Value> {
    match shape {
        Shape::Bytes => vec![json!(text)],
        Shape::Struct(id) if depth < 8 => with_byte_field(id.get(), text, depth + 1),
        Shape::List(element) | Shape::Items(element) => {
            wrap_byte_field(element, text, depth + 1).into_iter().map(|inner| json!([inner])).collect()
        }
        Shape::Map(element) => {
            wrap_byte_field(element, text, depth + 1).into_iter().map(|inner| json!({ "k": inner })).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn every_byte_field_of_every_kind_is_normalized() {
    let mut kinds = Vec::new();
    for kind in crate::builtin::all() {
        let schema = kind.schema().unwrap();
        let normal = with_byte_field(schema, "YWJj", 0);
        for (mut object, normal) in with_byte_field(schema, "Y\r\nWJj\n", 0).into_iter().zip(&normal) {
            decode(schema, &mut object).unwrap();
            assert_eq!(object, *normal);
        }
        for mut object in with_byte_field(schema, "YWJ", 0) {
            let error = decode(schema, &mut object).unwrap_err().to_string();
            assert_eq!(error, "illegal base64 data at input byte 0", "{object}");
        }
        if !normal.is_empty() {
            kinds.push(kind.kind);
        }
    }
    for kind in [
        "Secret",
        "ConfigMap",
        "CertificateSigningRequest",
        "CustomResourceDefinition",
        "APIService",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ] {
        assert!(kinds.contains(&kind), "{kind} has byte fields; found {kinds:?}");
    }
}

#[test]
fn times_are_read_in_the_form_of_go_only() {
    let decoded = |time: &str| {
        let mut object = json!({ "metadata": { "creationTimestamp": time } });
        let outcome = decode(kind("v1", "ConfigMap").unwrap(), &mut object);
        outcome.ok().map(|_| object["metadata"]["creationTimestamp"].as_str().unwrap().to_owned())
    };
    for (time, normal) in [
        ("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05,5Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05+01:00", "2024-01-02T02:04:05Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
    ] {
        assert_eq!(decoded(time).as_deref(), Some(normal), "{time}");
    }
    for time in [
        "2024-01-02T03:04:05z",
        "2024-01-02 03:04:05Z",
        "2024-01-02T03:04Z",
        "2024-01-02T03:04:05",
        "2024-01-02T03:04:05+0100",
        "2024-01-02T03:04:60Z",
        "2024-01-02T03:04:05.Z",
        "2024-01-02T03:04:05Z[UTC]",
        "+002024-01-02T03:04:05Z",
        "-000044-03-15T00:00:00Z",
    ] {
        assert_eq!(decoded(time), None, "{time}");
    }
}

#[test]
fn what_is_no_schema_is_refused_or_dropped_as_go_does() {
    let decoded = |schema: Value| {
        let mut crd = json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }] } });
        let outcome = decode(kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap(), &mut crd);
        outcome
            .map(|_| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take())
            .map_err(|error| error.to_string())
    };
    assert_eq!(decoded(json!({ "items": "text" })), Ok(json!({})));
    assert_eq!(decoded(json!({ "items": [null] })), Ok(json!({ "items": [{}] })));
    assert!(decoded(json!({ "items": ["text"] })).unwrap_err().starts_with("json: cannot unmarshal string"));
    assert_eq!(decoded(json!({ "additionalProperties": 3 })).unwrap_err(), "boolean or JSON schema expected");
    assert!(decoded(json!({ "dependencies": { "a": [3] } })).unwrap_err().contains("number"));
}
