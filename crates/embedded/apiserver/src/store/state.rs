//! Current objects and recent changes, in memory.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, OnceLock},
};

use tokio::{sync::watch, time::Instant};

use super::{
    Id,
    entry::{ChangeType, Entry, Event},
    history::History,
};
use crate::index::Indexes;

/// All histories together keep no more bytes.
const HISTORY_BYTES_AT_MOST: usize = 256 << 20;

/// The requested changes are no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest version that is available.
    pub oldest: u64,
}

/// Objects with their keys, in the order of those.
pub type Listed = Vec<(Arc<str>, Arc<Entry>)>;

/// All objects of one storage resource.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) entries: BTreeMap<Arc<str>, Arc<Entry>>,
    pub(super) history: History,
    pub(super) head: watch::Sender<u64>,
}

impl Bucket {
    fn new(floor: u64) -> Self {
        Self { entries: BTreeMap::new(), history: History::new(floor), head: watch::Sender::new(floor) }
    }
}

/// All buckets.
#[derive(Debug)]
pub(super) struct State {
    /// The newest published version.
    pub(super) rv: u64,
    /// Versions up to here have no history.
    floor: u64,
    buckets: HashMap<Arc<str>, Bucket>,
    /// Bytes of all current bodies, about what a snapshot takes.
    pub(super) live_bytes: u64,
    /// Bytes of all histories.
    history_bytes: usize,
    /// What is known about the objects without reading them, changed in the same step as they are.
    pub(super) indexes: Arc<Indexes>,
}

impl State {
    pub(super) fn new(rv: u64) -> Self {
        Self {
            rv,
            floor: rv,
            buckets: HashMap::new(),
            live_bytes: 0,
            history_bytes: 0,
            indexes: Arc::default(),
        }
    }

    /// The same objects without their past.
    pub(super) fn fork(&self) -> Self {
        let buckets = self.buckets.iter().map(|(name, bucket)| {
            let fork = Bucket { entries: bucket.entries.clone(), ..Bucket::new(self.rv) };
            (Arc::clone(name), fork)
        });
        Self {
            rv: self.rv,
            floor: self.rv,
            buckets: buckets.collect(),
            live_bytes: self.live_bytes,
            history_bytes: 0,
            indexes: Arc::new(self.indexes.fork()),
        }
    }

    /// Forgets that there was a past, as after loading a snapshot.
    pub(super) fn rebase(&mut self, rv: u64) {
        self.rv = rv;
        self.floor = rv;
        self.history_bytes = 0;
        for bucket in self.buckets.values_mut() {
            bucket.history = History::new(rv);
            bucket.head.send_replace(rv);
        }
    }

    pub(super) fn bucket(&self, name: &str) -> Option<&Bucket> {
        self.buckets.get(name)
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = (&Arc<str>, &Bucket)> {
        self.buckets.iter()
    }

    /// Every object with its bucket and key.
    pub(super) fn objects(&self) -> Vec<(Arc<str>, Arc<str>, Arc<Entry>)> {
        let of_bucket = |(name, bucket): (&Arc<str>, &'_ Bucket)| {
            let entries = bucket.entries.iter();
            entries
                .map(|(key, entry)| (Arc::clone(name), Arc::clone(key), Arc::clone(entry)))
                .collect::<Vec<_>>()
        };
        self.buckets.iter().flat_map(of_bucket).collect()
    }

    pub(super) fn bucket_mut(&mut self, name: &Arc<str>) -> &mut Bucket {
        let floor = self.floor;
        self.buckets.entry(Arc::clone(name)).or_insert_with(|| Bucket::new(floor))
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> Option<&Arc<Entry>> {
        self.buckets.get(bucket)?.entries.get(key)
    }

    /// Publishes one change. `entry` is the new state, or `None` for a deletion.
    pub(super) fn apply(
        &mut self,
        bucket_name: &Arc<str>,
        key: Arc<str>,
        rv: u64,
        entry: Option<Arc<Entry>>,
        now: Instant,
    ) -> Option<Arc<Event>> {
        self.rv = rv;
        let floor = self.floor;
        let bucket = self.buckets.entry(Arc::clone(bucket_name)).or_insert_with(|| Bucket::new(floor));
        let previous = match &entry {
            Some(entry) => bucket.entries.insert(Arc::clone(&key), Arc::clone(entry)),
            None => bucket.entries.remove(&key),
        };
        self.live_bytes += entry.as_ref().map_or(0, |entry| entry.body.len() as u64);
        self.live_bytes =
            self.live_bytes.saturating_sub(previous.as_ref().map_or(0, |entry| entry.body.len() as u64));
        let (change, entry) = match (entry, &previous) {
            (Some(entry), None) => (ChangeType::Added, entry),
            (Some(entry), Some(_)) => (ChangeType::Modified, entry),
            (None, Some(last)) => {
                let last = Entry {
                    rv,
                    version: Arc::clone(&last.version),
                    body: last.body.clone(),
                    head: last.head.clone(),
                    epoch: last.epoch,
                };
                (ChangeType::Deleted, Arc::new(last))
            }
            (None, None) => return None,
        };
        let event = Arc::new(Event { rv, change, key, entry, previous, at: now, frame: OnceLock::new() });
        let before = bucket.history.bytes();
        bucket.history.push(Arc::clone(&event), now);
        self.history_bytes = self.history_bytes + bucket.history.bytes() - before;
        bucket.head.send_replace(rv);
        self.shorten_histories();
        let stored = (change != ChangeType::Deleted).then_some(&event.entry);
        self.indexes.note(bucket_name, &event.key, stored, |namespace| self.objects_in(namespace));
        Some(event)
    }

    /// Forgets the oldest changes of the longest histories until all together are short enough.
    fn shorten_histories(&mut self) {
        while self.history_bytes > HISTORY_BYTES_AT_MOST {
            let longest = self.buckets.values_mut().max_by_key(|bucket| bucket.history.bytes());
            let Some(longest) = longest else { break };
            let before = longest.history.bytes();
            if !longest.history.forget_oldest() {
                break;
            }
            self.history_bytes -= before - longest.history.bytes();
        }
    }

    /// Forgets changes that are too old, also of buckets that do not change any more.
    pub(super) fn expire_histories(&mut self, now: Instant) {
        for bucket in self.buckets.values_mut() {
            let before = bucket.history.bytes();
            bucket.history.expire(now);
            self.history_bytes -= before - bucket.history.bytes();
        }
    }

    /// Every object in a namespace, with its bucket and key.
    fn objects_in(&self, namespace: &str) -> Vec<(Id, Arc<Entry>)> {
        let prefix = format!("{namespace}/");
        let mut objects = Vec::new();
        for (name, bucket) in &self.buckets {
            let from = bucket.entries.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
            let inside = from.take_while(|(key, _)| key.starts_with(&prefix));
            objects
                .extend(inside.map(|(key, entry)| ((Arc::clone(name), Arc::clone(key)), Arc::clone(entry))));
        }
        objects
    }

    /// Changes of a bucket after `rv`, at most `limit`, and the version up to which they are complete.
    pub(super) fn events_after(
        &self,
        bucket: &str,
        rv: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), TooOld> {
        let Some(bucket) = self.buckets.get(bucket) else {
            return if rv < self.floor {
                Err(TooOld { oldest: self.floor })
            } else {
                Ok((Vec::new(), self.rv))
            };
        };
        let events: Vec<Arc<Event>> = bucket.history.after(rv)?.take(limit).cloned().collect();
        let complete = match events.last() {
            Some(last) if events.len() == limit => last.rv,
            _ => self.rv,
        };
        Ok((events, complete))
    }

    /// Visits objects of a bucket in the order of their keys: those whose key begins with `prefix`, after `start` if
    /// that is given, as they were at `rv` if that is given.
    pub(super) fn scan(
        &self,
        bucket: &str,
        prefix: &str,
        start: Option<&str>,
        rv: Option<u64>,
        mut visit: impl FnMut(&Arc<str>, &Arc<Entry>),
    ) -> Result<(), TooOld> {
        let Some(bucket) = self.buckets.get(bucket) else {
            return match rv {
                Some(rv) if rv < self.floor => Err(TooOld { oldest: self.floor }),
                _ => Ok(()),
            };
        };
        // What has changed since, as it was then.
        let mut then: BTreeMap<Arc<str>, Option<&Arc<Entry>>> = BTreeMap::new();
        for event in rv.map(|rv| bucket.history.after(rv)).transpose()?.into_iter().flatten().rev() {
            then.insert(Arc::clone(&event.key), event.previous.as_ref());
        }
        let from = match start {
            Some(start) if start >= prefix => Bound::Excluded(start),
            _ => Bound::Included(prefix),
        };
        let range = (from, Bound::Unbounded);
        let mut now = bucket.entries.range::<str, _>(range).map(|(key, entry)| (key, Some(entry))).peekable();
        let mut then = then.range::<str, _>(range).map(|(key, entry)| (key, *entry)).peekable();
        loop {
            let order = match (now.peek(), then.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((now, _)), Some((then, _))) => now.cmp(then),
            };
            if order == Ordering::Equal {
                now.next();
            }
            let Some((key, entry)) = (if order == Ordering::Less { now.next() } else { then.next() }) else {
                break;
            };
            if !key.starts_with(prefix) {
                break;
            }
            if let Some(entry) = entry {
                visit(key, entry);
            }
        }
        Ok(())
    }
}
