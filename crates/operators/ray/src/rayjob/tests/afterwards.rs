use serde_json::Value::Null;

use super::*;
use crate::testing::steps;

fn ended(state: &str, job_status: &str, seconds: i64) -> Value {
    running(json!({"jobDeploymentStatus": state, "jobStatus": job_status, "endTime": time(ago(seconds))}))
}

fn rules(rules: Value) -> Value {
    json!({"deletionStrategy": {"deletionRules": rules}})
}

fn rule(policy: &str, condition: Value) -> Value {
    json!({"policy": policy, "condition": condition})
}

#[test]
fn the_cluster_goes_when_its_time_has_come() {
    let shutdown = |ttl: i32| json!({"shutdownAfterJobFinishes": true, "ttlSecondsAfterFinished": ttl});
    let delete_cluster = "delete RayCluster.ray.io ns/train-c";
    for (name, world, expected, next) in [
        ("at once", world(shutdown(0), ended("Complete", "SUCCEEDED", 0)), vec![delete_cluster], None),
        ("later", world(shutdown(60), ended("Complete", "SUCCEEDED", 10)), vec![], Some(50)),
        (
            "also a stopped one",
            world(shutdown(0), ended("Complete", "STOPPED", 1)),
            vec![delete_cluster],
            None,
        ),
        ("never", world(json!({}), ended("Complete", "SUCCEEDED", 1000)), vec![], None),
        (
            "somebody else's cluster",
            world(
                json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": null,
                       "clusterSelector": {"ray.io/cluster": "train-c"}}),
                ended("Complete", "SUCCEEDED", 1),
            ),
            vec![],
            None,
        ),
        (
            "the RayJob itself where the operator was told so",
            world(shutdown(0), ended("Complete", "SUCCEEDED", 1))
                .with_settings(|settings| settings.delete_finished_jobs = true),
            vec!["delete RayJob.ray.io ns/train"],
            None,
        ),
    ] {
        let plan = world.with_cluster("ready").plan();
        assert_eq!(steps(&plan), expected, "{name}");
        assert_eq!(after(plan.next), next, "{name}");
        assert!(plan.status.is_none(), "{name}");
    }
    let gone = world(shutdown(0), ended("Complete", "SUCCEEDED", 1)).plan();
    assert_eq!(gone, Plan::nothing(), "it is gone already");
}

#[test]
fn a_cluster_that_was_selected_when_the_job_ran_stays_though_the_selector_is_gone() {
    let condition = json!({"jobStatus": "SUCCEEDED"});
    for spec in [
        json!({"shutdownAfterJobFinishes": true}),
        rules(json!([rule("DeleteCluster", condition.clone())])),
        rules(json!([rule("DeleteWorkers", condition)])),
    ] {
        let mut world = world(spec.clone(), ended("Complete", "SUCCEEDED", 10)).with_cluster("ready");
        assert_eq!(world.plan().steps.len(), 1, "ours goes: {spec}");
        let mut shared = cluster("ready");
        shared.object.metadata.owner_references = None;
        world.observed.cluster = Some(Arc::new(shared));
        assert_eq!(world.plan(), Plan::nothing(), "{spec}");
    }
}

#[test]
fn rules_delete_by_and_by() {
    let staged = rules(json!([
        rule("DeleteWorkers", json!({"jobStatus": "SUCCEEDED", "ttlSeconds": 10})),
        rule("DeleteCluster", json!({"jobStatus": "SUCCEEDED", "ttlSeconds": 20})),
        rule("DeleteSelf", json!({"jobStatus": "SUCCEEDED", "ttlSeconds": 30})),
    ]));
    for (seconds, expected, next) in [
        (5, vec![], Some(5)),
        (10, vec!["patch RayCluster.ray.io ns/train-c"], Some(10)),
        (20, vec!["delete RayCluster.ray.io ns/train-c"], Some(10)),
        (30, vec!["delete RayJob.ray.io ns/train"], None),
    ] {
        let plan =
            world(staged.clone(), ended("Complete", "SUCCEEDED", seconds)).with_cluster("ready").plan();
        assert_eq!(
            (steps(&plan), after(plan.next)),
            (expected.into_iter().map(str::to_owned).collect(), next),
            "{seconds}"
        );
    }
    let failed = world(staged, ended("Failed", "FAILED", 1000)).with_cluster("ready").plan();
    assert_eq!(failed, Plan::nothing(), "rules for another end");
}

#[test]
fn a_rule_for_failed_rayjobs_catches_those_that_ray_never_ran() {
    let spec = rules(json!([rule("DeleteCluster", json!({"jobDeploymentStatus": "Failed"}))]));
    let plan = world(spec, ended("Failed", "", 0)).with_cluster("ready").plan();
    assert_eq!(steps(&plan), ["delete RayCluster.ray.io ns/train-c"]);
}

#[test]
fn what_has_happened_does_not_happen_again() {
    let spec = rules(json!([rule("DeleteWorkers", json!({"jobStatus": "SUCCEEDED"}))]));
    let mut world = world(spec, ended("Complete", "SUCCEEDED", 0)).with_cluster("ready");
    let plan = world.plan();
    let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(
        *patch,
        json!([
            {"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": "small"},
            {"op": "add", "path": "/spec/workerGroupSpecs/0/suspend", "value": true},
        ])
    );
    let mut suspended = cluster("ready");
    suspended.object.spec.worker_group_specs.as_mut().unwrap()[0].suspend = Some(true);
    world.observed.cluster = Some(Arc::new(suspended));
    assert_eq!(world.plan(), Plan::nothing());
}

#[test]
fn the_old_strategy_goes_by_the_outcome() {
    let spec = json!({"deletionStrategy": {
        "onSuccess": {"policy": "DeleteCluster"}, "onFailure": {"policy": "DeleteSelf"},
    }});
    for (state, job_status, expected) in [
        ("Complete", "SUCCEEDED", vec!["delete RayCluster.ray.io ns/train-c"]),
        ("Failed", "FAILED", vec!["delete RayJob.ray.io ns/train"]),
        ("Complete", "STOPPED", vec![]),
        ("Failed", "", vec![]),
    ] {
        let plan = world(spec.clone(), ended(state, job_status, 0)).with_cluster("ready").plan();
        assert_eq!(steps(&plan), expected, "{state} {job_status}");
    }
    let off = world(json!({"deletionStrategy": Null}), ended("Complete", "SUCCEEDED", 0))
        .with_cluster("ready")
        .plan();
    assert_eq!(off, Plan::nothing());
}
