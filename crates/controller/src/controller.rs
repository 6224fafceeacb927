//! Controllers: what an operator's author writes, and how it is run.

use std::{
    borrow::Cow, collections::BTreeMap, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use parking_lot::RwLock;
use serde_json::Value;
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    api::{Api, ApiSettings},
    cache::{Cache, Caches, Cause, Change, Entry, Knowledge},
    clock::Clock,
    error::{Class, Error},
    events::{Recorder, Regarding},
    executor::Executor,
    leader::{Election, Leadership, LeaseSettings},
    limiter::{Limiter, LimiterSettings},
    metrics::{Metrics, MetricsRegistry},
    object::{ApiKind, ObjectKey},
    plan::{Action, Event, Next, Plan, Setback},
    queue::{Failure, Job, LaneId, Outcome, Queue, Reason},
    tasks::{Tasks, panic_text},
};

/// A controller of one root kind: observe, then plan. Everything else is done for it.
pub trait Controller: Send + Sync + 'static {
    /// Everything a decision needs, owned: objects, settings, the time.
    type Seen: Send + Sync;

    /// Its name in metrics, events and logs.
    const NAME: &'static str;

    /// Reads what a decision about `key` needs, from the caches and nowhere else if it can be helped.
    /// `None` means that the root is gone and there is nothing to decide.
    fn observe(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Self::Seen>, Error>> + Send;

    /// Decides. Pure and total: no clock, no randomness, no I/O; a user's mistake is a plan whose
    /// status says what to mend.
    fn plan(&self, seen: &Self::Seen) -> Plan;

    /// Carries out an [`Action::Call`]. May be repeated.
    fn call(&self, name: &str, input: &Value) -> impl Future<Output = Result<(), Error>> + Send {
        let _ = input;
        let error = Error::new(Class::Bug, format!("cannot call {name}"), "the controller has no such call");
        std::future::ready(Err(error))
    }

    /// What users should learn when `action` failed; the turn is tried again later in any case. Pure, like
    /// [`Controller::plan`].
    fn setback(&self, seen: &Self::Seen, action: &Action, error: &Error) -> Setback {
        let _ = (seen, action, error);
        Setback::default()
    }
}

/// How controllers are run.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Objects worked on at the same time, over all controllers.
    pub workers: usize,
    /// A turn that takes longer is given up and tried again.
    pub turn_deadline: Duration,
    /// How long turns under way may take to end when the process stops.
    pub patience: Duration,
}

impl Default for RuntimeSettings {
    /// A turn mostly waits for the API server, so there may be more of them than cores. A turn makes a few
    /// requests of at most half a minute each. Kubernetes kills after 30 seconds.
    fn default() -> Self {
        Self { workers: 32, turn_deadline: Duration::from_mins(2), patience: Duration::from_secs(20) }
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
    recorder: Recorder,
    leadership: Leadership,
    metrics: Arc<Metrics>,
    /// Ended before all other tasks, so that the lease is given back when nobody writes any more.
    workers: Tasks,
    tasks: Tasks,
    /// By lane.
    reconcilers: RwLock<Vec<Arc<dyn Reconciler>>>,
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
    /// A runtime of a process that is alone: nobody contends for the lead, and requests are limited by what the server
    /// takes. A `seed` makes chance repeatable, for simulations.
    pub fn alone(
        client: kube::Client,
        clock: &Clock,
        instance: &str,
        seed: Option<u64>,
    ) -> (Self, MetricsRegistry) {
        Self::assemble(client, clock, instance, seed, None)
    }

    /// The same for one of several replicas, which contend for a lease.
    pub fn replica(
        client: kube::Client,
        clock: &Clock,
        lease: LeaseSettings,
        seed: Option<u64>,
    ) -> (Self, MetricsRegistry) {
        let instance = lease.identity.clone();
        Self::assemble(client, clock, &instance, seed, Some(lease))
    }

    fn assemble(
        client: kube::Client,
        clock: &Clock,
        instance: &str,
        seed: Option<u64>,
        lease: Option<LeaseSettings>,
    ) -> (Self, MetricsRegistry) {
        let registry = MetricsRegistry::new();
        let metrics = Metrics::register(&registry);
        let limiter = Limiter::adaptive(LimiterSettings::default());
        let api = Api::new(client, limiter, ApiSettings::default(), Arc::clone(&metrics));
        let tasks = Tasks::new();
        let recorder = Recorder::start(api.clone(), clock.clone(), Arc::clone(&metrics), &tasks, instance);
        let leadership = lease.map_or_else(Leadership::always, |lease| {
            let election = Election::new(api.clone(), clock.clone(), lease);
            let leadership = election.leadership();
            tasks.spawn("leader election", election.run(tasks.clone()));
            leadership
        });
        let parts = RuntimeParts {
            caches: Caches::new(api.clone(), tasks.clone(), Arc::clone(&metrics), seed),
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
            settings,
            caches,
            queue,
            executor,
            recorder,
            leadership,
            metrics,
            workers: Tasks::new(),
            tasks,
            reconcilers: RwLock::default(),
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

    /// What an [index](crate::index) writes with, and the tasks that have to end before the lease is given back.
    pub(crate) fn index_parts(&self) -> (Executor, Leadership, Recorder, Arc<Metrics>, Tasks) {
        let Shared { executor, leadership, recorder, metrics, workers, .. } = &*self.0;
        (executor.clone(), leadership.clone(), recorder.clone(), Arc::clone(metrics), workers.clone())
    }

    /// Adds a controller of the objects in `root`, `concurrency` of them at a time. It begins when its
    /// caches are complete and the runtime has started.
    pub fn add<C, T>(&self, controller: C, root: &Cache<T>, concurrency: usize) -> Setup
    where
        C: Controller,
        T: Send + Sync + 'static,
    {
        let mut reconcilers = self.0.reconcilers.write();
        let lane = self.0.queue.add_lane(C::NAME, concurrency);
        let kind = root.kind().clone();
        reconcilers.push(Arc::new(Running { controller, kind, shared: Arc::downgrade(&self.0) }));
        drop(reconcilers);
        let setup = Setup {
            shared: Arc::clone(&self.0),
            name: C::NAME,
            trigger: self.trigger(lane),
            synced: Vec::new(),
            caught_up: Vec::new(),
        };
        setup.watches(root, |entry| vec![entry.key.clone()])
    }

    fn trigger(&self, lane: LaneId) -> Trigger {
        Trigger { queue: self.0.queue.clone(), lane }
    }

    /// Starts working as soon as the lease is held. When the lease is lost the tasks are told to stop:
    /// whoever waits for [`Tasks::stopping`] then calls [`Runtime::shut_down`], and the process ends.
    pub fn start(&self) {
        let shared = &self.0;
        for number in 0..shared.settings.workers {
            shared.workers.spawn(format!("worker {number}"), work(Arc::clone(shared)));
        }
        let (tasks, leadership) = (shared.tasks.clone(), shared.leadership.clone());
        shared.tasks.spawn("lease guard", async move {
            tokio::select! {
                () = tasks.stopping() => {}
                // Others write now. Starting afresh is simpler than being sure that nothing of us is left.
                () = leadership.lost() => tasks.stop(),
            }
        });
    }

    /// Stops in order: no new turns, the running ones end, then everything else. Returns what did not end in
    /// time.
    pub async fn shut_down(&self) -> Vec<String> {
        let shared = &self.0;
        shared.queue.close();
        let mut late = shared.workers.shut_down(shared.settings.patience).await;
        late.extend(shared.tasks.shut_down(shared.settings.patience).await);
        late
    }
}

/// A controller being set up. Dropping it without [`Setup::done`] leaves the controller idle.
#[must_use = "the controller stays idle until `done` is called"]
pub struct Setup {
    shared: Arc<Shared>,
    name: &'static str,
    trigger: Trigger,
    synced: Vec<BoxFuture<'static, ()>>,
    caught_up: Vec<BoxFuture<'static, ()>>,
}

impl Setup {
    /// Looks at the roots that `roots_of` names whenever an object in `cache` changes, whether they are named
    /// by its old state or its new one.
    pub fn watches<T: Send + Sync + 'static>(
        self,
        cache: &Cache<T>,
        roots_of: impl Fn(&Entry<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watches_changes(cache, move |change| {
            let mut roots: Vec<_> = change.states().flat_map(|entry| roots_of(entry)).collect();
            roots.sort();
            roots.dedup();
            roots
        })
    }

    /// Like [`Setup::watches`], for those who want to compare the old state with the new one.
    pub fn watches_changes<T: Send + Sync + 'static>(
        mut self,
        cache: &Cache<T>,
        roots_of: impl Fn(&Change<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let trigger = self.trigger.clone();
        let kind = match &cache.kind().kind {
            Cow::Borrowed(kind) => kind,
            Cow::Owned(_) => "object",
        };
        cache.subscribe(move |change| {
            let reason = match change.cause {
                Cause::Initial => Reason::Start,
                Cause::Relist => Reason::Resync,
                Cause::Watch | Cause::Write => Reason::Changed(kind),
            };
            for root in roots_of(change) {
                trigger.queue.add(trigger.lane, root, reason);
            }
        });
        let (first, again) = (cache.clone(), cache.clone());
        self.synced.push(async move { first.synced().await }.boxed());
        self.caught_up.push(async move { again.caught_up().await }.boxed());
        self
    }

    /// A handle by which something outside (a poller) makes the controller look at a root.
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    /// The controller is complete: it begins when its caches are. Where replicas take turns, it first makes sure
    /// that they show what the last leader did: a cache that lags behind would make it do the same again.
    pub fn done(self) {
        let Self { shared, name, trigger, synced, caught_up } = self;
        let (tasks, leadership) = (shared.tasks.clone(), shared.leadership.clone());
        let knows_everything = async move {
            join_all(synced).await;
            if leadership.is_contended() {
                leadership.acquired().await;
                join_all(caught_up).await;
            }
        };
        shared.tasks.spawn(format!("start of {name}"), async move {
            tokio::select! {
                () = tasks.stopping() => {}
                () = knows_everything => trigger.queue.open(trigger.lane),
            }
        });
    }
}

/// Makes a controller look at a root.
#[derive(Clone)]
pub struct Trigger {
    queue: Queue,
    lane: LaneId,
}

impl Trigger {
    /// Look at `root`, because `what` changed.
    pub fn changed(&self, root: ObjectKey, what: &'static str) {
        self.queue.add(self.lane, root, Reason::Changed(what));
    }
}

/// One worker: turn after turn, of whatever controller is next.
async fn work(shared: Arc<Shared>) {
    let workers = shared.workers.clone();
    tokio::select! {
        () = workers.stopping() => return,
        () = shared.leadership.acquired() => {}
    }
    while let Some(job) = shared.queue.next().await {
        let reconciler = shared.reconcilers.read().get(job.lane.index()).cloned();
        let Some(reconciler) = reconciler else { return };
        let outcome = turn(&shared, &*reconciler, &job).await;
        shared.queue.finish(job, outcome);
    }
}

/// One turn of one object, whatever happens in it.
async fn turn(shared: &Shared, reconciler: &dyn Reconciler, job: &Job) -> Outcome {
    let name = reconciler.name();
    let span = tracing::info_span!("reconcile", controller = name, object = %job.key, reason = ?job.reason);
    let started = Instant::now();
    shared.metrics.active(name, 1);
    let reconcile = AssertUnwindSafe(reconciler.reconcile(&job.key)).catch_unwind();
    let result =
        tokio::time::timeout(shared.settings.turn_deadline, reconcile.instrument(span.clone())).await;
    shared.metrics.active(name, -1);
    let attempt = || format!("cannot reconcile {} {}", reconciler.kind(), job.key);
    let result = match result {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            shared.metrics.panicked(name);
            Err(Error::new(Class::Bug, attempt(), format!("panic: {}", panic_text(&*panic))).into())
        }
        Err(_) => {
            let cause = format!("not finished after {:?}", shared.settings.turn_deadline);
            Err(Error::new(Class::Transient, attempt(), cause).into())
        }
    };
    let took = started.elapsed();
    match result {
        Ok(outcome) => {
            let label = match outcome {
                Outcome::After(_) => "requeue_after",
                Outcome::Again => "requeue",
                Outcome::Done | Outcome::Failed(..) => "success",
            };
            shared.metrics.reconciled(name, label, took);
            outcome
        }
        Err(FailedTurn { error, next }) => {
            shared.metrics.reconciled(name, "error", took);
            shared.metrics.failed(name, error.class());
            span.in_scope(|| match error.class() {
                Class::Conflict => tracing::debug!(failures = job.failures, "{error}"),
                Class::Bug => tracing::error!(failures = job.failures, "{error}"),
                _ => tracing::warn!(failures = job.failures, "{error}"),
            });
            if error.class().deserves_event() {
                let event = Event::warning("ReconcileFailed", "Reconcile", error.to_string());
                report(shared, reconciler, regarding(shared, reconciler, &job.key).as_ref(), &[event]);
            }
            let next = match next {
                Next::AwaitChange => None,
                Next::After(wait) => Some(wait),
            };
            Outcome::Failed(Failure { class: error.class(), asked: error.retry_after(), next })
        }
    }
}

/// The root as events name it, while it is there.
fn regarding(shared: &Shared, reconciler: &dyn Reconciler, key: &ObjectKey) -> Option<Regarding> {
    match shared.caches.knowledge(reconciler.kind(), key, &BTreeMap::new()) {
        Knowledge::Present(known) => {
            Some(Regarding { kind: reconciler.kind().clone(), key: key.clone(), uid: known.uid })
        }
        Knowledge::Absent | Knowledge::Unknown => None,
    }
}

/// Records events about a root.
fn report(shared: &Shared, reconciler: &dyn Reconciler, regarding: Option<&Regarding>, events: &[Event]) {
    for event in events {
        if let Some(regarding) = regarding {
            shared.recorder.record(reconciler.name(), regarding.clone(), event.clone());
        }
    }
}

/// A turn that failed, and when its plan wanted to look again.
struct FailedTurn {
    error: Error,
    next: Next,
}

impl From<Error> for FailedTurn {
    fn from(error: Error) -> Self {
        Self { error, next: Next::AwaitChange }
    }
}

/// A controller without its type.
trait Reconciler: Send + Sync {
    fn name(&self) -> &'static str;
    fn kind(&self) -> &ApiKind;
    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, FailedTurn>>;
}

struct Running<C> {
    controller: C,
    kind: ApiKind,
    shared: std::sync::Weak<Shared>,
}

impl<C: Controller> Reconciler for Running<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn kind(&self) -> &ApiKind {
        &self.kind
    }

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, FailedTurn>> {
        async move {
            let Some(shared) = self.shared.upgrade() else {
                return Ok(Outcome::Done);
            };
            let Some(seen) = self.controller.observe(key).await? else {
                return Ok(Outcome::Done);
            };
            let plan = self.controller.plan(&seen);
            for step in &plan.steps {
                tracing::debug!(step = %step.action, "planned");
            }
            let call = |name: String, input: Value| async move { self.controller.call(&name, &input).await };
            // Before anything is written: the plan may let the root go.
            let regarding = regarding(&shared, self, key);
            let tell = |event: &Event| report(&shared, self, regarding.as_ref(), std::slice::from_ref(event));
            let written = match shared.executor.act_out(&plan.steps, call, tell).await {
                Ok(written) => written,
                Err(failed) => {
                    let setback = self.controller.setback(&seen, &failed.action, &failed.error);
                    report(&shared, self, regarding.as_ref(), &setback.events);
                    // The failure that counts is the first one.
                    let status = setback.status.as_ref();
                    let _ = shared.executor.set_status(&self.kind, key, status, Vec::new()).await;
                    return Err(FailedTurn { error: failed.error, next: plan.next });
                }
            };
            // The steps took place, whatever becomes of the status.
            report(&shared, self, regarding.as_ref(), &plan.events);
            let done = shared.executor.set_status(&self.kind, key, plan.status.as_ref(), written).await;
            let done = done.map_err(|error| FailedTurn { error, next: plan.next })?;
            Ok(match plan.next {
                _ if done.status_waits => Outcome::Again,
                Next::AwaitChange => Outcome::Done,
                Next::After(wait) => Outcome::After(wait),
            })
        }
        .boxed()
    }
}
