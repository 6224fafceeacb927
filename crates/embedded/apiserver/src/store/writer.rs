//! The writer thread of a durable store: group commit to the log, and snapshots.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    Entry, Id, Pending, Reply, Shared, StoreError, WriteError, decide,
    directory::{Directory, Segment},
    log,
};

/// A log shorter than this is not worth a snapshot.
const SNAPSHOT_FROM: u64 = 32 << 20;

/// The thread that writes to disk.
pub(super) struct Writer {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    segment: Segment,
    snapshot: Option<std::thread::JoinHandle<()>>,
    /// No snapshot is tried before the log is this long.
    snapshot_from: u64,
    /// Whether the last write found the disk full.
    is_full: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, directory: Arc<Directory>, segment: Segment) -> Self {
        Self { shared, directory, segment, snapshot: None, snapshot_from: SNAPSHOT_FROM, is_full: false }
    }

    pub(super) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            let length = self.segment.bytes;
            let mut replies = Vec::with_capacity(batch.len());
            let outcome = match self.commit(batch, &mut replies) {
                Err(error) if is_no_space(&error) => self.take_back(length, &error, replies),
                outcome => outcome.map(|()| self.note_room()),
            };
            if let Err(error) = outcome {
                let error = self.failed(error);
                tracing::error!("{error}; no more writes are accepted");
                // Set before the waiting writers are woken, so that they see the reason.
                *self.shared.failure.lock() = Some(error.to_string());
                let mut queue = self.shared.queue.lock();
                queue.is_closed = true;
                drop(queue.take());
                break;
            }
            self.snapshot_if_due();
        }
        if let Some(snapshot) = self.snapshot.take() {
            let _ = snapshot.join();
        }
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Io { what: "write the log in", path: self.directory.path.clone(), source }
    }

    /// Removes what there is of a batch that did not fit, and fails its writers.
    fn take_back(&mut self, length: u64, error: &io::Error, replies: Vec<Reply>) -> io::Result<()> {
        self.segment.truncate(length)?;
        let failure = WriteError::NoSpace(format!("{}: {error}", self.directory.path.display()));
        if !self.is_full {
            self.is_full = true;
            tracing::error!("{failure}");
        }
        // Conflicts too: what they are with may not have been written.
        for (reply, _) in replies {
            let _ = reply.send(Err(failure.clone()));
        }
        Ok(())
    }

    fn note_room(&mut self) {
        if self.is_full {
            self.is_full = false;
            tracing::warn!("the disk has room again; writes go on");
        }
    }

    /// Everything that waits, as soon as something does.
    fn next_batch(&self) -> Option<Vec<Pending>> {
        let mut queue = self.shared.queue.lock();
        while !queue.is_closed && (queue.waiting.is_empty() || queue.pauses > 0) {
            self.shared.wake.wait(&mut queue);
        }
        let batch = queue.take();
        (!batch.is_empty()).then_some(batch)
    }

    /// Decides and logs a batch, publishes its changes and replies. If it cannot be logged, the replies are left.
    fn commit(&mut self, batch: Vec<Pending>, replies: &mut Vec<Reply>) -> io::Result<()> {
        let mut rv = self.shared.state.read().rv;
        let mut records = Vec::with_capacity(batch.len() * 2048);
        let mut batches = Vec::new();
        let mut changes = Vec::with_capacity(batch.len());
        // What earlier writes of this batch made of their objects.
        let mut ahead: HashMap<Id, Option<Arc<Entry>>> = HashMap::new();
        for Pending { write, reply } in batch {
            let id = (Arc::clone(&write.bucket), Arc::clone(&write.key));
            let find = |id: &Id| match ahead.get(id) {
                Some(entry) => entry.clone(),
                None => self.shared.state.read().get(&id.0, &id.1).cloned(),
            };
            match decide(write, find, rv + 1) {
                Err(error) => replies.push((reply, Err(error))),
                Ok((change, result)) => {
                    rv += 1;
                    match &change.entry {
                        Some(entry) => log::put(
                            &mut records,
                            rv,
                            &change.bucket,
                            &change.key,
                            &entry.version,
                            &entry.body,
                        ),
                        None => log::delete(&mut records, rv, &change.bucket, &change.key),
                    }
                    if records.len() > log::BATCH_BYTES {
                        batches.push(std::mem::take(&mut records));
                    }
                    ahead.insert(id, change.entry.clone());
                    changes.push(change);
                    replies.push((reply, Ok(result)));
                }
            }
        }
        batches.push(records);
        for records in batches.iter().filter(|records| !records.is_empty()) {
            self.segment.append(records)?;
        }
        if !changes.is_empty() {
            self.shared.publish(changes);
        }
        for (reply, outcome) in replies.drain(..) {
            // The caller may be gone; the write stands.
            let _ = reply.send(outcome);
        }
        Ok(())
    }

    /// Replaces a log that has grown longer than the state it leads to.
    fn snapshot_if_due(&mut self) {
        if self.snapshot.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (rv, objects) = {
            let state = self.shared.state.read();
            if self.segment.bytes < self.snapshot_from.max(state.live_bytes) {
                return;
            }
            (state.rv, state.objects())
        };
        match self.directory.new_segment(rv + 1) {
            Ok(segment) => self.segment = segment,
            Err(error) => {
                tracing::warn!("{error}; the log goes on as it is");
                self.snapshot_from = self.segment.bytes + SNAPSHOT_FROM;
                return;
            }
        }
        self.snapshot_from = SNAPSHOT_FROM;
        let directory = Arc::clone(&self.directory);
        let thread = std::thread::Builder::new().name("snapshot".into()).spawn(move || {
            // A snapshot that fails costs disk space, not data: the log is still there.
            if let Err(error) = directory.write_snapshot(rv, rv + 1, &objects) {
                tracing::warn!("{error}");
            }
        });
        self.snapshot = thread.ok();
    }
}

/// Whether a write failed for want of room, which may come.
fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
