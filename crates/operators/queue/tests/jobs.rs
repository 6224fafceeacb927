//! Jobs wait for quota, run, are preempted and go on, with the controllers of Kubernetes and simulated nodes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use bed::{Bed, condition, job, job_set, kueue_template, pass, pod, setting};
use quintet_golden::simulate;
use quintet_golden::simulation::fail_watches;
use serde_json::{Value, json};

fn on_a_cluster(test: impl AsyncFnOnce(Bed)) {
    simulate(async {
        let template = kueue_template().await;
        let frameworks =
            "integrations: {frameworks: [batch/job, deployment, jobset.x-k8s.io/jobset, pod, statefulset]}";
        test(Bed::new(&template, 1, setting(frameworks)).await).await;
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_job_held_back_by_quota_starts_when_another_ends() {
    on_a_cluster(async |bed| {
        bed.add_queue(2, json!({})).await;
        bed.create(&job("first", 2, "20s", &[])).await;
        pass(3).await;
        bed.create(&job("second", 2, "20s", &[])).await;
        pass(3).await;
        assert!(bed.is_running("first").await, "{:#?}", bed.workload("first").await);
        assert!(!bed.is_running("second").await);
        assert_eq!(bed.get("Job", "second").await.unwrap()["spec"]["suspend"], true);
        let waiting = bed.workload("second").await;
        assert_eq!(condition(&waiting, "QuotaReserved"), "False WaitingForQuota", "{waiting:#}");
        let queue = bed.get("ClusterQueue", "cq").await.unwrap();
        let counts = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"]
            .map(|name| &queue["status"][name]);
        assert_eq!(counts, [1, 1, 1].map(Value::from).each_ref());
        assert_eq!(queue["status"]["flavorsUsage"][0]["resources"][0]["total"], "2");

        pass(20).await;
        assert_eq!(condition(&bed.workload("first").await, "Finished"), "True Succeeded");
        assert!(bed.is_running("second").await);
        pass(25).await;
        assert_eq!(condition(&bed.workload("second").await, "Finished"), "True Succeeded");
        let queue = bed.get("ClusterQueue", "cq").await.unwrap();
        assert_eq!(queue["status"]["reservingWorkloads"], 0);
    });
}

#[test]
fn a_job_of_higher_priority_takes_the_quota_and_gives_it_back() {
    on_a_cluster(async |bed| {
        bed.add_queue(2, json!({ "preemption": { "withinClusterQueue": "LowerPriority" } })).await;
        for (name, value) in [("low", 10), ("high", 1000)] {
            bed.create(&json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
                "metadata": { "name": name }, "value": value }))
                .await;
        }
        bed.create(&job("low", 2, "", &[("kueue.x-k8s.io/priority-class", "low")])).await;
        pass(3).await;
        assert!(bed.is_running("low").await);
        bed.create(&job("high", 1, "10s", &[("kueue.x-k8s.io/priority-class", "high")])).await;
        pass(6).await;
        let low = bed.workload("low").await;
        assert_eq!(condition(&low, "Evicted"), "True Preempted", "{low:#}");
        assert!(!bed.is_running("low").await && bed.is_running("high").await);
        let stopped = bed.get("Job", "low").await.unwrap();
        assert_eq!(stopped["spec"]["suspend"], true);
        assert!(stopped["metadata"]["annotations"].is_null(), "the stop has come to its end: {stopped:#}");
        let template = &stopped["spec"]["template"]["metadata"];
        assert!(template["labels"]["kueue.x-k8s.io/podset"].is_null(), "{template:#}");

        pass(15).await;
        assert!(bed.is_running("low").await, "{:#}", bed.workload("low").await);
        assert_eq!(condition(&bed.workload("low").await, "Evicted"), "False QuotaReserved");
    });
}

#[test]
fn a_pod_may_be_created_right_after_its_job() {
    on_a_cluster(async |mut bed| {
        bed.add_queue(2, json!({})).await;
        bed.world.kill();
        fail_watches(&bed.world, "jobs");
        bed.start().await;
        let owned = |name: &str, uid: &Value| {
            let mut owned = pod(name, None, "");
            owned["metadata"]["ownerReferences"] = json!([
                { "apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": uid, "controller": true }]);
            owned
        };
        let refused = bed.world.create(&owned("early", &json!("other"))).await.unwrap();
        assert_eq!(refused.code, 403);
        assert!(refused.message.is_some_and(|why| why.contains("Job.batch \"a\" not found")));
        bed.create(&job("a", 1, "", &[])).await;
        let uid = bed.get("Job", "a").await.unwrap()["metadata"]["uid"].clone();
        let gates = async |pod: &Value| {
            let (answer, created) = bed.world.create_and_read(pod).await.unwrap();
            assert_eq!(answer.code, 201, "{:?}", answer.message);
            created["spec"]["schedulingGates"].clone()
        };
        assert!(gates(&owned("of-the-job", &uid)).await.is_null(), "it waits with the Job");
        let of_another = owned("of-another", &json!("other"));
        assert!(gates(&of_another).await.is_array(), "its owner is not this Job");
    });
}

#[test]
fn a_restarted_operator_changes_nothing() {
    on_a_cluster(async |mut bed| {
        bed.add_queue(2, json!({})).await;
        bed.create(&job("runs", 2, "", &[])).await;
        bed.create(&job("waits", 2, "", &[])).await;
        pass(5).await;
        let versions = |objects: std::collections::BTreeMap<quintet_golden::ObjectId, Value>| {
            let ours = objects.into_iter().filter(|(id, _)| !["Lease", "Node"].contains(&id.kind.as_str()));
            let version = |object: Value| object["metadata"]["resourceVersion"].clone();
            ours.map(|(id, object)| (id, version(object))).collect::<Vec<_>>()
        };
        let before = versions(bed.world.objects().await.unwrap());
        bed.world.kill();
        pass(5).await;
        bed.start().await;
        pass(60).await;
        assert_eq!(versions(bed.world.objects().await.unwrap()), before);
        assert!(bed.is_running("runs").await && !bed.is_running("waits").await);
        bed.delete("Job", "runs").await;
        pass(10).await;
        assert!(bed.is_running("waits").await, "{:#}", bed.workload("waits").await);
    });
}

#[test]
fn a_deactivated_workload_stops_its_job_until_it_is_activated() {
    on_a_cluster(async |bed| {
        bed.add_queue(2, json!({})).await;
        bed.create(&job("a", 1, "", &[])).await;
        pass(3).await;
        let name = bed.workload("a").await["metadata"]["name"].as_str().unwrap().to_owned();
        bed.patch("Workload", &name, &json!({ "spec": { "active": false } })).await;
        pass(5).await;
        let workload = bed.workload("a").await;
        assert!(!bed.is_running("a").await);
        assert_eq!(condition(&workload, "QuotaReserved"), "False Deactivated", "{workload:#}");
        bed.patch("Workload", &name, &json!({ "spec": { "active": true } })).await;
        pass(5).await;
        assert!(bed.is_running("a").await, "{:#}", bed.workload("a").await);
        assert_eq!(condition(&bed.workload("a").await, "Requeued"), "True Reactivated");
    });
}

#[test]
fn objects_in_use_stay_until_they_are_not() {
    on_a_cluster(async |bed| {
        bed.add_queue(2, json!({})).await;
        bed.create(&job("a", 1, "", &[])).await;
        pass(3).await;
        bed.delete("ClusterQueue", "cq").await;
        bed.delete("ResourceFlavor", "default").await;
        pass(3).await;
        let queue = bed.get("ClusterQueue", "cq").await.expect("it is in use");
        assert_eq!(condition(&queue, "Active"), "False Terminating", "{queue:#}");
        assert!(bed.is_running("a").await, "what is admitted goes on");
        bed.delete("Job", "a").await;
        pass(3).await;
        assert!(bed.get("ClusterQueue", "cq").await.is_none());
        assert!(bed.get("ResourceFlavor", "default").await.is_none());
    });
}

/// Where a pod is: whether it has its gate, and its phase.
async fn place(bed: &Bed, name: &str) -> (bool, String) {
    let pod = bed.get("Pod", name).await.unwrap_or_default();
    let is_gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    (is_gated, pod["status"]["phase"].as_str().unwrap_or("gone").to_owned())
}

#[test]
fn pods_of_a_group_start_together_when_another_pod_has_ended() {
    on_a_cluster(async |bed| {
        bed.add_queue(2, json!({})).await;
        bed.create(&pod("first", None, "20s")).await;
        bed.create(&pod("a", Some(("group", 2)), "20s")).await;
        pass(3).await;
        assert_eq!(place(&bed, "first").await, (false, "Running".to_owned()));
        assert!(bed.get("Workload", "group").await.is_none(), "one of two pods is no group");
        bed.create(&pod("b", Some(("group", 2)), "20s")).await;
        pass(5).await;
        let waiting = bed.get("Workload", "group").await.unwrap();
        assert_eq!(condition(&waiting, "QuotaReserved"), "False WaitingForQuota", "{waiting:#}");
        for name in ["a", "b"] {
            assert_eq!(
                place(&bed, name).await,
                (true, "Pending".to_owned()),
                "one CPU would be enough for it"
            );
        }
        pass(20).await;
        for name in ["a", "b"] {
            assert_eq!(place(&bed, name).await, (false, "Running".to_owned()));
        }
        pass(25).await;
        assert_eq!(condition(&bed.get("Workload", "group").await.unwrap(), "Finished"), "True Succeeded");
        assert_eq!(bed.get("Pod", "a").await.unwrap()["metadata"]["finalizers"], Value::Null);
    });
}

#[test]
fn every_pod_of_a_deployment_waits_for_its_own_quota() {
    on_a_cluster(async |bed| {
        bed.add_queue(2, json!({})).await;
        bed.create(&json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "d", "namespace": bed::NAMESPACE, "labels": { "kueue.x-k8s.io/queue-name": "lq" } },
            "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "d" } }, "template": {
                "metadata": { "labels": { "app": "d" } }, "spec": { "containers": [{ "name": "c", "image": "example.com/image:1",
                    "resources": { "requests": { "cpu": "1" } } }] } } } }))
            .await;
        pass(10).await;
        let objects = bed.world.objects().await.unwrap();
        let pods: Vec<&Value> =
            objects.iter().filter(|(id, _)| id.kind == "Pod").map(|(_, pod)| pod).collect();
        assert_eq!(pods.len(), 3);
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        assert_eq!(running, 2, "as many as there is quota for");
        assert!(pods.iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
    });
}

#[test]
fn a_job_set_runs_while_it_is_admitted_and_is_restored_when_it_is_not() {
    on_a_cluster(async |bed| {
        bed.add_queue(2, json!({})).await;
        bed.create(&json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
            "metadata": { "name": "low" }, "value": 10 }))
            .await;
        let original = job_set("a", "low");
        bed.create(&original).await;
        pass(3).await;
        let running = bed.get("JobSet", "a").await.unwrap();
        let template = |set: &Value| set["spec"]["replicatedJobs"][1]["template"]["spec"]["template"].clone();
        assert_eq!(running["spec"]["suspend"], false, "{running:#}");
        let workload = bed.workload("a").await;
        assert_eq!(
            template(&running)["metadata"]["annotations"]["kueue.x-k8s.io/workload"],
            workload["metadata"]["name"]
        );

        let name = workload["metadata"]["name"].as_str().unwrap();
        bed.patch("Workload", name, &json!({ "spec": { "active": false } })).await;
        pass(3).await;
        let stopped = bed.get("JobSet", "a").await.unwrap();
        assert_eq!(stopped["spec"]["suspend"], true, "{stopped:#}");
        assert_eq!(template(&stopped)["spec"], template(&original)["spec"]);
        let queue = bed.get("ClusterQueue", "cq").await.unwrap();
        assert_eq!(queue["status"]["reservingWorkloads"], 0);
    });
}
