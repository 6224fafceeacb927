use proptest::prelude::*;

use super::*;
use crate::arbitrary;

fn service() -> WebhookService {
    WebhookService { namespace: "quintet-system".into(), name: "quintet-webhook".into() }
}

fn typed(definition: &Definition) -> Option<CustomResourceDefinition> {
    serde_json::from_value(definition.json(&service())?).ok()
}

/// Walks a schema and everything below it.
fn each_schema(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        each_schema(field, &format!("{path}.{name}"), visit);
    }
    for (inner, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[inner].is_object() {
            each_schema(&schema[inner], &format!("{path}{mark}"), visit);
        }
    }
}

#[test]
fn every_version_of_every_crd_has_a_schema() {
    let crds = all(&service());
    assert_eq!(crds.len(), 22);
    for crd in &crds {
        assert_eq!(crd.spec.versions.iter().filter(|version| version.storage).count(), 1);
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            assert!(schema.is_some_and(|schema| schema.properties.is_some()), "{:?}", crd.metadata.name);
        }
    }
}

#[test]
fn schemas_are_written_as_kubernetes_returns_them() {
    for kind in kinds() {
        each_schema(&(kind.schema)(), kind.name, &mut |path, schema| {
            assert_ne!(schema["required"], json!([]), "{path} has an empty list of required fields");
            for (key, value) in schema.as_object().into_iter().flatten() {
                let has_fraction = value.as_f64().is_some_and(|value| value.fract() != 0.0);
                assert!(has_fraction || !value.is_f64(), "{path}: {key} is {value}");
            }
        });
    }
    let mut schema = json!({ "required": [], "minimum": 0.0, "maximum": 0.5, "items": { "maximum": -2e3 } });
    structural::canonical(&mut schema);
    assert_eq!(schema, json!({ "minimum": 0, "maximum": 0.5, "items": { "maximum": -2000 } }));
}

#[test]
fn crds_are_printed_as_they_are_installed() {
    let printed = manifests(&definitions(), &service());
    let installed = makers(definitions(), &service());
    let mut installed: Vec<Value> = installed.into_iter().filter_map(|make| make()).collect();
    installed.sort_by_key(|crd| crd["metadata"]["name"].to_string());
    assert_eq!(printed, installed);
    let names: Vec<_> = printed.iter().map(|crd| crd["metadata"]["name"].to_string()).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn schemas_are_structural() {
    for kind in kinds() {
        each_schema(&(kind.schema)(), kind.name, &mut |path, schema| {
            let has_type = schema["type"].is_string()
                || schema["x-kubernetes-int-or-string"] == true
                || schema["x-kubernetes-preserve-unknown-fields"] == true;
            assert!(has_type, "{path} has no type: {schema}");
            for rust_idiom in ["$ref", "oneOf", "const", "title", "allOf"] {
                assert!(schema.get(rust_idiom).is_none(), "{path} has {rust_idiom}");
            }
            if schema["x-kubernetes-list-type"] == "map" {
                let item = &schema["items"];
                for key in schema["x-kubernetes-list-map-keys"].as_array().unwrap() {
                    let key = key.as_str().unwrap();
                    let is_always_there =
                        item["required"].as_array().is_some_and(|all| all.contains(&json!(key)))
                            || item["properties"][key].get("default").is_some();
                    assert!(is_always_there, "{path} merges by {key}, which may be absent");
                }
            }
        });
    }
}

/// Both are integers or texts in the API; only quantities have a syntax that the API server can check. All other
/// fields of this kind in these APIs are ports and update limits.
#[test]
fn quantities_have_a_pattern_and_ports_have_none() {
    let is_port = |path: &str| [".port", ".targetPort"].iter().any(|name| path.ends_with(name));
    let (mut quantities, mut ports) = (0, 0);
    for kind in kinds() {
        each_schema(&(kind.schema)(), kind.name, &mut |path, schema| {
            if schema["x-kubernetes-int-or-string"] != true {
                return;
            }
            assert_eq!(schema["anyOf"], json!([{ "type": "integer" }, { "type": "string" }]), "{path}");
            if is_port(path) {
                ports += 1;
                assert_eq!(schema.get("pattern"), None, "{path}");
            } else {
                quantities += 1;
                assert_eq!(schema["pattern"], kubernetes::QUANTITY_PATTERN, "{path}");
            }
        });
    }
    assert!(quantities > 400 && ports > 500, "{quantities} quantities, {ports} ports");
}

#[test]
fn every_field_of_ours_is_explained() {
    let is_kubernetes_own = |path: &str| {
        let embedded =
            ["emplate.", "ervice.", "Policy", "esources.", "ontext", "nv[]", "nvFrom", "olumeMounts"];
        embedded.iter().any(|part| path.contains(part))
    };
    for kind in kinds() {
        for (name, field) in (kind.schema)()["properties"].as_object().unwrap() {
            // What metadata is, the API server says.
            if name == "metadata" {
                assert_eq!(*field, json!({ "type": "object" }));
                continue;
            }
            assert!(field["description"].is_string(), "{}.{name} has no description", kind.name);
            for (inner, field) in field["properties"].as_object().into_iter().flatten() {
                let path = format!("{}.{name}.{inner}", kind.name);
                assert!(
                    is_kubernetes_own(&path) || field["description"].is_string(),
                    "{path} has no description"
                );
            }
        }
    }
}

#[test]
fn only_kinds_whose_versions_differ_in_shape_are_converted_by_webhook() {
    let converted: Vec<String> = all(&service())
        .into_iter()
        .filter(|crd| crd.spec.conversion.is_some())
        .map(|crd| crd.spec.names.kind)
        .collect();
    assert_eq!(
        converted,
        ["ClusterQueue", "Cohort", "LocalQueue", "ModelRegistry", "MultiKueueCluster", "Workload"]
    );
}

#[test]
fn a_crd_fits_into_one_request() {
    for crd in all(&service()) {
        let size = serde_json::to_vec(&crd).unwrap().len();
        assert!(size < 512 * 1024, "{:?} has {size} bytes; the API server stores 1.5 MB", crd.metadata.name);
    }
}

#[test]
fn the_facts_about_kubernetes_types_name_types_and_fields_that_exist() {
    kubernetes::tests::every_fact_applies();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the schema allows, the type keeps.
    #[test]
    fn reading_and_writing_an_object_loses_nothing(seed in any::<u64>()) {
        for kind in kinds() {
            let object = arbitrary::object(&kind, seed);
            let written = (kind.reread)(object.clone());
            let written = written.map_err(|error| TestCaseError::fail(format!("{} {error}: {object}", kind.name)))?;
            prop_assert!(arbitrary::keeps(&object, &written), "{}\nbefore {object}\nafter  {written}", kind.name);
        }
    }
}

#[test]
fn typed_clients_read_every_definition() {
    for definition in definitions() {
        let read = typed(&definition).expect("a definition that clients read");
        let schemas = read.spec.versions.iter().filter(|version| version.schema.is_some());
        assert_eq!(schemas.count(), definition.versions.len(), "{:?}", read.metadata.name);
    }
}
