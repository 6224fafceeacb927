use serde_json::{Value, json};

use super::*;

fn options() -> RequestOptions {
    let source = |resource: &str, name: &str| DeviceSource {
        resource: resource.to_owned(),
        name: name.to_owned(),
        driver: "gpu.example.com".to_owned(),
        selector: Selector::new("device.driver == 'gpu.example.com' && !has(device.attributes['x'].broken)"),
    };
    let quota = |resource: &str, counters: &[&str], capacities: &[&str]| DeviceQuota {
        resource: resource.to_owned(),
        counters: counters.iter().map(|name| source(&format!("gpu.{name}"), name)).collect(),
        capacities: capacities.iter().map(|name| source(resource, name)).collect(),
    };
    let device_classes = BTreeMap::from([
        ("gpu.example.com".to_owned(), quota("gpus", &[], &[])),
        ("slice.example.com".to_owned(), quota("gpu.memory", &["memory", "cores"], &[])),
        ("vgpu.example.com".to_owned(), quota("vgpu.memory", &[], &["memory"])),
        ("missing.example.com".to_owned(), quota("gpu.memory", &["memory"], &[])),
    ]);
    RequestOptions { device_classes, ..RequestOptions::default() }
}

fn gates() -> Gates {
    Gates { dra_capacity: true, ..Gates::default() }
}

fn from<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn devices(requests: &Value) -> Devices {
    let mut devices = Devices::default();
    let template = from(json!({ "metadata": { "name": "t", "namespace": "ns" },
        "spec": { "spec": { "devices": { "requests": requests } } } }));
    devices.apply_template(&template).unwrap();
    for (name, created) in [("gpu.example.com", "2026-01-01T00:00:02Z"), ("old", "2026-01-01T00:00:01Z")] {
        devices.apply_class(&from(json!({ "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "extendedResourceName": "example.com/gpu" } })));
    }
    for (name, expression) in [
        ("slice.example.com", "device.attributes['gpu.example.com'].kind == 'slice'"),
        ("vgpu.example.com", "device.driver == 'gpu.example.com'"),
    ] {
        devices.apply_class(&from(json!({ "metadata": { "name": name },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] } })));
    }
    devices
}

fn workload(spec: &Value) -> v1beta2::Workload {
    serde_json::from_value(json!({ "metadata": { "name": "w", "namespace": "ns" },
        "spec": { "podSets": [{ "name": "main", "count": 1, "template": { "spec": spec } }] } }))
    .unwrap()
}

fn claiming(template: &str) -> v1beta2::Workload {
    workload(&json!({ "containers": [], "resourceClaims": [
        { "name": "c", "resourceClaimTemplateName": template }] }))
}

/// What is counted, as `resource=count`, or why it is not.
fn counted(devices: &Devices, object: &v1beta2::Workload, gates: &Gates) -> String {
    match devices.claims(object, &options(), gates).unwrap() {
        Err(rejected) => rejected,
        Ok(found) => {
            let claimed = found.iter().flat_map(|(_, claimed, _)| claimed);
            claimed.map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(",")
        }
    }
}

fn exactly(request: &Value) -> Value {
    json!([{ "name": "r", "exactly": request }])
}

#[test]
fn claims_of_templates_count_by_the_mapping_of_their_class() {
    let claim = "spec.podSets[0].template.spec.resourceClaims[0]";
    let request = |mode: &str, count: i64| json!({ "deviceClassName": "gpu.example.com", "allocationMode": mode, "count": count });
    let table = [
        (exactly(&request("ExactCount", 2)), "gpus=2".to_owned()),
        (exactly(&json!({ "deviceClassName": "gpu.example.com" })), "gpus=1".to_owned()),
        (
            exactly(&json!({ "deviceClassName": "gpu.example.com", "count": 4, "adminAccess": true })),
            format!(
                "{claim}.devices.requests[0].exactly.adminAccess: Invalid value: null: ResourceClaimTemplate t: AdminAccess is not supported"
            ),
        ),
        (
            exactly(&request("All", 0)),
            format!(
                "{claim}.devices.requests[0].exactly.allocationMode: Invalid value: \"All\": ResourceClaimTemplate t: AllocationMode 'All' is not supported"
            ),
        ),
        (
            json!([{ "name": "r", "firstAvailable": [] }]),
            format!(
                "{claim}.devices.requests[0]: Invalid value: null: ResourceClaimTemplate t: FirstAvailable device selection is not supported"
            ),
        ),
        (
            exactly(&json!({ "deviceClassName": "x", "count": 1 })),
            format!(
                "{claim}.resourceClaimTemplateName: Not found: \"DeviceClass x is not mapped in DRA configuration for podset main\""
            ),
        ),
    ];
    for (requests, expected) in table {
        assert_eq!(counted(&devices(&requests), &claiming("t"), &Gates::default()), expected, "{requests}");
    }
    let missing = counted(&devices(&json!([])), &claiming("u"), &Gates::default());
    assert!(missing.ends_with("ResourceClaimTemplate.resource.k8s.io \"u\" not found"), "{missing}");
}

#[test]
fn claims_by_name_and_claims_without_the_gate_are_rejected() {
    let devices = devices(&json!([]));
    let by_name = workload(&json!({ "containers": [], "resourceClaims": [
        { "name": "c", "resourceClaimName": "mine" }] }));
    assert_eq!(counted(&devices, &by_name, &Gates::default()), NO_CLAIMS);
    let off = Gates { dra: false, ..Gates::default() };
    assert_eq!(counted(&devices, &by_name, &off), GATE_OFF);
    assert_eq!(counted(&devices, &claiming("t"), &off), GATE_OFF);
    let ignored = Gates { dra_reject_when_disabled: false, ..off };
    assert_eq!(counted(&devices, &claiming("t"), &ignored), "");
}

#[test]
fn extended_resources_count_as_their_latest_class() {
    let devices = devices(&json!([]));
    let container = |count: &str| {
        json!({ "name": "c", "resources": { "requests": {
        "example.com/gpu": count, "example.com/other": "1", "cpu": "1" } } })
    };
    let object = workload(
        &json!({ "initContainers": [container("5")], "containers": [container("2"), container("1")] }),
    );
    let claims = devices.claims(&object, &options(), &Gates::default()).unwrap().unwrap();
    let five = Quantity::from_units(5, Notation::DecimalSi);
    let expected = (
        "main".to_owned(),
        Quantities::from([("gpus".to_owned(), five)]),
        vec!["example.com/gpu".to_owned()],
    );
    assert_eq!(claims, [expected]);
    let without = Gates { dra_extended_resources: false, ..Gates::default() };
    assert_eq!(counted(&devices, &object, &without), "");
    let halves = workload(&json!({ "containers": [container("500m")] }));
    assert_eq!(
        counted(&devices, &halves, &Gates::default()),
        "spec.podSets[0].template.spec.containers[0].resources.requests.example.com/gpu: Invalid value: \"500m\": extended resource quantity must be an integer"
    );
}

/// A slice of a pool of one driver.
fn slice(devices: &mut Devices, name: &str, pool: &Value, published: &Value) {
    let slice = json!({ "metadata": { "name": name },
        "spec": { "driver": "gpu.example.com", "pool": pool, "devices": published } });
    devices.apply_slice(&from(slice)).unwrap();
}

fn pool(slices: i64, generation: i64) -> Value {
    json!({ "name": "p", "generation": generation, "resourceSliceCount": slices })
}

fn part(name: &str, kind: &str, memory: &str) -> Value {
    json!({ "name": name,
        "attributes": { "kind": { "string": kind }, "major": { "int": 2 }, "old": { "bool": false },
            "gpu.example.com/version": { "version": "1.10.0" }, "other.example.com/kind": { "string": "else" } },
        "capacity": { "memory": { "value": memory } },
        "consumesCounters": [{ "counterSet": "s", "counters": { "memory": { "value": memory } } }] })
}

fn gpu() -> Value {
    json!([part("gpu", "gpu", "40Gi"), part("a", "slice", "5Gi"), part("b", "slice", "10Gi")])
}

fn with_selectors(class: &str, count: i64, expressions: &[&str]) -> Value {
    let selectors: Vec<Value> =
        expressions.iter().map(|expression| json!({ "cel": { "expression": expression } })).collect();
    json!({ "deviceClassName": class, "count": count, "selectors": selectors })
}

#[test]
fn selectors_have_to_select_as_many_devices_as_are_requested() {
    let path = "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]";
    let gpus = |count, expression| with_selectors("gpu.example.com", count, &[expression]);
    let lacking = |found: i64, count: i64| {
        format!(
            "{path}.exactly.selectors: Internal error: ResourceClaimTemplate t: insufficient matching devices for CEL selector in DeviceClass gpu.example.com: {found} device(s) match in the cluster but {count} requested"
        )
    };
    let failed = |why: &str| {
        format!(
            "{path}.exactly.selectors: Invalid value: null: ResourceClaimTemplate t: CEL evaluation failed for DeviceClass gpu.example.com: {why}"
        )
    };
    let not_compiled = |expression: &str, why: &str| {
        format!(
            "{path}.exactly.selectors: Invalid value: null: ResourceClaimTemplate t: devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: {expression:?}: CEL compilation failed: {why}"
        )
    };
    let table = [
        (gpus(3, "device.driver == 'gpu.example.com'"), "gpus=3".to_owned()),
        (gpus(4, "device.driver == 'gpu.example.com'"), lacking(3, 4)),
        (gpus(1, "device.driver == 'other'"), lacking(0, 1)),
        (gpus(2, "device.attributes['gpu.example.com'].kind == 'slice'"), "gpus=2".to_owned()),
        (gpus(3, "device.attributes['gpu.example.com'].kind == 'slice'"), lacking(2, 3)),
        (gpus(3, "device.attributes['other.example.com'].kind == 'else'"), "gpus=3".to_owned()),
        (
            gpus(3, "cel.bind(of, device.attributes['gpu.example.com'], of.major > 1 && !of.old)"),
            "gpus=3".to_owned(),
        ),
        (
            gpus(3, "device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.9.0'))"),
            "gpus=3".to_owned(),
        ),
        (
            gpus(1, "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"),
            "gpus=1".to_owned(),
        ),
        (
            gpus(2, "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"),
            lacking(1, 2),
        ),
        (gpus(1, "'unknown.example.com' in device.attributes"), lacking(0, 1)),
        (gpus(1, "has(device.attributes['unknown.example.com'].kind)"), lacking(0, 1)),
        (gpus(1, "device.attributes['unknown.example.com'].kind == 'a'"), failed("no such key: kind")),
        (
            gpus(1, "device.attributes['gpu.example.com'].major"),
            failed(
                "CEL result of type int could not be converted to bool: unsupported type conversion from 'int' to bool",
            ),
        ),
        (
            gpus(1, "device.driver"),
            not_compiled("device.driver", "must evaluate to bool or the unknown type, not string"),
        ),
        (
            gpus(1, "device.nodeName == ''"),
            not_compiled(
                "device.nodeName == ''",
                "compilation failed: ERROR: <input>:1:7: undefined field 'nodeName'",
            ),
        ),
        (
            with_selectors(
                "gpu.example.com",
                1,
                &["device.driver != ''", "device.attributes['gpu.example.com'].kind == 'gpu'"],
            ),
            "gpus=1".to_owned(),
        ),
        (
            with_selectors("unknown.example.com", 1, &["true"]),
            format!(
                "{path}: Internal error: ResourceClaimTemplate t: failed to get DeviceClass unknown.example.com: DeviceClass.resource.k8s.io \"unknown.example.com\" not found"
            ),
        ),
    ];
    for (request, expected) in table {
        let mut devices = devices(&exactly(&request));
        slice(&mut devices, "one", &pool(1, 1), &gpu());
        assert_eq!(counted(&devices, &claiming("t"), &gates()), expected, "{request}");
    }
}

#[test]
fn a_device_is_selected_for_one_request() {
    let request = |name: &str| {
        json!({ "name": name,
        "exactly": with_selectors("gpu.example.com", 2, &["device.attributes['gpu.example.com'].kind == 'slice'"]) })
    };
    let mut devices = devices(&json!([request("a"), request("b")]));
    slice(&mut devices, "one", &pool(1, 1), &gpu());
    let lacking = counted(&devices, &claiming("t"), &gates());
    assert!(lacking.contains("requests[1]") && lacking.contains("0 device(s) match"), "{lacking}");
    // Pools need not be complete for that.
    slice(&mut devices, "two", &pool(9, 1), &gpu());
    assert_eq!(counted(&devices, &claiming("t"), &gates()), "gpus=4");
    devices.delete_slice("two");
    assert_eq!(counted(&devices, &claiming("t"), &gates()), lacking);
}

#[test]
fn counters_count_as_the_most_that_a_matching_device_takes() {
    let path = "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]";
    let cores = |mut device: Value, cores: &str| {
        device["consumesCounters"][0]["counters"]["cores"] = json!({ "value": cores });
        device
    };
    let published = json!([
        cores(part("gpu", "gpu", "40Gi"), "100"),
        cores(part("a", "slice", "5Gi"), "30"),
        cores(part("b", "slice", "10Gi"), "20")
    ]);
    let lacking = |found: i64, count: i64| {
        format!(
            "{path}: Internal error: insufficient matching devices for counter driver: {found} device(s) match but {count} requested"
        )
    };
    let slices = |count, expressions: &[&str]| with_selectors("slice.example.com", count, expressions);
    let table = [
        (slices(1, &[]), pool(1, 1), "gpu.cores=30,gpu.memory=10Gi".to_owned()),
        (slices(2, &[]), pool(1, 1), "gpu.cores=60,gpu.memory=20Gi".to_owned()),
        (slices(3, &[]), pool(1, 1), lacking(2, 3)),
        (
            slices(
                1,
                &[
                    "device.attributes['gpu.example.com'].kind == 'slice' && device.capacity['gpu.example.com'].memory.isLessThan(quantity('6Gi'))",
                ],
            ),
            pool(1, 1),
            "gpu.cores=30,gpu.memory=5Gi".to_owned(),
        ),
        (slices(1, &[]), pool(2, 1), lacking(0, 1)),
        (
            with_selectors("missing.example.com", 1, &[]),
            pool(1, 1),
            format!(
                "{path}: Internal error: failed to get DeviceClass missing.example.com: DeviceClass.resource.k8s.io \"missing.example.com\" not found"
            ),
        ),
    ];
    for (request, pool, expected) in table {
        let mut devices = devices(&exactly(&request));
        slice(&mut devices, "one", &pool, &published);
        assert_eq!(counted(&devices, &claiming("t"), &gates()), expected, "{request} {pool}");
    }
    let mut without = devices(&exactly(&slices(1, &[])));
    slice(&mut without, "one", &pool(1, 1), &gpu());
    assert_eq!(
        counted(&without, &claiming("t"), &gates()),
        format!(
            "{path}: Internal error: matched devices have no consumesCounters entry for counter \"cores\""
        )
    );
    let off = Gates { dra_counters: false, ..gates() };
    let mut devices = devices(&exactly(&slices(2, &[])));
    slice(&mut devices, "one", &pool(1, 1), &published);
    assert_eq!(counted(&devices, &claiming("t"), &off), "gpu.memory=2", "without the gate devices count");
}

#[test]
fn only_the_latest_generation_of_a_pool_counts() {
    let mut devices = devices(&exactly(&with_selectors("slice.example.com", 1, &[])));
    let lacking =
        |devices: &Devices| counted(devices, &claiming("t"), &gates()).contains("0 device(s) match but 1");
    let cores = json!([{ "name": "a", "attributes": { "kind": { "string": "slice" } }, "consumesCounters": [
        { "counterSet": "s", "counters": { "memory": { "value": "5Gi" }, "cores": { "value": "1" } } }] }]);
    slice(&mut devices, "one", &pool(2, 1), &cores);
    assert!(lacking(&devices), "a part of the pool is not there yet");
    slice(&mut devices, "two", &pool(2, 1), &json!([]));
    assert_eq!(counted(&devices, &claiming("t"), &gates()), "gpu.cores=1,gpu.memory=5Gi");
    slice(&mut devices, "three", &pool(2, 2), &cores);
    assert!(lacking(&devices), "those of the former generation are void");
    slice(&mut devices, "one", &pool(2, 2), &json!([]));
    assert_eq!(counted(&devices, &claiming("t"), &gates()), "gpu.cores=1,gpu.memory=5Gi");
}

#[test]
fn capacities_count_as_requested_and_rounded_by_the_policy_of_the_device() {
    let path = "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]";
    let device = |name: &str, value: &str, policy: Value| json!({ "name": name, "capacity": { "memory": { "value": value, "requestPolicy": policy } } });
    let values = |values: &[&str]| json!({ "default": values[0], "validValues": values });
    let range =
        |max: &str| json!({ "default": "5Gi", "validRange": { "min": "5Gi", "max": max, "step": "4Gi" } });
    let refused = format!(
        "{path}: Invalid value: null: capacity request cannot be satisfied by any matched device's RequestPolicy for dimension \"memory\""
    );
    let plain = |value: &str| vec![device("a", value, Value::Null)];
    let table = [
        (plain("80Gi"), Some("20Gi"), 1, "vgpu.memory=20Gi".to_owned()),
        (plain("80Gi"), None, 1, "vgpu.memory=80Gi".to_owned()),
        (
            vec![device("a", "40Gi", Value::Null), device("b", "80Gi", Value::Null)],
            None,
            2,
            "vgpu.memory=160Gi".to_owned(),
        ),
        (vec![device("a", "80Gi", json!({ "default": "10Gi" }))], None, 1, "vgpu.memory=10Gi".to_owned()),
        (
            vec![
                device("a", "80Gi", json!({ "default": "40Gi" })),
                device("b", "100Gi", json!({ "default": "10Gi" })),
            ],
            None,
            1,
            "vgpu.memory=40Gi".to_owned(),
        ),
        (
            vec![device("a", "80Gi", values(&["10Gi", "20Gi"]))],
            Some("15Gi"),
            1,
            "vgpu.memory=20Gi".to_owned(),
        ),
        (vec![device("a", "80Gi", values(&["10Gi", "20Gi"]))], Some("50Gi"), 1, refused.clone()),
        (
            vec![
                device("a", "80Gi", values(&["10Gi", "20Gi"])),
                device("b", "80Gi", values(&["10Gi", "60Gi"])),
            ],
            Some("50Gi"),
            1,
            "vgpu.memory=60Gi".to_owned(),
        ),
        (vec![device("a", "80Gi", range("80Gi"))], Some("3Gi"), 1, "vgpu.memory=5Gi".to_owned()),
        (vec![device("a", "80Gi", range("80Gi"))], Some("6Gi"), 1, "vgpu.memory=9Gi".to_owned()),
        (vec![device("a", "80Gi", range("8Gi"))], Some("6Gi"), 1, refused),
        (
            plain("80Gi"),
            None,
            2,
            format!(
                "{path}: Internal error: insufficient matching devices for capacity driver: 1 device(s) match but 2 requested"
            ),
        ),
        (
            vec![json!({ "name": "a" })],
            Some("1Gi"),
            1,
            format!("{path}: Internal error: matched devices have no capacity dimension \"memory\""),
        ),
    ];
    for (published, requested, count, expected) in table {
        let mut request = with_selectors("vgpu.example.com", count, &[]);
        if let Some(amount) = requested {
            request["capacity"] = json!({ "requests": { "memory": amount } });
        }
        let mut devices = devices(&exactly(&request));
        slice(&mut devices, "one", &pool(1, 1), &json!(published));
        assert_eq!(counted(&devices, &claiming("t"), &gates()), expected, "{published:?} {requested:?}");
    }
    let mut devices = devices(&exactly(&with_selectors("vgpu.example.com", 2, &[])));
    slice(&mut devices, "one", &pool(1, 1), &json!([device("a", "80Gi", Value::Null)]));
    assert_eq!(
        counted(&devices, &claiming("t"), &Gates::default()),
        "vgpu.memory=2",
        "without the gate devices count"
    );
}

#[test]
fn devices_whose_selectors_fail_are_named() {
    let mut devices = devices(&exactly(&with_selectors("slice.example.com", 1, &[])));
    slice(&mut devices, "one", &pool(1, 1), &json!([{ "name": "a" }]));
    assert_eq!(
        counted(&devices, &claiming("t"), &gates()),
        "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Internal error: CEL evaluation error in DeviceClass selector for device a: no such key: kind"
    );
    slice(
        &mut devices,
        "one",
        &pool(1, 1),
        &json!([{ "name": "a", "attributes": { "kind": { "strings": ["slice"] } } }]),
    );
    let unsupported = counted(&devices, &claiming("t"), &gates());
    assert!(
        unsupported.ends_with("deviceSelector for device a: attribute kind: unsupported attribute value"),
        "{unsupported}"
    );
}
