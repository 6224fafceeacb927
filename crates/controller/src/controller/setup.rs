//! Setting up a controller: what enqueues its roots, and when it may begin.

use std::{borrow::Cow, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};

use super::Shared;
use crate::{
    cache::{Cache, Cause, Change, Entry},
    object::ObjectKey,
    queue::{LaneId, Queue, Reason},
};

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
    pub(super) fn new(shared: Arc<Shared>, name: &'static str, lane: LaneId) -> Self {
        let trigger = Trigger { queue: shared.queue.clone(), lane };
        Self { shared, name, trigger, synced: Vec::new(), caught_up: Vec::new() }
    }

    /// Enqueues the roots that `roots_of` names whenever an object in `cache` changes, whether they are named
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
        self,
        cache: &Cache<T>,
        roots_of: impl Fn(&Change<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watches_batches(cache, Duration::ZERO, roots_of)
    }

    /// Like [`Setup::watches_changes`], but a root is enqueued so long after the first change: those that follow are of the
    /// same reconcile.
    pub fn watches_batches<T: Send + Sync + 'static>(
        mut self,
        cache: &Cache<T>,
        period: Duration,
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
            let is_batched = !period.is_zero() && matches!(reason, Reason::Changed(_));
            for root in roots_of(change) {
                if is_batched {
                    trigger.queue.add_after(trigger.lane, root, period);
                } else {
                    trigger.queue.add(trigger.lane, root, reason);
                }
            }
        });
        let (first, again) = (cache.clone(), cache.clone());
        self.synced.push(async move { first.synced().await }.boxed());
        self.caught_up.push(async move { again.caught_up().await }.boxed());
        self
    }

    /// Enqueues the roots that `roots` names whenever the cluster begins or ceases to serve the kind of an
    /// [optional](crate::cache::WatchSpec::optional) cache. Changes of its objects are another matter: see [`Setup::watches`].
    pub fn watches_presence<T: Send + Sync + 'static>(
        self,
        cache: &Cache<T>,
        roots: impl Fn() -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let (trigger, cache, tasks) = (self.trigger.clone(), cache.clone(), self.shared.tasks.clone());
        let follow = async move {
            cache.synced().await;
            let mut served = cache.is_served();
            loop {
                cache.served_differs(served).await;
                served = !served;
                for root in roots() {
                    trigger.changed(root, "API");
                }
            }
        };
        self.shared.tasks.spawn(format!("served kinds of {}", self.name), async move {
            tokio::select! {
                () = tasks.stopping() => {}
                () = follow => {}
            }
        });
        self
    }

    /// A handle by which something else (a poller) enqueues roots.
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    /// The controller is complete: it begins when its caches are synced. Where replicas contend for the lease, it
    /// first makes sure that the caches show what the last leader did: a cache that lags behind would make it do
    /// the same again.
    pub fn done(self) {
        let Self { shared, name, trigger, synced, caught_up } = self;
        let (tasks, leadership) = (shared.tasks.clone(), shared.leadership.clone());
        let synced = join_all(synced).map(|_| ()).boxed().shared();
        if let Some(added) = shared.controllers.write().get_mut(trigger.lane.index()) {
            added.synced = Some(synced.clone());
        }
        let is_up_to_date = async move {
            synced.await;
            if leadership.is_contended() {
                leadership.acquired().await;
                join_all(caught_up).await;
            }
        };
        shared.tasks.spawn(format!("start of {name}"), async move {
            tokio::select! {
                () = tasks.stopping() => {}
                () = is_up_to_date => trigger.queue.open(trigger.lane),
            }
        });
    }
}

/// Enqueues roots of one controller.
#[derive(Clone)]
pub struct Trigger {
    queue: Queue,
    lane: LaneId,
}

impl Trigger {
    /// Enqueues `root`, because `what` changed.
    pub fn changed(&self, root: ObjectKey, what: &'static str) {
        self.queue.add(self.lane, root, Reason::Changed(what));
    }
}
