//! Ray clusters change their size while they run, with the Ray operator, the controllers of Kubernetes and simulated nodes. The
//! test plays the autoscaler of Ray.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use std::collections::BTreeSet;
use std::time::Duration;

use bed::{Bed, condition, job, kueue_template, pass, setting};
use quintet_golden::simulation::seeds;
use quintet_golden::{Api, Rng, Setting, simulate};
use serde_json::{Value, json};

const PARTIAL: (&str, &str) = ("queue.quintet.dev/partial-scale-up", "true");

const FRAMEWORKS: &str =
    "integrations: {frameworks: [batch/job, ray.io/raycluster, ray.io/rayjob, ray.io/rayservice]}";

/// A cluster with the Ray operator and a queue of this many CPUs.
async fn bed_of(template: &Api, seed: u64, cpus: u32) -> Bed {
    let mut bed = Bed::new(template, seed, setting(FRAMEWORKS)).await;
    bed.world.accompany(&quintet_ray::component(), &Setting::default()).await.unwrap();
    bed.add_queue(cpus, json!({})).await;
    bed
}

fn with_quota(cpus: u32, test: impl AsyncFnOnce(Bed)) {
    simulate(async {
        test(bed_of(&kueue_template().await, 1, cpus).await).await;
        Ok(())
    })
    .unwrap();
}

fn template(cpu: &str) -> Value {
    json!({ "spec": { "containers": [{ "name": "ray", "image": "example.com/ray:1",
        "resources": { "requests": { "cpu": cpu } } }] } })
}

/// With the autoscaler, the head asks for one CPU. So does every worker.
fn spec(workers: i32) -> Value {
    let resources = json!({ "requests": { "cpu": "500m" } });
    json!({ "rayVersion": "2.46.0", "enableInTreeAutoscaling": true, "autoscalerOptions": { "resources": resources },
        "headGroupSpec": { "rayStartParams": {}, "template": template("500m") },
        "workerGroupSpecs": [{ "groupName": "small", "replicas": workers, "minReplicas": 1, "maxReplicas": 20,
            "rayStartParams": {}, "template": template("1") }] })
}

fn metadata(name: &str, annotations: &[(&str, &str)]) -> Value {
    let mut metadata = json!({ "name": name, "namespace": bed::NAMESPACE,
        "labels": { "kueue.x-k8s.io/queue-name": "lq" },
        "annotations": { "kueue.x-k8s.io/elastic-job": "true" } });
    for (name, value) in annotations {
        metadata["annotations"][*name] = (*value).into();
    }
    metadata
}

fn cluster(workers: i32, annotations: &[(&str, &str)]) -> Value {
    json!({ "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata("r", annotations),
        "spec": spec(workers) })
}

/// Asks for this many workers, as the autoscaler does: it names those that have to go, and those that wait go first.
async fn scale(bed: &Bed, cluster: &str, replicas: i32) {
    let mut groups = bed.get("RayCluster", cluster).await.unwrap()["spec"]["workerGroupSpecs"].clone();
    let (running, gated) = workers(bed, cluster).await;
    let surplus = (running.len() + gated.len()).saturating_sub(usize::try_from(replicas).unwrap());
    let leaving: Vec<&String> = gated.iter().chain(&running).take(surplus).collect();
    groups[0]["replicas"] = replicas.into();
    groups[0]["scaleStrategy"] = json!({ "workersToDelete": leaving });
    bed.patch("RayCluster", cluster, &json!({ "spec": { "workerGroupSpecs": groups } })).await;
}

/// The workers of a cluster that run and that wait, by name.
async fn workers(bed: &Bed, cluster: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let objects = bed.world.objects().await.unwrap();
    let is_worker = |pod: &&Value| {
        let labels = &pod["metadata"]["labels"];
        labels["ray.io/node-type"] == "worker"
            && labels["ray.io/cluster"] == cluster
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    let is_gated =
        |pod: &&Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let (gated, others): (Vec<&Value>, Vec<&Value>) = objects.values().filter(is_worker).partition(is_gated);
    let names = |pods: Vec<&Value>| {
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    (names(others), names(gated))
}

/// What is reserved of the queue.
async fn reserved(bed: &Bed) -> Value {
    let queue = bed.get("ClusterQueue", "cq").await.unwrap();
    queue["status"]["flavorsReservation"][0]["resources"][0]["total"].clone()
}

/// Lets time pass, in which never more is used than there is quota for.
async fn pass_within(bed: &Bed, cpus: u32, seconds: u64) {
    for _ in 0..seconds {
        pass(1).await;
        let used = used(bed).await;
        assert!(used <= f64::from(cpus), "{used} CPUs are used of {cpus}: {:#?}", slices(bed).await);
    }
}

/// The numbers of workers that run and wait.
async fn expect_workers(bed: &Bed, cluster: &str, running: usize, waiting: usize) {
    let (names, gated) = workers(bed, cluster).await;
    assert_eq!((names.len(), gated.len()), (running, waiting), "{:#?}", slices(bed).await);
}

/// The Workloads, and what they say.
async fn slices(bed: &Bed) -> Vec<String> {
    let objects = bed.world.objects().await.unwrap();
    let workloads = objects.iter().filter(|(id, _)| id.kind == "Workload").map(|(_, object)| object);
    workloads
        .map(|own| {
            let count = |set: &Value| set["count"].as_i64().unwrap_or_default().to_string();
            let counts =
                |sets: &Value| sets.as_array().into_iter().flatten().map(count).collect::<Vec<_>>().join("+");
            format!(
                "{} asks {} has {} admitted {:?} finished {:?}",
                own["metadata"]["name"],
                counts(&own["spec"]["podSets"]),
                counts(&own["status"]["admission"]["podSetAssignments"]),
                condition(own, "Admitted"),
                condition(own, "Finished")
            )
        })
        .collect()
}

#[test]
fn a_ray_cluster_grows_as_a_whole_and_shrinks_at_once() {
    with_quota(6, async |bed| {
        bed.create(&cluster(2, &[])).await;
        pass_within(&bed, 6, 10).await;
        expect_workers(&bed, "r", 2, 0).await;
        let (first, _) = workers(&bed, "r").await;
        scale(&bed, "r", 4).await;
        pass_within(&bed, 6, 10).await;
        expect_workers(&bed, "r", 4, 0).await;
        scale(&bed, "r", 8).await;
        pass_within(&bed, 6, 10).await;
        expect_workers(&bed, "r", 4, 4).await;
        assert!(workers(&bed, "r").await.0.is_superset(&first), "those that ran go on");
        scale(&bed, "r", 1).await;
        pass_within(&bed, 6, 20).await;
        expect_workers(&bed, "r", 1, 0).await;
        assert_eq!(reserved(&bed).await, "2");
    });
}

#[test]
fn a_ray_cluster_that_grows_partially_gets_what_fits_and_the_rest_later() {
    with_quota(8, async |bed| {
        bed.create(&job("other", 2, "60s", &[])).await;
        pass(3).await;
        bed.create(&cluster(2, &[PARTIAL])).await;
        pass_within(&bed, 8, 10).await;
        expect_workers(&bed, "r", 2, 0).await;
        let (first, _) = workers(&bed, "r").await;
        scale(&bed, "r", 9).await;
        pass_within(&bed, 8, 10).await;
        expect_workers(&bed, "r", 5, 4).await;
        assert_eq!(reserved(&bed).await, "8");
        assert!(bed.is_running("other").await, "no other is evicted for it");

        pass_within(&bed, 8, 60).await;
        expect_workers(&bed, "r", 7, 2).await;
        assert!(workers(&bed, "r").await.0.is_superset(&first), "those that ran go on");

        scale(&bed, "r", 3).await;
        pass(2).await;
        assert_eq!(reserved(&bed).await, "4", "quota is given back at once: {:#?}", slices(&bed).await);
        bed.create(&job("next", 4, "", &[])).await;
        pass(10).await;
        expect_workers(&bed, "r", 3, 0).await;
        assert!(bed.is_running("next").await);
    });
}

#[test]
fn a_ray_cluster_that_grows_partially_starts_with_what_fits() {
    with_quota(4, async |bed| {
        bed.create(&cluster(7, &[PARTIAL])).await;
        pass_within(&bed, 4, 10).await;
        expect_workers(&bed, "r", 3, 4).await;
        bed.delete("RayCluster", "r").await;
        pass(60).await;
        assert_eq!(reserved(&bed).await, "0", "{:#?}", slices(&bed).await);
    });
}

#[test]
fn a_cluster_whose_workers_wait_is_not_evicted_because_they_are_not_ready() {
    with_quota(4, async |bed| {
        bed.create(&cluster(7, &[PARTIAL])).await;
        pass(10).await;
        let (first, _) = workers(&bed, "r").await;
        // More than the timeout of waitForPodsReady.
        pass(45 * 60).await;
        expect_workers(&bed, "r", 3, 4).await;
        assert_eq!(workers(&bed, "r").await.0, first);
    });
}

#[test]
fn the_cluster_of_a_ray_job_grows_partially() {
    with_quota(6, async |bed| {
        // The Ray operator makes a cluster, whose pods the webhook gates.
        bed.world.serve_webhooks(&quintet_queue::component(), &setting(FRAMEWORKS)).await.unwrap();
        // The cluster with one worker, and the submitter.
        let spec = json!({ "entrypoint": "sleep 1", "submissionMode": "K8sJobMode", "shutdownAfterJobFinishes": true,
            "rayClusterSpec": spec(1), "submitterPodTemplate": { "spec": { "restartPolicy": "Never", "containers": [
                { "name": "submitter", "image": "example.com/ray:1", "resources": { "requests": { "cpu": "1" } } }] } } });
        bed.create(
            &json!({ "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata("j", &[PARTIAL]),
            "spec": spec }),
        )
        .await;
        pass_within(&bed, 6, 20).await;
        let status = bed.get("RayJob", "j").await.unwrap()["status"].clone();
        let cluster = status["rayClusterName"].as_str().expect("a cluster").to_owned();
        expect_workers(&bed, &cluster, 1, 0).await;
        assert_eq!(reserved(&bed).await, "3");
        scale(&bed, &cluster, 9).await;
        pass_within(&bed, 6, 10).await;
        expect_workers(&bed, &cluster, 4, 5).await;
        assert_eq!(reserved(&bed).await, "6");
        scale(&bed, &cluster, 2).await;
        pass(2).await;
        assert_eq!(reserved(&bed).await, "4", "{:#?}", slices(&bed).await);
        pass_within(&bed, 6, 20).await;
        expect_workers(&bed, &cluster, 2, 0).await;
    });
}

/// CPUs of pods that are not being deleted.
async fn used(bed: &Bed) -> f64 {
    let objects = bed.world.objects().await.unwrap();
    let runs = |pod: &&Value| {
        !pod["spec"]["nodeName"].is_null()
            && pod["metadata"]["deletionTimestamp"].is_null()
            && !["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
    };
    let cpus = |amount: &Value| match amount.as_str().map(|text| (text, text.strip_suffix('m'))) {
        Some((_, Some(millis))) => millis.parse::<f64>().unwrap() / 1000.0,
        Some((text, None)) => text.parse().unwrap(),
        None => 0.0,
    };
    let pods = objects.iter().filter(|(id, _)| id.kind == "Pod").map(|(_, pod)| pod).filter(runs);
    let containers = pods.flat_map(|pod| pod["spec"]["containers"].as_array().unwrap());
    containers.map(|container| cpus(&container["resources"]["requests"]["cpu"])).sum()
}

/// What is admitted: of slices that replace each other, the last one that has quota.
async fn admitted(bed: &Bed) -> i64 {
    let objects = bed.world.objects().await.unwrap();
    let held: Vec<&Value> = objects
        .iter()
        .filter(|(id, own)| {
            id.kind == "Workload"
                && condition(own, "QuotaReserved").starts_with("True")
                && !condition(own, "Finished").starts_with("True")
        })
        .map(|(_, own)| own)
        .collect();
    let key = "kueue.x-k8s.io/workload-slice-replacement-for";
    let replaced: BTreeSet<String> = held
        .iter()
        .filter_map(|own| own["metadata"]["annotations"][key].as_str())
        .map(str::to_owned)
        .collect();
    let is_last = |own: &&&Value| {
        let name = own["metadata"]["name"].as_str().unwrap();
        !replaced.contains(&format!("{}/{name}", bed::NAMESPACE))
    };
    let cpus = |own: &&Value| -> i64 {
        let asked = own["spec"]["podSets"].as_array().unwrap();
        let sets = own["status"]["admission"]["podSetAssignments"].as_array().unwrap();
        let one = |(set, asked): (&Value, &Value)| {
            let (count, usage) = (set["count"].as_i64().unwrap(), &set["resourceUsage"]["cpu"]);
            let each = usage.as_str().unwrap().parse::<i64>().unwrap().checked_div(count).unwrap_or(0);
            each * count.min(asked["count"].as_i64().unwrap_or(1))
        };
        sets.iter().zip(asked).map(one).sum()
    };
    held.iter().filter(is_last).map(cpus).sum()
}

/// One world: clusters grow and shrink, Jobs come and go, the operator dies and comes back.
async fn live(seed: u64) {
    const CPUS: u32 = 8;
    let mut bed = bed_of(&kueue_template().await, seed, CPUS).await;
    let rng = Rng::seeded(seed);
    let clusters = ["partial", "whole"];
    for name in clusters {
        let annotations: &[(&str, &str)] = if name == "partial" { &[PARTIAL] } else { &[] };
        let mut cluster = cluster(1, annotations);
        cluster["metadata"]["name"] = name.into();
        bed.create(&cluster).await;
    }
    for round in 0..40 {
        let name = clusters[usize::try_from(rng.below(2)).unwrap()];
        match rng.below(6) {
            0 => {
                let cpus = u32::try_from(1 + rng.below(3)).unwrap();
                let run_for = format!("{}s", 5 + rng.below(20));
                let _ = bed.world.create(&job(&format!("j{round}"), cpus, &run_for, &[])).await.unwrap();
            }
            1 if bed.world.is_running() => bed.world.kill(),
            1 | 2 if !bed.world.is_running() => bed.start().await,
            // Without the operator, its webhooks refuse changes.
            _ if bed.world.is_running() => scale(&bed, name, i32::try_from(rng.below(12)).unwrap()).await,
            _ => {}
        }
        for _ in 0..=rng.below(4) {
            tokio::time::sleep(Duration::from_millis(200 + rng.below(1500))).await;
            let (used, admitted) = (used(&bed).await, admitted(&bed).await);
            assert!(used <= f64::from(CPUS), "seed {seed}: {used} CPUs are used of {CPUS}");
            assert!(admitted <= i64::from(CPUS), "seed {seed}: {admitted} CPUs are admitted of {CPUS}");
        }
    }
    if !bed.world.is_running() {
        bed.start().await;
    }
    for name in clusters {
        scale(&bed, name, 1).await;
    }
    pass(300).await;
    scale(&bed, "partial", 9).await;
    pass(60).await;
    // Two heads, a worker of one cluster, and what is left for the other.
    expect_workers(&bed, "partial", 5, 4).await;
    expect_workers(&bed, "whole", 1, 0).await;
    scale(&bed, "partial", 2).await;
    pass(60).await;
    expect_workers(&bed, "partial", 2, 0).await;
    assert_eq!(reserved(&bed).await, "5", "seed {seed}");
}

#[test]
fn quota_holds_whatever_clusters_ask_for() {
    simulate(async {
        for seed in seeds(1) {
            live(seed).await;
        }
        Ok(())
    })
    .unwrap();
}
