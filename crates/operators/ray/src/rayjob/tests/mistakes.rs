//! Specs that users have to fix, and what becomes of their RayJobs then.

use serde_json::Value::Null;

use super::{
    states::{check, initializing, losing_its_cluster},
    *,
};
use crate::testing::events;

#[test]
fn mistakes_are_told_and_can_be_mended() {
    let scalar = world(json!({"runtimeEnvYAML": "just text"}), Null);
    assert_eq!(scalar.outcome(), ("ValidationFailed".into(), "ValidationFailed".into(), String::new()));
    assert_eq!(events(&scalar.plan()), ["InvalidRayJobSpec"]);
    let message = scalar.status_after(&scalar.plan()).message.unwrap();
    let told = json!({"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": message.clone()});
    assert_eq!(
        world(json!({"runtimeEnvYAML": "just text"}), told.clone()).plan(),
        Plan::awaiting(message),
        "told once"
    );
    assert_eq!(world(json!({}), told.clone()).outcome(), (String::new(), String::new(), String::new()));
    for state in ["Complete", "Failed"] {
        let invalid = json!({"runtimeEnvYAML": "just text", "backoffLimit": 5});
        let ended = running(json!({"jobDeploymentStatus": state, "failed": 1, "jobStatus": "FAILED"}));
        let plan = world(invalid, ended).plan();
        assert!(plan.status.is_none(), "{state}, and more attempts than before start it again: {plan:?}");
        assert_eq!(events(&plan), ["InvalidRayJobSpec"]);
    }
}

#[test]
fn a_mended_job_goes_on_where_the_mistake_was_noticed() {
    let wrong =
        json!({"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": "m"});
    let noticed = |mut status: Value, more: Value| {
        merge(&mut status, &wrong);
        merge(&mut status, &more);
        status
    };
    let http = || json!({"submissionMode": "HTTPMode", "backoffLimit": 3});
    let interactive = || json!({"submissionMode": "InteractiveMode"});
    let ended = |job_status: &str| json!({"jobStatus": job_status, "endTime": time(ago(50)), "failed": 1});
    check(vec![
        ("New", world(json!({}), wrong.clone()), ("", "", "")),
        (
            "Initializing",
            world(json!({}), noticed(initializing(json!({})), json!({}))),
            ("Initializing", "", ""),
        ),
        (
            "Waiting",
            world(interactive(), noticed(running(json!({})), json!({"jobId": ""}))).with_cluster("ready"),
            ("Waiting", "", ""),
        ),
        (
            "Running, submitted by the user",
            world(interactive(), noticed(running(json!({})), json!({"jobStatus": "RUNNING"})))
                .with_cluster("ready"),
            ("Running", "", "RUNNING"),
        ),
        (
            "Running, submitted by the operator",
            world(http(), noticed(running(json!({})), json!({"jobStatus": "RUNNING"}))).with_cluster("ready"),
            ("Running", "", "RUNNING"),
        ),
        (
            "Running, submitted by a Job",
            world(json!({}), noticed(running(json!({})), json!({"jobStatus": "RUNNING"})))
                .with_cluster("ready"),
            ("Running", "", "RUNNING"),
        ),
        (
            "Complete, as others overwrite it",
            world(http(), noticed(running(json!({})), ended("SUCCEEDED"))),
            ("Complete", "", "SUCCEEDED"),
        ),
        (
            "Failed, as others overwrite it",
            world(http(), noticed(running(json!({})), ended("FAILED"))),
            ("Failed", "", "FAILED"),
        ),
        (
            "Failed before Ray knew of it",
            world(http(), noticed(running(json!({})), ended(""))),
            ("Failed", "", ""),
        ),
        (
            "Retrying, and the cluster is about to go",
            losing_its_cluster(world(json!({}), noticed(running(json!({})), json!({"jobStatus": "FAILED"})))),
            ("Retrying", "", "FAILED"),
        ),
        (
            "Retrying, and the cluster is still there",
            world(http(), noticed(running(json!({})), json!({"jobStatus": "FAILED"}))).with_cluster("ready"),
            ("Retrying", "", "FAILED"),
        ),
        (
            "Suspending, and the cluster is gone",
            world(json!({}), noticed(running(json!({})), json!({"jobStatus": "RUNNING"}))),
            ("Retrying", "", "RUNNING"),
        ),
        ("Suspended", world(json!({}), noticed(json!({"jobStatus": ""}), json!({}))), ("", "", "")),
    ]);
    let over = world(http(), noticed(running(json!({})), ended("FAILED")));
    let status = over.status_after(&over.plan());
    assert_eq!((status.failed, status.end_time.unwrap().0), (Some(1), ago(50)), "it ended then, and once");
}
