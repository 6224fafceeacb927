//! The Ray operator in simulated worlds.
//!
//! A world is a Kubernetes API in memory, a kubelet that reports pods as running, and operators that can be killed
//! between any two requests, see the past, and lose answers. Time is simulated, chance follows from a seed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a world that cannot go on says so by panicking"
)]

mod connection;
mod dice;
mod kubelet;
mod operator;

pub use connection::{Connection, Odds};
pub use dice::Dice;
pub use kubelet::Kubelet;
pub use operator::Operator;

use std::{future::Future, time::Duration};

use kube::api::{Api as Objects, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use quintet_api::{crd, ray::v1::RayCluster};
use quintet_apiserver::{Api, Chance, Clock};
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

/// One world.
#[derive(Clone)]
pub struct World {
    /// Its API.
    pub api: Api,
    /// Its chance.
    pub dice: Dice,
}

impl World {
    /// The world of a seed.
    pub fn new(template: &Api, seed: u64) -> Self {
        let clock = Clock::simulated(START.parse().unwrap());
        Self { api: template.fork(clock, Chance::seeded(seed)), dice: Dice::new(seed) }
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
