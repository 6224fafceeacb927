//! The registry of all caches of the process.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch as signal;

use super::{
    AnyCache, Cache, Health, Inner, Phase, Progress, Selector, WatchReport, WatchSpec,
    store::{Store, StreamId},
    watch,
};
use crate::{
    api::Api,
    error::Error,
    metrics::Metrics,
    object::{ApiKind, Form, Head, ObjectKey, ResourceVersion, Uid},
    rng::Rng,
    tasks::Tasks,
};

/// All caches of the process.
#[derive(Clone)]
pub struct Caches(Arc<Registry>);

struct Registry {
    api: Api,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    rng: Rng,
    /// In order of creation; there are tens of them, and lookups happen at startup and for debug state.
    caches: Mutex<Vec<Registered>>,
    /// The namespaces that are watched; all if empty.
    namespaces: Vec<String>,
    /// The caches that take in writes to a kind.
    by_kind: RwLock<HashMap<ApiKind, Vec<Arc<dyn AnyCache>>>>,
}

struct Registered {
    kind: ApiKind,
    selector: Selector,
    form: Form,
    erased: Arc<dyn AnyCache>,
    typed: Arc<dyn Any + Send + Sync>,
}

/// What the caches know of an object, whatever they keep of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Identity.
    pub uid: Uid,
    /// Version.
    pub version: ResourceVersion,
    /// Hash of the configuration we applied last, while the object is still as that apply left it; else zero.
    pub(crate) applied: u64,
}

/// What the caches can say about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// It exists.
    Present(Known),
    /// A synced watch that would select it does not have it.
    Absent,
    /// It is not watched, or the watch is not synced.
    Unknown,
}

impl Knowledge {
    /// What several caches know together. One of them may be behind: then nothing is known to be as we applied it, and
    /// whoever needs to know has to read the object.
    fn combined(answers: impl IntoIterator<Item = Self>) -> Self {
        let (mut newest, mut is_absent) = (None::<Known>, false);
        for answer in answers {
            match answer {
                Self::Present(known) => {
                    let rank = |known: &Known| (known.version, known.applied != 0);
                    if newest.as_ref().is_none_or(|newest| rank(&known) > rank(newest)) {
                        newest = Some(known);
                    }
                }
                Self::Absent => is_absent = true,
                Self::Unknown => {}
            }
        }
        match newest {
            Some(known) if is_absent => Self::Present(Known { applied: 0, ..known }),
            Some(known) => Self::Present(known),
            None if is_absent => Self::Absent,
            None => Self::Unknown,
        }
    }
}

impl Caches {
    /// No caches yet.
    pub fn new(api: Api, tasks: Tasks, metrics: Arc<Metrics>, seed: Option<u64>) -> Self {
        let rng = Rng::seeded_or_entropy(seed);
        let (caches, by_kind) = (Mutex::default(), RwLock::default());
        Self(Arc::new(Registry { api, tasks, metrics, rng, caches, namespaces: Vec::new(), by_kind }))
    }

    /// The same without any watch yet, for these namespaces only, or for all if none are named: namespaced
    /// kinds are watched in each of them.
    #[must_use]
    pub fn in_namespaces(self, namespaces: &[String]) -> Self {
        let mut namespaces = namespaces.to_vec();
        namespaces.sort();
        namespaces.dedup();
        let Registry { api, tasks, metrics, rng, .. } = &*self.0;
        let rng = rng.fork();
        Self(Arc::new(Registry {
            api: api.clone(),
            tasks: tasks.clone(),
            metrics: Arc::clone(metrics),
            rng,
            caches: Mutex::default(),
            namespaces,
            by_kind: RwLock::default(),
        }))
    }

    /// The cache for `spec`: the one that exists already, with the indexes it lacks, or a new one whose
    /// watch starts at once.
    ///
    /// One watch is one projection: a kind that is already cached as another type gets a second watch. Components that
    /// share a process need not agree on what they keep of it.
    pub fn watch<T: Send + Sync + 'static>(&self, mut spec: WatchSpec<T>) -> Result<Cache<T>, Error> {
        let registry = &self.0;
        if spec.kind.namespaced && spec.selector.namespaces.is_empty() {
            spec.selector.namespaces.clone_from(&registry.namespaces);
        }
        let mut caches = registry.caches.lock();
        let is_same = |other: &&Registered| {
            other.kind == spec.kind && other.selector == spec.selector && other.form == spec.form
        };
        let mut same = caches.iter().filter(is_same);
        if let Some(inner) = same.find_map(|same| Arc::clone(&same.typed).downcast::<Inner<T>>().ok()) {
            let mut store = inner.store.write();
            for (name, keys_of) in &spec.indexes {
                store.add_index(name, *keys_of);
            }
            drop(store);
            return Ok(Cache(inner));
        }
        let mut store = Store::new(&spec.selector.namespaces);
        for (name, keys_of) in &spec.indexes {
            store.add_index(name, *keys_of);
        }
        let streams = spec.selector.namespaces.len().max(1);
        let inner = Arc::new(Inner {
            store: RwLock::new(store),
            subscribers: Mutex::default(),
            health: Mutex::new(Health {
                phases: vec![Phase::Starting; streams],
                last_event: None,
                lists: 0,
                unreadable: HashMap::new(),
            }),
            progress: signal::Sender::new(vec![Progress::default(); streams]),
            must_catch_up: signal::Sender::new(false),
            metrics: Arc::clone(&registry.metrics),
            spec,
        });
        let (kind, selector, form) = (inner.spec.kind.clone(), inner.spec.selector.clone(), inner.spec.form);
        let erased: Arc<dyn AnyCache> = Arc::clone(&inner) as _;
        registry.by_kind.write().entry(kind.clone()).or_default().push(Arc::clone(&erased));
        for stream in (0..streams).map(StreamId) {
            let (api, tasks) = (registry.api.clone(), registry.tasks.clone());
            let rng = registry.rng.fork();
            let task = watch::Task::new(api, Arc::clone(&inner), stream, tasks, rng);
            let namespace = inner.spec.selector.namespaces.get(stream.0);
            let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            registry.tasks.spawn(format!("watch {kind}{place}"), task.run());
        }
        let typed: Arc<dyn Any + Send + Sync> = Arc::clone(&inner) as _;
        caches.push(Registered { kind, selector, form, erased, typed });
        Ok(Cache(inner))
    }

    /// The caches of a kind. Returned without the lock, because subscribers may read caches.
    fn of_kind(&self, kind: &ApiKind) -> Vec<Arc<dyn AnyCache>> {
        self.0.by_kind.read().get(kind).cloned().unwrap_or_default()
    }

    /// Takes in the response to a write of ours: the current object.
    pub fn written(&self, kind: &ApiKind, text: &str) {
        for cache in self.of_kind(kind) {
            match Head::read(text, cache.form()) {
                Ok(head) => cache.written(&head),
                Err(error) => tracing::error!(%kind, "the response to a write is not an object: {error}"),
            }
        }
    }

    /// Takes in the response to a delete of ours. The server responds with the object while it still exists
    /// (finalizers, a grace period).
    pub fn deleted(&self, kind: &ApiKind, key: &ObjectKey, uid: Option<&Uid>, answer: &str) {
        let head = Head::read(answer, Form::Whole).ok().filter(|head| head.key == *key);
        match (&head, uid) {
            (Some(head), _) if head.deleting => self.written(kind, answer),
            (Some(head), None) => self.gone(kind, key, &head.uid),
            (_, Some(uid)) => self.gone(kind, key, uid),
            (None, None) => {}
        }
    }

    /// Takes in that the object of this uid no longer exists.
    pub fn gone(&self, kind: &ApiKind, key: &ObjectKey, uid: &Uid) {
        for cache in self.of_kind(kind) {
            cache.deleted(key, uid);
        }
    }

    /// Remembers that this state of an object is the result of an apply of the configuration with this hash.
    pub(crate) fn applied(&self, kind: &ApiKind, key: &ObjectKey, version: ResourceVersion, hash: u64) {
        for cache in self.of_kind(kind) {
            cache.applied(key, version, hash);
        }
    }

    /// What is known of an object without a request. `labels` are those it would have if it existed: a watch that
    /// selects by them then knows whether it is absent.
    pub fn knowledge(&self, kind: &ApiKind, key: &ObjectKey, labels: &BTreeMap<String, String>) -> Knowledge {
        let caches = self.of_kind(kind);
        Knowledge::combined(caches.iter().map(|cache| cache.knowledge(key, labels)))
    }

    /// The state of every watch.
    pub fn report(&self) -> Vec<WatchReport> {
        self.0.caches.lock().iter().map(|cache| cache.erased.report()).collect()
    }

    /// What keeps the caches from being complete, in words.
    pub fn missing(&self) -> Vec<String> {
        self.0.caches.lock().iter().filter_map(|cache| cache.erased.missing()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(version: u64, applied: u64) -> Knowledge {
        Knowledge::Present(Known { uid: Uid::from("uid"), version: ResourceVersion(version), applied })
    }

    #[test]
    fn of_several_caches_the_one_that_has_seen_most_counts() {
        use Knowledge::{Absent, Unknown};
        let rows: [(&[Knowledge], Knowledge); 7] = [
            (&[], Unknown),
            (&[Unknown, Absent], Absent),
            (&[Unknown, present(1, 7)], present(1, 7)),
            (&[present(1, 0), present(1, 7)], present(1, 7)),
            // Another client has changed it, and one cache has not seen that yet.
            (&[present(1, 7), present(2, 0)], present(2, 0)),
            // It was deleted or created, and one cache has not seen that yet.
            (&[Absent, present(1, 7)], present(1, 0)),
            (&[present(1, 7), Absent], present(1, 0)),
        ];
        for (answers, expected) in rows {
            assert_eq!(Knowledge::combined(answers.iter().cloned()), expected, "{answers:?}");
        }
    }
}
