//! MultiKueue on three platforms of this machine: one queues jobs, two run them.

use std::path::Path;

use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::queue::{
    API, QUEUE_NAME, condition, is_complete, make_queue, make_queue_with, queued_job, queued_ray_job,
    workload,
};
use crate::ray::{python, ray_job};
use crate::support::{Platform, eventually, resource};

const WORKERS: [&str; 2] = ["worker1", "worker2"];
const QUEUE: &str = "far";
/// Where the manager looks for kubeconfigs.
const NAMESPACE: &str = "quintet-system";

/// The platforms that run the jobs of another.
struct Workers<'a> {
    manager: &'a Platform,
    platforms: [Platform; 2],
}

impl<'a> Workers<'a> {
    async fn start(manager: &'a Platform) -> Self {
        // All before the first runs: each compares what there is at its end with what there was before.
        let platforms = WORKERS.map(|name| manager.beside(name));
        let mut running = Vec::new();
        for platform in platforms {
            running.push(platform.started().await);
        }
        let platforms = running.try_into().ok().unwrap();
        let workers = Self { manager, platforms };
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        manager.apply_to_cluster(&namespace).await;
        for index in 0..WORKERS.len() {
            make_queue(&workers.platforms[index], QUEUE, "2").await;
            workers.introduce(index).await;
        }
        let config = json!({ "apiVersion": API, "kind": "MultiKueueConfig", "metadata": { "name": "workers" },
            "spec": { "clusters": WORKERS } });
        let parameters =
            json!({ "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers" });
        let check = json!({ "apiVersion": API, "kind": "AdmissionCheck", "metadata": { "name": "elsewhere" },
            "spec": { "controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters } });
        for object in [config, check] {
            manager.apply_to_cluster(&object).await;
        }
        let checks = json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "elsewhere" }] } });
        make_queue_with(manager, QUEUE, "2", checks).await;
        for name in WORKERS {
            workers.await_connection(name, "True").await;
        }
        workers
    }

    /// Gives the manager the kubeconfig of a worker. A platform that was killed comes back with another port.
    async fn introduce(&self, index: usize) {
        let name = WORKERS[index];
        let kubeconfig = std::fs::read_to_string(self.platforms[index].kubeconfig()).unwrap();
        let secret = json!({ "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "namespace": NAMESPACE }, "stringData": { "kubeconfig": kubeconfig } });
        self.manager.apply_to(NAMESPACE, &secret).await;
        let source = json!({ "kubeConfig": { "location": name, "locationType": "Secret" } });
        let cluster = json!({ "apiVersion": API, "kind": "MultiKueueCluster", "metadata": { "name": name },
            "spec": { "clusterSource": source } });
        self.manager.apply_to_cluster(&cluster).await;
    }

    async fn await_connection(&self, name: &str, status: &str) {
        let kind = resource(API, "MultiKueueCluster");
        let clusters: Api<DynamicObject> = Api::all_with(self.manager.client().await, &kind);
        let is_so = |cluster: &Value| condition(cluster, "Active")["status"] == status;
        self.manager.wait_for(&clusters, name, &format!("active: {status}"), is_so).await;
    }

    /// Which worker runs a job.
    async fn place_of(&self, job: &str) -> usize {
        let own = workload(self.manager, job, "admitted by a worker", |own| {
            own["status"]["clusterName"].is_string()
        });
        let own = own.await;
        WORKERS.iter().position(|name| own["status"]["clusterName"] == *name).unwrap()
    }

    /// `kill -9` of the platform that runs a job: the job starts on the other one and `ends` there.
    async fn loses_the_place_of(&self, job: &str, ends: impl AsyncFnOnce()) {
        let first = self.place_of(job).await;
        let (lost, other) = (&self.platforms[first], 1 - first);
        println!("{job} runs on {}, which is killed", WORKERS[first]);
        lost.kill();
        self.await_connection(WORKERS[first], "False").await;
        ends().await;
        assert_eq!(self.place_of(job).await, other);
        self.is_clear(other).await;
        // What the lost one still has of the job is removed when it is back.
        lost.up();
        self.introduce(first).await;
        self.await_connection(WORKERS[first], "True").await;
        self.is_clear(first).await;
        let directory = lost.directory().join("node/pods");
        eventually("the end of all pods", async || is_empty(&directory).then_some(())).await;
    }

    /// Nothing that came from the manager is left.
    async fn is_clear(&self, index: usize) {
        let worker = &self.platforms[index];
        for (api_version, kind) in [("batch/v1", "Job"), ("ray.io/v1", "RayJob"), (API, "Workload")] {
            let objects = worker.objects(api_version, kind).await;
            eventually(&format!("the end of every {kind} on {}", WORKERS[index]), async || {
                objects.list_metadata(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
            })
            .await;
        }
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

pub(crate) async fn jobs_of_a_platform_that_is_killed_finish_on_another(manager: &Platform) {
    let workers = Workers::start(manager).await;
    let job = ("batch/v1", "Job", "plain");
    manager.apply(&queued_job("plain", QUEUE, "sleep 20; echo finished")).await;
    manager.wait(job, "running", |job| job["status"]["ready"] == 1).await;
    workers
        .loses_the_place_of("plain", async || {
            let job = manager.wait(job, "complete", is_complete).await;
            assert_eq!(job["status"]["succeeded"], 1, "{}", job["status"]);
        })
        .await;

    let work = python(
        "import ray, time
ray.init()
work = ray.remote(num_cpus=1)(lambda: 1)
total = 0
for _ in range(40):
    total += ray.get(work.remote())
    time.sleep(0.5)
print(\"finished\", total)",
    );
    manager.apply(&queued_ray_job("distributed", QUEUE, &work)).await;
    let is_running = |job: &Value| job["status"]["jobStatus"] == "RUNNING";
    manager.wait(ray_job("distributed"), "running", is_running).await;
    workers
        .loses_the_place_of("distributed", async || {
            let is_over = |job: &Value| job["status"]["jobStatus"] == "SUCCEEDED";
            let job = manager.wait(ray_job("distributed"), "succeeded", is_over).await;
            assert_eq!(job["metadata"]["labels"][QUEUE_NAME], QUEUE);
        })
        .await;
    // Nothing of them ran here.
    assert!(manager.pods().await.list(&ListParams::default()).await.unwrap().items.is_empty());
    for platform in workers.platforms {
        platform.down();
    }
}
