//! The writer thread of a durable store: group commit to the log, and snapshots.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use super::{Entry, Id, Pending, Reply, Shared, StoreError, decide, log};

/// A log shorter than this is not worth a snapshot.
const SNAPSHOT_FROM: u64 = 32 << 20;

/// The thread that writes to disk.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) directory: Arc<log::Directory>,
    pub(super) segment: log::Segment,
    pub(super) snapshot: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    pub(super) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            let mut replies = Vec::with_capacity(batch.len());
            if let Err(error) = self.commit(batch, &mut replies) {
                tracing::error!("{error}; no more writes are accepted");
                // Set before the waiting writers are woken, so that they see the reason.
                *self.shared.failure.lock() = Some(error.to_string());
                let mut queue = self.shared.queue.lock();
                queue.is_closed = true;
                drop(queue.take());
                break;
            }
        }
        if let Some(snapshot) = self.snapshot.take() {
            let _ = snapshot.join();
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

    fn commit(&mut self, batch: Vec<Pending>, replies: &mut Vec<Reply>) -> Result<(), StoreError> {
        let mut rv = self.shared.state.read().rv;
        let mut records = Vec::with_capacity(batch.len() * 2048);
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
                        self.append(&records)?;
                        records.clear();
                    }
                    ahead.insert(id, change.entry.clone());
                    changes.push(change);
                    replies.push((reply, Ok(result)));
                }
            }
        }
        if !records.is_empty() {
            self.append(&records)?;
        }
        if !changes.is_empty() {
            self.shared.publish(changes);
        }
        for (reply, outcome) in replies.drain(..) {
            // The caller may be gone; the write stands.
            let _ = reply.send(outcome);
        }
        self.snapshot_if_due()
    }

    fn append(&mut self, records: &[u8]) -> Result<(), StoreError> {
        self.segment.append(records).map_err(|source| StoreError::Io {
            what: "write the log of",
            path: PathBuf::from("the data directory"),
            source,
        })
    }

    /// Replaces a log that has grown longer than the state it leads to.
    fn snapshot_if_due(&mut self) -> Result<(), StoreError> {
        if self.snapshot.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let (rv, objects) = {
            let state = self.shared.state.read();
            if self.segment.bytes < SNAPSHOT_FROM.max(state.live_bytes) {
                return Ok(());
            }
            let mut objects = Vec::new();
            for (name, bucket) in state.buckets() {
                objects.extend(
                    bucket
                        .entries
                        .iter()
                        .map(|(key, entry)| (Arc::clone(name), Arc::clone(key), Arc::clone(entry))),
                );
            }
            (state.rv, objects)
        };
        self.segment = self.directory.new_segment(rv + 1)?;
        let directory = Arc::clone(&self.directory);
        let thread = std::thread::Builder::new().name("snapshot".into()).spawn(move || {
            // A snapshot that fails costs disk space, not data: the log is still there.
            if let Err(error) = directory.write_snapshot(rv, rv + 1, &objects) {
                tracing::warn!("{error}");
            }
        });
        self.snapshot = thread.ok();
        Ok(())
    }
}
