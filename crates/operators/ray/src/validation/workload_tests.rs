//! Every rule for RayJobs and RayServices, with what the user is told.

use std::collections::BTreeMap;

use quintet_api::ray::v1::{RayJob, RayService};
use serde_json::{Value, json};

use crate::{
    rayjob::validation as job,
    rayservice::validation as service,
    settings::Settings,
    testing::{cluster_spec, merge},
};

fn ray_job(spec: &Value) -> RayJob {
    let mut job = json!({
        "metadata": {"name": "train", "namespace": "ns"},
        "spec": {"entrypoint": "python train.py", "rayClusterSpec": cluster_spec()},
    });
    merge(&mut job["spec"], spec);
    serde_json::from_value(job).unwrap()
}

fn ray_service(spec: &Value) -> RayService {
    let mut service = json!({
        "metadata": {"name": "chat", "namespace": "ns"},
        "spec": {"rayClusterConfig": cluster_spec()},
    });
    merge(&mut service["spec"], spec);
    serde_json::from_value(service).unwrap()
}

/// Checks specs of RayJobs; an empty expectation means that nothing is wrong.
fn check_jobs(rows: Vec<(Value, &str)>) {
    for (spec, expected) in rows {
        let verdict = job::validate_spec(&ray_job(&spec).spec, &BTreeMap::new(), &Settings::default());
        match verdict {
            Ok(()) => assert_eq!(expected, "", "{spec} was accepted"),
            Err(error) => assert_eq!(error, expected, "{spec}"),
        }
    }
}

#[test]
fn ray_jobs() {
    let selector = json!({"ray.io/cluster": "theirs"});
    check_jobs(vec![
        (json!({}), ""),
        (
            json!({"suspend": true}),
            "The RayJob spec is invalid: a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended",
        ),
        (json!({"suspend": true, "shutdownAfterJobFinishes": true}), ""),
        (
            json!({"ttlSecondsAfterFinished": -1}),
            "The RayJob spec is invalid: TTLSecondsAfterFinished must be a non-negative integer",
        ),
        (
            json!({"ttlSecondsAfterFinished": 1}),
            "The RayJob spec is invalid: a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished",
        ),
        (json!({"ttlSecondsAfterFinished": 1, "shutdownAfterJobFinishes": true}), ""),
        (
            json!({"suspend": true, "shutdownAfterJobFinishes": true, "clusterSelector": selector}),
            "The RayJob spec is invalid: the ClusterSelector mode doesn't support the suspend operation",
        ),
        (
            json!({"rayClusterSpec": null}),
            "The RayJob spec is invalid: one of RayClusterSpec or ClusterSelector must be set",
        ),
        (json!({"rayClusterSpec": null, "clusterSelector": selector}), ""),
        (json!({"clusterSelector": selector}), ""),
        (
            json!({"clusterSelector": {"name": "theirs"}}),
            "cluster name in ClusterSelector should not be empty",
        ),
        (
            json!({"clusterSelector": {"ray.io/cluster": ""}}),
            "cluster name in ClusterSelector should not be empty",
        ),
        (
            json!({"clusterSelector": selector, "submissionMode": "SidecarMode"}),
            "ClusterSelector is not supported in SidecarMode",
        ),
        (
            json!({"clusterSelector": selector, "backoffLimit": 1}),
            "The RayJob spec is invalid: BackoffLimit is incompatible with ClusterSelector mode",
        ),
        (
            json!({"submissionMode": "InteractiveMode", "backoffLimit": 1}),
            "The RayJob spec is invalid: BackoffLimit is incompatible with InteractiveMode",
        ),
        (
            json!({"submissionMode": "SidecarMode", "submitterPodTemplate": {"spec": {"containers": []}}}),
            "Currently, SidecarMode doesn't support SubmitterPodTemplate",
        ),
        (
            json!({"submissionMode": "SidecarMode", "submitterConfig": {"backoffLimit": 1}}),
            "Currently, SidecarMode doesn't support SubmitterConfig",
        ),
        (
            json!({"submissionMode": "SidecarMode",
                   "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"restartPolicy": "Always"}}}}}),
            "restartPolicy for head Pod should be Never or unset when using SidecarMode",
        ),
        (json!({"submissionMode": "SidecarMode"}), ""),
        (
            json!({"rayClusterSpec": {"authOptions": {"mode": "token", "enableK8sTokenAuth": true}}}),
            "The RayJob spec is invalid: K8s token auth mode is currently not supported for RayJob",
        ),
        (
            json!({"rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}}),
            "The RayJob spec is invalid: headGroupSpec should have at least one container",
        ),
        (
            json!({"runtimeEnvYAML": "just text"}),
            "failed to unmarshal RuntimeEnvYAML: it must be a YAML mapping, such as `pip: [torch]`",
        ),
        (json!({"runtimeEnvYAML": "pip: [torch]"}), ""),
        (
            json!({"activeDeadlineSeconds": 0}),
            "The RayJob spec is invalid: activeDeadlineSeconds must be a positive integer",
        ),
        (
            json!({"preRunningDeadlineSeconds": 0}),
            "The RayJob spec is invalid: preRunningDeadlineSeconds must be a positive integer",
        ),
        (json!({"backoffLimit": -1}), "The RayJob spec is invalid: backoffLimit must be a positive integer"),
        // Left for Ray and the API server to judge, as upstream leaves them.
        (json!({"submissionMode": "Other", "entrypoint": null, "entrypointResources": "no JSON"}), ""),
    ]);
}

#[test]
fn a_runtime_environment_is_not_quoted() {
    let spec = ray_job(&json!({"runtimeEnvYAML": "env_vars: [TOKEN=secret"})).spec;
    let error = job::validate_spec(&spec, &BTreeMap::new(), &Settings::default()).unwrap_err();
    assert!(
        error.starts_with("failed to unmarshal RuntimeEnvYAML: ") && !error.contains("secret"),
        "{error}"
    );
}

#[test]
fn deletion_of_ray_jobs() {
    let legacy = |success: &str, failure: &str| json!({"deletionStrategy": {"onSuccess": {"policy": success}, "onFailure": {"policy": failure}}});
    let with = |mut spec: Value, more: Value| {
        merge(&mut spec, &more);
        spec
    };
    let rules = |rules: Value| json!({"deletionStrategy": {"deletionRules": rules}});
    let rule = |policy: &str, ttl: i32| json!({"policy": policy, "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": ttl}});
    let selector = json!({"clusterSelector": {"ray.io/cluster": "theirs"}});
    let autoscaling = json!({"rayClusterSpec": {"enableInTreeAutoscaling": true}});
    let shutdown = json!({"shutdownAfterJobFinishes": true});
    check_jobs(vec![
        (legacy("DeleteCluster", "DeleteNone"), ""),
        (
            json!({"deletionStrategy": {}}),
            "The RayJob spec is invalid: DeletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot be empty)",
        ),
        (
            json!({"deletionStrategy": {"onSuccess": {"policy": "DeleteSelf"}}}),
            "both DeletionStrategy.OnSuccess and DeletionStrategy.OnFailure must be set when using the legacy deletion policy fields of DeletionStrategy",
        ),
        (
            with(legacy("DeleteCluster", "DeleteNone"), selector.clone()),
            "the ClusterSelector mode doesn't support DeletionStrategy=DeleteCluster on success",
        ),
        (
            with(legacy("DeleteWorkers", "DeleteNone"), autoscaling.clone()),
            "DeletionStrategy=DeleteWorkers currently does not support RayCluster with autoscaling enabled",
        ),
        (
            with(legacy("DeleteCluster", "DeleteNone"), shutdown.clone()),
            "The RayJob spec is invalid: shutdownAfterJobFinshes is set to 'true' while deletion policy is 'DeleteNone'",
        ),
        (with(legacy("DeleteCluster", "DeleteSelf"), shutdown.clone()), ""),
        (rules(json!([rule("DeleteWorkers", 1), rule("DeleteCluster", 2), rule("DeleteSelf", 3)])), ""),
        (
            with(rules(json!([rule("DeleteSelf", 1)])), shutdown),
            "The RayJob spec is invalid: spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are mutually exclusive",
        ),
        (
            with(rules(json!([rule("DeleteSelf", 1)])), legacy("DeleteSelf", "DeleteSelf")),
            "The RayJob spec is invalid: Cannot use both legacy onSuccess/onFailure fields and deletionRules simultaneously",
        ),
        (
            rules(
                json!([{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}}]),
            ),
            "deletionRules[0]: cannot set both JobStatus and JobDeploymentStatus at the same time",
        ),
        (
            rules(json!([{"policy": "DeleteSelf", "condition": {}}])),
            "deletionRules[0]: exactly one of JobStatus and JobDeploymentStatus must be set",
        ),
        (rules(json!([rule("DeleteSelf", -1)])), "deletionRules[0]: TTLSeconds must be non-negative"),
        (
            with(rules(json!([rule("DeleteWorkers", 1)])), selector),
            "deletionRules[0]: DeletionPolicyType 'DeleteWorkers' not supported when ClusterSelector is set",
        ),
        (
            with(rules(json!([rule("DeleteWorkers", 1)])), autoscaling),
            "deletionRules[0]: DeletionPolicyType 'DeleteWorkers' not supported with autoscaling enabled",
        ),
        (
            rules(json!([rule("DeleteSelf", 1), rule("DeleteSelf", 2)])),
            "deletionRules[1]: duplicate rule for DeletionPolicyType 'DeleteSelf' and JobStatus 'SUCCEEDED'",
        ),
        (
            rules(json!([rule("DeleteWorkers", 3), rule("DeleteCluster", 2)])),
            "for JobStatus 'SUCCEEDED': DeleteCluster TTL (2) must be >= DeleteWorkers TTL (3)",
        ),
        (
            rules(json!([rule("DeleteCluster", 3), rule("DeleteSelf", 2)])),
            "for JobStatus 'SUCCEEDED': DeleteSelf TTL (2) must be >= DeleteCluster TTL (3)",
        ),
        // Everything that is wrong is told at once.
        (
            rules(json!([rule("DeleteSelf", -1), rule("DeleteSelf", 2), rule("DeleteSelf", 3)])),
            "deletionRules[0]: TTLSeconds must be non-negative\ndeletionRules[2]: duplicate rule for DeletionPolicyType 'DeleteSelf' and JobStatus 'SUCCEEDED'",
        ),
    ]);
    let mut closed = Settings::default();
    closed.gates.job_deletion_policy = false;
    let spec = ray_job(&legacy("DeleteSelf", "DeleteSelf")).spec;
    let error = job::validate_spec(&spec, &BTreeMap::new(), &closed).unwrap_err();
    assert_eq!(error, "RayJobDeletionPolicy feature gate must be enabled to use DeletionStrategy");
}

#[test]
fn names() {
    for (name, expected) in [
        ("n".repeat(47), ""),
        ("n".repeat(48), "name should be no more than 47 characters"),
        ("1st".to_owned(), "name should be a valid DNS1035 label: [a DNS-1035 label must consist of "),
        ("a.b".to_owned(), "name should be a valid DNS1035 label: [a DNS-1035 label must consist of "),
    ] {
        let mut ray_job = ray_job(&json!({}));
        ray_job.metadata.name = Some(name.clone());
        let mut ray_service = ray_service(&json!({}));
        ray_service.metadata.name = Some(name.clone());
        let verdicts = [
            ("RayJob", job::validate_metadata(&ray_job)),
            ("RayService", service::validate_metadata(&ray_service)),
        ];
        for (kind, verdict) in verdicts {
            match verdict {
                Ok(()) => assert_eq!(expected, "", "{name}"),
                Err(error) => {
                    let told = format!("The {kind} metadata is invalid: {kind} {expected}");
                    assert!(!expected.is_empty() && error.starts_with(&told), "{name}: {error}");
                }
            }
        }
    }
}

#[test]
fn the_time_to_initialize() {
    for (text, expected) in [
        ("", Ok(None)),
        ("30", Ok(Some(30))),
        ("5m", Ok(Some(300))),
        ("0", Err("must be a positive duration, got: 0")),
        ("-5m", Err("must be a positive duration, got: -5m")),
        ("-1", Err("must be a positive integer (seconds), got: -1")),
        (
            "soon",
            Err(
                "has invalid format: soon. Expected Go duration format (e.g., '5m', '1h') or positive integer seconds",
            ),
        ),
    ] {
        let mut ray_service = ray_service(&json!({}));
        let annotations = BTreeMap::from([("ray.io/initializing-timeout".to_owned(), text.to_owned())]);
        ray_service.metadata.annotations = Some(annotations);
        let verdict = service::initializing_timeout(&ray_service);
        let read = verdict.map(|timeout| timeout.map(|timeout| timeout.as_secs()));
        let expected = expected.map_err(|told| format!("annotation ray.io/initializing-timeout {told}"));
        assert_eq!(read, expected, "{text:?}");
        let of_metadata = expected.map(|_| ()).map_err(|told| {
            format!("The RayService metadata is invalid: RayService annotations is invalid: {told}")
        });
        assert_eq!(service::validate_metadata(&ray_service), of_metadata);
    }
}

#[test]
fn ray_services() {
    let incremental = |autoscales: bool, options: Value| {
        json!({
            "rayClusterConfig": {"enableInTreeAutoscaling": autoscales},
            "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options},
        })
    };
    let options = |more: Value| {
        let mut options = json!({"gatewayClassName": "istio", "intervalSeconds": 10, "stepSizePercent": 20, "maxSurgePercent": 50});
        merge(&mut options, &more);
        options
    };
    for (spec, expected) in [
        (json!({}), ""),
        (
            json!({"rayClusterConfig": {"authOptions": {"mode": "token", "enableK8sTokenAuth": true}}}),
            "The RayService spec is invalid: K8s token auth mode is currently not supported for RayService",
        ),
        (
            json!({"rayClusterConfig": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}}),
            "The RayService spec is invalid: headGroupSpec should have at least one container",
        ),
        (
            json!({"rayClusterConfig": {"headGroupSpec": {"headService": {"metadata": {"name": "mine"}}}}}),
            "The RayService spec is invalid: spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set",
        ),
        (
            json!({"upgradeStrategy": {"type": "Soon"}}),
            "The RayService spec is invalid: Spec.UpgradeStrategy.Type value Soon is invalid, valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None",
        ),
        (json!({"upgradeStrategy": {"type": "None"}}), ""),
        (
            json!({"rayClusterDeletionDelaySeconds": -1}),
            "The RayService spec is invalid: Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got -1",
        ),
        (incremental(true, options(json!({}))), ""),
        (
            incremental(false, options(json!({}))),
            "The RayService spec is invalid: Ray Autoscaler is required for NewClusterWithIncrementalUpgrade",
        ),
        (
            incremental(true, Value::Null),
            "The RayService spec is invalid: ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade",
        ),
        (
            incremental(true, options(json!({"maxSurgePercent": 101}))),
            "The RayService spec is invalid: maxSurgePercent must be between 0 and 100",
        ),
        (
            incremental(true, options(json!({"stepSizePercent": -1}))),
            "The RayService spec is invalid: stepSizePercent must be between 0 and 100",
        ),
        (
            incremental(true, options(json!({"stepSizePercent": 51}))),
            "The RayService spec is invalid: stepSizePercent must be less than or equal to maxSurgePercent",
        ),
        (
            incremental(true, options(json!({"intervalSeconds": 0}))),
            "The RayService spec is invalid: intervalSeconds must be greater than 0",
        ),
        (
            incremental(true, options(json!({"gatewayClassName": ""}))),
            "The RayService spec is invalid: gatewayClassName is required for NewClusterWithIncrementalUpgrade",
        ),
        (json!({"serveConfigV2": "no: [yaml"}), ""),
    ] {
        match service::validate_spec(&ray_service(&spec), &Settings::default()) {
            Ok(()) => assert_eq!(expected, "", "{spec} was accepted"),
            Err(error) => assert_eq!(error, expected, "{spec}"),
        }
    }
}
