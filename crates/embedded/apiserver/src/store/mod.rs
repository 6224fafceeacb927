//! The store: every object of the cluster, and the order in which they changed.
//!
//! One writer at a time decides (is the object still the one the caller read?), gives the change the next
//! resource version, makes it durable and publishes it. Durable stores do this in a thread of their own, which
//! takes all waiting writes at once and syncs them to disk together; readers and watchers see a change only
//! after that. Reads never wait for writes to reach the disk.

mod directory;
mod entry;
mod history;
mod log;
mod salvage;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex, RwLock};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::index::Indexes;
use directory::{Directory, Segment};
pub use entry::{ChangeType, Entry, Event, Head, Put, key_of, split_key};
pub use salvage::Salvaged;
use state::State;
pub use state::{Listed, TooOld};
use writer::Writer;

/// What to do about an incomplete data directory.
const RESTORE: &str = "restore the data directory from a backup, or keep what can be read of it with `quintet up \
                       --recover`, which says what is lost";

/// Why the store cannot be opened, or no longer written to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it.
    #[error(
        "the data directory {} is in use by another quintet (process {owner}); stop that one, or choose \
         another with --data-dir",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process id of the other, as it wrote it down.
        owner: String,
    },
    /// A file that must be whole is not.
    #[error("{} is damaged; {RESTORE}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Versions are missing: a file was removed, or something was cut out of one.
    #[error(
        "the versions {first} to {last} are missing in or before {}: a snapshot or log file was removed, or a part of \
         one; {RESTORE}",
        path.display()
    )]
    Gap {
        /// The file that begins or goes on after the gap.
        path: PathBuf,
        /// The first missing version.
        first: u64,
        /// The last.
        last: u64,
    },
    /// The newest log file is gone.
    #[error("{} is missing, and with it the latest writes; {RESTORE}", path.display())]
    NoLog {
        /// The file.
        path: PathBuf,
    },
    /// An I/O error.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object is not in the state the caller expected.
    #[error("the object has been modified")]
    Conflict,
    /// The namespace or definition of the object is gone or being deleted.
    #[error("the namespace or definition of the object is gone or being deleted")]
    MissingParent,
    /// The disk is too slow for the writes that wait already.
    #[error("too many writes are waiting for the disk, please try again later")]
    Overloaded,
    /// The disk is full. Later writes are tried again.
    #[error(
        "the disk is full ({0}): free space in the data directory; writes go on by themselves when there is room"
    )]
    NoSpace(String),
    /// The disk failed, and with it the store: nothing is written any more.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Bucket and key.
pub type Id = (Arc<str>, Arc<str>);

/// What the caller takes for the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No such object.
    Absent,
    /// The object as of this resource version.
    Version(u64),
}

/// A change to one object.
#[derive(Debug)]
pub struct Write {
    /// Storage resource, such as `apps/deployments`.
    pub bucket: Arc<str>,
    /// See [`key_of`].
    pub key: Arc<str>,
    /// What it is based on.
    pub expect: Expect,
    /// The new state; `None` deletes.
    pub put: Option<Put>,
    /// Objects that must be there, and stay: the namespace of a new object, the definition of its kind.
    pub parents: Vec<Id>,
}

impl Write {
    /// Replaces an object as of a version.
    pub fn replace(bucket: &Arc<str>, key: Arc<str>, version: u64, put: Put) -> Self {
        let expect = Expect::Version(version);
        Self { bucket: Arc::clone(bucket), key, expect, put: Some(put), parents: Vec::new() }
    }

    /// Removes an object as of a version.
    pub fn remove(bucket: &Arc<str>, key: Arc<str>, version: u64) -> Self {
        let expect = Expect::Version(version);
        Self { bucket: Arc::clone(bucket), key, expect, put: None, parents: Vec::new() }
    }
}

/// Changes of all buckets, for those parts of the server that follow everything.
pub type Tap = mpsc::UnboundedReceiver<(Arc<str>, Arc<Event>)>;

type Outcome = Result<Arc<Entry>, WriteError>;
type Tapped = mpsc::UnboundedSender<(Arc<str>, Arc<Event>)>;

struct Pending {
    write: Write,
    reply: oneshot::Sender<Outcome>,
}

/// An outcome and its receiver.
type Reply = (oneshot::Sender<Outcome>, Outcome);

/// Writes wait for the disk even if their clients have given up, so the number of requests in progress does not limit
/// them.
const WAITING_AT_MOST: usize = 4096;
const WAITING_BYTES_AT_MOST: usize = 64 << 20;

#[derive(Default)]
struct Queue {
    waiting: Vec<Pending>,
    /// Bytes of the objects in `waiting`.
    waiting_bytes: usize,
    is_closed: bool,
    /// How many [`WritePause`]s are alive.
    pauses: usize,
}

impl Queue {
    /// Adds a write, unless too much is waiting. An empty queue takes a write of any size.
    fn push(&mut self, pending: Pending) -> Result<(), WriteError> {
        let bytes = self.waiting_bytes + pending.write.put.as_ref().map_or(0, |put| put.body.len());
        let is_full = self.waiting.len() >= WAITING_AT_MOST || bytes > WAITING_BYTES_AT_MOST;
        if is_full && !self.waiting.is_empty() {
            return Err(WriteError::Overloaded);
        }
        self.waiting_bytes = bytes;
        self.waiting.push(pending);
        Ok(())
    }

    /// Takes out everything that waits.
    fn take(&mut self) -> Vec<Pending> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

struct Shared {
    state: RwLock<State>,
    taps: Mutex<Vec<Tapped>>,
    queue: Mutex<Queue>,
    wake: Condvar,
    failure: Mutex<Option<String>>,
    /// The newest published version, for those who wait for it.
    version: watch::Sender<u64>,
}

/// Keeps a durable store from carrying out writes for as long as it lives, see [`Store::pause_writes`].
#[must_use = "writes go on when it is dropped"]
pub struct WritePause(Arc<Shared>);

impl std::fmt::Debug for WritePause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritePause").finish_non_exhaustive()
    }
}

impl Drop for WritePause {
    fn drop(&mut self) {
        self.0.queue.lock().pauses -= 1;
        self.0.wake.notify_one();
    }
}

/// A store, see the module.
pub struct Store {
    shared: Arc<Shared>,
    /// Present if writes go to disk.
    writer: Option<std::thread::JoinHandle<()>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("is_durable", &self.writer.is_some()).finish_non_exhaustive()
    }
}

impl Shared {
    fn new(state: State) -> Self {
        Self {
            version: watch::Sender::new(state.rv),
            state: RwLock::new(state),
            taps: Mutex::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            failure: Mutex::default(),
        }
    }

    /// Publishes decided changes, in order.
    fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let now = Instant::now();
        let mut state = self.state.write();
        let mut taps = self.taps.lock();
        for Change { bucket, key, rv, entry } in changes {
            if let Some(event) = state.apply(&bucket, key, rv, entry, now) {
                taps.retain(|tap| tap.send((Arc::clone(&bucket), Arc::clone(&event))).is_ok());
            }
        }
        self.version.send_replace(state.rv);
    }
}

/// A decided change.
struct Change {
    bucket: Arc<str>,
    key: Arc<str>,
    rv: u64,
    entry: Option<Arc<Entry>>,
}

/// Decides one write: checks what it is based on and gives it its version. `find` knows the present state.
fn decide(
    write: Write,
    find: impl Fn(&Id) -> Option<Arc<Entry>>,
    rv: u64,
) -> Result<(Change, Arc<Entry>), WriteError> {
    let current = find(&(Arc::clone(&write.bucket), Arc::clone(&write.key)));
    let current = current.as_ref();
    if write.parents.iter().any(|parent| find(parent).is_none_or(|parent| parent.head.is_terminating)) {
        return Err(WriteError::MissingParent);
    }
    match (write.expect, current) {
        (Expect::Absent, None) => {}
        (Expect::Version(expected), Some(current)) if current.rv == expected => {}
        _ => return Err(WriteError::Conflict),
    }
    let entry = write.put.map(|put| {
        Arc::new(Entry { rv, version: put.version, body: put.body, head: put.head, epoch: put.epoch })
    });
    let Some(result) = entry.as_ref().or(current).map(Arc::clone) else {
        return Err(WriteError::Conflict);
    };
    Ok((Change { bucket: write.bucket, key: write.key, rv, entry }, result))
}

impl Store {
    /// A store that forgets everything when it is dropped.
    pub fn in_memory() -> Self {
        Self { shared: Arc::new(Shared::new(State::new(1))), writer: None }
    }

    /// A store in memory that begins with what is in this one now, and without its past.
    pub(crate) fn fork(&self) -> Self {
        let state = self.shared.state.read().fork();
        Self { shared: Arc::new(Shared::new(state)), writer: None }
    }

    /// Makes a directory whose store cannot be opened usable again, with what can be read of it. Does nothing to one
    /// that can.
    pub fn recover(path: &Path) -> Result<Salvaged, StoreError> {
        let directory = Directory::open(path)?;
        match directory.recover() {
            Err(StoreError::Damaged { .. } | StoreError::Gap { .. } | StoreError::NoLog { .. }) => {
                directory.salvage()
            }
            outcome => outcome.map(|_| Salvaged::default()),
        }
    }

    /// Opens the store in a directory, or makes one there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let directory = Arc::new(Directory::open(path)?);
        let (state, segment) = directory.recover()?;
        Self::start(path, directory, state, segment)
    }

    fn start(
        path: &Path,
        directory: Arc<Directory>,
        state: State,
        segment: Segment,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::new(state));
        let writer = Writer::new(Arc::clone(&shared), directory, segment);
        let writer = std::thread::Builder::new().name("store".into()).spawn(move || writer.run());
        let writer = writer.map_err(|source| StoreError::Io {
            what: "start the writer of",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// Carries out a change. Returns the new state, or the last one of a deleted object. When this
    /// returns, the change is durable and visible. Fails at once if too many writes wait for the disk.
    pub async fn write(&self, write: Write) -> Outcome {
        if self.writer.is_none() {
            return self.write_in_memory(write);
        }
        let (reply, outcome) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            if queue.is_closed {
                return Err(self.failed());
            }
            queue.push(Pending { write, reply })?;
        }
        self.shared.wake.notify_one();
        outcome.await.unwrap_or_else(|_| Err(self.failed()))
    }

    fn failed(&self) -> WriteError {
        let failure = self.shared.failure.lock().clone();
        WriteError::Failed(failure.unwrap_or_else(|| "it is closed".into()))
    }

    fn write_in_memory(&self, write: Write) -> Outcome {
        let mut state = self.shared.state.write();
        let rv = state.rv + 1;
        let (change, result) = decide(write, |(bucket, key)| state.get(bucket, key).cloned(), rv)?;
        let Change { bucket, key, rv, entry } = change;
        if let Some(event) = state.apply(&bucket, key, rv, entry, Instant::now()) {
            let mut taps = self.shared.taps.lock();
            taps.retain(|tap| tap.send((Arc::clone(&bucket), Arc::clone(&event))).is_ok());
        }
        self.shared.version.send_replace(rv);
        Ok(result)
    }

    /// One object.
    pub fn get(&self, bucket: &str, key: &str) -> Option<Arc<Entry>> {
        self.shared.state.read().get(bucket, key).cloned()
    }

    /// One object, and the version as of which this is so.
    pub fn get_now(&self, bucket: &str, key: &str) -> (Option<Arc<Entry>>, u64) {
        let state = self.shared.state.read();
        (state.get(bucket, key).cloned(), state.rv)
    }

    /// The newest published resource version.
    pub fn version(&self) -> u64 {
        self.shared.state.read().rv
    }

    /// Waits until a resource version has been published.
    pub async fn wait_for(&self, rv: u64) {
        // The sender lives as long as the store.
        let _ = self.shared.version.subscribe().wait_for(|version| *version >= rv).await;
    }

    /// Objects in the order of their keys, and the version this list is of. See `State::scan`.
    pub fn list(
        &self,
        bucket: &str,
        prefix: &str,
        start: Option<&str>,
        rv: Option<u64>,
    ) -> Result<(Listed, u64), TooOld> {
        let state = self.shared.state.read();
        let mut listed = Vec::new();
        state.scan(bucket, prefix, start, rv, |key, entry| {
            listed.push((Arc::clone(key), Arc::clone(entry)));
        })?;
        Ok((listed, rv.unwrap_or(state.rv)))
    }

    /// All present objects of a bucket whose keys begin with `prefix`, in the order of their keys.
    pub fn objects(&self, bucket: &str, prefix: &str) -> Listed {
        let state = self.shared.state.read();
        let Some(bucket) = state.bucket(bucket) else { return Vec::new() };
        let from = bucket.entries.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let matching = from.take_while(|(key, _)| key.starts_with(prefix));
        matching.map(|(key, entry)| (Arc::clone(key), Arc::clone(entry))).collect()
    }

    /// The first objects of such a list, how many more there are, and its version.
    pub fn page(
        &self,
        bucket: &str,
        prefix: &str,
        start: Option<&str>,
        rv: Option<u64>,
        limit: usize,
    ) -> Result<(Listed, usize, u64), TooOld> {
        let state = self.shared.state.read();
        let (mut listed, mut more) = (Vec::new(), 0);
        state.scan(bucket, prefix, start, rv, |key, entry| {
            if listed.len() < limit {
                listed.push((Arc::clone(key), Arc::clone(entry)));
            } else {
                more += 1;
            }
        })?;
        Ok((listed, more, rv.unwrap_or(state.rv)))
    }

    /// How many objects a bucket holds.
    pub fn count(&self, bucket: &str) -> usize {
        self.shared.state.read().bucket(bucket).map_or(0, |bucket| bucket.entries.len())
    }

    /// The names of all buckets that hold something.
    pub fn buckets(&self) -> Vec<Arc<str>> {
        let state = self.shared.state.read();
        state.buckets().filter(|(_, b)| !b.entries.is_empty()).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Changes of a bucket after `rv`, at most `limit`, and the version up to which they are complete.
    pub fn events_after(
        &self,
        bucket: &str,
        rv: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), TooOld> {
        self.shared.state.read().events_after(bucket, rv, limit)
    }

    /// Whether the changes of a bucket after `rv` are all still kept.
    pub fn keeps(&self, bucket: &str, rv: u64) -> bool {
        self.events_after(bucket, rv, 0).is_ok()
    }

    /// The version of the last change of a bucket.
    pub fn bucket_version(&self, bucket: &str) -> u64 {
        self.shared.state.read().bucket(bucket).map_or(0, |bucket| *bucket.head.borrow())
    }

    /// Wakes whenever a bucket changes; the value is the version of its last change.
    pub fn follow(&self, bucket: &Arc<str>) -> watch::Receiver<u64> {
        if let Some(bucket) = self.shared.state.read().bucket(bucket) {
            return bucket.head.subscribe();
        }
        self.shared.state.write().bucket_mut(bucket).head.subscribe()
    }

    /// Forgets changes that are too old to resume a watch from.
    pub(crate) fn expire_histories(&self) {
        self.shared.state.write().expire_histories(Instant::now());
    }

    /// What is known about the objects without reading them.
    pub(crate) fn indexes(&self) -> Arc<Indexes> {
        Arc::clone(&self.shared.state.read().indexes)
    }

    /// Every change of every bucket from now on.
    pub fn tap(&self) -> Tap {
        #[expect(
            clippy::disallowed_methods,
            reason = "read at once by tasks of this process; a change is a few pointers"
        )]
        let (sender, receiver) = mpsc::unbounded_channel();
        // The state is locked so that a change is either in what the caller lists next, or in the tap.
        let _state = self.shared.state.read();
        self.shared.taps.lock().push(sender);
        receiver
    }

    /// Fault injection: queues writes of a durable store without carrying them out, as a slow disk would. A store in
    /// memory has no queue and is not affected.
    pub fn pause_writes(&self) -> WritePause {
        self.shared.queue.lock().pauses += 1;
        WritePause(Arc::clone(&self.shared))
    }

    /// Whether writes still work.
    pub fn is_healthy(&self) -> bool {
        self.shared.failure.lock().is_none()
    }
}

impl Drop for Store {
    /// Lets waiting writes finish and releases the directory.
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.wake.notify_one();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
