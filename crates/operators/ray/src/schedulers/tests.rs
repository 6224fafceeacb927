use serde_json::{Value, json};

use super::*;

fn cluster(labels: &Value) -> RayCluster {
    let container =
        json!([{"name": "ray", "resources": {"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}}}]);
    let value = json!({
        "metadata": {"name": "demo", "namespace": "ns", "uid": "u", "labels": labels},
        "spec": {
            "headGroupSpec": {"template": {"spec": {"containers": container}}},
            "workerGroupSpecs": [{
                "groupName": "small", "replicas": 3, "minReplicas": 1, "maxReplicas": 9, "numOfHosts": 2,
                "template": {"spec": {"containers": container, "nodeSelector": {"a": "b"}}},
            }],
        },
    });
    serde_json::from_value(value).unwrap()
}

fn with(scheduler: BatchScheduler) -> Settings {
    Settings { batch_scheduler: Some(scheduler), ..Settings::default() }
}

fn prepared(cluster: &RayCluster, scheduler: BatchScheduler) -> Vec<Value> {
    let steps = prepare(cluster, &with(scheduler)).unwrap();
    steps.iter().map(|step| serde_json::to_value(&step.action).unwrap()).collect()
}

fn marked(cluster: &RayCluster, scheduler: BatchScheduler) -> Value {
    let mut pod = Pod::default();
    mark(&mut pod, "small", cluster, &with(scheduler));
    serde_json::to_value(&pod).unwrap()
}

#[test]
fn volcano_groups_all_pods_of_a_cluster() {
    let mut demo = cluster(&json!({"volcano.sh/queue-name": "q", "ray.io/priority-class-name": "high"}));
    let group = &prepared(&demo, BatchScheduler::Volcano)[0]["apply"]["object"];
    assert_eq!(group["metadata"]["name"], "ray-demo-pg");
    assert_eq!(group["spec"]["minMember"], 7);
    assert_eq!(group["spec"]["minResources"], json!({"cpu": "14", "memory": "7Gi"}));
    assert_eq!((&group["spec"]["queue"], &group["spec"]["priorityClassName"]), (&json!("q"), &json!("high")));
    demo.spec.enable_in_tree_autoscaling = Some(true);
    let group = &prepared(&demo, BatchScheduler::Volcano)[0]["apply"]["object"];
    assert_eq!(group["spec"]["minMember"], 3, "an autoscaler starts from the fewest");
    let pod = marked(&demo, BatchScheduler::Volcano);
    assert_eq!(pod["spec"]["schedulerName"], "volcano");
    assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "ray-demo-pg");
    assert_eq!(pod["metadata"]["annotations"]["volcano.sh/task-spec"], "small");
    assert_eq!(pod["metadata"]["labels"]["volcano.sh/queue-name"], "q");
}

#[test]
fn volcano_leaves_the_group_of_a_ray_job_to_it() {
    let demo =
        cluster(&json!({"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "job"}));
    assert!(prepared(&demo, BatchScheduler::Volcano).is_empty());
    let pod = marked(&demo, BatchScheduler::Volcano);
    assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "ray-job-pg");
}

#[test]
fn a_tier_that_is_no_number_is_the_users_to_mend() {
    let demo = cluster(&json!({
        "volcano.sh/network-topology-mode": "hard", "volcano.sh/network-topology-highest-tier-allowed": "low",
    }));
    let error = prepare(&demo, &with(BatchScheduler::Volcano)).unwrap_err();
    assert!(error.contains("must be a number"), "{error}");
}

#[test]
fn yunikorn_learns_of_the_gang_from_the_pods() {
    let plain = cluster(&json!({"yunikorn.apache.org/queue": "root.a", "yunikorn.apache.org/app-id": "app"}));
    let pod = marked(&plain, BatchScheduler::Yunikorn);
    assert_eq!(pod["metadata"]["labels"], json!({"queue": "root.a", "applicationId": "app"}));
    assert!(pod["metadata"].get("annotations").is_none());
    let gang = cluster(&json!({"ray.io/gang-scheduling-enabled": "true"}));
    let pod = marked(&gang, BatchScheduler::Yunikorn);
    let groups = pod["metadata"]["annotations"]["yunikorn.apache.org/task-groups"].as_str().unwrap();
    let groups: Value = serde_json::from_str(groups).unwrap();
    assert_eq!(groups[0]["name"], "headgroup");
    assert_eq!(
        groups[1],
        json!({"name": "small", "minMember": 2, "minResource": {"cpu": "2", "memory": "1Gi"},
               "nodeSelector": {"a": "b"}})
    );
}

#[test]
fn scheduler_plugins_group_a_gang_once() {
    assert!(prepared(&cluster(&json!({})), BatchScheduler::SchedulerPlugins).is_empty());
    let gang = cluster(&json!({"ray.io/gang-scheduling-enabled": "true"}));
    let group = &prepared(&gang, BatchScheduler::SchedulerPlugins)[0]["create"]["object"];
    assert_eq!((&group["metadata"]["name"], &group["spec"]["minMember"]), (&json!("demo"), &json!(7)));
    assert!(group["metadata"]["ownerReferences"][0].get("controller").is_none());
    let pod = marked(&gang, BatchScheduler::SchedulerPlugins);
    assert_eq!(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "demo");
    assert_eq!(pod["spec"]["schedulerName"], "scheduler-plugins-scheduler");
}

#[test]
fn kai_needs_a_queue() {
    let pod = marked(&cluster(&json!({"kai.scheduler/queue": "q"})), BatchScheduler::Kai);
    assert_eq!(pod["metadata"]["labels"]["kai.scheduler/queue"], "q");
    assert_eq!(pod["spec"]["schedulerName"], "kai-scheduler");
}
