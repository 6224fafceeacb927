use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary;
use crate::crd;
use crate::kueue::v1beta2::TopologyAssignment;

fn converted(object: Value, to: &str) -> Value {
    convert(object, to).unwrap()
}

/// The kinds with a conversion, each in its old and its new version.
fn pairs() -> Vec<(crd::Kind, crd::Kind)> {
    let find = |api_version: &str, kind: &str| {
        crd::kinds().into_iter().find(|k| k.api_version == api_version && k.name == kind).unwrap()
    };
    CONVERSIONS.iter().map(|known| (find(known.old, known.kind), find(known.new, known.kind))).collect()
}

/// Nulls and empty values aside, which no version tells from absent ones, and topology cut into one slice.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(fields) if fields.contains_key("slices") => {
            let assignment: TopologyAssignment = serde_json::from_value(Value::Object(fields)).unwrap();
            let domains = assignment.domains();
            json!({ "levels": assignment.levels, "domains": domains })
        }
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key, without_empty(value)))
                .filter(|(_, value)| !object::is_empty(Some(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}

#[test]
fn a_cluster_queue_changes_its_words() {
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": { "name": "a" },
        "spec": {
            "cohort": "all", "admissionChecks": ["budget"],
            "flavorFungibility": { "whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt" },
        },
        "status": { "pendingWorkloadsStatus": { "lastChangeTime": "2025-01-01T00:00:00Z" } },
    });
    let new = converted(old, "kueue.x-k8s.io/v1beta2");
    assert_eq!(
        new,
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "a" },
            "spec": {
                "cohortName": "all", "admissionChecksStrategy": { "admissionChecks": [{ "name": "budget" }] },
                "flavorFungibility": { "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch" },
            },
            "status": {},
        })
    );
    let back = converted(new, "kueue.x-k8s.io/v1beta1");
    assert_eq!(back["spec"]["cohort"], "all");
    assert!(back["spec"].get("admissionChecks").is_none(), "the strategy says it all");
}

#[test]
fn a_workload_keeps_its_priority_class_and_its_topology() {
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": { "name": "a" },
        "spec": {
            "priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass", "podSets": [],
        },
        "status": {
            "accumulatedPastExexcutionTimeSeconds": 7,
            "admission": { "clusterQueue": "cq", "podSetAssignments": [{ "name": "main", "topologyAssignment": {
                "levels": ["host"],
                "domains": [{ "values": ["x1"], "count": 1 }, { "values": ["x2"], "count": 3 }],
            }}]},
        },
    });
    let new = converted(old.clone(), "kueue.x-k8s.io/v1beta2");
    assert_eq!(
        new["spec"]["priorityClassRef"],
        json!({ "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high" })
    );
    assert_eq!(new["status"]["accumulatedPastExecutionTimeSeconds"], 7);
    assert_eq!(converted(new, "kueue.x-k8s.io/v1beta1"), old);
}

#[test]
fn a_topology_that_promises_more_than_it_has_is_refused() {
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": "a" },
        "status": { "admission": { "clusterQueue": "q", "podSetAssignments": [{ "name": "main", "topologyAssignment": {
            "levels": ["kubernetes.io/hostname"], "slices": [{
                "domainCount": 2_000_000_000, "podCounts": { "universal": 1 }, "valuesPerLevel": [{ "universal": "x" }],
            }],
        } }] } },
    });
    let error = convert(object, "kueue.x-k8s.io/v1beta1").unwrap_err().to_string();
    assert!(error.contains("topologyAssignment") && error.contains("too many domains"), "{error}");
}

#[test]
fn a_priority_class_of_no_kind_is_no_priority_class() {
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "spec": { "priorityClassName": "high", "priorityClassSource": "" },
    });
    assert_eq!(converted(old, "kueue.x-k8s.io/v1beta2")["spec"], json!({}));
}

#[test]
fn a_source_of_a_priority_class_is_kept_without_a_name() {
    let spec = json!({ "priorityClassSource": "scheduling.k8s.io/priorityclass" });
    let old = json!({ "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": { "name": "a" },
        "spec": spec });
    let new = converted(old, "kueue.x-k8s.io/v1beta2");
    let reference = json!({ "group": "scheduling.k8s.io", "kind": "PriorityClass" });
    assert_eq!(new["spec"]["priorityClassRef"], reference);
    assert!(serde_json::from_value::<v1beta2::Workload>(new.clone()).is_ok(), "controllers can read it");
    assert_eq!(
        converted(new, "kueue.x-k8s.io/v1beta1")["spec"]["priorityClassSource"],
        spec["priorityClassSource"]
    );
    let mixed = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "spec": {
        "priorityClassRef": { "group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "a" } } });
    assert_eq!(converted(mixed, "kueue.x-k8s.io/v1beta1")["spec"], json!({ "podSets": [] }));
}

#[test]
fn a_multikueue_cluster_without_kubeconfig_location_has_none() {
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "MultiKueueCluster",
        "spec": { "kubeConfig": { "location": "", "locationType": "Secret" }, "clusterProfileRef": { "name": "p" } },
    });
    let new = converted(old.clone(), "kueue.x-k8s.io/v1beta2");
    assert_eq!(new["spec"], json!({ "clusterSource": { "clusterProfileRef": { "name": "p" } } }));
    assert_eq!(converted(new, "kueue.x-k8s.io/v1beta1"), old);
}

#[test]
fn istio_becomes_a_proxy_as_open_as_its_gateway() {
    let registry = |istio: Value| {
        let old = json!({
            "apiVersion": "modelregistry.opendatahub.io/v1alpha1", "kind": "ModelRegistry",
            "spec": { "grpc": {}, "rest": {}, "istio": istio },
        });
        converted(old, "modelregistry.opendatahub.io/v1beta1")["spec"].clone()
    };
    let proxy = |route: &str| json!({ "port": 8443, "routePort": 443, "serviceRoute": route });
    assert_eq!(registry(json!({})), json!({ "rest": {}, "grpc": {}, "oauthProxy": proxy("disabled") }));
    assert_eq!(registry(json!({ "gateway": { "rest": {}, "grpc": {} } }))["oauthProxy"], proxy("enabled"));
    assert_eq!(
        registry(json!({ "gateway": { "rest": { "gatewayRoute": "disabled" } } }))["oauthProxy"],
        proxy("disabled")
    );
    assert_eq!(
        registry(json!({ "gateway": { "domain": "x.y", "rest": { "tls": {}, "port": 8444 } } }))["oauthProxy"],
        json!({ "port": 8443, "routePort": 8444, "serviceRoute": "enabled", "domain": "x.y" })
    );
}

#[test]
fn registries_have_what_upstreams_types_always_write() {
    for (from, to) in [("v1alpha1", "v1beta1"), ("v1beta1", "v1alpha1")] {
        let registry = json!({
            "apiVersion": format!("modelregistry.opendatahub.io/{from}"), "kind": "ModelRegistry",
            "spec": { "mysql": { "host": "db" } },
        });
        let spec = converted(registry, &format!("modelregistry.opendatahub.io/{to}"))["spec"].clone();
        let mysql = json!({ "host": "db", "username": "", "database": "" });
        assert_eq!(spec, json!({ "rest": {}, "grpc": {}, "mysql": mysql }), "{from}");
    }
}

#[test]
fn an_old_client_takes_nothing_away() {
    let new = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": "a" },
        "spec": {
            "preemptionGates": [{ "name": "g" }],
            "podSets": [{ "name": "main", "count": 1, "template": {}, "topologyRequest": {
                "podsetSliceRequiredTopologyConstraints": [{ "topology": "host", "size": 2 }],
            }}],
        },
    });
    let mut old = converted(new.clone(), "kueue.x-k8s.io/v1beta1");
    assert!(old["spec"].get("preemptionGates").is_none());
    old["spec"]["podSets"][0]["count"] = json!(2);
    let mut expected = new;
    expected["spec"]["podSets"][0]["count"] = json!(2);
    assert_eq!(converted(old, "kueue.x-k8s.io/v1beta2"), expected);
}

#[test]
fn a_damaged_annotation_is_ignored() {
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "metadata": { "annotations": { "api.quintet.dev/newer-fields": "{" } }, "spec": {},
    });
    assert_eq!(converted(old, "kueue.x-k8s.io/v1beta2")["metadata"], json!({}));
}

#[test]
fn an_annotation_cannot_smuggle_in_what_the_newer_version_cannot_read() {
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "spec": {},
        "metadata": { "annotations": { "api.quintet.dev/newer-fields": r#"{"spec.preemptionGates":"x"}"# } },
    });
    let new = converted(old, "kueue.x-k8s.io/v1beta2");
    assert_eq!(new["spec"], json!({}));
    assert_eq!(new["metadata"], json!({}));
}

#[test]
fn what_an_old_client_sets_wins_over_its_newer_rival() {
    let new = json!({
        "apiVersion": "modelregistry.opendatahub.io/v1beta1", "kind": "ModelRegistry", "metadata": { "name": "a" },
        "spec": { "rest": {}, "kubeRBACProxy": {}, "postgres": { "generateDeployment": true, "image": "pg" } },
    });
    let mut old = converted(new, "modelregistry.opendatahub.io/v1alpha1");
    old["spec"]["oauthProxy"] = json!({});
    old["spec"]["postgres"]["host"] = json!("db");
    let back = converted(old, "modelregistry.opendatahub.io/v1beta1");
    assert_eq!(
        back["spec"],
        json!({ "rest": {}, "grpc": {}, "oauthProxy": {}, "postgres": { "host": "db", "image": "pg" } })
    );
}

#[test]
fn what_cannot_be_converted_says_so() {
    let object = |api_version: &str, kind: &str| json!({ "apiVersion": api_version, "kind": kind });
    for (object, to, message) in [
        (json!([]), "v1", "cannot convert an object without apiVersion and kind"),
        (json!({}), "v1", "cannot convert an object without apiVersion and kind"),
        (
            object("kueue.x-k8s.io/v1beta1", "Workload"),
            "kueue.x-k8s.io/v9",
            "cannot convert Workload from kueue.x-k8s.io/v1beta1 to kueue.x-k8s.io/v9: no such conversion",
        ),
        (
            object("kueue.x-k8s.io/v1beta1", "Workload"),
            "ray.io/v1beta2",
            "cannot convert Workload from kueue.x-k8s.io/v1beta1 to ray.io/v1beta2: no such conversion",
        ),
        (object("v1", "Pod"), "v2", "cannot convert Pod from v1 to v2: no such conversion"),
    ] {
        assert_eq!(convert(object, to).unwrap_err().to_string(), message);
    }
    let same = object("v1", "Pod");
    assert_eq!(convert(same.clone(), "v1").unwrap(), same);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// An object written in the new version survives a client that knows only the old one.
    #[test]
    fn down_and_up_again_changes_nothing(seed in any::<u64>()) {
        for (old, new) in pairs() {
            let object = arbitrary::object(&new, seed);
            let there = converted(object.clone(), old.api_version);
            let read = (old.reread)(there.clone());
            prop_assert!(read.is_ok(), "{}: {:?}\n{there}", old.name, read);
            let back = converted(there, new.api_version);
            prop_assert_eq!(without_empty(back), without_empty(object), "{}", new.name);
        }
    }

    /// What comes out of a conversion is an object of the version that was asked for.
    #[test]
    fn up_gives_an_object_of_the_new_version(seed in any::<u64>()) {
        for (old, new) in pairs() {
            let there = converted(arbitrary::object(&old, seed), new.api_version);
            let read = (new.reread)(there.clone());
            prop_assert!(read.as_ref().is_ok_and(|read| arbitrary::keeps(&there, read)), "{}: {read:?}\n{there}", new.name);
        }
    }

    /// Converting twice in a row gives the same as converting once.
    #[test]
    fn up_down_up_is_up(seed in any::<u64>()) {
        for (old, new) in pairs() {
            let once = converted(arbitrary::object(&old, seed), new.api_version);
            let again = converted(converted(once.clone(), old.api_version), new.api_version);
            prop_assert_eq!(without_empty(again), without_empty(once), "{}", new.name);
        }
    }
}
