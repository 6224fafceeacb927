use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::types::Shape;

fn round_trip(object: &Value) -> Value {
    decode(&encode(object).unwrap(), None).unwrap()
}

#[test]
fn objects_survive() {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p", "creationTimestamp": "2026-01-02T03:04:05Z", "labels": { "a": "b" }, "annotations": { "x": "" } },
        "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "cpu": "500m" } },
            "ports": [{ "containerPort": 80, "protocol": "TCP" }],
            "livenessProbe": { "httpGet": { "port": "http", "path": "/" }, "periodSeconds": 10 } }],
            "volumes": [{ "name": "v", "configMap": { "name": "cm", "defaultMode": 420 } }], "terminationGracePeriodSeconds": 0 },
        "status": { "phase": "Pending" } });
    let back = round_trip(&pod);
    assert_eq!(back, pod);
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "l" },
        "spec": { "holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.123456Z" } });
    assert_eq!(round_trip(&lease), lease);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": "dg==" }, "type": "Opaque" });
    assert_eq!(round_trip(&secret), secret);
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
        "spec": { "user": "u", "extra": { "k": ["v", "w"] } }, "status": { "allowed": false } });
    assert_eq!(round_trip(&review), review);
    let list = json!({ "apiVersion": "v1", "kind": "ConfigMapList", "metadata": { "resourceVersion": "7" },
        "items": [{ "metadata": { "name": "a" }, "data": { "k": "v" } }] });
    assert_eq!(round_trip(&list), list);
    let crd = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "x" },
        "spec": { "group": "g", "names": { "plural": "p", "kind": "K" }, "scope": "Namespaced", "versions": [{ "name": "v1",
            "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                "a": { "type": "array", "items": { "type": "string" } },
                "m": { "type": "object", "additionalProperties": { "type": "integer", "minimum": 0.5 } },
                "any": { "type": "object", "additionalProperties": true, "default": { "q": [1] } } } } } }] },
        "status": { "conditions": [], "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": ["v1"] } });
    let mut back = round_trip(&crd);
    back["status"]["conditions"] = json!([]);
    assert_eq!(back, crd);
}

#[test]
fn options_are_found_in_any_group() {
    let options =
        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
    let bytes = encode(&options).unwrap();
    assert_eq!(decode(&bytes, None).unwrap(), options);
    let in_core =
        encode(&json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 })).unwrap();
    assert_eq!(decode(&in_core, None).unwrap()["gracePeriodSeconds"], 0);
}

#[test]
fn bytes_of_go_are_understood() {
    // A Namespace named "a" with the label x=y, as k8s.io/apimachinery v0.36 writes it.
    let bytes = include_bytes!("namespace.bin");
    let object = decode(bytes, None).unwrap();
    assert_eq!(
        object,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a", "labels": { "x": "y" } },
            "spec": {}, "status": {} })
    );
    let bytes = include_bytes!("deployment.bin");
    let object = decode(bytes, None).unwrap();
    let expected: Value = serde_json::from_slice(include_bytes!("deployment.json")).unwrap();
    assert_eq!(object, expected);
    assert_eq!(encode(&object).unwrap(), bytes, "and written the same");
}

#[test]
fn watch_events_are_framed() {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let frame = encode_watch_event("ADDED", &object).unwrap();
    assert_eq!(u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - 4);
    assert_eq!(&frame[4..11], b"\x0a\x05ADDED");
}

#[test]
fn a_list_in_parts_is_the_list() {
    let item = |name: &str| json!({ "metadata": { "name": name }, "data": { "k": "v".repeat(200) } });
    let mut list =
        json!({ "apiVersion": "v1", "kind": "ConfigMapList", "metadata": { "resourceVersion": "7" } });
    let head_of = list.clone();
    list["items"] = json!([item("a"), item("b")]);
    let items = ["a", "b"].map(|name| {
        let mut item = item(name);
        item["apiVersion"] = json!("v1");
        item["kind"] = json!("ConfigMap");
        encode_list_item(&item).unwrap()
    });
    let items = items.concat();
    let head = encode_list_head(&head_of, items.len()).unwrap();
    assert_eq!([head.as_slice(), &items, &LIST_TAIL].concat(), encode(&list).unwrap());
}

#[test]
fn malformed_bytes_are_errors() {
    assert_eq!(decode(b"{}", None), Err(ProtobufError::Magic));
    assert!(matches!(decode(b"k8s\0", None), Err(ProtobufError::Unknown { .. })));
    assert!(decode(b"k8s\0\x0a\xff", Some(("v1", "Pod"))).is_err());
    assert!(decode(b"k8s\0\x12\x02\x0a\x05", Some(("v1", "Pod"))).is_err());
}

/// Any object of a type, as deep as `depth`.
fn sample(kind: &'static Type, seed: &mut u64, depth: usize) -> Value {
    let mut object = serde_json::Map::new();
    for field in kind.json_fields() {
        // Only the envelope says what an object is.
        let is_typed = kind.fields.iter().any(|field| field.is_inline && field.number == 0);
        if ["apiVersion", "kind"].contains(&field.name) && is_typed {
            continue;
        }
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (*seed >> 33).is_multiple_of(3)
            && let Some(value) = sample_value(&field.shape, seed, depth)
        {
            object.insert(field.name.into(), value);
        }
    }
    Value::Object(object)
}

fn sample_value(shape: &Shape, seed: &mut u64, depth: usize) -> Option<Value> {
    Some(match shape {
        Shape::String => json!(format!("s{}", *seed >> 60)),
        Shape::Bool | Shape::SchemaOrBool => json!(true),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 => json!((*seed >> 50) + 1),
        Shape::Double => json!(1.5),
        Shape::Bytes => json!("AAE="),
        Shape::Time => json!("2026-01-02T03:04:05Z"),
        Shape::MicroTime => json!("2026-01-02T03:04:05.000006Z"),
        Shape::Duration => json!("1m30s"),
        Shape::Quantity => json!("10Mi"),
        Shape::IntOrString => json!("50%"),
        Shape::Raw | Shape::Json | Shape::Fields => json!({ "a": [1, "b"] }),
        Shape::SchemaOrArray | Shape::SchemaOrStrings => json!({ "type": "string" }),
        Shape::Struct(_) if depth > 4 => return None,
        Shape::Struct(id) => sample(id.get(), seed, depth + 1),
        Shape::List(element) | Shape::Items(element) => json!([sample_value(element, seed, depth + 1)?]),
        Shape::Map(element) => json!({ "k": sample_value(element, seed, depth + 1)? }),
    })
}

/// Everything of `one` is in `two`.
fn is_within(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Object(one), Value::Object(two)) => {
            one.iter().all(|(key, value)| two.get(key).is_some_and(|found| is_within(value, found)))
        }
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_within(one, two))
        }
        _ => one == two,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every kind survives, whatever its fields are.
    #[test]
    fn every_kind_survives(seed in any::<u64>()) {
        for kind in crate::builtin::all() {
            let mut object = sample(kind.schema().unwrap(), &mut seed.wrapping_add(1), 0);
            object["apiVersion"] = json!(kind.api_version());
            object["kind"] = json!(kind.kind);
            let back = round_trip(&object);
            prop_assert!(is_within(&object, &back), "{object}\n{back}");
            let mut decoded = back.clone();
            crate::types::decode(kind.schema().unwrap(), &mut decoded).unwrap();
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut enveloped = MAGIC.to_vec();
        enveloped.extend_from_slice(&bytes);
        let _ = decode(&enveloped, Some(("v1", "Pod")));
        let mut raw = Writer::default();
        raw.bytes(2, &bytes);
        let mut enveloped = MAGIC.to_vec();
        enveloped.extend_from_slice(&raw.finish());
        let _ = decode(&enveloped, Some(("apps/v1", "Deployment")));
    }

    /// Bytes cut or changed anywhere are read or refused.
    #[test]
    fn damaged_bytes_never_panic(seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut object = sample(types::kind("v1", "Pod").unwrap(), &mut seed.clone(), 0);
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Pod");
        let mut bytes = encode(&object).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(&bytes, None);
        bytes.truncate(at);
        let _ = decode(&bytes, None);
    }
}
