//! Many Ray clusters and jobs at once, on the cluster of `KUBECONFIG_UNDER_TEST` with simulated nodes.
//!
//!     tests/kubernetes/with-cluster cargo bench -p quintet-ray-tests --bench scale -- 500
//!
//! The operator runs in this process, the nodes in one of their own; Ray itself is simulated. Writes are those of the
//! operator; CPU and memory are those of this process, which also makes the objects and looks whether they are ready.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement says what it found, or stops")]

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{
    Client,
    api::{Api, DeleteParams, ListParams, PostParams},
};
use quintet_api::ray::v1::{RayCluster, RayJob};
use quintet_controller::{Runtime, clock::Clock, metrics::MetricsRegistry};
use quintet_ray::{
    Context,
    dashboard::{
        Pollers,
        simulated::{Life, SimulatedDashboard},
    },
    settings::Settings,
};
use quintet_ray_tests::cluster;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NAMESPACE: &str = "scale";
const WORKERS: i32 = 4;
/// Requests at a time while objects are made.
const AT_A_TIME: usize = 16;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if cluster::under_test().is_none() {
        println!("scale: set KUBECONFIG_UNDER_TEST, or run it with tests/kubernetes/with-cluster");
        return;
    }
    match arguments.first().map(String::as_str) {
        Some("nodes") => runtime.block_on(nodes()),
        count => runtime.block_on(measure(count.and_then(|count| count.parse().ok()).unwrap_or(50))),
    }
}

async fn connect() -> Client {
    Client::try_from(cluster::config(cluster::under_test().unwrap()).await).unwrap()
}

/// The other process: nodes, until whoever started it ends.
async fn nodes() {
    let client = connect().await;
    let capacity = [("cpu", "256"), ("memory", "1Ti"), ("pods", "500")];
    let simulation = cluster::add_nodes(&client, NAMESPACE, 20, &capacity).await;
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    simulation.stop().await.unwrap();
}

struct Nodes(Child);

impl Nodes {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("nodes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Self(child)
    }

    fn stop(mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

async fn measure(count: usize) {
    let client = connect().await;
    let version = client.apiserver_version().await.unwrap().git_version;
    cluster::install(&client).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    let _ = namespaces.create(&PostParams::default(), &typed(namespace)).await;
    let nodes = Nodes::start();
    let operator = Operator::start(client.clone());
    println!(
        "{count} RayClusters of 1 head and {WORKERS} workers, then {count} RayJobs, on Kubernetes {version}"
    );
    println!(
        "{:<12} {:>10} {:>12} {:>12} {:>10} {:>10}",
        "what", "seconds", "per second", "writes each", "CPU s", "peak MB"
    );
    let clusters = (0..count).map(|number| raycluster(&format!("c{number}")));
    operator
        .run::<RayCluster>(&client, "clusters", clusters.collect(), |cluster| {
            cluster.status.as_ref().is_some_and(|status| {
                status.state.as_deref() == Some("ready") && status.ready_worker_replicas == Some(WORKERS)
            })
        })
        .await;
    remove::<RayCluster>(&client).await;
    let jobs = (0..count).map(|number| job(&format!("j{number}")));
    operator
        .run::<RayJob>(&client, "jobs", jobs.collect(), |job| {
            job.status
                .as_ref()
                .is_some_and(|status| status.job_deployment_status.as_deref() == Some("Complete"))
        })
        .await;
    remove::<RayJob>(&client).await;
    operator.runtime.shut_down().await;
    let _ = namespaces.delete(NAMESPACE, &DeleteParams::default()).await;
    nodes.stop();
}

struct Operator {
    runtime: Runtime,
    metrics: MetricsRegistry,
}

impl Operator {
    fn start(client: Client) -> Self {
        let clock = Clock::system();
        let (runtime, metrics) = Runtime::alone(client, &clock, "scale", None);
        let settings = Arc::new(Settings::default());
        let context = Context { settings, clock: clock.clone(), seed: None, concurrency: 16 };
        let ray = SimulatedDashboard::new(clock.clone(), 1);
        ray.set_life(Life { pending: Duration::ZERO, running: Duration::from_secs(1), ..Life::default() });
        let pollers = Pollers { dashboard: Arc::new(ray), clock, tasks: runtime.tasks().clone() };
        quintet_ray::add(&runtime, &context).unwrap();
        quintet_ray::add_workloads(&runtime, &context, &pollers, Some(&metrics)).unwrap();
        runtime.start();
        Self { runtime, metrics }
    }

    /// Makes objects all at once, and waits until each is done.
    async fn run<K>(&self, client: &Client, what: &str, objects: Vec<Value>, is_done: impl Fn(&K) -> bool)
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let count = objects.len();
        let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
        let (began, cpu, writes) = (Instant::now(), cpu_seconds(), self.writes());
        futures::stream::iter(objects)
            .map(|object| {
                let api = api.clone();
                async move { api.create(&PostParams::default(), &typed(object)).await.unwrap() }
            })
            .buffer_unordered(AT_A_TIME)
            .collect::<Vec<_>>()
            .await;
        loop {
            let all = api.list(&ListParams::default()).await.unwrap().items;
            if all.len() == count && all.iter().all(&is_done) {
                break;
            }
            assert!(began.elapsed() < Duration::from_mins(20), "not done after 20 minutes");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let seconds = began.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "counts of thousands")]
        let (per_second, writes) = (count as f64 / seconds, (self.writes() - writes) as f64 / count as f64);
        let cpu = cpu_seconds() - cpu;
        let peak = peak_megabytes();
        println!("{what:<12} {seconds:>10.1} {per_second:>12.1} {writes:>12.1} {cpu:>10.1} {peak:>10}");
    }

    /// Writes so far, except those of events.
    fn writes(&self) -> u64 {
        let text = self.metrics.encode();
        let is_write = |line: &&str| {
            line.starts_with("quintet_api_requests_total")
                && ["create", "patch", "apply", "delete"]
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        };
        let value =
            |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let is_event = |line: &&str| line.starts_with("quintet_events_total") && line.contains("recorded");
        let events: u64 = text.lines().filter(is_event).map(value).sum();
        text.lines().filter(is_write).map(value).sum::<u64>().saturating_sub(events)
    }
}

async fn remove<K>(client: &Client)
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
    while !api.list_metadata(&ListParams::default()).await.unwrap().items.is_empty()
        || !pods.list_metadata(&ListParams::default()).await.unwrap().items.is_empty()
    {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn template(name: &str) -> Value {
    json!({"spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": name, "image": "example.invalid/ray", "resources": {"requests": {"cpu": "10m"}}}],
    }})
}

fn spec() -> Value {
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"template": template("ray-head")},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": WORKERS, "minReplicas": 0, "maxReplicas": 10,
            "template": template("ray-worker"),
        }],
    })
}

fn raycluster(name: &str) -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec()})
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name},
        "spec": {"entrypoint": "python train.py", "submissionMode": "HTTPMode", "rayClusterSpec": spec()},
    })
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// CPU time of this process. The kernel counts in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks = |index: usize| after_name.split_whitespace().nth(index).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
