//! Workloads in simulated time: whatever fails on the way, they end the same.
//!
//! The API fails, conflicts and loses responses, watches break off, and the controllers are restarted. After a minute
//! everything works, and every workload has to reach its end. `QUINTET_SEEDS` says how many worlds to try.

#![expect(clippy::unwrap_used, reason = "a world that cannot go on says so by panicking")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api as Objects, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use quintet_apiserver::faults::{Fault, Met};
use quintet_apiserver::status::Failure;
use quintet_apiserver::{Api, Clock, Rng};
use quintet_controllers::Settings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Faults end after this many seconds.
const FAULTS: u32 = 60;
/// Everything has reached its end after this many seconds: a Job waits up to some minutes before it replaces failed pods.
const END: u32 = 900;
const NAMESPACE: &str = "default";

#[test]
fn workloads_end_the_same_whatever_fails_on_the_way() {
    let seeds = std::env::var("QUINTET_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let template = Api::in_memory(&[]).await.unwrap();
        for seed in 0..seeds {
            World::new(&template, seed).run().await;
        }
    });
    runtime.shutdown_background();
}

struct World {
    seed: u64,
    api: Api,
    client: kube::Client,
    clock: Clock,
    rng: Rng,
    next_address: u32,
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl World {
    fn new(template: &Api, seed: u64) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let api = template.fork(clock.clone(), Rng::seeded(seed));
        Self { seed, client: api.admin_client(), api, clock, rng: Rng::seeded(seed + 1000), next_address: 1 }
    }

    fn objects<K>(&self) -> Objects<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Objects::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn run(mut self) {
        self.create_objects().await;
        self.inject_faults();
        let settings = Settings { seed: Some(self.seed), ..Settings::default() };
        let start = async || quintet_controllers::start(self.client.clone(), &self.clock, &settings).await;
        let mut controllers = start().await.unwrap();
        for second in 0..END {
            if second == FAULTS {
                self.api.faults().clear();
            }
            if second < FAULTS && self.rng.happens(100) {
                self.api.drop_watches();
            }
            if second < FAULTS && self.rng.happens(50) {
                controllers.stop().await;
                controllers = start().await.unwrap();
            }
            if second == 20 {
                let patch = Patch::Merge(json!({ "spec": { "template": template("web", "v2") } }));
                while self
                    .objects::<Deployment>()
                    .patch("web", &PatchParams::default(), &patch)
                    .await
                    .is_err()
                {}
            }
            Kubelet { world: &self, fails: second < FAULTS }.work(self.next_address).await;
            self.next_address += 20;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.check().await;
        controllers.stop().await;
        self.api.stop().await;
    }

    async fn create_objects(&self) {
        let nodes: Objects<Node> = Objects::all(self.client.clone());
        let allocatable = json!({ "cpu": "8", "memory": "8Gi", "pods": "50" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "allocatable": allocatable, "conditions": ready });
        for name in ["a", "b"] {
            let node = json!({ "metadata": { "name": name }, "status": status });
            nodes.create(&PostParams::default(), &typed(node)).await.unwrap();
        }
        let mut of_job = template("job", "v1");
        of_job["spec"]["restartPolicy"] = json!("Never");
        let job = json!({ "completions": 4, "parallelism": 2, "backoffLimit": 100, "template": of_job });
        let job = json!({ "metadata": { "name": "job" }, "spec": job });
        self.objects::<Job>().create(&PostParams::default(), &typed(job)).await.unwrap();
        let selector = |app: &str| json!({ "matchLabels": { "app": app } });
        let web = json!({ "replicas": 3, "selector": selector("web"), "template": template("web", "v1") });
        let web = json!({ "metadata": { "name": "web" }, "spec": web });
        self.objects::<Deployment>().create(&PostParams::default(), &typed(web)).await.unwrap();
        let db = json!({ "replicas": 3, "serviceName": "db", "selector": selector("db"), "template": template("db", "v1") });
        let db = json!({ "metadata": { "name": "db" }, "spec": db });
        self.objects::<StatefulSet>().create(&PostParams::default(), &typed(db)).await.unwrap();
    }

    fn inject_faults(&self) {
        let rng = self.rng.fork();
        self.api.faults().decide(move |met: Met<'_>| {
            if !rng.happens(50) {
                return None;
            }
            let failure = || Failure::internal("injected");
            Some(match (met.verb, rng.below(3)) {
                ("watch", _) => Fault::Break(rng.below(5)),
                ("get" | "list", _) | (_, 0) => Fault::Fail(failure()),
                ("update" | "patch", 1) => Fault::Conflict,
                _ => Fault::Lost(failure()),
            })
        });
    }

    /// Every workload has reached its end, and every pod of the Job is counted once.
    async fn check(&self) {
        let seed = self.seed;
        let pods = self.objects::<Pod>().list(&ListParams::default()).await.unwrap().items;
        let job = serde_json::to_value(self.objects::<Job>().get("job").await.unwrap()).unwrap();
        let status = &job["status"];
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        assert!(conditions.iter().any(|one| one["type"] == "Complete"), "seed {seed}: {status:#}");
        let of_job = |phase: &str| {
            let is = |pod: &&Pod| {
                let labels = pod.metadata.labels.as_ref().unwrap();
                labels["app"] == "job" && pod.status.as_ref().unwrap().phase.as_deref() == Some(phase)
            };
            pods.iter().filter(is).count()
        };
        assert_eq!(status["succeeded"], of_job("Succeeded"), "seed {seed}");
        assert_eq!(status["succeeded"], 4, "seed {seed}: {status:#}");
        assert_eq!(status["failed"].as_u64().unwrap_or(0), of_job("Failed") as u64, "seed {seed}");
        let has_finalizers = |pod: &Pod| pod.metadata.finalizers.is_some();
        assert!(!pods.iter().any(has_finalizers), "seed {seed}: a finalizer is left");
        let web = serde_json::to_value(self.objects::<Deployment>().get("web").await.unwrap()).unwrap();
        for field in ["replicas", "updatedReplicas", "availableReplicas"] {
            assert_eq!(web["status"][field], 3, "seed {seed}: {:#}", web["status"]);
        }
        let db = serde_json::to_value(self.objects::<StatefulSet>().get("db").await.unwrap()).unwrap();
        for field in ["replicas", "readyReplicas", "updatedReplicas"] {
            assert_eq!(db["status"][field], 3, "seed {seed}: {:#}", db["status"]);
        }
        let running =
            pods.iter().filter(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running"));
        assert_eq!(running.count(), 6, "seed {seed}: three of the Deployment, three of the StatefulSet");
    }
}

fn template(app: &str, image: &str) -> Value {
    let container = json!({ "name": "main", "image": image, "resources": { "requests": { "cpu": "100m" } } });
    json!({ "metadata": { "labels": { "app": app } }, "spec": { "containers": [container] } })
}

/// Takes pods through their lives. Its own requests may fail: it tries again a second later.
struct Kubelet<'a> {
    world: &'a World,
    /// Whether pods of the Job may fail.
    fails: bool,
}

impl Kubelet<'_> {
    async fn work(&self, first_address: u32) {
        let mut next_address = first_address;
        self.heartbeat().await;
        let pods = self.world.objects::<Pod>();
        let Ok(all) = pods.list(&ListParams::default()).await else { return };
        for pod in all.items {
            let name = pod.metadata.name.as_deref().unwrap();
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
            let is_over = matches!(phase, "Succeeded" | "Failed");
            if pod.metadata.deletion_timestamp.is_some() {
                if is_over {
                    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                    let _ = pods.delete(name, &now).await;
                } else {
                    self.report(name, json!({ "phase": "Failed", "conditions": [] })).await;
                }
                continue;
            }
            let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            let is_of_job = pod.metadata.labels.as_ref().is_some_and(|labels| labels["app"] == "job");
            match phase {
                "Pending" if is_bound => {
                    next_address += 1;
                    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": self.world.clock.now() }]);
                    let ip = format!("10.0.{}.{}", next_address / 250, next_address % 250);
                    self.report(name, json!({ "phase": "Running", "podIP": ip, "conditions": ready })).await;
                }
                "Running" if is_of_job => {
                    let phase =
                        if self.fails && self.world.rng.happens(200) { "Failed" } else { "Succeeded" };
                    self.report(name, json!({ "phase": phase, "conditions": [] })).await;
                }
                _ => {}
            }
        }
    }

    async fn heartbeat(&self) {
        let ready =
            json!([{ "type": "Ready", "status": "True", "lastHeartbeatTime": self.world.clock.now() }]);
        let patch = Patch::Merge(json!({ "status": { "conditions": ready } }));
        let nodes: Objects<Node> = Objects::all(self.world.client.clone());
        for name in ["a", "b"] {
            let _ = nodes.patch_status(name, &PatchParams::default(), &patch).await;
        }
    }

    async fn report(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let _ = self.world.objects::<Pod>().patch_status(name, &PatchParams::default(), &patch).await;
    }
}
