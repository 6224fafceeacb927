//! Controllers: what an operator's author writes, and the runtime that drives it.

mod explain;
mod reconcile;
mod remote;
mod setup;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use parking_lot::RwLock;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

pub use explain::Explanation;
pub use remote::Remote;
pub use setup::{Setup, Trigger};

use crate::{
    api::{Api, ApiSettings},
    cache::{Cache, Caches},
    clock::Clock,
    error::{Class, Error},
    events::Recorder,
    executor::Executor,
    index::IndexReport,
    leader::{Election, Leadership, LeaseSettings},
    limiter::{Limiter, LimiterSettings},
    metrics::{Metrics, MetricsRegistry},
    object::ObjectKey,
    plan::{Action, OnError, Plan},
    queue::Queue,
    tasks::Tasks,
};
use reconcile::{Added, Running};

/// A controller of one root kind: observe, then plan. Everything else is done for it.
///
/// `plan` and `on_error` have no `self`: whatever a decision needs is part of [`Controller::Observed`], and
/// the compiler keeps clients, clocks and settings out of them. An observed state can be stored and read back,
/// so a bug report can carry one and a test can replay it.
pub trait Controller: Send + Sync + 'static {
    /// Everything a decision needs: objects, settings, feature gates, the time, entropy for names. Secret
    /// values are redacted when it is serialized (see [`REDACTED`](crate::plan::REDACTED)).
    type Observed: Serialize + DeserializeOwned + Send + Sync;

    /// What the controller calls outside Kubernetes; [`NoCall`](crate::plan::NoCall) if it calls nothing.
    /// It is logged by its `Display`, which leaves contents out.
    type Call: Serialize + DeserializeOwned + fmt::Debug + fmt::Display + Clone + PartialEq + Send + Sync;

    /// Its name in metrics, events and logs.
    const NAME: &'static str;

    /// Reads what a decision about `key` needs, from the caches and nowhere else if it can be helped.
    /// `None` means that the root does not exist.
    fn observe(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Self::Observed>, Error>> + Send;

    /// Computes the plan. Pure and total: no clock, no randomness, no I/O; a user error is a plan whose status
    /// says what to fix.
    fn plan(observed: &Self::Observed) -> Plan<Self::Call>;

    /// Carries out an [`Action::Call`]. May be repeated.
    fn call(&self, call: &Self::Call) -> impl Future<Output = Result<(), Error>> + Send {
        let error = Error::new(Class::Bug, format!("cannot {call}"), "the controller implements no calls");
        std::future::ready(Err(error))
    }

    /// What follows when `action` failed: what users learn, and when to retry. Pure, like
    /// [`Controller::plan`].
    fn on_error(observed: &Self::Observed, action: &Action<Self::Call>, error: &Error) -> OnError {
        let _ = (observed, action, error);
        OnError::default()
    }

    /// Resolves when everything that `observe` has polled outside Kubernetes for `key` was answered once.
    /// Reconciles do not wait for it; [`Runtime::explain`] does.
    fn polled(&self, key: &ObjectKey) -> impl Future<Output = ()> + Send {
        let _ = key;
        std::future::ready(())
    }
}

/// How controllers are run.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Calls in flight at a time, over all controllers.
    pub calls: usize,
    /// A reconcile that takes longer is cancelled and retried.
    pub reconcile_deadline: Duration,
    /// How long reconciles in progress may take to end when the process stops.
    pub shutdown_timeout: Duration,
}

impl Default for RuntimeSettings {
    /// A call mostly waits for a response that may be slow, and holds a small request and a connection. A reconcile
    /// makes a few requests of at most half a minute each. Kubernetes kills after 30 seconds.
    fn default() -> Self {
        Self {
            calls: 128,
            reconcile_deadline: Duration::from_mins(2),
            shutdown_timeout: Duration::from_secs(20),
        }
    }
}

/// Runs controllers over shared caches, a shared queue and one executor.
#[derive(Clone)]
pub struct Runtime(Arc<Shared>);

struct Shared {
    settings: RuntimeSettings,
    caches: Caches,
    queue: Queue,
    executor: Executor,
    unfenced: Api,
    recorder: Recorder,
    leadership: Leadership,
    metrics: Arc<Metrics>,
    /// Ended before all other tasks, so that the lease is released when nothing writes any more.
    reconciles: Tasks,
    tasks: Tasks,
    /// Bounds the calls in flight.
    calls: Semaphore,
    /// By lane.
    controllers: RwLock<Vec<Added>>,
    indexes: RwLock<Vec<IndexReporter>>,
}

type IndexReporter = Box<dyn Fn() -> IndexReport + Send + Sync>;

/// When a runtime may write.
enum Lead {
    Always,
    Never,
    Elected(LeaseSettings),
}

/// What a runtime is made of.
pub struct RuntimeParts {
    /// The API server. Writes of controllers are fenced by `leadership`.
    pub api: Api,
    /// The caches.
    pub caches: Caches,
    /// The queue.
    pub queue: Queue,
    /// Where events go.
    pub recorder: Recorder,
    /// Whether we may write.
    pub leadership: Leadership,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The tasks of the process.
    pub tasks: Tasks,
}

impl Runtime {
    /// A runtime of the only replica: there is no leader election, and requests are limited by what the server
    /// accepts. A `seed` makes the rng repeatable, for simulations.
    pub fn alone(
        client: kube::Client,
        clock: &Clock,
        instance: &str,
        seed: Option<u64>,
    ) -> (Self, MetricsRegistry) {
        Self::assemble(client, clock, instance, seed, Lead::Always, &[])
    }

    /// A runtime that observes these namespaces (all if none is named) and is never started, for
    /// [`Runtime::explain`].
    pub fn reader(client: kube::Client, clock: &Clock, namespaces: &[String]) -> (Self, MetricsRegistry) {
        Self::assemble(client, clock, "reader", None, Lead::Never, namespaces)
    }

    /// The same for one of several replicas, which contend for a lease.
    pub fn replica(
        client: kube::Client,
        clock: &Clock,
        lease: LeaseSettings,
        seed: Option<u64>,
    ) -> (Self, MetricsRegistry) {
        let instance = lease.identity.clone();
        Self::assemble(client, clock, &instance, seed, Lead::Elected(lease), &[])
    }

    fn assemble(
        client: kube::Client,
        clock: &Clock,
        instance: &str,
        seed: Option<u64>,
        lead: Lead,
        namespaces: &[String],
    ) -> (Self, MetricsRegistry) {
        let registry = MetricsRegistry::new();
        let metrics = Metrics::register(&registry);
        let limiter = Limiter::adaptive(LimiterSettings::default());
        let api = Api::new(client, limiter, ApiSettings::default(), Arc::clone(&metrics));
        let tasks = Tasks::new();
        let recorder = Recorder::start(api.clone(), clock.clone(), Arc::clone(&metrics), &tasks, instance);
        let leadership = match lead {
            Lead::Always => Leadership::always(),
            Lead::Never => Leadership::never(),
            Lead::Elected(lease) => {
                let election = Election::new(api.clone(), clock.clone(), lease);
                let leadership = election.leadership();
                tasks.spawn("leader election", election.run(tasks.clone()));
                leadership
            }
        };
        let caches = Caches::new(api.clone(), tasks.clone(), Arc::clone(&metrics), seed);
        let parts = RuntimeParts {
            caches: caches.in_namespaces(namespaces),
            queue: Queue::new(Arc::clone(&metrics), seed),
            recorder,
            leadership,
            metrics,
            tasks,
            api,
        };
        (Self::new(parts, RuntimeSettings::default()), registry)
    }

    /// A runtime without controllers.
    pub fn new(parts: RuntimeParts, settings: RuntimeSettings) -> Self {
        let RuntimeParts { api, caches, queue, recorder, leadership, metrics, tasks } = parts;
        let executor = Executor::new(api.fenced(leadership.clone()), caches.clone());
        Self(Arc::new(Shared {
            calls: Semaphore::new(settings.calls.max(1)),
            settings,
            caches,
            queue,
            executor,
            unfenced: api,
            recorder,
            leadership,
            metrics,
            reconciles: Tasks::new(),
            tasks,
            controllers: RwLock::default(),
            indexes: RwLock::default(),
        }))
    }

    /// The shared caches.
    pub fn caches(&self) -> &Caches {
        &self.0.caches
    }

    /// The shared queue.
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// The tasks of the process.
    pub fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// The API server, for as long as this process may write.
    pub fn api(&self) -> &Api {
        self.0.executor.api()
    }

    /// The API server for requests that store nothing, such as SubjectAccessReviews: webhooks of replicas without the lease
    /// make them, too.
    pub fn unfenced_api(&self) -> &Api {
        &self.0.unfenced
    }

    /// What an [index](crate::index) writes with, and the tasks that have to end before the lease is released.
    pub(crate) fn index_parts(&self) -> (Executor, Leadership, Recorder, Arc<Metrics>, Tasks) {
        let Shared { executor, leadership, recorder, metrics, reconciles, .. } = &*self.0;
        (executor.clone(), leadership.clone(), recorder.clone(), Arc::clone(metrics), reconciles.clone())
    }

    /// Adds an index to [`Runtime::indexes`].
    pub(crate) fn report_index(&self, report: impl Fn() -> IndexReport + Send + Sync + 'static) {
        self.0.indexes.write().push(Box::new(report));
    }

    /// The running [indexes](crate::index), for debug state.
    pub fn indexes(&self) -> Vec<IndexReport> {
        self.0.indexes.read().iter().map(|report| report()).collect()
    }

    /// Adds a controller of the objects in `root` that reconciles up to `concurrency` of them at a time. It
    /// begins when its caches are synced and the runtime has started.
    pub fn add<C, T>(&self, controller: C, root: &Cache<T>, concurrency: usize) -> Setup
    where
        C: Controller,
        T: Send + Sync + 'static,
    {
        let mut controllers = self.0.controllers.write();
        let lane = self.0.queue.add_lane(C::NAME, concurrency);
        let kind = root.kind().clone();
        let running = Running { controller, kind, shared: Arc::downgrade(&self.0) };
        controllers.push(Added { reconciler: Arc::new(running), synced: None });
        drop(controllers);
        Setup::new(Arc::clone(&self.0), C::NAME, lane).watches(root, |entry| vec![entry.key.clone()])
    }

    /// Starts reconciling as soon as the lease is held. When the lease is lost the tasks are told to stop:
    /// whoever waits for [`Tasks::stopping`] then calls [`Runtime::shut_down`], and the process ends.
    pub fn start(&self) {
        let shared = &self.0;
        shared.reconciles.spawn("dispatcher", reconcile::dispatch(Arc::clone(shared)));
        let (tasks, leadership) = (shared.tasks.clone(), shared.leadership.clone());
        shared.tasks.spawn("lease guard", async move {
            tokio::select! {
                () = tasks.stopping() => {}
                // Another leader writes now. A restart is simpler than proving that no write of ours is in flight.
                () = leadership.lost() => tasks.stop(),
            }
        });
    }

    /// Stops in order: no new reconciles, those in progress end, then everything else. Returns what did not
    /// end in time.
    pub async fn shut_down(&self) -> Vec<String> {
        let shared = &self.0;
        shared.queue.close();
        let mut late = shared.reconciles.shut_down(shared.settings.shutdown_timeout).await;
        late.extend(shared.tasks.shut_down(shared.settings.shutdown_timeout).await);
        late
    }
}
