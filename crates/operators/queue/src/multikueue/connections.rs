//! Connections to worker clusters: one for each MultiKueueCluster, with caches of what this manager has there.
//!
//! A cluster that is away keeps its caches as they were. Watches try again by themselves; whether they do is
//! [`Connection::state`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future::select_all;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::RwLock;
use quintet_api::kueue::metadata::{MULTIKUEUE_ORIGIN, PREBUILT_WORKLOAD_NAME};
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use quintet_controller::api::ApiSettings;
use quintet_controller::cache::{Cache, CacheHealth, Entry, Selector, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::contact::Contact;
use quintet_controller::controller::Trigger;
use quintet_controller::{Action, ApiKind, Class, Error, ObjectKey, Remote, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::access::{Access, Reached};
use super::quota::QuotaListener;
use crate::{Context, watches};

/// The deadline of a request to another cluster. Shorter than that of the own one: a Workload whose copy is written to a
/// cluster that does not answer waits for that long, whatever the other clusters say.
const DEADLINE: Duration = Duration::from_secs(10);

/// Writes to one cluster in progress at a time. The runtime bounds those of all controllers together; one cluster that does
/// not answer takes a part of them only.
const MAX_WRITES: usize = 32;

/// Jobs on another cluster by their Workload.
const BY_WORKLOAD: &str = "workload";

/// How far a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ConnectionState {
    /// Not everything has been listed.
    Connecting,
    /// Its caches follow the cluster.
    Connected,
    /// They do not, for this reason.
    Failed(String),
}

/// A connection to a cluster.
pub(super) struct Connection {
    /// Of how the cluster is reached.
    pub(super) digest: u64,
    remote: Remote,
    workloads: Cache<Workload>,
    jobs: Vec<Cache<Value>>,
    /// Where quota follows that of the cluster.
    queues: Option<Queues>,
    writes: Semaphore,
}

/// The queues of a cluster.
struct Queues {
    local: Cache<LocalQueue>,
    cluster: Cache<ClusterQueue>,
}

/// What is told of changes on other clusters.
pub(super) struct Listeners {
    /// The controller of MultiKueueClusters.
    pub(super) clusters: Trigger,
    /// The controller of Workloads.
    pub(super) workloads: Trigger,
}

/// The connections, by MultiKueueCluster.
pub(super) struct Connections {
    runtime: Runtime,
    clock: Clock,
    origin: String,
    /// The Workloads of this cluster.
    workloads: Cache<Workload>,
    /// Whether what is left of Workloads that no longer exist is removed.
    collects_garbage: bool,
    /// Kinds of jobs that can run there.
    kinds: Vec<ApiKind>,
    by_cluster: RwLock<BTreeMap<String, Arc<Connection>>>,
    listeners: OnceLock<Listeners>,
    /// Told of changed queues; without it, they are not watched.
    quota: OnceLock<QuotaListener>,
}

impl Connections {
    pub(super) fn new(context: &Context, kinds: Vec<ApiKind>) -> Result<Arc<Self>, Error> {
        let Context { runtime, clock, .. } = context;
        let settings = &context.settings.configuration.multi_kueue;
        Ok(Arc::new(Self {
            runtime: runtime.clone(),
            clock: clock.clone(),
            origin: settings.origin.clone(),
            workloads: runtime.caches().watch(watches::workloads())?,
            collects_garbage: !settings.gc_interval.0.is_zero(),
            kinds,
            by_cluster: RwLock::default(),
            listeners: OnceLock::new(),
            quota: OnceLock::new(),
        }))
    }

    /// From now on changes are told.
    pub(super) fn tell(&self, listeners: Listeners) {
        // Controllers are added once.
        let _ = self.listeners.set(listeners);
    }

    /// From now on the queues of clusters are watched.
    pub(super) fn tell_of_quota(&self, listener: QuotaListener) {
        // As above.
        let _ = self.quota.set(listener);
    }

    pub(super) fn get(&self, cluster: &str) -> Option<Arc<Connection>> {
        self.by_cluster.read().get(cluster).cloned()
    }

    /// All connections with the names of their clusters.
    pub(super) fn all(&self) -> Vec<(String, Arc<Connection>)> {
        let connections = self.by_cluster.read();
        connections.iter().map(|(name, connection)| (name.clone(), Arc::clone(connection))).collect()
    }

    /// Connects to a cluster, in the place of a connection by which it was reached otherwise.
    pub(super) async fn connect(self: &Arc<Self>, cluster: &str, access: Access) -> Result<(), Error> {
        let digest = access.digest;
        let Reached { client, server } = access.client(&self.clock).await.map_err(|cause| {
            Error::new(Class::Invalid, format!("cannot connect to MultiKueueCluster {cluster}"), cause)
        })?;
        let contact = Contact::new(server);
        let settings = ApiSettings { deadline: DEADLINE, contact };
        let remote = self.runtime.connect(cluster, client, settings);
        let connection = Arc::new(self.watch(remote, digest)?);
        let before = self.by_cluster.write().insert(cluster.to_owned(), Arc::clone(&connection));
        if let Some(before) = before {
            before.remote.disconnect();
        }
        self.follow(cluster, &connection);
        Ok(())
    }

    /// Closes the connection to a cluster.
    pub(super) fn disconnect(&self, cluster: &str) {
        if let Some(connection) = self.by_cluster.write().remove(cluster) {
            connection.remote.disconnect();
        }
    }

    fn watch(&self, remote: Remote, digest: u64) -> Result<Connection, Error> {
        let ours = || Selector::all().label(MULTIKUEUE_ORIGIN, &self.origin);
        let workloads = remote.caches().watch(WatchSpec::<Workload>::typed().select(ours()))?;
        let jobs = self.kinds.iter().map(|kind| {
            let spec = WatchSpec::projected(kind.clone(), |text| serde_json::from_str::<Value>(text));
            let spec = spec.select(ours()).optional().index(BY_WORKLOAD, |entry| {
                workload_of(entry).map(|key| key.to_string()).into_iter().collect()
            });
            remote.caches().watch(spec)
        });
        let jobs = jobs.collect::<Result<_, _>>()?;
        let watch_queues = || -> Result<Queues, Error> {
            let caches = remote.caches();
            Ok(Queues {
                local: caches.watch(WatchSpec::typed())?,
                cluster: caches.watch(WatchSpec::typed())?,
            })
        };
        let queues = self.quota.get().map(|_| watch_queues()).transpose()?;
        Ok(Connection { digest, remote, workloads, jobs, queues, writes: Semaphore::new(MAX_WRITES) })
    }

    /// Lets the controllers know of what changes on a cluster.
    fn follow(self: &Arc<Self>, cluster: &str, connection: &Arc<Connection>) {
        let of_workloads = Arc::downgrade(self);
        connection.workloads.subscribe(move |change| {
            if let Some(connections) = of_workloads.upgrade() {
                for entry in change.states() {
                    connections.workload_changed(entry.key.clone());
                }
            }
        });
        for cache in &connection.jobs {
            let of_jobs = Arc::downgrade(self);
            cache.subscribe(move |change| {
                if let Some(connections) = of_jobs.upgrade() {
                    for key in change.states().filter_map(|entry| workload_of(entry)) {
                        connections.workload_changed(key);
                    }
                }
            });
        }
        if let Some(queues) = &connection.queues {
            let (of_local, of_cluster) = (Arc::downgrade(self), Arc::downgrade(self));
            queues.local.subscribe(move |_| quota_changed(&of_local));
            queues.cluster.subscribe(move |_| quota_changed(&of_cluster));
        }
        let (name, followed, connections) =
            (cluster.to_owned(), Arc::clone(connection), Arc::downgrade(self));
        let task = async move {
            let mut state = ConnectionState::Connecting;
            loop {
                if let Some(listeners) = connections.upgrade().as_ref().and_then(|own| own.listeners.get()) {
                    listeners.clusters.changed(ObjectKey::cluster(&name), "connection");
                }
                quota_changed(&connections);
                state = followed.state_after(&state).await;
            }
        };
        let tasks = connection.remote.tasks().clone();
        connection.remote.tasks().spawn(format!("state of the connection to {cluster}"), async move {
            tokio::select! {
                () = tasks.stopping() => {}
                () = task => {}
            }
        });
    }

    fn workload_changed(&self, key: ObjectKey) {
        if let Some(listeners) = self.listeners.get().filter(|_| self.is_followed(&key)) {
            listeners.workloads.changed(key, "copy on another cluster");
        }
    }

    /// Whether copies of a Workload matter. A Workload that is deleted is reconciled once more in any case.
    fn is_followed(&self, key: &ObjectKey) -> bool {
        self.collects_garbage || self.workloads.get(key).is_some()
    }

    /// The Workloads that a cluster has copies of.
    pub(super) fn workloads_on(&self, cluster: &str) -> Vec<ObjectKey> {
        let keys = self.get(cluster).map(|connection| connection.workloads.all()).unwrap_or_default();
        keys.iter().map(|entry| entry.key.clone()).filter(|key| self.is_followed(key)).collect()
    }
}

fn quota_changed(connections: &Weak<Connections>) {
    if let Some(listener) = connections.upgrade().as_ref().and_then(|own| own.quota.get()) {
        listener.changed();
    }
}

/// The Workload that a job names.
fn workload_of(job: &Entry<Value>) -> Option<ObjectKey> {
    let metadata = &job.object["metadata"];
    let named = metadata["annotations"][PREBUILT_WORKLOAD_NAME].as_str();
    let name = named.or_else(|| metadata["labels"][PREBUILT_WORKLOAD_NAME].as_str())?;
    Some(ObjectKey::new(job.key.namespace()?, name))
}

impl Connection {
    /// How far it is.
    pub(super) fn state(&self) -> ConnectionState {
        let queues = self.queues.iter();
        let of_queues = queues.clone().flat_map(|own| [own.local.failure(), own.cluster.failure()]);
        let failures = self.jobs.iter().map(Cache::failure).chain(of_queues);
        let failure = std::iter::once(self.workloads.failure()).chain(failures).flatten().next();
        let has_queues = queues.clone().all(|own| own.local.is_synced() && own.cluster.is_synced());
        let is_synced = self.workloads.is_synced() && self.jobs.iter().all(Cache::is_synced) && has_queues;
        match failure {
            Some(failure) => ConnectionState::Failed(failure),
            None if is_synced => ConnectionState::Connected,
            None => ConnectionState::Connecting,
        }
    }

    /// Resolves with the next state that differs.
    async fn state_after(&self, before: &ConnectionState) -> ConnectionState {
        loop {
            let mut changes: Vec<BoxFuture<'_, ()>> = vec![next(&self.workloads).boxed()];
            changes.extend(self.jobs.iter().map(|cache| next(cache).boxed()));
            if let Some(queues) = &self.queues {
                changes.extend([next(&queues.local).boxed(), next(&queues.cluster).boxed()]);
            }
            // The changes are awaited from here on, so that none is missed after the state is read.
            let state = self.state();
            if state != *before {
                return state;
            }
            select_all(changes).await;
        }
    }

    /// Whether its caches follow the cluster.
    pub(super) fn is_connected(&self) -> bool {
        self.state() == ConnectionState::Connected
    }

    /// The ClusterQueues of the cluster that these LocalQueues lead to there.
    pub(super) fn queues_behind(&self, local: &BTreeSet<ObjectKey>) -> Vec<Arc<Entry<ClusterQueue>>> {
        let Some(queues) = &self.queues else { return Vec::new() };
        let named = local.iter().filter_map(|key| queues.local.get(key)?.object.spec.cluster_queue.clone());
        let names: BTreeSet<String> = named.collect();
        names.iter().filter_map(|name| queues.cluster.get(&ObjectKey::cluster(name))).collect()
    }

    /// The copy of a Workload.
    pub(super) fn workload(&self, key: &ObjectKey) -> Option<Arc<Entry<Workload>>> {
        self.workloads.get(key)
    }

    /// The jobs that run for a Workload.
    pub(super) fn jobs(&self, workload: &ObjectKey) -> Vec<(ApiKind, Arc<Entry<Value>>)> {
        let of_kind = |cache: &Cache<Value>| {
            let jobs = cache.by_index(BY_WORKLOAD, workload.as_str());
            jobs.into_iter().map(|job| (cache.kind().clone(), job)).collect::<Vec<_>>()
        };
        self.jobs.iter().flat_map(of_kind).collect()
    }

    /// A job, whatever it runs for.
    pub(super) fn job(&self, kind: &ApiKind, key: &ObjectKey) -> Option<Arc<Entry<Value>>> {
        self.jobs.iter().find(|cache| cache.kind() == kind)?.get(key)
    }

    /// Writes to the cluster, in order.
    pub(super) async fn execute(&self, cluster: &str, actions: Vec<Action>) -> Result<(), Error> {
        let Ok(_permit) = self.writes.try_acquire() else {
            let attempt = format!("cannot write to MultiKueueCluster {cluster}");
            return Err(Error::new(
                Class::Transient,
                attempt,
                format!("{MAX_WRITES} writes are in progress"),
            ));
        };
        self.remote.execute(actions).await
    }
}

fn next<T: Send + Sync + 'static>(cache: &Cache<T>) -> impl Future<Output = ()> + Send {
    let (cache, health): (_, CacheHealth) = (cache.clone(), cache.health());
    async move { cache.health_differs(health).await }
}
