use std::collections::BTreeMap;

use quintet_api::ray::v1::{RayCluster, RayClusterSpec};
use serde_json::{Value, json};

use super::{
    restart_warning, validate_group_names, validate_metadata, validate_spec, validate_upgrade_strategy,
};
use crate::settings::{Gates, Settings};

/// A valid spec with some fields replaced; `null` removes.
fn spec(changes: &[(&str, Value)]) -> RayClusterSpec {
    let mut spec = json!({
        "rayVersion": "2.56.0",
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray", "env": [], "volumeMounts": []}]}}},
        "workerGroupSpecs": [{
            "groupName": "small", "minReplicas": 0, "maxReplicas": 5, "replicas": 1,
            "template": {"spec": {"containers": [{"name": "ray", "env": [], "volumeMounts": []}]}},
        }],
    });
    for (path, value) in changes {
        let (parent, field) = path.rsplit_once('/').unwrap();
        let mut place = &mut spec;
        for part in parent.split('/').filter(|part| !part.is_empty()) {
            place = match part.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[part],
            };
        }
        match field.parse::<usize>() {
            Ok(index) if place.is_array() && place.as_array().unwrap().len() == index => {
                place.as_array_mut().unwrap().push(value.clone());
            }
            Ok(index) => place[index] = value.clone(),
            Err(_) => place[field] = value.clone(),
        }
    }
    serde_json::from_value(spec).unwrap()
}

fn every_gate() -> Settings {
    let gates = Gates::NAMES.iter().map(|name| ((*name).to_owned(), true)).collect();
    Settings { gates: Gates::switched(&gates), ..Settings::default() }
}

const HEAD: &str = "/headGroupSpec";
const HEAD_ENV: &str = "/headGroupSpec/template/spec/containers/0/env/0";
const HEAD_MOUNT: &str = "/headGroupSpec/template/spec/containers/0/volumeMounts/0";
const GROUP: &str = "/workerGroupSpecs/0";

fn at(base: &str, field: &str) -> String {
    format!("{base}/{field}")
}

fn message(changes: &[(String, Value)], settings: &Settings) -> String {
    let changes: Vec<_> = changes.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
    validate_spec(&spec(&changes), &BTreeMap::new(), settings).err().unwrap_or_default()
}

#[test]
fn every_rule_says_what_to_mend() {
    let v2 = ("/autoscalerOptions".to_owned(), json!({"version": "v2"}));
    let on = ("/enableInTreeAutoscaling".to_owned(), json!(true));
    let cases: Vec<(Vec<(String, Value)>, &str)> = vec![
        (
            vec![("/headGroupSpec/template/spec/containers".into(), json!([]))],
            "headGroupSpec should have at least one container",
        ),
        (
            vec![(at(GROUP, "template/spec/containers"), json!([]))],
            "worker group small should have at least one container",
        ),
        (
            vec![
                (at(HEAD, "resources"), json!({"CPU": "1"})),
                (at(HEAD, "rayStartParams"), json!({"num-cpus": "1"})),
            ],
            "both rayStartParams and resources for Head group; remove num-cpus or resources",
        ),
        (vec![(at(GROUP, "rayStartParams"), json!({"labels": "a=b"}))], "use the field labels instead"),
        (vec![(at(GROUP, "labels"), json!({"a b": "c"}))], "invalid label key for small group"),
        (
            vec![(at(GROUP, "labels"), json!({"a": "c/d"}))],
            "invalid label value for key \"a\" in small group",
        ),
        (
            vec![(at(GROUP, "minReplicas"), Value::Null)],
            "must set both minReplicas and maxReplicas when autoscaling is disabled",
        ),
        (vec![(at(GROUP, "minReplicas"), json!(-1))], "worker group small has negative minReplicas -1"),
        (vec![(at(GROUP, "maxReplicas"), json!(-1))], "worker group small has negative maxReplicas -1"),
        (vec![(at(GROUP, "minReplicas"), json!(6))], "minReplicas 6 greater than maxReplicas 5"),
        (
            vec![(at(GROUP, "idleTimeoutSeconds"), json!(-1)), v2.clone()],
            "negative idleTimeoutSeconds -1; use 0 or more",
        ),
        (vec![(at(GROUP, "idleTimeoutSeconds"), json!(1))], "needs autoscalerOptions.version: v2"),
        (
            vec![(at(GROUP, "priority"), json!(1))],
            "priority of worker group small needs autoscalerOptions.version: v2",
        ),
        (
            vec![(at(GROUP, "priority"), json!(1)), v2.clone(), ("/rayVersion".into(), json!("2.55.9"))],
            "priority of worker group small needs rayVersion 2.56.0 or later, got 2.55.9",
        ),
        (vec![(HEAD_ENV.into(), json!({"name": "RAY_REDIS_ADDRESS"}))], "use gcsFaultToleranceOptions"),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({})),
                (at(HEAD, "rayStartParams"), json!({"redis-password": "x"})),
            ],
            "use gcsFaultToleranceOptions.redisPassword",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({})),
                (HEAD_ENV.into(), json!({"name": "REDIS_PASSWORD"})),
            ],
            "REDIS_PASSWORD cannot be set",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({})),
                (HEAD_ENV.into(), json!({"name": "RAY_REDIS_ADDRESS"})),
            ],
            "use gcsFaultToleranceOptions.redisAddress",
        ),
        (
            vec![("/gcsFaultToleranceOptions".into(), json!({"storage": {}}))],
            "storage belongs to backend rocksdb",
        ),
        (
            vec![("/gcsFaultToleranceOptions".into(), json!({"backend": "rocksdb", "redisAddress": "x"}))],
            "redisAddress belongs to backend redis",
        ),
        (
            vec![(
                "/gcsFaultToleranceOptions".into(),
                json!({"backend": "rocksdb", "storage": {"claimName": "a", "size": "1Gi"}}),
            )],
            "claimName names an existing claim",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({"backend": "rocksdb"})),
                (HEAD_ENV.into(), json!({"name": "RAY_gcs_storage"})),
            ],
            "RAY_gcs_storage cannot be set",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({"backend": "rocksdb"})),
                (HEAD_MOUNT.into(), json!({"name": "a", "mountPath": "/data/gcs"})),
            ],
            "the path /data/gcs of the head belong to backend rocksdb",
        ),
        (
            vec![(at(HEAD, "rayStartParams"), json!({"redis-username": "x"}))],
            "use gcsFaultToleranceOptions.redisUsername",
        ),
        (
            vec![(HEAD_ENV.into(), json!({"name": "REDIS_USERNAME"}))],
            "use gcsFaultToleranceOptions.redisUsername",
        ),
        (
            vec![(at(GROUP, "suspend"), json!(true)), on.clone()],
            "cannot be suspended while enableInTreeAutoscaling is true",
        ),
        (
            vec![(HEAD_ENV.into(), json!({"name": "RAY_enable_autoscaler_v2", "value": "1"}))],
            "set enableInTreeAutoscaling: true",
        ),
        (
            vec![
                (HEAD_ENV.into(), json!({"name": "RAY_enable_autoscaler_v2", "value": "0"})),
                v2.clone(),
                on.clone(),
            ],
            "are both set; remove the variable",
        ),
        (
            vec![
                ("/headGroupSpec/template/spec/restartPolicy".into(), json!("Always")),
                v2.clone(),
                on.clone(),
            ],
            "restartPolicy for head Pod should be Never or unset",
        ),
        (
            vec![(at(GROUP, "template/spec/restartPolicy"), json!("Always")), v2.clone(), on.clone()],
            "restartPolicy for worker group small should be Never or unset",
        ),
        (
            vec![("/autoscalerOptions".into(), json!({"idleTimeoutSeconds": -1}))],
            "must be non-negative, got -1",
        ),
        (
            vec![(
                "/autoscalerOptions".into(),
                json!({"env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD"}]}),
            )],
            "must not contain KUBERAY_GEN_AUTOSCALER_START_CMD",
        ),
        (vec![("/historyServerOptions".into(), json!({}))], "collectorOptions must be set"),
        (
            vec![("/historyServerOptions".into(), json!({"collectorOptions": {}}))],
            "collectorOptions.image must be set",
        ),
        (vec![collector(&json!([{"name": "POD_IP"}]))], "must not contain POD_IP"),
        (vec![collector(&json!([]))], "must contain STORAGE_BACKEND"),
        (vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "gcs"}]))], "must contain GCS_BUCKET"),
        (vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "s3"}]))], "must contain S3_REGION"),
        (
            vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "AliyunOSS"}]))],
            "must contain OSS_BUCKET",
        ),
        (
            vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "AzureBlob"}]))],
            "AZURE_STORAGE_CONNECTION_STRING",
        ),
        (
            vec![collector(&json!([
                {"name": "STORAGE_BACKEND", "value": "AzureBlob"},
                {"name": "AZURE_STORAGE_AUTH_MODE", "value": "workload_identity"},
            ]))],
            "AZURE_STORAGE_ACCOUNT_URL",
        ),
        (
            vec![
                collector(&json!([{"name": "STORAGE_BACKEND", "value": "local"}])),
                (at(GROUP, "template/spec/containers/1"), json!({"name": "ray-history-collector"})),
            ],
            "the template of small must not have a container named ray-history-collector",
        ),
        (
            vec![("/authOptions".into(), json!({"mode": "token"})), ("/rayVersion".into(), Value::Null)],
            "authOptions.mode token needs rayVersion 2.52.0 or later, and none is given",
        ),
        (
            vec![("/authOptions".into(), json!({"mode": "token"})), ("/rayVersion".into(), json!("new"))],
            "could not parse \"new\" as version",
        ),
        (
            vec![("/authOptions".into(), json!({"mode": "token"})), ("/rayVersion".into(), json!("2.51.9"))],
            "needs rayVersion 2.52.0 or later, got 2.51.9",
        ),
        (
            vec![
                ("/authOptions".into(), json!({"mode": "token", "enableK8sTokenAuth": true})),
                ("/rayVersion".into(), json!("2.54.0")),
            ],
            "needs rayVersion 2.55.0 or later",
        ),
        (
            vec![(
                "/authOptions".into(),
                json!({"mode": "token", "enableK8sTokenAuth": true, "secretName": "s"}),
            )],
            "exclude each other",
        ),
        (vec![("/authOptions".into(), json!({"enableK8sTokenAuth": true}))], "needs authOptions.mode: token"),
        (
            vec![("/networkPolicy".into(), json!({"mode": "DenyAllEgress", "head": {"ingressRules": [{}]}}))],
            "networkPolicy.head.ingressRules has no effect in mode DenyAllEgress",
        ),
        (
            vec![(
                "/networkPolicy".into(),
                json!({"mode": "DenyAllIngress", "worker": {"egressRules": [{}]}}),
            )],
            "networkPolicy.worker.egressRules has no effect in mode DenyAllIngress",
        ),
        (
            vec![("/networkPolicy".into(), json!({"workerGroups": [{"groupName": "other"}]}))],
            "networkPolicy.workerGroups[other] does not match any group name",
        ),
        (
            vec![("/networkPolicy".into(), json!({})), (at(GROUP, "groupName"), json!("Upper"))],
            "worker group name \"Upper\" becomes part of a NetworkPolicy's name",
        ),
        (
            vec![
                ("/tlsOptions".into(), json!({"enabled": true})),
                (HEAD_ENV.into(), json!({"name": "RAY_USE_TLS"})),
            ],
            "RAY_USE_TLS cannot be set in the head",
        ),
        (
            vec![
                ("/tlsOptions".into(), json!({"enabled": true})),
                (
                    at(GROUP, "template/spec/containers/0/volumeMounts/0"),
                    json!({"name": "ray-tls", "mountPath": "/x"}),
                ),
            ],
            "cannot be used in worker group small",
        ),
        (
            vec![
                ("/tlsOptions".into(), json!({"enabled": true})),
                ("/autoscalerOptions".into(), json!({"env": [{"name": "RAY_TLS_CA_CERT"}]})),
            ],
            "RAY_TLS_CA_CERT cannot be set in autoscalerOptions",
        ),
    ];
    for (changes, expected) in cases {
        let message = message(&changes, &every_gate());
        assert!(message.contains(expected), "{changes:?}\n  {message:?}\n  {expected:?}");
    }
}

fn collector(env: &Value) -> (String, Value) {
    let options = json!({"collectorOptions": {"image": "collector", "env": env}});
    ("/historyServerOptions".to_owned(), options)
}

#[test]
fn what_is_right_passes() {
    let right: Vec<Vec<(String, Value)>> = vec![
        vec![],
        vec![(at(GROUP, "replicas"), json!(100))],
        vec![
            ("/enableInTreeAutoscaling".into(), json!(true)),
            ("/autoscalerOptions".into(), json!({"version": "v2"})),
            (at(GROUP, "minReplicas"), Value::Null),
            (at(GROUP, "idleTimeoutSeconds"), json!(0)),
            (at(GROUP, "priority"), json!(3)),
        ],
        vec![("/gcsFaultToleranceOptions".into(), json!({"redisAddress": "redis:6379"}))],
        vec![("/gcsFaultToleranceOptions".into(), json!({"backend": "rocksdb", "storage": {"size": "1Gi"}}))],
        vec![collector(
            &json!([{"name": "STORAGE_BACKEND", "value": "s3"}, {"name": "S3_REGION", "value": "x"}]),
        )],
        vec![("/authOptions".into(), json!({"mode": "token", "enableK8sTokenAuth": true}))],
        vec![(
            "/networkPolicy".into(),
            json!({"workerGroups": [{"groupName": "small", "ingressRules": [{}]}]}),
        )],
        vec![("/tlsOptions".into(), json!({"enabled": true}))],
        vec![("/tlsOptions".into(), json!({})), (HEAD_ENV.into(), json!({"name": "RAY_USE_TLS"}))],
    ];
    for changes in right {
        assert_eq!(message(&changes, &every_gate()), "", "{changes:?}");
    }
}

#[test]
fn what_needs_a_gate_names_it() {
    for (field, value, gate) in [
        ("/historyServerOptions", json!({}), "RayClusterHistoryServer"),
        ("/networkPolicy", json!({}), "RayClusterNetworkPolicy"),
        ("/tlsOptions", json!({}), "RayClusterMTLS"),
        ("/gcsFaultToleranceOptions", json!({"backend": "rocksdb"}), "GCSFaultToleranceEmbeddedStorage"),
    ] {
        let message = message(&[(field.to_owned(), value)], &Settings::default());
        assert!(message.contains(gate), "{message}");
    }
    let mut settings = Settings::default();
    settings.gates.job_deletion_policy = false;
    let message = message(&[(at(GROUP, "suspend"), json!(true))], &settings);
    assert!(message.contains("RayJobDeletionPolicy"), "{message}");
}

#[test]
fn annotations_of_fault_tolerance_exclude_the_options() {
    let with = |annotation: &str, value: &str, options: Value| {
        let annotations = [(annotation.to_owned(), value.to_owned())].into();
        let spec = spec(&[("/gcsFaultToleranceOptions", options)]);
        validate_spec(&spec, &annotations, &Settings::default()).err().unwrap_or_default()
    };
    assert!(with("ray.io/ft-enabled", "false", json!({})).contains("remove the annotation"));
    assert!(with("ray.io/external-storage-namespace", "a", json!({})).contains("externalStorageNamespace"));
    assert_eq!(with("ray.io/ft-enabled", "true", Value::Null), "");
}

#[test]
fn names_leave_room_for_what_is_appended() {
    let named = |name: &str| {
        let mut cluster = RayCluster::default();
        cluster.metadata.name = Some(name.to_owned());
        validate_metadata(&cluster).err().unwrap_or_default()
    };
    assert_eq!(named(&"a".repeat(53)), "");
    assert!(named(&"a".repeat(54)).contains("no more than 53 characters"));
    assert!(named("1a").contains("DNS1035"));
    assert!(named("a.b").contains("DNS1035"));
}

#[test]
fn groups_have_names_of_their_own() {
    let mut twice = spec(&[]);
    let groups = twice.worker_group_specs.as_mut().unwrap();
    groups.push(groups[0].clone());
    assert_eq!(validate_group_names(&twice).unwrap_err().0, 1);
    assert!(validate_group_names(&spec(&[])).is_ok());
}

#[test]
fn upgrades_are_decided_by_the_owner() {
    let mut cluster = RayCluster {
        spec: spec(&[("/upgradeStrategy", json!({"type": "Recreate"}))]),
        ..RayCluster::default()
    };
    assert!(validate_upgrade_strategy(&cluster).is_ok());
    cluster.metadata.labels = Some([("ray.io/originated-from-crd".to_owned(), "RayJob".to_owned())].into());
    assert!(validate_upgrade_strategy(&cluster).unwrap_err().contains("created by RayJob"));
}

#[test]
fn pods_that_restart_under_the_old_autoscaler_are_worth_a_warning() {
    let mut changes = vec![
        ("/enableInTreeAutoscaling", json!(true)),
        ("/autoscalerOptions", json!({"version": "v1"})),
        ("/workerGroupSpecs/0/template/spec/restartPolicy", json!("Always")),
    ];
    assert!(restart_warning(&spec(&changes)).unwrap().contains("worker group small"));
    changes.pop();
    assert_eq!(restart_warning(&spec(&changes)), None);
}
