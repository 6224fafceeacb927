//! What an index costs: changes in, decisions and writes out, memory per object.
//!
//! A plain program, `cargo bench -p quintet-controller --bench index`: it prints a table for the embedded API, and for
//! the cluster of `KUBECONFIG_UNDER_TEST` if that is set. Objects are ConfigMaps, so that no cluster has to be prepared.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark that cannot go on says so by panicking, and prints what it found"
)]

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client,
    api::{Api, DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use peak_alloc::PeakAlloc;
use quintet_apiserver::{Cluster, Settings};
use quintet_controller::{
    Action, ApiKind, ObjectKey, Runtime,
    cache::{Selector, WatchSpec},
    clock::Clock,
    index::{Assumptions, Index, IndexHandle, IndexSettings, IndexSetup, Update, Write, WriteOutcome},
    object::ResourceVersion,
};
use serde::Deserialize;
use serde_json::json;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Objects; set `QUINTET_BENCH_OBJECTS` for another number.
const OBJECTS: usize = 20_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        println!(
            "{:<22} {:>8} {:>12} {:>14} {:>12} {:>12} {:>12} {:>14}",
            "API",
            "objects",
            "changes/s",
            "bytes/object",
            "decisions",
            "decide runs",
            "writes/s",
            "decide mean"
        );
        let settings = Settings::default();
        let embedded = Cluster::start(settings).await.unwrap();
        measure("embedded, in process", "in-process", embedded.api().admin_client()).await;
        let kubeconfig = Kubeconfig::from_yaml(&embedded.kubeconfig().unwrap()).unwrap();
        measure("embedded, HTTPS", "https", connect(kubeconfig).await).await;
        embedded.stop().await;
        if let Some(path) = std::env::var_os("KUBECONFIG_UNDER_TEST").filter(|path| !path.is_empty()) {
            measure("under test", "under-test", connect(Kubeconfig::read_from(path).unwrap()).await).await;
        }
    });
}

async fn connect(kubeconfig: Kubeconfig) -> Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    quintet_controller::api::connect(config).unwrap()
}

/// What is kept of a guest.
struct Guest {
    seated: bool,
}

fn project(text: &str) -> Result<Guest, serde_json::Error> {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(default)]
        data: Data,
    }
    #[derive(Default, Deserialize)]
    struct Data {
        seat: Option<String>,
    }
    let raw: Raw = serde_json::from_str(text)?;
    Ok(Guest { seated: raw.data.seat.is_some() })
}

/// Gives a seat to everybody, up to `capacity`.
#[derive(Default)]
struct Seats {
    capacity: usize,
    guests: HashMap<ObjectKey, (ResourceVersion, bool)>,
    waiting: BTreeSet<ObjectKey>,
    seated: usize,
    assumed: Assumptions<()>,
    runs: u64,
    decisions: u64,
}

enum Event {
    Guest(Update<Guest>),
}

impl Seats {
    fn forget(&mut self, key: &ObjectKey) {
        self.waiting.remove(key);
        if let Some((_, true)) = self.guests.remove(key) {
            self.seated -= 1;
        }
    }
}

impl Index for Seats {
    type Event = Event;
    type Decision = (ObjectKey, ResourceVersion);

    const NAME: &'static str = "seats";

    fn apply(&mut self, Event::Guest(update): Event, _: Timestamp) {
        self.assumed.observe(&update);
        self.forget(update.key());
        if let Update::Applied(guest) = update {
            if guest.object.seated {
                self.seated += 1;
            } else if !self.assumed.contains(&guest.key) {
                self.waiting.insert(guest.key.clone());
            }
            self.guests.insert(guest.key.clone(), (guest.version, guest.object.seated));
        }
    }

    fn decide(&mut self, _: Timestamp, room: usize) -> Vec<Write<Self::Decision>> {
        self.runs += 1;
        self.waiting.extend(self.assumed.take_lost());
        let mut writes = Vec::new();
        while writes.len() < room && self.seated + self.assumed.len() < self.capacity {
            let Some(key) = self.waiting.pop_first() else { break };
            let Some((version, _)) = self.guests.get(&key) else { continue };
            self.assumed.assume(key.clone(), *version, ());
            let seat = (self.seated + self.assumed.len()).to_string();
            let patch = json!({"metadata": {"resourceVersion": version.to_string()}, "data": {"seat": seat}});
            let action = Action::merge(ApiKind::of::<ConfigMap>(), key.clone(), patch);
            writes.push(Write::new(action, (key, *version)));
        }
        self.decisions += writes.len() as u64;
        writes
    }

    fn outcome(&mut self, (key, base): Self::Decision, outcome: WriteOutcome, _: Timestamp) {
        if self.assumed.outcome(&key, base, &outcome).is_some() && self.guests.contains_key(&key) {
            self.waiting.insert(key);
        }
    }

    fn empty(&self) -> Self {
        Self { capacity: self.capacity, ..Self::default() }
    }

    fn fingerprint(&self) -> u64 {
        (self.seated + self.guests.len()) as u64
    }
}

async fn measure(name: &str, run: &str, client: Client) {
    let objects = std::env::var("QUINTET_BENCH_OBJECTS").ok().and_then(|text| text.parse().ok());
    let objects = objects.unwrap_or(OBJECTS);
    let guests = prepare(&client, run, objects).await;
    // Without capacity nothing is written: only the ingest is measured.
    let (before, started) = (HEAP.current_usage(), Instant::now());
    let standby = start(&client, run, 0);
    until(&standby.1, move |seats| seats.guests.len() == objects).await;
    let ingest = started.elapsed();
    let bytes = HEAP.current_usage().saturating_sub(before) / objects;
    standby.0.shut_down().await;
    drop(standby);
    let leader = start(&client, run, objects);
    until(&leader.1, |seats| seats.runs > 0).await;
    let started = Instant::now();
    until(&leader.1, move |seats| seats.seated == objects).await;
    let took = started.elapsed();
    let (runs, decisions) = leader.1.read(|seats| (seats.runs, seats.decisions)).await.unwrap();
    let text = leader.2.encode();
    let sum = text.lines().find_map(|line| {
        line.strip_prefix("quintet_index_decide_duration_seconds_sum{index=\"seats\"} ")?.parse::<f64>().ok()
    });
    leader.0.shut_down().await;
    let rate = |time: Duration| objects as f64 / time.as_secs_f64();
    let mean = Duration::from_secs_f64(sum.unwrap_or_default() / runs as f64);
    println!(
        "{name:<22} {objects:>8} {:>12.0} {bytes:>14} {decisions:>12} {runs:>12} {:>12.0} {mean:>14.1?}",
        rate(ingest),
        rate(took)
    );
    let ours = ListParams::default().labels(&format!("bench={run}"));
    let _ = guests.delete_collection(&DeleteParams::default(), &ours).await;
}

/// Makes the objects.
async fn prepare(client: &Client, run: &str, objects: usize) -> Api<ConfigMap> {
    let guests: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let create = |number: usize| {
        let guests = guests.clone();
        async move {
            let guest = json!({"metadata": {"name": format!("{run}-{number:06}"), "labels": {"bench": run}}, "data": {"wants": "a seat by the window"}});
            let guest = serde_json::from_value(guest).unwrap();
            guests.create(&PostParams::default(), &guest).await.unwrap();
        }
    };
    stream::iter((0..objects).map(create)).buffer_unordered(32).collect::<Vec<_>>().await;
    guests
}

type Running = (Runtime, IndexHandle<Seats>, quintet_controller::metrics::MetricsRegistry);

fn start(client: &Client, run: &str, capacity: usize) -> Running {
    let clock = Clock::system();
    let (runtime, registry) = Runtime::alone(client.clone(), &clock, "bench", None);
    let spec =
        WatchSpec::projected(ApiKind::of::<ConfigMap>(), project).select(Selector::all().label("bench", run));
    let guests = runtime.caches().watch(spec).unwrap();
    let index = Seats { capacity, ..Seats::default() };
    let handle =
        IndexSetup::new(&runtime, &clock, IndexSettings::default(), index).feed(&guests, Event::Guest);
    let handle = handle.start();
    runtime.start();
    (runtime, handle, registry)
}

async fn until(index: &IndexHandle<Seats>, condition: impl Fn(&Seats) -> bool + Send + Sync + 'static) {
    let condition = Arc::new(condition);
    loop {
        let condition = Arc::clone(&condition);
        if index.read(move |seats| condition(seats)).await.unwrap() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
