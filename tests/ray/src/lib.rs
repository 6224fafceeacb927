//! The Ray operator in simulated worlds.
//!
//! A world is a Kubernetes API in memory, a kubelet that reports pods as running, and operators that can be killed
//! between any two requests, see the past, and lose responses. Time is simulated, randomness follows from a seed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a world that cannot go on says so by panicking"
)]

pub mod cluster;
mod connection;
mod kubelet;
mod mortal;
mod operator;
mod rights;

pub use connection::{Connection, FaultRates};
pub use kubelet::Kubelet;
pub use mortal::Mortal;
pub use operator::{Operator, Start};
pub use rights::Rights;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api as Objects, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use quintet_api::{crd, ray::v1::RayCluster};
pub use quintet_apiserver::Rng;
use quintet_apiserver::{Api, Clock};
use serde_json::Value;

/// When every world begins.
pub const START: &str = "2026-01-01T00:00:00Z";
/// Where everything happens.
pub const NAMESPACE: &str = "default";

/// An API with the Ray kinds, to fork worlds from.
pub async fn template() -> Api {
    let service = crd::WebhookService { namespace: "quintet-system".into(), name: "quintet".into() };
    let definitions = crd::all(&service).into_iter().filter(|crd| crd.spec.group == "ray.io");
    let definitions: Vec<Value> = definitions.map(|crd| serde_json::to_value(crd).unwrap()).collect();
    Api::in_memory(&definitions).await.unwrap()
}

/// Runs a test in simulated time.
pub fn simulate<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = runtime.block_on(test);
    runtime.shutdown_background();
    result
}

/// Tries worlds one after the other, each of its own seed: `QUINTET_SEED` says which, or `QUINTET_SEEDS` how many.
pub fn try_worlds(default: u64, mut world: impl AsyncFnMut(&Api, u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("QUINTET_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("QUINTET_SEEDS").unwrap_or(default),
    };
    simulate(async {
        let template = template().await;
        for seed in seeds {
            world(&template, seed).await;
        }
    });
}

/// One world.
#[derive(Clone)]
pub struct World {
    /// Its API.
    pub api: Api,
    /// Its rng.
    pub rng: Rng,
    /// Its number.
    pub seed: u64,
    begun: tokio::time::Instant,
    broken: Arc<Mutex<Vec<String>>>,
}

impl World {
    /// The world of a seed.
    pub fn new(template: &Api, seed: u64) -> Self {
        let clock = Clock::simulated(START.parse().unwrap());
        let api = template.fork(clock, Rng::seeded(seed));
        let begun = tokio::time::Instant::now();
        Self { api, rng: Rng::seeded(seed).fork(), seed, begun, broken: Arc::default() }
    }

    /// After every write of an operator: no cluster ever has two heads, not for a moment.
    pub(crate) async fn look_for_broken_promises(&self, path: &str) {
        if !path.ends_with("/pods") {
            return;
        }
        let heads = ListParams::default().labels("ray.io/node-type=head");
        let mut by_cluster = BTreeMap::<String, Vec<String>>::new();
        for pod in self.objects::<Pod>().list(&heads).await.unwrap().items {
            let labels = pod.metadata.labels.unwrap_or_default();
            let cluster = labels.get("ray.io/cluster").cloned().unwrap_or_default();
            by_cluster.entry(cluster).or_default().push(pod.metadata.name.unwrap_or_default());
        }
        let several = by_cluster.into_iter().filter(|(_, heads)| heads.len() > 1);
        self.broken.lock().extend(several.map(|(cluster, heads)| format!("heads of {cluster}: {heads:?}")));
    }

    pub(crate) fn note_broken_promise(&self, what: String) {
        self.broken.lock().push(what);
    }

    /// What an operator does wrong is noted when it happens, in the middle of its work, and told here.
    pub fn expect_no_broken_promises(&self) {
        let broken = self.broken.lock();
        assert!(broken.is_empty(), "seed {}: {broken:?}", self.seed);
    }

    /// A user's view of a kind.
    pub fn objects<K>(&self) -> Objects<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Objects::namespaced(self.api.admin_client(), NAMESPACE)
    }

    /// A user makes a cluster.
    pub async fn create(&self, cluster: Value) {
        let cluster: RayCluster = serde_json::from_value(cluster).unwrap();
        self.objects().create(&PostParams::default(), &cluster).await.unwrap();
    }

    /// A user changes a cluster.
    pub async fn change(&self, name: &str, patch: &Value) {
        let clusters = self.objects::<RayCluster>();
        clusters.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// A user deletes a cluster.
    pub async fn delete(&self, name: &str) {
        let clusters = self.objects::<RayCluster>();
        clusters.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Everything of a kind.
    pub async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        self.objects::<K>().list(&ListParams::default()).await.unwrap().items
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
