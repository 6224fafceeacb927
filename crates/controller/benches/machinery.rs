//! What the machinery costs: bytes per cached object, and reconciles per second.
//!
//! A plain program, `cargo bench -p quintet-controller`: it prints a table, and times nothing that
//! other work on the machine would not disturb.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark that cannot go on says so by panicking, and prints what it found"
)]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::body::{Body, Bytes};
use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Pod;
use peak_alloc::PeakAlloc;
use quintet_controller::{
    ApiKind, Controller, Error, NoCall, ObjectKey, Plan, Runtime, RuntimeParts, RuntimeSettings, StatusPatch,
    api::{Api, ApiSettings},
    cache::{Cache, Caches, Entry, WatchSpec},
    clock::Clock,
    events::Recorder,
    leader::Leadership,
    limiter::Limiter,
    metrics::{Metrics, MetricsRegistry},
    queue::Queue,
    tasks::Tasks,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const PODS: usize = 20_000;
const ROOTS: usize = 100_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        memory().await;
        speed().await;
    });
}

/// A worker pod as KubeRay makes them, with what a real cluster adds to it: about 6.6 KB of JSON.
fn pod(number: usize) -> Value {
    let env =
        |n: usize| json!({"name": format!("RAY_SETTING_{n}"), "value": format!("some value of setting {n}")});
    let mount = |n: usize| json!({"name": format!("volume-{n}"), "mountPath": format!("/mnt/volume-{n}"), "readOnly": true});
    let fields: serde_json::Map<_, _> =
        (0..40).map(|n| (format!("f:field-number-{n}"), json!({".": {}, "f:value": {}}))).collect();
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    json!({
        "metadata": {
            "name": format!("cluster-{}-worker-small-group-{number:05}", number / 10),
            "namespace": "team-a", "uid": format!("{number:08x}-0000-4000-8000-000000000000"),
            "resourceVersion": (number + 1).to_string(), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app.kubernetes.io/created-by": "kuberay-operator", "app.kubernetes.io/name": "kuberay",
                "ray.io/cluster": format!("cluster-{}", number / 10), "ray.io/group": "small-group",
                "ray.io/identifier": format!("cluster-{}-worker", number / 10), "ray.io/is-ray-node": "yes", "ray.io/node-type": "worker",
            },
            "annotations": {"ray.io/ft-enabled": "false", "example.com/note": "an annotation of ordinary length"},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": format!("cluster-{}", number / 10), "uid": "00000000-0000-4000-8000-000000000001", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [
                {"manager": "quintet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields},
            ],
        },
        "spec": {
            "containers": [{
                "name": "ray-worker", "image": "rayproject/ray:2.50.0", "command": ["/bin/bash", "-c", "--"],
                "args": ["ulimit -n 65536; ray start --address=cluster-head-svc.team-a.svc.cluster.local:6379 --block --num-cpus=4"],
                "env": (0..20).map(env).collect::<Vec<_>>(), "volumeMounts": (0..5).map(mount).collect::<Vec<_>>(),
                "resources": {"limits": {"cpu": "4", "memory": "16Gi"}, "requests": {"cpu": "4", "memory": "16Gi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Never", "dnsPolicy": "ClusterFirst", "nodeName": format!("node-{}", number % 100), "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1", "startTime": "2026-01-01T00:00:00Z",
            "conditions": conditions,
            "containerStatuses": [{"name": "ray-worker", "ready": true, "restartCount": 0, "image": "rayproject/ray:2.50.0", "imageID": "sha256:0123", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
        },
    })
}

/// What a Ray controller needs of a pod.
#[derive(Default)]
struct SlimPod {
    _cluster: Box<str>,
    _group: Box<str>,
    _phase: Box<str>,
    _ready: bool,
}

fn project(text: &str) -> Result<SlimPod, serde_json::Error> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
        #[serde(borrow)]
        status: Status<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow)]
        labels: Labels<'a>,
    }
    #[derive(Deserialize)]
    struct Labels<'a> {
        #[serde(rename = "ray.io/cluster")]
        cluster: &'a str,
        #[serde(rename = "ray.io/group")]
        group: &'a str,
    }
    #[derive(Deserialize)]
    struct Status<'a> {
        phase: &'a str,
        #[serde(borrow)]
        conditions: Vec<Condition<'a>>,
    }
    #[derive(Deserialize)]
    struct Condition<'a> {
        r#type: &'a str,
        status: &'a str,
    }
    let raw: Raw<'_> = serde_json::from_str(text)?;
    let is_ready = |condition: &Condition<'_>| condition.r#type == "Ready" && condition.status == "True";
    Ok(SlimPod {
        _cluster: raw.metadata.labels.cluster.into(),
        _group: raw.metadata.labels.group.into(),
        _phase: raw.status.phase.into(),
        _ready: raw.status.conditions.iter().any(is_ready),
    })
}

/// An API server that lists made-up objects, watches in silence, and answers status patches at once.
#[derive(Clone)]
struct Server {
    object: fn(usize) -> Value,
    /// The list in pages, made beforehand.
    pages: Arc<Vec<Bytes>>,
    version: Arc<AtomicU64>,
}

const PAGE: usize = 500;

impl Server {
    fn new(object: fn(usize) -> Value, count: usize) -> Self {
        let page = |start: usize| {
            let end = (start + PAGE).min(count);
            let items: Vec<_> = (start..end).map(object).collect();
            let token = if end < count { (end / PAGE).to_string() } else { String::new() };
            json!({"metadata": {"resourceVersion": "1000000", "continue": token}, "items": items})
                .to_string()
                .into()
        };
        let pages = Arc::new((0..count).step_by(PAGE).map(page).collect());
        Self { object, pages, version: Arc::new(AtomicU64::new(1_000_000)) }
    }

    fn answer(&self, method: &Method, uri: &http::Uri, body: &[u8]) -> Response<Body> {
        let query = uri.query().unwrap_or_default();
        if *method == Method::PATCH {
            let patch: Value = serde_json::from_slice(body).unwrap();
            let name = uri.path().trim_end_matches("/status").rsplit('-').next().unwrap();
            let mut object = (self.object)(name.parse().unwrap());
            object["status"] = patch["status"].clone();
            object["metadata"]["resourceVersion"] =
                self.version.fetch_add(1, Ordering::Relaxed).to_string().into();
            return Response::new(Body::from(object.to_string()));
        }
        if query.contains("watch=true") {
            let silence = futures::stream::pending::<Result<Bytes, Infallible>>();
            return Response::new(Body::from_stream(silence));
        }
        let token = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
        let page: usize = token.map_or(0, |token| token.parse().unwrap());
        Response::new(Body::from(self.pages[page].clone()))
    }
}

impl tower::Service<Request<kube::client::Body>> for Server {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let server = self.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            Ok(server.answer(&parts.method, &parts.uri, &body))
        }
        .boxed()
    }
}

struct Parts {
    api: Api,
    caches: Caches,
    metrics: Arc<Metrics>,
    tasks: Tasks,
}

fn parts(server: Server) -> Parts {
    let metrics = Metrics::register(&MetricsRegistry::new());
    let client = kube::Client::new(server, "default");
    let api = Api::new(client, Limiter::none(), ApiSettings::default(), Arc::clone(&metrics));
    let tasks = Tasks::new();
    let caches = Caches::new(api.clone(), tasks.clone(), Arc::clone(&metrics), Some(1));
    Parts { api, caches, metrics, tasks }
}

async fn memory() {
    let wire = pod(12_345).to_string().len();
    println!("\ncached objects: {PODS} Ray worker pods, {wire} bytes of JSON each\n");
    println!("{:<28} {:>14} {:>10} {:>16}", "kept as", "bytes/object", "x wire", "objects/s read");
    let typed = measure("typed Pod", wire, WatchSpec::<Pod>::typed()).await;
    let slim =
        measure("projection (4 fields)", wire, WatchSpec::projected(ApiKind::of::<Pod>(), project)).await;
    let meta = measure("metadata only", wire, WatchSpec::metadata(ApiKind::of::<Pod>())).await;
    println!("\ntyped / projection = {:.1}, typed / metadata = {:.1}", typed / slim, typed / meta);
}

async fn measure<T: Send + Sync + 'static>(name: &str, wire: usize, spec: WatchSpec<T>) -> f64 {
    let Parts { caches, tasks, .. } = parts(Server::new(pod, PODS));
    let (before, started) = (HEAP.current_usage(), Instant::now());
    let cache = caches.watch(spec).unwrap();
    cache.synced().await;
    let (took, bytes) = (started.elapsed(), (HEAP.current_usage() - before) as f64 / cache.len() as f64);
    assert_eq!(cache.len(), PODS);
    let rate = PODS as f64 / took.as_secs_f64();
    println!("{name:<28} {bytes:>14.0} {:>10.2} {rate:>16.0}", bytes / wire as f64);
    tasks.shut_down(Duration::from_secs(5)).await;
    bytes
}

fn root(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("root-{number}"), "namespace": "team-a", "uid": format!("uid-{number}"), "resourceVersion": (number + 1).to_string(), "generation": 1},
        "spec": {"size": number % 7},
        "status": {"size": number % 7},
    })
}

fn unsettled_root(number: usize) -> Value {
    let mut root = root(number);
    root["status"] = json!({});
    root
}

#[derive(Deserialize, serde::Serialize)]
struct Root {
    spec: Size,
    #[serde(default)]
    status: Size,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, serde::Serialize)]
struct Size {
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
}

struct Sizer {
    roots: Cache<Root>,
    turns: Arc<AtomicU64>,
}

impl Controller for Sizer {
    type Observed = Arc<Entry<Root>>;
    type Call = NoCall;

    const NAME: &'static str = "sizer";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Self::Observed>, Error> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        Ok(self.roots.get(key))
    }

    fn plan(root: &Self::Observed) -> Plan {
        let Root { spec, status } = &root.object;
        Plan { status: StatusPatch::between(root, status, spec), ..Plan::default() }
    }
}

fn root_kind() -> ApiKind {
    ApiKind::namespaced("bench.quintet.dev", "v1", "Root", "roots")
}

async fn speed() {
    println!("\nreconciles with {ROOTS} objects, 2 threads, an API that answers at once\n");
    println!("{:<44} {:>12} {:>14}", "", "turns", "turns/s");
    let idle = reconcile("settled: look, plan, write nothing", root).await;
    let busy = reconcile("one status write each, and the look after it", unsettled_root).await;
    println!("\nsettled / writing = {:.1}\n", idle / busy);
}

async fn reconcile(name: &str, object: fn(usize) -> Value) -> f64 {
    let Parts { api, caches, metrics, tasks } = parts(Server::new(object, ROOTS));
    let roots = caches.watch(WatchSpec::projected(root_kind(), |text| serde_json::from_str(text))).unwrap();
    roots.synced().await;
    let queue = Queue::new(Arc::clone(&metrics), Some(1));
    let recorder = Recorder::start(api.clone(), Clock::system(), Arc::clone(&metrics), &tasks, "bench");
    let parts = RuntimeParts {
        api,
        caches,
        queue: queue.clone(),
        recorder,
        leadership: Leadership::always(),
        metrics,
        tasks,
    };
    let runtime = Runtime::new(parts, RuntimeSettings::default());
    let turns = Arc::new(AtomicU64::new(0));
    let sizer = Sizer { roots: roots.clone(), turns: Arc::clone(&turns) };
    let setup = runtime.add(sizer, &roots, 32);
    let started = Instant::now();
    setup.done();
    runtime.start();
    let is_settled = |entry: &Arc<Entry<Root>>| entry.object.spec == entry.object.status;
    while turns.load(Ordering::Relaxed) < ROOTS as u64 || !queue.is_idle() {
        tokio::task::yield_now().await;
    }
    let (took, turns) = (started.elapsed(), turns.load(Ordering::Relaxed));
    assert!(roots.all().iter().all(is_settled));
    let rate = turns as f64 / took.as_secs_f64();
    println!("{name:<44} {turns:>12} {rate:>14.0}");
    assert!(runtime.shut_down().await.is_empty());
    rate
}
