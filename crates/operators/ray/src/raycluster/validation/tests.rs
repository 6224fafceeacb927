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
fn every_rule_has_kuberays_words() {
    let v2 = ("/autoscalerOptions".to_owned(), json!({"version": "v2"}));
    let on = ("/enableInTreeAutoscaling".to_owned(), json!(true));
    let cases: Vec<(Vec<(String, Value)>, &str)> = vec![
        (
            vec![("/headGroupSpec/template/spec/containers".into(), json!([]))],
            "headGroupSpec should have at least one container",
        ),
        (
            vec![(at(GROUP, "template/spec/containers"), json!([]))],
            "workerGroupSpec should have at least one container",
        ),
        (
            vec![
                (at(HEAD, "resources"), json!({"CPU": "1"})),
                (at(HEAD, "rayStartParams"), json!({"num-cpus": "1"})),
            ],
            "resource fields should not be set in both rayStartParams and Resources for Head group; please use only one",
        ),
        (
            vec![(at(GROUP, "rayStartParams"), json!({"labels": "a=b"}))],
            "rayStartParams['labels'] is not supported for small group; please use the top-level Labels field instead",
        ),
        (
            vec![(at(GROUP, "labels"), json!({"a b": "c"}))],
            "invalid label key for small group: 'a b', error: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            vec![(at(GROUP, "labels"), json!({"a": "c/d"}))],
            "invalid label value for key 'a' in small group: 'c/d', error: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            vec![(at(GROUP, "minReplicas"), Value::Null)],
            "worker group small must set both minReplicas and maxReplicas when autoscaling is disabled",
        ),
        (vec![(at(GROUP, "minReplicas"), json!(-1))], "worker group small has negative minReplicas -1"),
        (vec![(at(GROUP, "maxReplicas"), json!(-1))], "worker group small has negative maxReplicas -1"),
        (
            vec![(at(GROUP, "minReplicas"), json!(6))],
            "worker group small has minReplicas 6 greater than maxReplicas 5",
        ),
        (vec![(at(GROUP, "numOfHosts"), json!(-2))], "worker group small has negative numOfHosts -2"),
        (
            vec![(at(GROUP, "idleTimeoutSeconds"), json!(-1)), v2.clone()],
            "worker group small: idleTimeoutSeconds must be non-negative, got -1",
        ),
        (
            vec![(at(GROUP, "idleTimeoutSeconds"), json!(1))],
            "worker group small: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set .spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to 'true' in the head pod if using KubeRay < 1.4.0)",
        ),
        (
            vec![(at(GROUP, "priority"), json!(1))],
            "worker group small: priority is set to 1, but autoscaler v2 is not enabled. Priority is only supported with autoscaler v2 enabled",
        ),
        (
            vec![(at(GROUP, "priority"), json!(1)), v2.clone(), ("/rayVersion".into(), json!("2.55.9"))],
            "worker group small: priority is set, but minimum Ray version is 2.56.0, got 2.55.9",
        ),
        (
            vec![(HEAD_ENV.into(), json!({"name": "RAY_REDIS_ADDRESS"}))],
            "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions is not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({})),
                (at(HEAD, "rayStartParams"), json!({"redis-password": "x"})),
            ],
            "cannot set `redis-password` in rayStartParams when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.RedisPassword instead",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({})),
                (HEAD_ENV.into(), json!({"name": "REDIS_PASSWORD"})),
            ],
            "cannot set `REDIS_PASSWORD` env var in head Pod when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.RedisPassword instead",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({})),
                (HEAD_ENV.into(), json!({"name": "RAY_REDIS_ADDRESS"})),
            ],
            "cannot set `RAY_REDIS_ADDRESS` env var in head Pod when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.RedisAddress instead",
        ),
        (
            vec![("/gcsFaultToleranceOptions".into(), json!({"storage": {}}))],
            "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it only applies to the 'rocksdb' backend",
        ),
        (
            vec![("/gcsFaultToleranceOptions".into(), json!({"backend": "rocksdb", "redisAddress": "x"}))],
            "cannot set GcsFaultToleranceOptions.RedisAddress when backend is 'rocksdb'",
        ),
        (
            vec![(
                "/gcsFaultToleranceOptions".into(),
                json!({"backend": "rocksdb", "storage": {"claimName": "a", "size": "1Gi"}}),
            )],
            "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, storageClassName, and accessModes",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({"backend": "rocksdb"})),
                (HEAD_ENV.into(), json!({"name": "RAY_gcs_storage"})),
            ],
            "cannot set `RAY_gcs_storage` or `RAY_gcs_storage_path` env var in head Pod when the embedded GCS FT backend is used - these are managed by KubeRay",
        ),
        (
            vec![
                ("/gcsFaultToleranceOptions".into(), json!({"backend": "rocksdb"})),
                (HEAD_MOUNT.into(), json!({"name": "a", "mountPath": "/data/gcs"})),
            ],
            "cannot set a volume mount named \"gcs-storage\" or mounted at /data/gcs in the head container when the embedded GCS FT backend is used - it is managed by KubeRay",
        ),
        (
            vec![(at(HEAD, "rayStartParams"), json!({"redis-username": "x"}))],
            "cannot set redis username in rayStartParams or environment variables - use GcsFaultToleranceOptions.RedisUsername instead",
        ),
        (
            vec![(HEAD_ENV.into(), json!({"name": "REDIS_USERNAME"}))],
            "cannot set redis username in rayStartParams or environment variables - use GcsFaultToleranceOptions.RedisUsername instead",
        ),
        (
            vec![(at(GROUP, "suspend"), json!(true)), on.clone()],
            "worker group small cannot be suspended with Autoscaler enabled",
        ),
        (
            vec![(HEAD_ENV.into(), json!({"name": "RAY_enable_autoscaler_v2", "value": "1"}))],
            "environment variable RAY_enable_autoscaler_v2 cannot be set to '1' when enableInTreeAutoscaling is false. Please set enableInTreeAutoscaling: true to use autoscaler v2",
        ),
        (
            vec![
                (HEAD_ENV.into(), json!({"name": "RAY_enable_autoscaler_v2", "value": "0"})),
                v2.clone(),
                on.clone(),
            ],
            "both .spec.autoscalerOptions.version and head Pod env var RAY_enable_autoscaler_v2 are set, please only use the former",
        ),
        (
            vec![
                ("/headGroupSpec/template/spec/restartPolicy".into(), json!("Always")),
                v2.clone(),
                on.clone(),
            ],
            "restartPolicy for head Pod should be Never or unset when using autoscaler V2",
        ),
        (
            vec![(at(GROUP, "template/spec/restartPolicy"), json!("Always")), v2.clone(), on.clone()],
            "restartPolicy for worker group small should be Never or unset when using autoscaler V2",
        ),
        (
            vec![("/autoscalerOptions".into(), json!({"idleTimeoutSeconds": -1}))],
            "autoscalerOptions.idleTimeoutSeconds must be non-negative, got -1",
        ),
        (
            vec![(
                "/autoscalerOptions".into(),
                json!({"env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD"}]}),
            )],
            "autoscalerOptions.env must not contain KUBERAY_GEN_AUTOSCALER_START_CMD: it is managed by KubeRay and injected automatically into the autoscaler container",
        ),
        (
            vec![("/historyServerOptions".into(), json!({}))],
            "historyServerOptions.collectorOptions must be set",
        ),
        (
            vec![("/historyServerOptions".into(), json!({"collectorOptions": {}}))],
            "historyServerOptions.collectorOptions.image must be set",
        ),
        (
            vec![collector(&json!([{"name": "POD_IP"}]))],
            "historyServerOptions.collectorOptions.env must not contain POD_IP: it is managed by KubeRay and injected automatically into the collector container",
        ),
        (
            vec![collector(&json!([]))],
            "STORAGE_BACKEND environment variable must be set with a literal string value in historyServerOptions.collectorOptions.env",
        ),
        (
            vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "gcs"}]))],
            "GCS_BUCKET environment variable must be set when STORAGE_BACKEND is GCS",
        ),
        (
            vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "s3"}]))],
            "S3_REGION environment variable must be set when STORAGE_BACKEND is S3",
        ),
        (
            vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "AliyunOSS"}]))],
            "OSS_BUCKET environment variable must be set when STORAGE_BACKEND is ALIYUNOSS",
        ),
        (
            vec![collector(&json!([{"name": "STORAGE_BACKEND", "value": "AzureBlob"}]))],
            "either AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_URL environment variable must be set when STORAGE_BACKEND is AZUREBLOB",
        ),
        (
            vec![collector(&json!([
                {"name": "STORAGE_BACKEND", "value": "AzureBlob"},
                {"name": "AZURE_STORAGE_AUTH_MODE", "value": "workload_identity"},
            ]))],
            "AZURE_STORAGE_ACCOUNT_URL environment variable must be set when STORAGE_BACKEND is AZUREBLOB and AZURE_STORAGE_AUTH_MODE is workload_identity",
        ),
        (
            vec![
                collector(&json!([{"name": "STORAGE_BACKEND", "value": "local"}])),
                (at(GROUP, "template/spec/containers/1"), json!({"name": "ray-history-collector"})),
            ],
            "worker group small pod template must not define a container with name 'ray-history-collector' when history server collector options are enabled",
        ),
        (
            vec![("/authOptions".into(), json!({"mode": "token"})), ("/rayVersion".into(), Value::Null)],
            "authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required",
        ),
        (
            vec![("/authOptions".into(), json!({"mode": "token"})), ("/rayVersion".into(), json!("new"))],
            "authOptions.mode is 'token' but RayVersion format is invalid: new, could not parse \"new\" as version",
        ),
        (
            vec![("/authOptions".into(), json!({"mode": "token"})), ("/rayVersion".into(), json!("2.51.9"))],
            "authOptions.mode is 'token' but minimum Ray version is 2.52.0, got 2.51.9",
        ),
        (
            vec![
                ("/authOptions".into(), json!({"mode": "token", "enableK8sTokenAuth": true})),
                ("/rayVersion".into(), json!("2.54.0")),
            ],
            "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got 2.54.0",
        ),
        (
            vec![(
                "/authOptions".into(),
                json!({"mode": "token", "enableK8sTokenAuth": true, "secretName": "s"}),
            )],
            "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set",
        ),
        (
            vec![("/authOptions".into(), json!({"enableK8sTokenAuth": true}))],
            "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'",
        ),
        (
            vec![("/networkPolicy".into(), json!({"mode": "DenyAllEgress", "head": {"ingressRules": [{}]}}))],
            "networkPolicy.head.ingressRules cannot be set when mode is \"DenyAllEgress\" (ingress is not restricted)",
        ),
        (
            vec![(
                "/networkPolicy".into(),
                json!({"mode": "DenyAllIngress", "worker": {"egressRules": [{}]}}),
            )],
            "networkPolicy.worker.egressRules cannot be set when mode is \"DenyAllIngress\" (egress is not restricted)",
        ),
        (
            vec![("/networkPolicy".into(), json!({"workerGroups": [{"groupName": "other"}]}))],
            "networkPolicy.workerGroups[\"other\"] does not match any group name in workerGroupSpecs",
        ),
        (
            vec![("/networkPolicy".into(), json!({})), (at(GROUP, "groupName"), json!("Upper"))],
            "worker group name \"Upper\" must be a valid DNS1123 label when networkPolicy is enabled (it is embedded in the NetworkPolicy name): [a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')]",
        ),
        (
            vec![
                ("/tlsOptions".into(), json!({"enabled": true})),
                (HEAD_ENV.into(), json!({"name": "RAY_USE_TLS"})),
            ],
            "cannot set RAY_USE_TLS environment variable in head Pod when tlsOptions is set - the operator manages TLS configuration automatically",
        ),
        (
            vec![
                ("/tlsOptions".into(), json!({"enabled": true})),
                (
                    at(GROUP, "template/spec/containers/0/volumeMounts/0"),
                    json!({"name": "ray-tls", "mountPath": "/x"}),
                ),
            ],
            "cannot use volume mount named \"ray-tls\" in worker group \"small\" when tlsOptions is set - the operator manages TLS configuration automatically",
        ),
        (
            vec![
                ("/tlsOptions".into(), json!({"enabled": true})),
                ("/autoscalerOptions".into(), json!({"env": [{"name": "RAY_TLS_CA_CERT"}]})),
            ],
            "cannot set RAY_TLS_CA_CERT environment variable in autoscalerOptions.env when tlsOptions is set - the operator manages TLS configuration for the autoscaler automatically",
        ),
    ];
    for (changes, expected) in cases {
        assert_eq!(message(&changes, &every_gate()), expected, "{changes:?}");
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
    for (field, value, expected) in [
        ("/historyServerOptions", json!({}), "RayClusterHistoryServer feature gate is not enabled"),
        (
            "/networkPolicy",
            json!({}),
            "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled",
        ),
        ("/tlsOptions", json!({}), "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled"),
        (
            "/gcsFaultToleranceOptions",
            json!({"backend": "rocksdb"}),
            "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend: 'rocksdb') requires the \
             GCSFaultToleranceEmbeddedStorage feature gate to be enabled",
        ),
    ] {
        assert_eq!(message(&[(field.to_owned(), value)], &Settings::default()), expected);
    }
    let mut settings = Settings::default();
    settings.gates.job_deletion_policy = false;
    assert_eq!(
        message(&[(at(GROUP, "suspend"), json!(true))], &settings),
        "worker group small can be suspended only when the RayJobDeletionPolicy feature gate is enabled"
    );
}

#[test]
fn annotations_of_fault_tolerance_exclude_the_options() {
    let with = |annotation: &str, value: &str, options: Value| {
        let annotations = [(annotation.to_owned(), value.to_owned())].into();
        let spec = spec(&[("/gcsFaultToleranceOptions", options)]);
        validate_spec(&spec, &annotations, &Settings::default()).err().unwrap_or_default()
    };
    assert_eq!(
        with("ray.io/ft-enabled", "false", json!({})),
        "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. Please use only \
         GcsFaultToleranceOptions to configure GCS fault tolerance"
    );
    assert_eq!(
        with("ray.io/external-storage-namespace", "a", json!({})),
        "cannot set `ray.io/external-storage-namespace` annotation when GcsFaultToleranceOptions is enabled - use \
         GcsFaultToleranceOptions.ExternalStorageNamespace instead"
    );
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
    assert_eq!(named(&"a".repeat(54)), "RayCluster name should be no more than 53 characters");
    for name in ["1a", "a.b"] {
        assert_eq!(
            named(name),
            "RayCluster name should be a valid DNS1035 label: [a DNS-1035 label must consist of lower case alphanumeric \
             characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
             'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]"
        );
    }
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
    assert_eq!(
        validate_upgrade_strategy(&cluster).unwrap_err(),
        "upgradeStrategy cannot be set when RayCluster is created by RayJob"
    );
}

#[test]
fn pods_that_restart_under_the_old_autoscaler_are_worth_a_warning() {
    let mut changes = vec![
        ("/enableInTreeAutoscaling", json!(true)),
        ("/autoscalerOptions", json!({"version": "v1"})),
        ("/workerGroupSpecs/0/template/spec/restartPolicy", json!("Always")),
    ];
    assert_eq!(
        restart_warning(&spec(&changes)).unwrap(),
        "restartPolicy for worker groups [small] should be Never or unset when using autoscaler V1"
    );
    changes.pop();
    assert_eq!(restart_warning(&spec(&changes)), None);
}
