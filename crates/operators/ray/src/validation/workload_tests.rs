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
            Err(error) => {
                assert!(!expected.is_empty() && error.contains(expected), "{spec}: {error}");
                assert!(error.starts_with("The RayJob spec is invalid: "), "{error}");
            }
        }
    }
}

#[test]
fn ray_jobs() {
    let selector = json!({"ray.io/cluster": "theirs"});
    check_jobs(vec![
        (json!({}), ""),
        (json!({"suspend": true}), "shutdownAfterJobFinishes set to false is not allowed to be suspended"),
        (json!({"suspend": true, "shutdownAfterJobFinishes": true}), ""),
        (json!({"ttlSecondsAfterFinished": -1}), "ttlSecondsAfterFinished must be a non-negative integer"),
        (json!({"ttlSecondsAfterFinished": 1}), "cannot have ttlSecondsAfterFinished"),
        (json!({"ttlSecondsAfterFinished": 1, "shutdownAfterJobFinishes": true}), ""),
        (
            json!({"suspend": true, "shutdownAfterJobFinishes": true, "clusterSelector": selector}),
            "the ClusterSelector mode doesn't support the suspend operation",
        ),
        (json!({"rayClusterSpec": null}), "one of rayClusterSpec or clusterSelector must be set"),
        (json!({"rayClusterSpec": null, "clusterSelector": selector}), ""),
        (json!({"clusterSelector": selector}), ""),
        (
            json!({"clusterSelector": {"name": "theirs"}}),
            "cluster name in clusterSelector should not be empty",
        ),
        (
            json!({"clusterSelector": {"ray.io/cluster": ""}}),
            "cluster name in clusterSelector should not be empty",
        ),
        (
            json!({"clusterSelector": selector, "submissionMode": "SidecarMode"}),
            "ClusterSelector is not supported in SidecarMode",
        ),
        (
            json!({"clusterSelector": selector, "backoffLimit": 1}),
            "backoffLimit is incompatible with ClusterSelector mode",
        ),
        (
            json!({"submissionMode": "InteractiveMode", "backoffLimit": 1}),
            "backoffLimit is incompatible with InteractiveMode",
        ),
        (
            json!({"submissionMode": "SidecarMode", "submitterPodTemplate": {"spec": {"containers": []}}}),
            "submitterPodTemplate is not supported in SidecarMode",
        ),
        (
            json!({"submissionMode": "SidecarMode", "submitterConfig": {"backoffLimit": 1}}),
            "submitterConfig is not supported in SidecarMode",
        ),
        (
            json!({"submissionMode": "SidecarMode",
                   "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"restartPolicy": "Always"}}}}}),
            "restartPolicy for head Pod should be Never or unset when using SidecarMode",
        ),
        (json!({"submissionMode": "SidecarMode"}), ""),
        (
            json!({"rayClusterSpec": {"authOptions": {"mode": "token", "enableK8sTokenAuth": true}}}),
            "authOptions.enableK8sTokenAuth is not supported for RayJob",
        ),
        (
            json!({"rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}}),
            "headGroupSpec",
        ),
        (json!({"runtimeEnvYAML": "just text"}), "failed to parse runtimeEnvYAML: it must be a YAML mapping"),
        (json!({"runtimeEnvYAML": "a: [b"}), "failed to parse runtimeEnvYAML"),
        (json!({"runtimeEnvYAML": "pip: [torch]"}), ""),
        (json!({"activeDeadlineSeconds": 0}), "activeDeadlineSeconds must be a positive integer"),
        (json!({"preRunningDeadlineSeconds": 0}), "preRunningDeadlineSeconds must be a positive integer"),
        (json!({"backoffLimit": -1}), "backoffLimit must be a non-negative integer"),
        // Left for Ray and the API server to judge, as upstream leaves them.
        (json!({"submissionMode": "Other", "entrypoint": null, "entrypointResources": "no JSON"}), ""),
    ]);
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
            "requires either BOTH onSuccess and onFailure fields (legacy) OR deletionRules",
        ),
        (json!({"deletionStrategy": {"onSuccess": {"policy": "DeleteSelf"}}}), "must be set"),
        (
            with(legacy("DeleteCluster", "DeleteNone"), selector.clone()),
            "the ClusterSelector mode doesn't support",
        ),
        (with(legacy("DeleteWorkers", "DeleteNone"), autoscaling.clone()), "autoscaling enabled"),
        (with(legacy("DeleteCluster", "DeleteNone"), shutdown.clone()), "deletion policy is DeleteNone"),
        (with(legacy("DeleteCluster", "DeleteSelf"), shutdown.clone()), ""),
        (rules(json!([rule("DeleteWorkers", 1), rule("DeleteCluster", 2), rule("DeleteSelf", 3)])), ""),
        (with(rules(json!([rule("DeleteSelf", 1)])), shutdown), "are mutually exclusive"),
        (
            with(rules(json!([rule("DeleteSelf", 1)])), legacy("DeleteSelf", "DeleteSelf")),
            "Cannot use both legacy",
        ),
        (
            rules(
                json!([{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}}]),
            ),
            "deletionRules[0]: jobStatus and jobDeploymentStatus cannot be used together",
        ),
        (rules(json!([{"policy": "DeleteSelf", "condition": {}}])), "deletionRules[0]: exactly one of"),
        (rules(json!([rule("DeleteSelf", -1)])), "deletionRules[0]: ttlSeconds must be non-negative"),
        (
            with(rules(json!([rule("DeleteWorkers", 1)])), selector),
            "deletionRules[0]: DeleteWorkers is not supported when using clusterSelector",
        ),
        (
            with(rules(json!([rule("DeleteWorkers", 1)])), autoscaling),
            "deletionRules[0]: DeleteWorkers is not supported with autoscaling",
        ),
        (
            rules(json!([rule("DeleteSelf", 1), rule("DeleteSelf", 2)])),
            "deletionRules[1]: duplicate rule for DeleteSelf and jobStatus SUCCEEDED",
        ),
        (
            rules(json!([rule("DeleteWorkers", 3), rule("DeleteCluster", 2)])),
            "DeleteCluster TTL (2) must be >= DeleteWorkers TTL (3)",
        ),
        (
            rules(json!([rule("DeleteCluster", 3), rule("DeleteSelf", 2)])),
            "DeleteSelf TTL (2) must be >= DeleteCluster TTL (3)",
        ),
        // Everything that is wrong is told at once.
        (
            rules(json!([rule("DeleteSelf", -1), rule("DeleteSelf", 2)])),
            "non-negative; deletionRules[1]: duplicate",
        ),
    ]);
    let mut closed = Settings::default();
    closed.gates.job_deletion_policy = false;
    let spec = ray_job(&legacy("DeleteSelf", "DeleteSelf")).spec;
    let error = job::validate_spec(&spec, &BTreeMap::new(), &closed).unwrap_err();
    assert!(error.contains("RayJobDeletionPolicy feature gate must be enabled"), "{error}");
}

#[test]
fn names() {
    for (name, expected) in [
        ("n".repeat(47), ""),
        ("n".repeat(48), "no more than 47 characters"),
        ("1st".to_owned(), "DNS1035"),
        ("a.b".to_owned(), "DNS1035"),
    ] {
        let mut ray_job = ray_job(&json!({}));
        ray_job.metadata.name = Some(name.clone());
        let mut ray_service = ray_service(&json!({}));
        ray_service.metadata.name = Some(name.clone());
        for verdict in [job::validate_metadata(&ray_job), service::validate_metadata(&ray_service)] {
            match verdict {
                Ok(()) => assert_eq!(expected, "", "{name}"),
                Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{name}: {error}"),
            }
        }
    }
}

#[test]
fn the_time_to_initialize() {
    for (text, seconds) in [
        ("", Some(None)),
        ("30", Some(Some(30))),
        ("5m", Some(Some(300))),
        ("0", None),
        ("-1", None),
        ("soon", None),
    ] {
        let mut ray_service = ray_service(&json!({}));
        let annotations = BTreeMap::from([("ray.io/initializing-timeout".to_owned(), text.to_owned())]);
        ray_service.metadata.annotations = Some(annotations);
        let verdict = service::initializing_timeout(&ray_service);
        let read = verdict.ok().map(|timeout| timeout.map(|timeout| timeout.as_secs()));
        assert_eq!(read, seconds, "{text:?}");
        assert_eq!(service::validate_metadata(&ray_service).is_ok(), seconds.is_some());
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
            "authOptions.enableK8sTokenAuth is not supported for RayService",
        ),
        (
            json!({"rayClusterConfig": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}}),
            "headGroupSpec",
        ),
        (
            json!({"rayClusterConfig": {"headGroupSpec": {"headService": {"metadata": {"name": "mine"}}}}}),
            "headService.metadata.name should not be set",
        ),
        (
            json!({"upgradeStrategy": {"type": "Soon"}}),
            "spec.upgradeStrategy.type value Soon is invalid, valid options are NewCluster, None, NewClusterWithIncrementalUpgrade",
        ),
        (json!({"upgradeStrategy": {"type": "None"}}), ""),
        (json!({"rayClusterDeletionDelaySeconds": -1}), "should be a non-negative integer"),
        (incremental(true, options(json!({}))), ""),
        (incremental(false, options(json!({}))), "Ray Autoscaler is required"),
        (incremental(true, Value::Null), "clusterUpgradeOptions are required"),
        (
            incremental(true, options(json!({"maxSurgePercent": 101}))),
            "maxSurgePercent must be between 0 and 100",
        ),
        (
            incremental(true, options(json!({"stepSizePercent": -1}))),
            "stepSizePercent must be between 0 and 100",
        ),
        (incremental(true, options(json!({"stepSizePercent": 51}))), "less than or equal to maxSurgePercent"),
        (incremental(true, options(json!({"intervalSeconds": 0}))), "intervalSeconds must be greater than 0"),
        (incremental(true, options(json!({"gatewayClassName": ""}))), "gatewayClassName is required"),
        (json!({"serveConfigV2": "no: [yaml"}), ""),
    ] {
        match service::validate_spec(&ray_service(&spec), &Settings::default()) {
            Ok(()) => assert_eq!(expected, "", "{spec} was accepted"),
            Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{spec}: {error}"),
        }
    }
}
