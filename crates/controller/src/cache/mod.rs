//! Shared informer caches: one list and watch per kind and selector for the whole process.
//!
//! A cache holds what its kind's projection keeps of every selected object, finds objects by key and
//! by index without scanning, and tells its subscribers of every change. It moves forward only:
//! responses to our own writes enter at once (see [`Caches::written`]), and a watch that lags behind them
//! changes nothing until it has caught up. So a controller never acts on a state older than its own
//! last write.
//!
//! ```text
//!   list, watch ──┐                      ┌── by key, by index
//!                 ├─> rules of `store` ──┤
//!   own writes ───┘                      └── subscribers: enqueue owners, feed an index
//! ```

mod metadata;
mod registry;
mod report;
mod selector;
mod spec;
mod store;
mod watch;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch as signal, time::Instant};

pub use metadata::{ObjectMetadata, Owner};
pub use registry::{Caches, Knowledge, Known};
pub use report::{Phase, WatchReport};
pub use selector::Selector;
pub use spec::WatchSpec;
pub use store::{Cause, Change, Entry, IndexFn};

use crate::{
    metrics::Metrics,
    object::{ApiKind, Form, Head, ObjectKey, ResourceVersion, Uid},
};
use store::Store;

#[cfg(test)]
mod tests;

/// One kind's cache, shared by all who watch the same kind and selector.
pub struct Cache<T>(Arc<Inner<T>>);

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

type Subscriber<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

struct Inner<T> {
    spec: WatchSpec<T>,
    store: RwLock<Store<T>>,
    /// Held while the store changes and subscribers are called, so that they see changes in order, and may read
    /// the cache.
    subscribers: Mutex<Vec<Subscriber<T>>>,
    health: Mutex<Health>,
    /// By stream.
    progress: signal::Sender<Vec<Progress>>,
    /// Whether every stream has to make sure that it misses nothing.
    must_catch_up: signal::Sender<bool>,
    metrics: Arc<Metrics>,
}

/// The progress of one of the watches that feed a cache.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "facts about a watch that change independently")]
struct Progress {
    /// Its first list is complete.
    synced: bool,
    /// It has shown everything that existed when it was asked to catch up.
    caught_up: bool,
    /// The server serves the kind.
    served: bool,
    /// The last request failed, or the server does not serve the kind.
    failing: bool,
}

/// What the watches that feed a cache are worth at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheHealth {
    /// The first list is not complete.
    Syncing,
    /// It follows the server.
    Synced,
    /// The last request failed, or the server does not serve a kind that has to exist: see [`Cache::failure`].
    Failing,
}

impl CacheHealth {
    fn of(streams: &[Progress]) -> Self {
        if streams.iter().any(|stream| stream.failing) {
            Self::Failing
        } else if streams.iter().all(|stream| stream.synced) {
            Self::Synced
        } else {
            Self::Syncing
        }
    }
}

struct Health {
    /// By stream.
    phases: Vec<Phase>,
    last_event: Option<Instant>,
    lists: u64,
    unreadable: HashMap<String, String>,
}

/// A cache without its type, for writes and reports.
trait AnyCache: Send + Sync {
    fn form(&self) -> Form;
    fn written(&self, head: &Head<'_>);
    fn deleted(&self, key: &ObjectKey, uid: &Uid);
    fn applied(&self, key: &ObjectKey, version: ResourceVersion, hash: u64);
    fn knowledge(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> Knowledge;
    fn report(&self) -> WatchReport;
    fn missing(&self) -> Option<String>;
}

impl<T: Send + Sync + 'static> Cache<T> {
    /// The kind it holds.
    pub fn kind(&self) -> &ApiKind {
        &self.0.spec.kind
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Entry<T>>> {
        self.0.store.read().get(key).cloned()
    }

    /// The objects under `key` of an index, ordered by their own keys.
    pub fn by_index(&self, index: &str, key: &str) -> Vec<Arc<Entry<T>>> {
        let found = self.0.store.read().by_index(index, key);
        found.unwrap_or_else(|| {
            tracing::error!(kind = %self.0.spec.kind, index, "lookup by an index that does not exist");
            Vec::new()
        })
    }

    /// All objects, ordered by key.
    pub fn all(&self) -> Vec<Arc<Entry<T>>> {
        let mut all: Vec<_> = self.0.store.read().entries().cloned().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// All objects as subscribers have been told of them, ordered by key: no change is told by half.
    pub(crate) fn told(&self) -> Vec<Arc<Entry<T>>> {
        let _telling = self.0.subscribers.lock();
        self.all()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.store.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `subscriber` with every change from now on, after a first round with what is there already.
    ///
    /// It blocks the watch: it may read caches, and has to be quick.
    pub fn subscribe(&self, subscriber: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let mut subscribers = self.0.subscribers.lock();
        let present: Vec<_> = self.0.store.read().entries().cloned().collect();
        for entry in present {
            subscriber(&Change { old: None, new: Some(entry), cause: Cause::Initial });
        }
        subscribers.push(Box::new(subscriber));
    }

    /// Resolves when the first list is complete, or an optional kind is known to be absent.
    pub async fn synced(&self) {
        let mut progress = self.0.progress.subscribe();
        // The sender is part of the cache, so it exists.
        let _ = progress.wait_for(|streams| streams.iter().all(|stream| stream.synced)).await;
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        self.0.is_synced()
    }

    /// Whether the cluster serves the kind, as far as the watch knows. Kinds that are not
    /// [optional](WatchSpec::optional) are waited for instead.
    pub fn is_served(&self) -> bool {
        self.0.progress.borrow().iter().any(|stream| stream.served)
    }

    /// What its watches are worth at the moment.
    pub fn health(&self) -> CacheHealth {
        CacheHealth::of(&self.0.progress.borrow())
    }

    /// Resolves when [`Cache::health`] no longer equals `health`.
    pub async fn health_differs(&self, health: CacheHealth) {
        let mut progress = self.0.progress.subscribe();
        let _ = progress.wait_for(|streams| CacheHealth::of(streams) != health).await;
    }

    /// Why it does not follow the server, while it does not.
    pub fn failure(&self) -> Option<String> {
        match self.0.health.lock().worst() {
            Phase::Failing(error) => Some(error),
            Phase::Absent if !self.0.spec.optional => {
                Some(format!("the cluster does not serve {}: install its CRD", self.0.spec.kind))
            }
            _ => None,
        }
    }

    /// Resolves when [`Cache::is_served`] no longer equals `served`.
    pub(crate) async fn served_differs(&self, served: bool) {
        let mut progress = self.0.progress.subscribe();
        let _ = progress.wait_for(|streams| streams.iter().any(|stream| stream.served) != served).await;
    }

    /// Resolves when the cache shows everything that others had written before the first call: a watch may lag behind,
    /// and a new leader has to know what the last one did.
    pub async fn caught_up(&self) {
        self.0.must_catch_up.send_if_modified(|asked| !std::mem::replace(asked, true));
        let mut progress = self.0.progress.subscribe();
        let _ = progress.wait_for(|streams| streams.iter().all(|stream| stream.caught_up)).await;
    }

    /// The state of the watch.
    pub fn report(&self) -> WatchReport {
        self.0.report()
    }
}

impl<T: Send + Sync + 'static> Inner<T> {
    /// Changes the store and calls the subscribers.
    fn update<C>(&self, change: impl FnOnce(&mut Store<T>) -> C)
    where
        C: IntoIterator<Item = Change<T>>,
    {
        let subscribers = self.subscribers.lock();
        let changes = change(&mut self.store.write());
        for change in changes {
            for subscriber in &*subscribers {
                subscriber(&change);
            }
        }
    }

    /// Decodes an object. One that cannot be decoded is counted and reported, and its last state is kept.
    fn decode(&self, head: &Head<'_>) -> Option<Entry<T>> {
        let object = (self.spec.project)(&head.lean_text());
        let mut health = self.health.lock();
        match object {
            Ok(object) => {
                if !health.unreadable.is_empty() {
                    health.unreadable.remove(head.key.as_str());
                }
                Some(Entry {
                    key: head.key.clone(),
                    uid: head.uid.clone(),
                    version: head.version,
                    content: head.content,
                    deleting: head.deleting,
                    object,
                    applied: AtomicU64::new(0),
                })
            }
            Err(error) => {
                health.note_unreadable(&self.spec.kind, head.key.as_str(), &error);
                self.metrics.unreadable(&self.spec.kind);
                None
            }
        }
    }

    fn is_synced(&self) -> bool {
        self.progress.borrow().iter().all(|stream| stream.synced)
    }

    fn selects(&self, head: &Head<'_>) -> bool {
        let selector = &self.spec.selector;
        let labels = if selector.has_rules() { head.labels() } else { Ok(BTreeMap::new()) };
        match labels {
            Ok(labels) => selector.matches(&head.key, &labels),
            Err(error) => {
                self.health.lock().note_unreadable(&self.spec.kind, head.key.as_str(), &error);
                self.metrics.unreadable(&self.spec.kind);
                false
            }
        }
    }
}

impl Health {
    /// The worst phase of all streams.
    fn worst(&self) -> Phase {
        worst(self.phases.iter()).unwrap_or(Phase::Starting)
    }

    fn note_unreadable(&mut self, kind: &ApiKind, name: &str, error: &serde_json::Error) {
        let text = error.to_string();
        if self.unreadable.get(name) != Some(&text) {
            tracing::warn!(%kind, object = name, "object cannot be decoded and is left out: {text}");
            self.unreadable.insert(name.to_owned(), text);
        }
    }
}

fn worst<'a>(phases: impl Iterator<Item = &'a Phase>) -> Option<Phase> {
    let severity = |phase: &&Phase| match phase {
        Phase::Watching => 0,
        Phase::Starting => 1,
        Phase::Absent => 2,
        Phase::Failing(_) => 3,
    };
    phases.max_by_key(severity).cloned()
}

impl<T: Send + Sync + 'static> AnyCache for Inner<T> {
    fn form(&self) -> Form {
        self.spec.form
    }

    fn written(&self, head: &Head<'_>) {
        if self.selects(head) {
            if let Some(entry) = self.decode(head) {
                self.update(|store| store.put(entry, Cause::Write));
            }
        } else {
            self.update(|store| store.add_tombstone(&head.key, &head.uid, head.version));
        }
    }

    fn deleted(&self, key: &ObjectKey, uid: &Uid) {
        self.update(|store| store.add_tombstone(key, uid, ResourceVersion(u64::MAX)));
    }

    fn applied(&self, key: &ObjectKey, version: ResourceVersion, hash: u64) {
        if let Some(entry) = self.store.read().get(key)
            && entry.version == version
        {
            entry.applied.store(hash, Ordering::Relaxed);
        }
    }

    fn knowledge(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> Knowledge {
        match self.store.read().get(key) {
            Some(entry) => Knowledge::Present(Known {
                uid: entry.uid.clone(),
                version: entry.version,
                applied: entry.applied.load(Ordering::Relaxed),
            }),
            // A selector says nothing about objects outside of it.
            None if self.is_synced() && self.spec.selector.matches(key, labels) => Knowledge::Absent,
            None => Knowledge::Unknown,
        }
    }

    fn report(&self) -> WatchReport {
        let (objects, checksum, expected_gone) = {
            let store = self.store.read();
            (store.len(), store.checksum(), store.tombstones().cloned().collect())
        };
        let health = self.health.lock();
        WatchReport {
            kind: self.spec.kind.to_string(),
            selector: self.spec.selector.clone(),
            form: self.spec.form,
            phase: health.worst(),
            optional: self.spec.optional,
            objects,
            checksum: format!("{checksum:016x}"),
            last_event_seconds: health.last_event.map(|at| at.elapsed().as_secs_f64()),
            lists: health.lists,
            unreadable: health.unreadable.clone(),
            expected_gone,
        }
    }

    fn missing(&self) -> Option<String> {
        let (kind, must_catch_up) = (&self.spec.kind, *self.must_catch_up.borrow());
        let streams = self.progress.borrow().clone();
        let health = self.health.lock();
        let lags = |stream: &Progress| !stream.synced || (must_catch_up && !stream.caught_up);
        let lagging = health.phases.iter().zip(&streams).filter(|(_, stream)| lags(stream));
        Some(match worst(lagging.map(|(phase, _)| phase))? {
            Phase::Absent => format!("the cluster does not serve {kind}: install its CRD"),
            Phase::Failing(error) => error,
            Phase::Starting | Phase::Watching if streams.iter().all(|stream| stream.synced) => {
                format!("the list of {kind} that shows what the last leader did is not complete")
            }
            Phase::Starting | Phase::Watching => format!("the first list of {kind} is not complete"),
        })
    }
}
