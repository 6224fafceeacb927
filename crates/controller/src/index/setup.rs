//! How an index is added to a runtime, and talked to afterwards.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{sync::oneshot, time::Instant};

use super::{
    Audit, Index, Update,
    audit::Snapshot,
    inbox::{Inbox, Message, SourceId},
    owner::{Owner, State},
    slots::Slots,
    writer::Writer,
};
use crate::{
    Runtime,
    cache::Cache,
    clock::Clock,
    queue::{LaneReport, Queue},
};

/// How an index is run.
#[derive(Clone, Debug)]
pub struct IndexSettings {
    /// Writes inflight at the same time.
    pub parallelism: usize,
    /// Writes that wait or are inflight before the index is asked to decide no more.
    pub capacity: usize,
    /// Attempts for one write while the API server is unreachable, fails or throttles. After that its outcome is
    /// [`WriteOutcome::Lost`](super::WriteOutcome::Lost).
    pub attempts: u32,
    /// A write that is not finished after this long has failed.
    pub timeout: Duration,
    /// How long an attempt without an answer may still take effect.
    pub straggler: Duration,
    /// How often the index is compared with one rebuilt from the caches; `None` leaves that to
    /// [`IndexHandle::audit`].
    pub audit_interval: Option<Duration>,
    /// Makes the jitter of backoffs repeatable.
    pub seed: Option<u64>,
}

impl Default for IndexSettings {
    /// Half of the workers of a runtime. Room for a second of decisions at a thousand writes a second. Five attempts take
    /// three seconds if the API server answers at once, which outlasts the restart of a connection. A write is at most two
    /// requests of 30 seconds, and the API server gives up requests after 60 seconds. An audit of 100,000 objects takes
    /// less than a second.
    fn default() -> Self {
        Self {
            parallelism: 16,
            capacity: 1024,
            attempts: 5,
            timeout: Duration::from_mins(1),
            straggler: Duration::from_mins(1),
            audit_interval: Some(Duration::from_hours(1)),
            seed: None,
        }
    }
}

/// An index being set up. Dropping it without [`IndexSetup::start`] leaves it idle.
#[must_use = "the index stays idle until `start` is called"]
pub struct IndexSetup<I: Index> {
    runtime: Runtime,
    clock: Clock,
    index: I,
    settings: IndexSettings,
    inbox: Arc<Inbox<I>>,
    snapshots: Vec<Snapshot<I>>,
    synced: Vec<BoxFuture<'static, ()>>,
    caught_up: Vec<BoxFuture<'static, ()>>,
}

impl<I: Index> IndexSetup<I> {
    /// An index without objects.
    pub fn new(runtime: &Runtime, clock: &Clock, settings: IndexSettings, index: I) -> Self {
        Self {
            runtime: runtime.clone(),
            clock: clock.clone(),
            index,
            settings,
            inbox: Arc::new(Inbox::new()),
            snapshots: Vec::new(),
            synced: Vec::new(),
            caught_up: Vec::new(),
        }
    }

    /// Feeds the index with the objects of a cache, as `event` makes events of them. `event` runs in the way of the
    /// watch and has to be quick.
    pub fn feed<T: Send + Sync + 'static>(
        mut self,
        cache: &Cache<T>,
        event: impl Fn(Update<T>) -> I::Event + Clone + Send + Sync + 'static,
    ) -> Self {
        let (source, inbox, to_event) =
            (SourceId(self.snapshots.len()), Arc::clone(&self.inbox), event.clone());
        cache.subscribe(move |change| {
            let update = match (&change.new, &change.old) {
                (Some(entry), _) => Update::Applied(Arc::clone(entry)),
                (None, Some(entry)) => Update::Deleted(entry.key.clone()),
                (None, None) => return,
            };
            inbox.event(source, update.key().clone(), to_event(update));
        });
        let told = cache.clone();
        self.snapshots.push(Box::new(move || {
            told.told().into_iter().map(|entry| event(Update::Applied(entry))).collect()
        }));
        let (first, again) = (cache.clone(), cache.clone());
        self.synced.push(async move { first.synced().await }.boxed());
        self.caught_up.push(async move { again.caught_up().await }.boxed());
        self
    }

    /// Starts the owner task and the writer. The index decides as soon as its caches are complete, the lease is held and
    /// the caches show what the previous leader wrote.
    pub fn start(self) -> IndexHandle<I> {
        let Self { runtime, clock, index, settings, inbox, snapshots, synced, caught_up } = self;
        let (executor, leadership, recorder, metrics, workers) = runtime.index_parts();
        let of_index = metrics.index.of(I::NAME);
        let writer = Arc::new(Writer {
            executor,
            caches: runtime.caches().clone(),
            leadership: leadership.clone(),
            recorder,
            metrics: of_index.clone(),
            inbox: Arc::clone(&inbox),
            queue: Queue::new(metrics, settings.seed),
            lanes: Mutex::default(),
            slots: Mutex::new(Slots::new(settings.straggler)),
            settings: settings.clone(),
        });
        writer.start(&workers);
        let now = Instant::now();
        let owner = Owner {
            index,
            clock,
            inbox: Arc::clone(&inbox),
            writer: Arc::clone(&writer),
            snapshots,
            metrics: of_index,
            audit_interval: settings.audit_interval,
            state: State {
                leads: false,
                is_due: false,
                has_more: false,
                decided: now,
                next_audit: settings.audit_interval.map(|interval| now + interval),
            },
        };
        let knows_everything = async move {
            join_all(synced).await;
            if leadership.is_contended() {
                leadership.acquired().await;
                join_all(caught_up).await;
            }
        };
        let tasks = runtime.tasks().clone();
        runtime.tasks().spawn(format!("index {}", I::NAME), async move {
            tokio::select! {
                () = tasks.stopping() => {}
                () = owner.run(knows_everything.boxed()) => {}
            }
        });
        let handle = IndexHandle { inbox, writer };
        let reported = handle.clone();
        runtime.report_index(move || reported.report());
        handle
    }
}

/// A running index.
pub struct IndexHandle<I: Index> {
    inbox: Arc<Inbox<I>>,
    writer: Arc<Writer<I>>,
}

impl<I: Index> Clone for IndexHandle<I> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox), writer: Arc::clone(&self.writer) }
    }
}

/// An index as debug state shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexReport {
    /// Its name.
    pub index: &'static str,
    /// Writes that wait or are inflight.
    pub outstanding: usize,
    /// How many more there is room for.
    pub room: usize,
    /// Objects with writes, a lane for each kind.
    pub lanes: Vec<LaneReport>,
}

impl<I: Index> IndexHandle<I> {
    /// Reads the index, between two steps of its task. `None` if that task has ended.
    pub async fn read<R: Send + 'static>(&self, read: impl FnOnce(&I) -> R + Send + 'static) -> Option<R> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(Message::Read(Box::new(move |index| drop(answer.send(read(index))))));
        answered.await.ok()
    }

    /// Compares the index with one rebuilt from the caches. `None` if its task has ended.
    pub async fn audit(&self) -> Option<Audit> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(Message::Audit(answer));
        answered.await.ok()
    }

    /// What to show in debug state.
    pub fn report(&self) -> IndexReport {
        IndexReport {
            index: I::NAME,
            outstanding: self.writer.counts().outstanding,
            room: self.writer.room(),
            lanes: self.writer.queue.report(),
        }
    }
}
