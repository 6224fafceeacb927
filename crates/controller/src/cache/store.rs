//! The store of a cache: objects, indexes, and the rules by which it never moves back in time.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use crate::object::{ObjectKey, ResourceVersion, Uid};

/// One cached object: its metadata, and what the kind's projection keeps of it. It can be part of a stored observed state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry<T> {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Uid,
    /// Version of this state.
    pub version: ResourceVersion,
    /// Hash of everything but status and bookkeeping.
    pub content: u64,
    /// Whether deletion has begun.
    pub deleting: bool,
    /// The object, or what the projection keeps of it.
    pub object: T,
    /// Hash of the configuration we applied last, while the content is still as that apply left it; else zero.
    #[serde(skip)]
    pub(crate) applied: AtomicU64,
}

impl<T> Entry<T> {
    /// An entry for tests of decisions: set the other fields as the case needs.
    pub fn new(key: ObjectKey, object: T) -> Self {
        Self {
            key,
            uid: Uid::default(),
            version: ResourceVersion::default(),
            content: 0,
            deleting: false,
            object,
            applied: AtomicU64::new(0),
        }
    }
}

/// Why a cache changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first list after the start.
    Initial,
    /// A watch event.
    Watch,
    /// A list after a gap in the watch.
    Relist,
    /// The response to a write of our own.
    Write,
}

/// A change of one object. An object that was replaced by another of the same name is one change with two uids.
#[derive(Debug)]
pub struct Change<T> {
    /// The state before.
    pub old: Option<Arc<Entry<T>>>,
    /// The state now.
    pub new: Option<Arc<Entry<T>>>,
    /// Why.
    pub cause: Cause,
}

impl<T> Change<T> {
    /// Both states, the newer first: an owner may have to be found in either.
    pub fn states(&self) -> impl Iterator<Item = &Arc<Entry<T>>> {
        self.new.iter().chain(&self.old)
    }
}

/// Finds the index keys of an object.
pub type IndexFn<T> = fn(&Entry<T>) -> Vec<String>;

struct Index<T> {
    name: &'static str,
    keys_of: IndexFn<T>,
    /// Ordered pairs of index key and object: one lookup is one range, and a pair costs two pointers.
    pairs: BTreeSet<(Arc<str>, ObjectKey)>,
}

/// An object that we know to be deleted before the watch has shown it.
#[derive(Debug)]
struct Tombstone {
    uid: Uid,
    /// States of this uid up to this version are outdated.
    until: ResourceVersion,
    /// States of any uid up to this version are outdated.
    floor: ResourceVersion,
    /// The relist that was in progress or done when it was added.
    epoch: u64,
}

pub(super) struct Store<T> {
    entries: HashMap<ObjectKey, Arc<Entry<T>>>,
    indexes: Vec<Index<T>>,
    tombstones: HashMap<ObjectKey, Tombstone>,
    checksum: u64,
    /// What feeds the store: one watch of everything, or one of each namespace. Each moves at its own pace.
    streams: Vec<Stream>,
    /// Which stream shows a namespace, where there is one of each.
    by_namespace: HashMap<String, StreamId>,
}

/// Which of a store's streams is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamId(pub(super) usize);

/// The progress of a watch.
#[derive(Default)]
struct Stream {
    /// The only namespace it shows, if it does not show all.
    namespace: Option<String>,
    /// Its lists so far.
    epoch: u64,
    /// The newest version seen, of whatever object.
    newest: ResourceVersion,
    /// The newest version that the watch has shown; it shows nothing older than that.
    shown: ResourceVersion,
    /// The server has gone back in time, as after a restore: the list at hand is right, however old it looks.
    rewound: bool,
}

impl Stream {
    fn shows(&self, key: &ObjectKey) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace))
    }
}

impl<T> Store<T> {
    /// An empty store of objects in these namespaces, or in all if none are named.
    pub(super) fn new(namespaces: &[String]) -> Self {
        let of = |namespace| Stream { namespace, ..Stream::default() };
        let streams = if namespaces.is_empty() {
            vec![of(None)]
        } else {
            namespaces.iter().cloned().map(Some).map(of).collect()
        };
        Self {
            entries: HashMap::new(),
            indexes: Vec::new(),
            tombstones: HashMap::new(),
            checksum: 0,
            streams,
            by_namespace: namespaces.iter().cloned().zip((0..).map(StreamId)).collect(),
        }
    }

    /// The stream that shows an object.
    fn stream_of(&self, key: &ObjectKey) -> StreamId {
        let of_namespace = key.namespace().and_then(|namespace| self.by_namespace.get(namespace));
        of_namespace.copied().unwrap_or_default()
    }

    fn stream(&mut self, id: StreamId) -> &mut Stream {
        &mut self.streams[id.0]
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Entry<T>>> {
        self.entries.get(key)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry<T>>> {
        self.entries.values()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Differs whenever the contents differ, whatever the order in which they came.
    pub(super) fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Objects that we deleted and the watch has not yet shown as gone.
    pub(super) fn tombstones(&self) -> impl Iterator<Item = &ObjectKey> {
        self.tombstones.keys()
    }

    pub(super) fn add_index(&mut self, name: &'static str, keys_of: IndexFn<T>) {
        if self.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, keys_of, pairs: BTreeSet::new() };
        for entry in self.entries.values() {
            index.insert(entry);
        }
        self.indexes.push(index);
    }

    pub(super) fn by_index(&self, name: &str, key: &str) -> Option<Vec<Arc<Entry<T>>>> {
        let index = self.indexes.iter().find(|index| index.name == name)?;
        let from = (Arc::<str>::from(key), ObjectKey::cluster(""));
        let found = index.pairs.range(from..).take_while(|(index_key, _)| &**index_key == key);
        Some(found.filter_map(|(_, object)| self.entries.get(object).cloned()).collect())
    }

    /// Takes in a newer state; `None` if it is not newer.
    pub(super) fn put(&mut self, entry: Entry<T>, cause: Cause) -> Option<Change<T>> {
        let id = self.stream_of(&entry.key);
        let stream = self.stream(id);
        let (rewound, shown) = (stream.rewound, stream.shown);
        if cause == Cause::Watch {
            stream.shown = shown.max(entry.version);
        }
        if let Some(tombstone) = self.tombstones.get(&entry.key) {
            let same = tombstone.uid == entry.uid;
            if entry.version <= if same { tombstone.until } else { tombstone.floor } {
                return None;
            }
            self.tombstones.remove(&entry.key);
        }
        match self.entries.get(&entry.key) {
            Some(known) => {
                let comparable = entry.version != ResourceVersion::default();
                if comparable && entry.version <= known.version && !rewound {
                    return None;
                }
            }
            // The watch was faster than the response, and has shown the deletion as well.
            None if cause == Cause::Write && entry.version <= shown => return None,
            None => {}
        }
        let stream = self.stream(id);
        stream.newest = stream.newest.max(entry.version);
        let entry = Arc::new(entry);
        let old = self.take(&entry.key);
        if let Some(old) = &old
            && old.content == entry.content
        {
            entry.applied.store(old.applied.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for index in &mut self.indexes {
            index.insert(&entry);
        }
        self.checksum ^= fingerprint(&entry);
        self.entries.insert(entry.key.clone(), Arc::clone(&entry));
        Some(Change { old, new: Some(entry), cause })
    }

    /// The watch has shown that an object was deleted (or is no longer selected).
    pub(super) fn remove(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        version: ResourceVersion,
    ) -> Option<Change<T>> {
        let id = self.stream_of(key);
        let stream = self.stream(id);
        stream.shown = stream.shown.max(version);
        if self.tombstones.get(key).is_some_and(|tombstone| tombstone.uid == *uid) {
            self.tombstones.remove(key);
        }
        let known = self.entries.get(key)?;
        // A newer object of ours with the same name stays. So does a newer state of the same object: it left the
        // selection and came back.
        if known.version > version {
            return None;
        }
        let old = self.take(key);
        Some(Change { old, new: None, cause: Cause::Watch })
    }

    /// We know that `uid` is deleted, or not selected as of `until`; the watch will show it later.
    pub(super) fn add_tombstone(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        until: ResourceVersion,
    ) -> Option<Change<T>> {
        // An object that is not here needs no tombstone: the watch was faster, or never selects it.
        let known = self.entries.get(key)?;
        if known.uid != *uid || known.version > until {
            return None;
        }
        let epoch = self.streams[self.stream_of(key).0].epoch;
        let tombstone = Tombstone { uid: uid.clone(), until, floor: known.version, epoch };
        self.tombstones.insert(key.clone(), tombstone);
        let old = self.take(key)?;
        Some(Change { old: Some(old), new: None, cause: Cause::Write })
    }

    /// A list begins: it may still contain objects that get a tombstone from now on.
    pub(super) fn begin_list(&mut self, id: StreamId) {
        self.stream(id).epoch += 1;
    }

    /// The list is of this version. If that is long past, the server was restored from a backup.
    pub(super) fn list_is_at(&mut self, id: StreamId, version: ResourceVersion) {
        let stream = self.stream(id);
        stream.shown = version;
        if version < stream.newest && version != ResourceVersion::default() {
            stream.rewound = true;
            stream.newest = version;
            self.forget_tombstones(id, |_| true);
        }
    }

    /// One listed object.
    pub(super) fn put_listed(&mut self, entry: Entry<T>, cause: Cause) -> Option<Change<T>> {
        let epoch = self.streams[self.stream_of(&entry.key).0].epoch;
        // A list that began after the tombstone shows the object: it was not deleted after all.
        if self.tombstones.get(&entry.key).is_some_and(|tombstone| tombstone.epoch < epoch) {
            self.tombstones.remove(&entry.key);
        }
        self.put(entry, cause)
    }

    /// The list is complete: objects that it lacks are deleted, unless they are newer than the list.
    pub(super) fn end_list(
        &mut self,
        id: StreamId,
        listed: &HashSet<ObjectKey>,
        version: ResourceVersion,
    ) -> Vec<Change<T>> {
        let stream = self.stream(id);
        // Objects that were created and deleted before the list are not shown any more.
        stream.shown = stream.shown.max(version);
        let (epoch, rewound) = (stream.epoch, std::mem::take(&mut stream.rewound));
        self.forget_tombstones(id, |tombstone| tombstone.epoch < epoch);
        self.drop_entries(id, |entry| !listed.contains(&entry.key) && (entry.version <= version || rewound))
    }

    /// The server does not serve the kind: there are no objects.
    pub(super) fn clear(&mut self, id: StreamId) -> Vec<Change<T>> {
        self.forget_tombstones(id, |_| true);
        self.drop_entries(id, |_| true)
    }

    fn drop_entries(&mut self, id: StreamId, is_gone: impl Fn(&Entry<T>) -> bool) -> Vec<Change<T>> {
        let stream = &self.streams[id.0];
        let entries = self.entries.values().filter(|entry| stream.shows(&entry.key));
        let gone: Vec<_> = entries.filter(|entry| is_gone(entry)).map(|entry| entry.key.clone()).collect();
        let remove = |key: ObjectKey| Change { old: self.take(&key), new: None, cause: Cause::Relist };
        gone.into_iter().map(remove).collect()
    }

    fn forget_tombstones(&mut self, id: StreamId, is_over: impl Fn(&Tombstone) -> bool) {
        let stream = &self.streams[id.0];
        self.tombstones.retain(|key, tombstone| !stream.shows(key) || !is_over(tombstone));
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Arc<Entry<T>>> {
        let entry = self.entries.remove(key)?;
        for index in &mut self.indexes {
            index.remove(&entry);
        }
        self.checksum ^= fingerprint(&entry);
        Some(entry)
    }
}

impl<T> Index<T> {
    fn insert(&mut self, entry: &Entry<T>) {
        for key in (self.keys_of)(entry) {
            self.pairs.insert((key.into(), entry.key.clone()));
        }
    }

    fn remove(&mut self, entry: &Entry<T>) {
        for key in (self.keys_of)(entry) {
            self.pairs.remove(&(key.into(), entry.key.clone()));
        }
    }
}

fn fingerprint<T>(entry: &Entry<T>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&entry.key, &entry.uid, entry.version).hash(&mut hasher);
    hasher.finish()
}
