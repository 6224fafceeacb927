//! One reconcile: observe, plan, carry out, write the status, record the events.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared as SharedFuture},
};
use tokio::time::Instant;
use tracing::Instrument;

use super::{Controller, Explanation, Shared, explain};
use crate::{
    cache::Knowledge,
    error::{Class, Error},
    object::{ApiKind, ObjectKey},
    plan::{Event, Next, NoCall, Regarding},
    queue::{Failure, Job, Outcome},
    tasks::panic_text,
};

/// A controller that was added to the runtime.
pub(super) struct Added {
    pub(super) reconciler: Arc<dyn Reconciler>,
    /// Resolves when its caches are synced; known once it is set up.
    pub(super) synced: Option<SharedFuture<BoxFuture<'static, ()>>>,
}

/// A controller without its type.
pub(super) trait Reconciler: Send + Sync {
    fn name(&self) -> &'static str;
    fn kind(&self) -> &ApiKind;
    fn reconcile<'a>(&'a self, job: &'a Job) -> BoxFuture<'a, Result<Outcome, FailedReconcile>>;
    fn explain<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Explanation>, Error>>;
}

pub(super) struct Running<C> {
    pub(super) controller: C,
    pub(super) kind: ApiKind,
    pub(super) shared: Weak<Shared>,
}

/// A reconcile that failed, and when its plan wanted to be requeued.
pub(super) struct FailedReconcile {
    error: Error,
    next: Next,
    /// The controller has recorded events about the failure.
    is_reported: bool,
}

impl From<Error> for FailedReconcile {
    fn from(error: Error) -> Self {
        Self { error, next: Next::AwaitChange, is_reported: false }
    }
}

/// Starts a task for every object that the queue gives out. The queue bounds how many there are at a time: the
/// `concurrency` of each controller.
pub(super) async fn dispatch(shared: Arc<Shared>) {
    tokio::select! {
        () = shared.reconciles.stopping() => return,
        () = shared.leadership.acquired() => {}
    }
    while let Some(job) = shared.queue.next().await {
        let reconciler =
            shared.controllers.read().get(job.lane.index()).map(|added| Arc::clone(&added.reconciler));
        let Some(reconciler) = reconciler else { return };
        let name = format!("reconcile of {} {}", reconciler.kind(), job.key);
        let in_task = Arc::clone(&shared);
        shared.reconciles.spawn(name, async move {
            let outcome = run(&in_task, &*reconciler, &job).await;
            in_task.queue.finish(job, outcome);
        });
    }
}

/// One reconcile, whatever happens in it.
async fn run(shared: &Shared, reconciler: &dyn Reconciler, job: &Job) -> Outcome {
    let name = reconciler.name();
    let span = tracing::info_span!("reconcile", controller = name, object = %job.key, reason = ?job.reason);
    let started = Instant::now();
    shared.metrics.active(name, 1);
    let deadline = shared.settings.reconcile_deadline;
    let reconcile = AssertUnwindSafe(reconciler.reconcile(job)).catch_unwind();
    let result = tokio::time::timeout(deadline, reconcile.instrument(span.clone())).await;
    shared.metrics.active(name, -1);
    let attempt = || format!("cannot reconcile {} {}", reconciler.kind(), job.key);
    let result = match result {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            shared.metrics.panicked(name);
            Err(Error::new(Class::Bug, attempt(), format!("panic: {}", panic_text(&*panic))).into())
        }
        Err(_) => {
            Err(Error::new(Class::Transient, attempt(), format!("not finished after {deadline:?}")).into())
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
        Err(FailedReconcile { error, next, is_reported }) => {
            shared.metrics.reconciled(name, "error", took);
            span.in_scope(|| report_error(shared, reconciler, job, &error));
            if error.class().deserves_event() && !is_reported && !error.is_namespace_terminating() {
                let event = Event::warning("ReconcileFailed", "Reconcile", error.to_string());
                record(shared, reconciler, regarding(shared, reconciler, &job.key).as_ref(), &[event]);
            }
            let next = match next {
                Next::AwaitChange => None,
                Next::After(wait) => Some(wait),
            };
            Outcome::Failed(Failure { class: error.class(), asked: error.retry_after(), next })
        }
    }
}

fn report_error(shared: &Shared, reconciler: &dyn Reconciler, job: &Job, error: &Error) {
    shared.metrics.failed(reconciler.name(), error.class());
    match error.class() {
        Class::Conflict => tracing::debug!(failures = job.failures, "{error}"),
        _ if error.is_quiet() => tracing::debug!(failures = job.failures, "{error}"),
        Class::Bug => tracing::error!(failures = job.failures, "{error}"),
        _ => tracing::warn!(failures = job.failures, "{error}"),
    }
}

/// The root as events name it, while it exists.
fn regarding(shared: &Shared, reconciler: &dyn Reconciler, key: &ObjectKey) -> Option<Regarding> {
    match shared.caches.knowledge(reconciler.kind(), key, &BTreeMap::new()) {
        Knowledge::Present(known) => {
            Some(Regarding { kind: reconciler.kind().clone(), key: key.clone(), uid: known.uid })
        }
        Knowledge::Absent | Knowledge::Unknown => None,
    }
}

/// Records events about a root, or about the objects that they name.
fn record(shared: &Shared, reconciler: &dyn Reconciler, root: Option<&Regarding>, events: &[Event]) {
    for event in events {
        if let Some(regarding) = event.regarding.as_deref().or(root) {
            shared.recorder.record(reconciler.name(), regarding.clone(), event.clone());
        }
    }
}

impl<C: Controller> Running<C> {
    /// Makes a call. It may be slow, so the object no longer counts against the concurrency of its controller, and takes a
    /// permit of the calls instead. It stays in progress: nothing else reconciles it meanwhile.
    async fn call(&self, shared: &Shared, job: &Job, call: &C::Call) -> Result<(), Error> {
        shared.queue.release_slot(job);
        // Never closed.
        let _permit = shared.calls.acquire().await;
        if shared.leadership.time_left(Instant::now()).is_zero() {
            let cause = "this replica no longer holds the lease";
            return Err(Error::new(Class::Transient, format!("cannot {call}"), cause));
        }
        self.controller.call(call).await
    }

    async fn observe_and_act(&self, shared: &Shared, job: &Job) -> Result<Outcome, FailedReconcile> {
        let key = &job.key;
        let Some(observed) = self.controller.observe(key).await? else {
            return Ok(Outcome::Done);
        };
        let plan = C::plan(&observed);
        for step in &plan.steps {
            tracing::debug!(step = %step.action, "planned");
        }
        // Before anything is written: the plan may remove the last finalizer of the root.
        let regarding = regarding(shared, self, key);
        let record = |events: &[Event]| record(shared, self, regarding.as_ref(), events);
        let call = |call: C::Call| async move { self.call(shared, job, &call).await };
        let step_done = |event: &Event| record(std::slice::from_ref(event));
        let written = match shared.executor.act_out(&plan.steps, call, step_done).await {
            Ok(written) => written,
            Err(failed) => {
                let on_error = C::on_error(&observed, &failed.action, &failed.error);
                if let Some(action) = on_error.instead {
                    let no_call = |call: NoCall| async move { match call {} };
                    let done = shared.executor.act_out(&[action.into()], no_call, step_done).await;
                    done.map_err(|failed| failed.error)?;
                }
                let status = on_error.status.as_ref();
                let written = shared.executor.set_status(&self.kind, key, status, Vec::new()).await;
                if let Some(next) = on_error.requeue {
                    written?;
                    record(&on_error.events);
                    return Ok(outcome(next));
                }
                // The error that counts is the first one: that of the status is dropped.
                // A stale read is retried with a newer state, and is nothing that users should fix.
                if !failed.error.is_stale_read() {
                    record(&on_error.events);
                }
                let is_reported = !on_error.events.is_empty();
                return Err(FailedReconcile { error: failed.error, next: plan.next, is_reported });
            }
        };
        let done = shared.executor.set_status(&self.kind, key, plan.status.as_ref(), written).await;
        let done = done.map_err(|error| FailedReconcile { error, next: plan.next, is_reported: false })?;
        if done.status_waits {
            // The same plan follows, with its events.
            return Ok(Outcome::Again);
        }
        // After the status: on a conflict the plan is made again, and so are its events.
        record(&plan.events);
        Ok(outcome(plan.next))
    }
}

fn outcome(next: Next) -> Outcome {
    match next {
        Next::AwaitChange => Outcome::Done,
        Next::After(wait) => Outcome::After(wait),
    }
}

impl<C: Controller> Reconciler for Running<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn kind(&self) -> &ApiKind {
        &self.kind
    }

    fn reconcile<'a>(&'a self, job: &'a Job) -> BoxFuture<'a, Result<Outcome, FailedReconcile>> {
        async move {
            match self.shared.upgrade() {
                Some(shared) => self.observe_and_act(&shared, job).await,
                None => Ok(Outcome::Done),
            }
        }
        .boxed()
    }

    fn explain<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Explanation>, Error>> {
        explain::explain(&self.controller, key).boxed()
    }
}
