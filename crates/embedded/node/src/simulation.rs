//! Registers the nodes and runs their controllers: kubelets, leases and, where there is none, a scheduler.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use quintet_controller::api::{Api, PatchKind, Propagation};
use quintet_controller::cache::{Cache, Entry, Selector, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::tasks::Tasks;
use quintet_controller::{
    Action, ApiKind, Class, Controller, Error, Next, NoCall, ObjectKey, Plan, Runtime, StatusPatch,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::addresses::{self, Addresses};
use crate::lifecycle::{self, PodAddresses, Step};
use crate::nodes::{NodeShape, SIMULATED};
use crate::pod::Pod;
use crate::schedule::{Ledger, Node, Scheduler};

/// Where nodes keep their leases.
const LEASES: &str = "kube-node-lease";
/// Every node renews its lease this often; Kubernetes gives it 40 seconds.
const RENEWAL: Duration = Duration::from_secs(15);
/// The taint of nodes that are not ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Attempts to remove it while others change the node.
const TAINT_ATTEMPTS: usize = 10;
/// Requests in flight while nodes are registered or removed.
const IN_FLIGHT: usize = 16;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The nodes.
    pub nodes: NodeShape,
    /// Bind pending pods to the nodes, for clusters without a scheduler.
    pub schedule: bool,
}

/// Why a simulation cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A real node, or one of another simulation, has the name.
    #[error("node {0} already exists and does not belong to this simulation; choose another name")]
    Taken(String),
    /// A request to the cluster failed.
    #[error(transparent)]
    Refused(#[from] Error),
}

/// Running simulated nodes.
pub struct Simulation {
    api: Api,
    nodes: NodeShape,
    runtime: Runtime,
}

impl Simulation {
    /// Registers the nodes, and returns when they take pods.
    pub async fn start(client: kube::Client, settings: Settings) -> Result<Self, StartError> {
        Self::start_at(client, settings, Clock::system(), None).await
    }

    /// The same with a clock and, to be repeatable, a seed: for worlds in which time is simulated.
    pub async fn start_at(
        client: kube::Client,
        settings: Settings,
        clock: Clock,
        seed: Option<u64>,
    ) -> Result<Self, StartError> {
        let Settings { nodes, schedule } = settings;
        let (runtime, _) = Runtime::alone(client, &clock, "simulated-nodes", seed);
        let (api, caches, tasks) = (runtime.api().clone(), runtime.caches().clone(), runtime.tasks().clone());
        register(&api, &nodes, clock.now()).await?;
        let pods = caches.watch(WatchSpec::projected(ApiKind::of::<core::Pod>(), Pod::read))?;
        run_pods(&runtime, &pods, &nodes, &clock);
        if schedule {
            let of_ours = Selector::all().label(SIMULATED, &nodes.name);
            let spec = WatchSpec::projected(ApiKind::of::<core::Node>(), Node::read).select(of_ours);
            run_scheduler(&runtime, &api, &pods, &caches.watch(spec)?, &clock);
        }
        tasks.spawn("leases", keep_leases(api.clone(), nodes.clone(), clock, tasks.clone()));
        runtime.start();
        pods.synced().await;
        Ok(Self { api, nodes, runtime })
    }

    /// Stops, and removes the nodes.
    pub async fn stop(self) -> Result<(), Error> {
        self.runtime.shut_down().await;
        let kind = ApiKind::of::<core::Node>();
        futures::stream::iter(0..self.nodes.count)
            .map(|number| ObjectKey::cluster(&self.nodes.name_of(number)))
            .map(|key| {
                let (api, kind) = (&self.api, &kind);
                async move {
                    let outcome = api.delete(kind, &key, None, Propagation::Background, None).await;
                    outcome.map(drop).or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
                }
            })
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await
    }

    /// Stops, and leaves the nodes as they are.
    pub async fn leave(self) {
        let late = self.runtime.shut_down().await;
        if !late.is_empty() {
            tracing::warn!("stopped without waiting for: {}", late.join(", "));
        }
    }
}

/// Registers all nodes; those of an earlier run are taken over.
async fn register(api: &Api, nodes: &NodeShape, now: Timestamp) -> Result<(), StartError> {
    futures::stream::iter(0..nodes.count)
        .map(|number| register_one(api, nodes, number, now))
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

async fn register_one(api: &Api, nodes: &NodeShape, number: u32, now: Timestamp) -> Result<(), StartError> {
    let (kind, name) = (ApiKind::of::<core::Node>(), nodes.name_of(number));
    let key = ObjectKey::cluster(&name);
    match api.create(&kind, &key, &nodes.node(number, now)).await {
        Ok(_) => {}
        Err(error) if error.has_code(409) => {
            if !is_ours(api, &kind, &key, nodes).await? {
                return Err(StartError::Taken(name));
            }
            let labels = json!({ "metadata": { "labels": nodes.labels_of(number) } });
            api.patch(&kind, &key, None, &PatchKind::Merge, &labels).await?;
            let status = json!({ "status": nodes.status(number, now) });
            api.patch(&kind, &key, Some("status"), &PatchKind::Merge, &status).await?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(remove_not_ready_taint(api, &kind, &key).await?)
}

/// Removes the taint that the API server gives to every new node: this one is ready, and not every cluster has the
/// controller that would notice.
async fn remove_not_ready_taint(api: &Api, kind: &ApiKind, key: &ObjectKey) -> Result<(), Error> {
    for _ in 0..TAINT_ATTEMPTS {
        let Some(node) = read(api, kind, key).await? else { return Ok(()) };
        let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
        let others: Vec<&Value> = taints.iter().filter(|taint| taint["key"] != NOT_READY).collect();
        if others.len() == taints.len() {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "resourceVersion": node["metadata"]["resourceVersion"] },
            "spec": { "taints": others },
        });
        match api.patch(kind, key, None, &PatchKind::Merge, &patch).await {
            Err(error) if error.has_code(409) => {}
            outcome => return outcome.map(drop),
        }
    }
    Err(Error::new(
        Class::Conflict,
        format!("cannot remove the taint {NOT_READY} of node {key}"),
        "others change the node all the time",
    ))
}

/// Whether an existing node was registered by an earlier run.
async fn is_ours(api: &Api, kind: &ApiKind, key: &ObjectKey, nodes: &NodeShape) -> Result<bool, Error> {
    let node = read(api, kind, key).await?;
    Ok(node.is_some_and(|node| node["metadata"]["labels"][SIMULATED] == nodes.name.as_str()))
}

async fn read(api: &Api, kind: &ApiKind, key: &ObjectKey) -> Result<Option<Value>, Error> {
    let Some(text) = api.get(kind, key).await? else { return Ok(None) };
    let node = serde_json::from_str(&text);
    node.map(Some)
        .map_err(|error| Error::new(Class::Transient, format!("cannot read node {key}"), error.to_string()))
}

/// Renews the leases one after the other, at an even rate.
async fn keep_leases(api: Api, nodes: NodeShape, clock: Clock, tasks: Tasks) {
    let pause = RENEWAL / nodes.count.max(1);
    let mut ticks = tokio::time::interval(pause);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in (0..nodes.count).cycle() {
        tokio::select! {
            () = tasks.stopping() => return,
            _ = ticks.tick() => {}
        }
        let name = nodes.name_of(number);
        if let Err(error) = renew(&api, &name, clock.now()).await {
            tracing::warn!("cannot renew the lease of node {name}; it may be marked unreachable: {error}");
        }
    }
}

async fn renew(api: &Api, node: &str, now: Timestamp) -> Result<(), Error> {
    let (kind, key) = (ApiKind::of::<Lease>(), ObjectKey::new(LEASES, node));
    let spec = json!({
        "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": format!("{now:.6}"),
    });
    match api.patch(&kind, &key, None, &PatchKind::Merge, &json!({ "spec": spec })).await {
        Err(error) if error.is_not_found() => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": node, "namespace": LEASES }, "spec": spec,
            });
            api.create(&kind, &key, &lease).await.map(drop)
        }
        outcome => outcome.map(drop),
    }
}

fn run_pods(runtime: &Runtime, pods: &Cache<Pod>, nodes: &NodeShape, clock: &Clock) {
    let addresses = Arc::new(Addresses::default());
    let kept = Arc::clone(&addresses);
    pods.subscribe(move |change| match (&change.old, &change.new) {
        (None, Some(new)) => {
            if let Some(address) = new.object.status.pod_ip.as_ref().filter(|_| !new.object.spec.host_network)
            {
                kept.keep(&new.uid, address);
            }
        }
        (Some(old), new) if new.as_ref().is_none_or(|new| new.uid != old.uid) => kept.free(&old.uid),
        _ => {}
    });
    let kubelets = Kubelets { pods: pods.clone(), nodes: nodes.clone(), clock: clock.clone(), addresses };
    // Pods are independent of each other: many are reconciled at a time.
    runtime.add(kubelets, pods, KUBELETS).done();
}

fn run_scheduler(runtime: &Runtime, api: &Api, pods: &Cache<Pod>, nodes: &Cache<Node>, clock: &Clock) {
    let ledger = Arc::new(Ledger::default());
    let scheduler = Scheduler {
        api: api.clone(),
        clock: clock.clone(),
        pods: pods.clone(),
        nodes: nodes.clone(),
        ledger: Arc::clone(&ledger),
    };
    let (of_pods, of_nodes) = (Arc::clone(&ledger), ledger);
    runtime
        .add(scheduler, pods, 8)
        .watches_changes(pods, move |change| of_pods.follow(change))
        .watches_changes(nodes, move |_| of_nodes.pending())
        .done();
}

/// Pods that the kubelets of all nodes work on at a time.
const KUBELETS: usize = 32;

/// The kubelets of all nodes.
struct Kubelets {
    pods: Cache<Pod>,
    nodes: NodeShape,
    clock: Clock,
    addresses: Arc<Addresses>,
}

#[derive(Serialize, Deserialize)]
struct Observed {
    pod: Arc<Entry<Pod>>,
    addresses: PodAddresses,
    now: Timestamp,
}

impl Controller for Kubelets {
    type Observed = Observed;
    type Call = NoCall;
    const NAME: &'static str = "simulated-kubelets";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(pod) = self.pods.get(key) else { return Ok(None) };
        let node = pod.object.spec.node_name.as_ref().and_then(|name| self.nodes.number_of(name));
        let Some(node) = node else { return Ok(None) };
        let addresses =
            PodAddresses { host_ip: addresses::of_node(node), pod_ip: self.addresses.of_pod(&pod.uid) };
        Ok(Some(Observed { pod, addresses, now: self.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        let pod = &observed.pod;
        let Step { status, remove, wake } = lifecycle::step(&pod.object, &observed.addresses, observed.now);
        let mut plan = Plan {
            status: StatusPatch::between(pod, &pod.object.status, &status),
            next: wake.map_or(Next::AwaitChange, Next::After),
            ..Plan::default()
        };
        if remove {
            plan.steps.push(
                Action::Delete {
                    kind: ApiKind::of::<core::Pod>(),
                    key: pod.key.clone(),
                    uid: pod.uid.clone(),
                    propagation: Propagation::Background,
                    grace_seconds: Some(0),
                }
                .into(),
            );
        }
        plan
    }
}
