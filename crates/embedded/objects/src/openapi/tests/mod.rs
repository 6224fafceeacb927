use std::collections::BTreeSet;

use super::*;

/// Every reference in a document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.insert(reference.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn is_closed(document: &Value) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    for reference in found {
        assert!(
            document.pointer(reference.trim_start_matches('#')).is_some_and(Value::is_object),
            "{reference}"
        );
    }
}

#[test]
fn documents_have_what_kubectl_reads() {
    for (_, version) in builtin_groups() {
        is_closed(&builtin_v3(&version, "v1.36.0"));
    }
    let apps = builtin_v3("apps/v1", "v1.36.0");
    let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({ "group": "apps", "version": "v1", "kind": "Deployment" })
    );
    assert!(patch["parameters"].as_array().unwrap().iter().any(|one| one["name"] == "fieldValidation"));
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
    let schemas = &apps["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(
        schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"][0]["kind"],
        "Deployment"
    );
    assert!(
        containers["description"].as_str().unwrap().contains("containers"),
        "explain has something to say"
    );
    assert_eq!(schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"], "int-or-string");
}

#[test]
fn custom_kinds_are_published_too() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "size": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
        "list": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } } } } } });
    let kind = CustomKind {
        group: "ray.io",
        version: "v1",
        kind: "RayCluster",
        list_kind: "RayClusterList",
        plural: "rayclusters",
        is_namespaced: true,
        has_status: true,
        schema: &schema,
    };
    let document = custom_v3(&[kind], "v1.36.0");
    is_closed(&document);
    let published = &document["components"]["schemas"]["io.ray.v1.RayCluster"];
    assert_eq!(published["x-kubernetes-group-version-kind"][0]["group"], "ray.io");
    assert_eq!(published["properties"]["spec"]["properties"]["size"]["format"], "int-or-string");
    let patch = &document["paths"]["/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}"]["patch"];
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());

    let old = v2(&[kind], "v1.36.0");
    is_closed(&old);
    assert_eq!(
        old["definitions"]["io.ray.v1.RayCluster"]["properties"]["spec"]["properties"]["size"]["type"],
        "string"
    );
    assert!(crate::protobuf::encode_document(&old).len() > 100_000);
}
