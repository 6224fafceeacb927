//! A cluster with simulated nodes and the Ray operator on it.
#![allow(unreachable_pub, dead_code, reason = "every test binary uses another part")]

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Result, bail};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Namespace, Pod, ServiceAccount},
        events::v1::Event,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
};
use kube::{
    Config,
    api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use quintet_api::ray::v1::RayCluster;
use quintet_apiserver::{Cluster, Settings as ApiSettings};
use quintet_controller::{Runtime, clock::Clock};
use quintet_node::Simulation;
use quintet_ray::{
    Context,
    dashboard::{
        Pollers,
        simulated::{Life, SimulatedDashboard},
    },
    permissions,
    settings::Settings,
};
use quintet_ray_tests::cluster;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Far more than any of this takes.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(100);

/// A kind that lives in a namespace.
pub trait Kind:
    kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + serde::Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + serde::Serialize
        + Send
        + Sync
        + 'static
{
}

/// The cluster.
pub struct Bed {
    config: Config,
    client: kube::Client,
    unique: String,
    places: AtomicU32,
    simulation: Simulation,
    embedded: Option<Cluster>,
    /// Ray on all clusters.
    pub ray: Arc<SimulatedDashboard>,
}

impl Bed {
    pub async fn new() -> Self {
        let (kubeconfig, embedded) = if let Some(real) = cluster::under_test() {
            (real, None)
        } else {
            let cluster = Cluster::start(ApiSettings::default()).await.unwrap();
            (Kubeconfig::from_yaml(&cluster.kubeconfig().unwrap()).unwrap(), Some(cluster))
        };
        let config = cluster::config(kubeconfig).await;
        let client = kube::Client::try_from(config.clone()).unwrap();
        tokio::time::timeout(PATIENCE, cluster::install(&client)).await.unwrap();
        let unique = format!("ray-{}", std::process::id());
        let capacity = [("cpu", "64"), ("memory", "256Gi"), ("pods", "200")];
        let simulation = cluster::add_nodes(&client, &unique, 3, &capacity).await;
        let ray = SimulatedDashboard::new(Clock::system(), 1);
        ray.set_life(Life { pending: Duration::ZERO, running: Duration::from_secs(1), ..Life::default() });
        Self { config, client, unique, places: AtomicU32::new(0), simulation, embedded, ray: Arc::new(ray) }
    }

    /// A namespace of its own.
    pub async fn place(&self, name: &str) -> Place {
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{}-{name}-{number}", self.unique);
        let object = json!({"metadata": {"name": namespace}});
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.create(&PostParams::default(), &typed(object)).await.unwrap();
        Place { client: self.client.clone(), namespace }
    }

    /// The operator, with the rights that it is given when it is installed.
    pub async fn start_operator(&self) -> Runtime {
        let settings = with_cron_jobs();
        self.grant(&settings).await;
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(format!("system:serviceaccount:default:{}", self.unique));
        let groups = ["system:serviceaccounts", "system:authenticated"];
        config.auth_info.impersonate_groups = Some(groups.map(str::to_owned).to_vec());
        let client = kube::Client::try_from(config).unwrap();
        let clock = Clock::system();
        let (runtime, metrics) = Runtime::alone(client, &clock, "test", None);
        let context =
            Context { settings: Arc::new(settings), clock: clock.clone(), seed: None, concurrency: 8 };
        let pollers =
            Pollers { dashboard: Arc::clone(&self.ray) as _, clock, tasks: runtime.tasks().clone() };
        quintet_ray::add(&runtime, &context).unwrap();
        quintet_ray::add_workloads(&runtime, &context, &pollers, Some(&metrics)).unwrap();
        runtime.start();
        runtime
    }

    async fn grant(&self, settings: &Settings) {
        let name = &self.unique;
        let mut rules: Vec<_> = permissions::rules(settings).into_iter().map(|rule| json!(rule)).collect();
        rules.push(
            json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}),
        );
        let accounts: Api<ServiceAccount> = Api::default_namespaced(self.client.clone());
        let _ = accounts.create(&PostParams::default(), &typed(json!({"metadata": {"name": name}}))).await;
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let role = json!({"metadata": {"name": name}, "rules": rules});
        roles.create(&PostParams::default(), &typed(role)).await.unwrap();
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        });
        bindings.create(&PostParams::default(), &typed(binding)).await.unwrap();
    }

    pub async fn end(self, operator: Runtime) {
        assert_eq!(operator.shut_down().await, Vec::<String>::new());
        let name = &self.unique;
        let now = DeleteParams::default();
        let _ = Api::<ClusterRoleBinding>::all(self.client.clone()).delete(name, &now).await;
        let _ = Api::<ClusterRole>::all(self.client.clone()).delete(name, &now).await;
        let _ = Api::<ServiceAccount>::default_namespaced(self.client.clone()).delete(name, &now).await;
        self.simulation.stop().await.unwrap();
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

fn with_cron_jobs() -> Settings {
    let mut settings = Settings::default();
    settings.gates.cron_job = true;
    settings
}

/// Waits until the operator has observed everything; the error says what it lacks.
pub async fn synced(operator: &Runtime) -> Result<()> {
    let caches = operator.caches();
    let outcome = until("", || async { Ok(caches.missing().is_empty().then_some(())) }).await;
    outcome.map_err(|_| anyhow::anyhow!("{}", caches.missing().join("; ")))
}

async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if tokio::time::Instant::now() > deadline {
            bail!("{what} did not come true");
        }
        // A foreign cluster offers nothing better to wait for all of these.
        tokio::time::sleep(LOOK).await;
    }
}

/// A namespace, and what a user does there.
#[derive(Clone)]
pub struct Place {
    client: kube::Client,
    namespace: String,
}

impl Place {
    fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create<K: Kind>(&self, object: Value) -> Result<K> {
        Ok(self.api::<K>().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    pub async fn patch<K: Kind>(&self, name: &str, patch: Value) -> Result<()> {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub async fn set_status<K: Kind>(&self, name: &str, status: Value) -> Result<()> {
        let patch = json!({"status": status});
        self.api::<K>().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    pub async fn delete<K: Kind>(&self, name: &str) -> Result<()> {
        self.api::<K>().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn list<K: Kind>(&self) -> Result<Vec<K>> {
        Ok(self.api::<K>().list(&ListParams::default()).await?.items)
    }

    /// Changes the first group of a cluster.
    pub async fn scale(&self, name: &str, change: Value) -> Result<()> {
        let clusters = self.api::<RayCluster>();
        let mut groups = json!(clusters.get(name).await?.spec.worker_group_specs);
        groups[0].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        self.patch::<RayCluster>(name, json!({"spec": {"workerGroupSpecs": groups}})).await
    }

    pub async fn annotate_pod(&self, name: &str, annotation: &str, value: &str) -> Result<()> {
        self.patch::<Pod>(name, json!({"metadata": {"annotations": {annotation: value}}})).await
    }

    /// The object, once it is as it should be.
    pub async fn until<K: Kind>(&self, name: &str, holds: impl Fn(&K) -> bool) -> Result<K> {
        let api = self.api::<K>();
        let what = format!("what should be of {} {name}", K::kind(&()));
        let found = until(&what, || async { Ok(api.get_opt(name).await?.filter(&holds)) }).await;
        if found.is_err() {
            bail!("{what} did not come true: {}", serde_json::to_string(&api.get_opt(name).await?)?);
        }
        found
    }

    /// Waits until an object is no more.
    pub async fn gone<K: Kind>(&self, name: &str) -> Result<()> {
        let api = self.api::<K>();
        let what = format!("the end of {} {name}", K::kind(&()));
        until(&what, || async { Ok(api.get_opt(name).await?.is_none().then_some(())) }).await
    }

    /// The pods of a cluster, once they are as they should be.
    pub async fn pods(&self, cluster: &str, holds: impl Fn(&[Pod]) -> bool) -> Result<Vec<Pod>> {
        let ours = ListParams::default().labels(&format!("ray.io/cluster={cluster}"));
        let api = self.api::<Pod>();
        let found = until("", || async {
            let pods = api.list(&ours).await?.items;
            Ok(holds(&pods).then_some(pods))
        })
        .await;
        if found.is_err() {
            let pods = api.list(&ours).await?.items;
            let state: Vec<_> =
                pods.iter().map(|pod| (pod.metadata.name.clone(), phase(pod).to_owned())).collect();
            bail!("the pods of {cluster} are not as they should be: {state:?}");
        }
        found
    }

    /// Waits for an event about an object.
    pub async fn event(&self, about: &str, reason: &str) -> Result<()> {
        let events = self.api::<Event>();
        until(&format!("the event {reason}"), || async {
            let all = events.list(&ListParams::default()).await?.items;
            let is_it = |event: &&Event| {
                let name = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
                name == Some(about) && event.reason.as_deref() == Some(reason)
            };
            Ok(all.iter().find(is_it).map(|_| ()))
        })
        .await
    }

    /// Leaves nothing behind.
    pub async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let _ = namespaces.delete(&self.namespace, &DeleteParams::default()).await;
    }
}

pub fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// How many pods run and are not going.
pub fn running(pods: &[Pod]) -> usize {
    let runs = |pod: &&Pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none();
    pods.iter().filter(runs).count()
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
