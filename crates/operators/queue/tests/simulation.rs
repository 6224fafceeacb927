//! Whatever goes wrong, quota is never exceeded and no Job is forgotten.
//!
//! In every world Jobs, JobSets, pods and groups of pods come, change and go, requests fail or lose their responses, and
//! the operator dies and comes back. The test plays the controller of JobSets. At any time the admitted Workloads fit the quota, and pods that wait have their gate.
//! Then all is well: everything that was not deleted ends, and nothing is written any more.
//!
//! `QUINTET_SEEDS` says how many worlds to try; `QUINTET_SEED` tries one again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bed::{Bed, condition, job, job_set, kueue_template, pass, pod, setting};
use quintet_golden::simulation::{random_fault, try_worlds};
use quintet_golden::{Api, ObjectId, Rng};
use serde_json::{Value, json};

/// CPUs of the queue.
const QUOTA: i64 = 4;
const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Of a thousand requests of the operator and others.
const FAILING: u64 = 30;

/// Faults of requests, while they are on: the test's own requests have none.
fn inject(bed: &Bed, rng: &Rng) -> Arc<AtomicBool> {
    let (rng, is_on) = (rng.fork(), Arc::new(AtomicBool::new(false)));
    let switch = Arc::clone(&is_on);
    bed.world.faults().decide(move |met| {
        // The controllers of Kubernetes are not what is tested.
        let is_ours = ["clusterqueues", "jobs", "jobsets", "localqueues", "workloads"]
            .contains(&met.resource)
            || met.resource == "pods" && ["patch", "delete"].contains(&met.verb);
        let fails = is_ours && switch.load(Ordering::Relaxed) && rng.happens(FAILING);
        fails.then(|| random_fault(&met, &rng))
    });
    is_on
}

fn of_kind<'o>(objects: &'o BTreeMap<ObjectId, Value>, kind: &str) -> Vec<&'o Value> {
    objects.iter().filter(|(id, _)| id.kind == kind).map(|(_, object)| object).collect()
}

fn cpus(workload: &Value) -> i64 {
    let assignments = workload["status"]["admission"]["podSetAssignments"].as_array().into_iter().flatten();
    let amounts = assignments.filter_map(|set| set["resourceUsage"]["cpu"].as_str());
    let usage: i64 = amounts.map(|text| text.parse::<i64>().expect("whole CPUs")).sum();
    let reclaimable = workload["status"]["reclaimablePods"].as_array().into_iter().flatten();
    // Pods of groups and JobSets have one CPU each.
    let reclaimable: i64 = reclaimable.filter_map(|pods| pods["count"].as_i64()).sum();
    usage - if usage > 0 { reclaimable } else { 0 }
}

/// At any time: what is reserved fits the quota.
async fn expect_promises(bed: &Bed, seed: u64) {
    let objects = bed.world.objects().await.unwrap();
    let holds = |workload: &&&Value| {
        condition(workload, "QuotaReserved").starts_with("True")
            && !condition(workload, "Finished").starts_with("True")
            && workload["spec"]["active"] != false
    };
    let reserved: i64 =
        of_kind(&objects, "Workload").iter().filter(holds).map(|workload| cpus(workload)).sum();
    assert!(reserved <= QUOTA, "seed {seed}: {reserved} CPUs are reserved of {QUOTA}");
    for pod in of_kind(&objects, "Pod").iter().filter(|pod| pod["metadata"]["labels"][MANAGED] == "true") {
        let gates = pod["spec"]["schedulingGates"].as_array().map_or(0, Vec::len);
        let workload = &pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"];
        assert!(gates > 0 || workload.is_string(), "seed {seed}: a pod was never admitted: {pod:#}");
    }
}

/// What the controller of JobSets does: pods come and go with `suspend`, and some of them end.
async fn play_job_sets(bed: &Bed, rng: &Rng, seed: u64) {
    let objects = bed.world.objects().await.unwrap();
    for set in of_kind(&objects, "JobSet").into_iter().filter(|set| condition(set, "Completed").is_empty()) {
        let name = set["metadata"]["name"].as_str().unwrap();
        let workload = bed.workload(name).await;
        let is_running = set["spec"]["suspend"] != true;
        let is_active = set["status"]["replicatedJobsStatus"][1]["active"] == 1;
        if is_running {
            let selector =
                &set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"];
            let own = &selector["kueue.x-k8s.io/workload"];
            assert_eq!(
                *own, workload["metadata"]["name"],
                "seed {seed}: it runs without its Workload: {set:#}"
            );
        }
        let jobs = |active: i32, succeeded: i32| {
            let status = |name: &str, active: i32, succeeded: i32| json!({ "name": name, "active": active, "ready": active, "succeeded": succeeded, "failed": 0, "suspended": 0 });
            json!([status("driver", active, succeeded), status("workers", active, 0)])
        };
        let status = match (is_running, is_active) {
            (true, false) => json!({ "replicatedJobsStatus": jobs(1, 0) }),
            (false, true) => json!({ "replicatedJobsStatus": jobs(0, 0) }),
            (true, true) if rng.happens(300) => {
                let completed = json!({ "type": "Completed", "status": "True", "reason": "AllJobsCompleted",
                    "message": "jobset completed successfully", "lastTransitionTime": bed.world.now() });
                json!({ "replicatedJobsStatus": jobs(0, 1), "conditions": [completed] })
            }
            (true, true) => json!({ "replicatedJobsStatus": jobs(1, 1) }),
            (false, false) => continue,
        };
        let id = bed::id("JobSet", name);
        let _ = bed.world.patch(&id, Some("status"), &json!({ "status": status })).await.unwrap();
    }
}

async fn do_something(bed: &mut Bed, rng: &Rng, created: &mut u32) {
    let objects = bed.world.objects().await.unwrap();
    let jobs: Vec<String> = of_kind(&objects, "Job")
        .iter()
        .filter(|job| job["status"]["conditions"].is_null())
        .map(|job| job["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    let one = usize::try_from(rng.below(jobs.len().max(1) as u64)).unwrap();
    let pods: Vec<String> = of_kind(&objects, "Pod")
        .iter()
        .filter(|pod| {
            pod["metadata"]["labels"][MANAGED] == "true" && pod["metadata"]["deletionTimestamp"].is_null()
        })
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    let other = usize::try_from(rng.below(pods.len().max(1) as u64)).unwrap();
    match rng.below(14) {
        0..=2 => {
            *created += 1;
            let class = if rng.happens(300) { "high" } else { "low" };
            let labels = [("kueue.x-k8s.io/priority-class", class)];
            let cpus = u32::try_from(1 + rng.below(3)).unwrap();
            let run_for = format!("{}s", 5 + rng.below(20));
            let _ = bed.world.create(&job(&format!("j{created}"), cpus, &run_for, &labels)).await.unwrap();
        }
        3 if !jobs.is_empty() => {
            let _ = bed.world.delete(&bed::id("Job", &jobs[one])).await.unwrap();
        }
        4 if bed.world.is_running() => bed.world.kill(),
        5 if !bed.world.is_running() => bed.start().await,
        6 if !jobs.is_empty() => {
            let name =
                bed.workload(&jobs[one]).await["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let patch = json!({ "spec": { "active": rng.happens(700) } });
            let _ = bed.world.patch(&bed::id("Workload", &name), None, &patch).await.unwrap();
        }
        7 | 8 if bed.world.is_running() => {
            *created += 1;
            let run_for = format!("{}s", 5 + rng.below(20));
            let _ = bed.world.create(&pod(&format!("p{created}"), None, &run_for)).await.unwrap();
        }
        9 | 10 if bed.world.is_running() => {
            *created += 1;
            // Sometimes one too many, and sometimes one that fails and has to be replaced.
            let size = 2 + rng.below(2);
            for number in 0..size + u64::from(rng.happens(200)) {
                let (name, group) = (format!("g{created}-{number}"), format!("g{created}"));
                let mut member = pod(&name, Some((&group, size)), "8s");
                if rng.happens(150) {
                    member["metadata"]["annotations"]["node.quintet.dev/exit-code"] = "1".into();
                }
                let _ = bed.world.create(&member).await.unwrap();
            }
        }
        12 | 13 if bed.world.is_running() => {
            *created += 1;
            let class = if rng.happens(300) { "high" } else { "low" };
            let _ = bed.world.create(&job_set(&format!("s{created}"), class)).await.unwrap();
        }
        11 if !pods.is_empty() => {
            let _ = bed.world.delete(&bed::id("Pod", &pods[other])).await.unwrap();
        }
        _ => {}
    }
}

/// Replaces pods that groups wait for, as whoever made them would.
async fn replace_pods(bed: &Bed, objects: &BTreeMap<ObjectId, Value>, created: &mut u32) {
    for workload in of_kind(objects, "Workload") {
        let waits = condition(workload, "WaitingForReplacementPods").starts_with("True")
            && !condition(workload, "Finished").starts_with("True");
        if !waits {
            continue;
        }
        let group = workload["metadata"]["name"].as_str().unwrap();
        let size = workload["spec"]["podSets"][0]["count"].as_u64().unwrap();
        *created += 1;
        let replacement = pod(&format!("{group}-r{created}"), Some((group, size)), "5s");
        let _ = bed.world.create(&replacement).await.unwrap();
    }
}

/// Groups whose pods are not complete are given up by whoever made them.
async fn give_up_incomplete(bed: &Bed, objects: &BTreeMap<ObjectId, Value>) {
    let has_workload =
        |group: &Value| of_kind(objects, "Workload").iter().any(|own| own["metadata"]["name"] == *group);
    for pod in of_kind(objects, "Pod") {
        let group = &pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"];
        if group.is_string() && !has_workload(group) && pod["metadata"]["deletionTimestamp"].is_null() {
            let _ =
                bed.world.delete(&bed::id("Pod", pod["metadata"]["name"].as_str().unwrap())).await.unwrap();
        }
    }
}

async fn live(template: &Api, seed: u64) {
    let rng = Rng::seeded(seed);
    let frameworks = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, pod]}";
    let mut bed = Bed::new(template, seed, setting(frameworks)).await;
    bed.add_queue(
        u32::try_from(QUOTA).unwrap(),
        json!({ "preemption": { "withinClusterQueue": "LowerPriority" } }),
    )
    .await;
    for (name, value) in [("low", 10), ("high", 1000)] {
        let class = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
            "metadata": { "name": name }, "value": value });
        bed.create(&class).await;
    }
    let has_faults = inject(&bed, &rng);
    let mut created = 0;
    for _ in 0..40 {
        do_something(&mut bed, &rng, &mut created).await;
        play_job_sets(&bed, &rng, seed).await;
        has_faults.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(rng.below(4000))).await;
        has_faults.store(false, Ordering::Relaxed);
        expect_promises(&bed, seed).await;
    }
    bed.world.faults().clear();
    if !bed.world.is_running() {
        bed.start().await;
    }
    finish(&bed, &rng, &mut created, seed).await;
}

/// Lets everything end.
async fn finish(bed: &Bed, rng: &Rng, created: &mut u32, seed: u64) {
    let mut left = Vec::new();
    for _ in 0..60 {
        pass(15).await;
        expect_promises(bed, seed).await;
        let objects = bed.world.objects().await.unwrap();
        for workload in of_kind(&objects, "Workload").iter().filter(|own| own["spec"]["active"] == false) {
            let name = workload["metadata"]["name"].as_str().unwrap();
            let active = json!({ "spec": { "active": true } });
            let _ = bed.world.patch(&bed::id("Workload", name), None, &active).await.unwrap();
        }
        replace_pods(bed, &objects, created).await;
        play_job_sets(bed, rng, seed).await;
        give_up_incomplete(bed, &objects).await;
        left = of_kind(&objects, "Workload")
            .iter()
            .filter(|workload| !condition(workload, "Finished").starts_with("True"))
            .map(|workload| workload["status"].clone())
            .collect();
        if left.is_empty() {
            return expect_rest(bed, seed).await;
        }
    }
    panic!("seed {seed}: some never end: {left:#?}");
}

async fn expect_rest(bed: &Bed, seed: u64) {
    pass(30).await;
    let versions = async || {
        let objects = bed.world.objects().await.unwrap();
        let ours = objects.into_iter().filter(|(id, _)| !["Lease", "Node"].contains(&id.kind.as_str()));
        ours.map(|(id, object)| (id, object["metadata"]["resourceVersion"].clone())).collect::<Vec<_>>()
    };
    let before = versions().await;
    pass(120).await;
    assert_eq!(versions().await, before, "seed {seed}: something is still written");
    let queue = bed.get("ClusterQueue", "cq").await.unwrap();
    assert_eq!(queue["status"]["reservingWorkloads"], 0, "seed {seed}: {queue:#}");
    let objects = bed.world.objects().await.unwrap();
    let kept = |pod: &&&Value| pod["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let kept: Vec<_> = of_kind(&objects, "Pod").into_iter().filter(|pod| kept(&pod)).cloned().collect();
    assert!(kept.is_empty(), "seed {seed}: pods are kept: {kept:#?}");
}

#[test]
fn quota_holds_and_every_job_ends_whatever_goes_wrong() {
    try_worlds(2, async { Ok(kueue_template().await) }, &async |template, seed| live(template, seed).await);
}
