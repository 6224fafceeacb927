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
    let size = &published["properties"]["spec"]["properties"]["size"];
    assert_eq!(size, &schema["properties"]["spec"]["properties"]["size"], "as it is written");
    let patch = &document["paths"]["/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}"]["patch"];
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());

    let old = v2(&[kind], "v1.36.0");
    is_closed(&old);
    assert_eq!(
        old["definitions"]["io.ray.v1.RayCluster"]["properties"]["spec"]["properties"]["size"],
        json!({ "x-kubernetes-int-or-string": true }),
        "any value: OpenAPI v2 has no alternatives"
    );
    assert!(crate::protobuf::encode_document(&old).len() > 100_000);
}

fn published(schema: &Value) -> (Value, Value) {
    let kind = CustomKind {
        group: "example.com",
        version: "v1",
        kind: "Thing",
        list_kind: "ThingList",
        plural: "things",
        is_namespaced: true,
        has_status: false,
        schema,
    };
    let mut new = custom_v3(&[kind], "v1.36.0");
    let mut old = v2(&[kind], "v1.36.0");
    is_closed(&new);
    is_closed(&old);
    (
        new["components"]["schemas"]["com.example.v1.Thing"].take(),
        old["definitions"]["com.example.v1.Thing"].take(),
    )
}

#[test]
fn custom_kinds_describe_api_version_kind_and_metadata() {
    let (new, old) = published(&json!({ "type": "object", "properties": { "spec": { "type": "object" } } }));
    for document in [&new, &old] {
        for field in ["apiVersion", "kind", "metadata"] {
            let description = &document["properties"][field]["description"];
            assert!(
                description.as_str().is_some_and(|text| text.contains("More info")),
                "{field}: {document}"
            );
        }
    }
    assert!(new["properties"]["metadata"]["allOf"][0]["$ref"].is_string(), "{new}");
    assert!(old["properties"]["metadata"]["$ref"].is_string(), "{old}");
}

#[test]
fn custom_kinds_that_keep_everything_are_plain_objects_in_v2() {
    let mark = json!([{ "group": "example.com", "version": "v1", "kind": "Thing" }]);
    let plain = json!({ "type": "object", "x-kubernetes-group-version-kind": mark });
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let (new, old) = published(&open);
    assert_eq!(old, plain, "kubectl takes properties for all there are");
    assert_eq!(new["x-kubernetes-preserve-unknown-fields"], true);
    assert!(new["properties"]["metadata"].is_object());
    assert_eq!(published(&json!({})), (plain.clone(), plain), "a version without a schema");
}

#[test]
fn what_kubectl_cannot_read_is_left_out_of_v2() {
    let schema = json!({ "type": "object", "properties": {
        "nullable": { "type": "array", "nullable": true, "items": { "type": "string" } },
        "open": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": { "type": "string" } } },
        "embedded": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": {} },
    }, "required": ["nullable", "open"] });
    let (new, old) = published(&schema);
    assert_eq!(old["properties"]["nullable"], json!({}));
    assert_eq!(old["properties"]["open"], json!({ "x-kubernetes-preserve-unknown-fields": true }));
    assert_eq!(old["required"], json!(["open"]));
    assert_eq!(new["required"], json!(["nullable", "open"]));
    for document in [&new, &old] {
        let embedded = &document["properties"]["embedded"];
        assert_eq!(embedded["required"], json!(["kind", "apiVersion"]));
        assert!(embedded["properties"]["metadata"]["description"].is_string(), "{embedded}");
    }
}
