//! RayJobs under batch schedulers.

use super::*;
use crate::{
    settings::BatchScheduler,
    testing::{events, steps},
};

fn initializing(spec: Value, scheduler: BatchScheduler) -> World {
    let status = json!({
        "jobDeploymentStatus": "Initializing", "jobId": "train-id", "rayClusterName": "train-c", "startTime": ago(1),
    });
    under(world(spec, status), scheduler)
}

fn under(world: World, scheduler: BatchScheduler) -> World {
    world.with_settings(|settings| settings.batch_scheduler = Some(scheduler))
}

fn applied(plan: &Plan, step: usize) -> &Value {
    match &plan.steps[step].action {
        Action::Apply { object, .. } | Action::Create { object, .. } => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn volcano_waits_for_the_cluster_and_makes_room_for_the_submitter() {
    let plan = initializing(json!({}), BatchScheduler::Volcano).plan();
    assert_eq!(
        steps(&plan),
        ["apply PodGroup.scheduling.volcano.sh ns/ray-train-pg", "create RayCluster.ray.io ns/train-c"]
    );
    let group = applied(&plan, 0);
    assert_eq!(group["spec"], json!({"minMember": 2, "minResources": {"cpu": "500m", "memory": "200Mi"}}));
    assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "RayJob");
    let http = initializing(json!({"submissionMode": "HTTPMode"}), BatchScheduler::Volcano).plan();
    assert_eq!(applied(&http, 0)["spec"]["minResources"], json!({}), "nobody submits");
    let selected = json!({"rayClusterSpec": null, "clusterSelector": {"ray.io/cluster": "theirs"}});
    let plan = initializing(selected, BatchScheduler::Volcano).plan();
    assert!(plan.steps.is_empty() && plan.events[0].note.contains("use rayClusterSpec"), "{plan:?}");
}

#[test]
fn the_submitter_is_handed_to_the_scheduler() {
    let plan = initializing(json!({}), BatchScheduler::Volcano).with_cluster("ready").plan();
    let template = &applied(&plan, 1)["spec"]["template"];
    assert_eq!(template["spec"]["schedulerName"], "volcano");
    assert_eq!(template["metadata"]["annotations"]["volcano.sh/task-spec"], "submittergroup");
}

#[test]
fn yunikorn_learns_of_the_submitter_from_the_cluster() {
    let mut world = initializing(json!({}), BatchScheduler::Yunikorn);
    let mut job = entry(NAMESPACE, "train", world.observed.job.object.clone());
    job.object.metadata.labels =
        Some(BTreeMap::from([(labels::GANG_SCHEDULING.to_owned(), "true".to_owned())]));
    world.observed.job = Arc::new(job);
    let plan = world.plan();
    let groups =
        applied(&plan, 0)["metadata"]["annotations"]["yunikorn.apache.org/task-groups"].as_str().unwrap();
    let groups: Vec<Value> = serde_json::from_str(groups).unwrap();
    let names: Vec<_> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["headgroup", "small", "submittergroup"]);
}

#[test]
fn kai_takes_no_submitter_jobs() {
    let plan = initializing(json!({}), BatchScheduler::Kai).plan();
    assert!(plan.steps.is_empty() && plan.events[0].note.contains("does not support K8sJobMode"), "{plan:?}");
    assert_eq!(
        initializing(json!({"submissionMode": "HTTPMode"}), BatchScheduler::Kai).plan().steps.len(),
        1
    );
}

#[test]
fn what_has_ended_asks_for_nothing_more() {
    let ended = |state: &str| {
        running(json!({"jobDeploymentStatus": state, "jobStatus": "SUCCEEDED", "endTime": time(ago(1))}))
    };
    let kept =
        under(world(json!({}), ended("Complete")), BatchScheduler::Volcano).with_cluster("ready").plan();
    assert_eq!(
        applied(&kept, 0)["spec"],
        json!({"minMember": 2, "minResources": {}}),
        "the cluster is still there"
    );
    assert_eq!(events(&kept), ["BatchSchedulerCleanedUp"]);
    for state in ["Complete", "Suspending", "Retrying"] {
        let gone = under(world(json!({}), ended(state)), BatchScheduler::Volcano).plan();
        assert_eq!(applied(&gone, 0)["spec"], json!({"minMember": 0, "minResources": {}}), "{state}");
    }
    assert!(world(json!({}), ended("Complete")).plan().steps.is_empty(), "nobody schedules");
}
