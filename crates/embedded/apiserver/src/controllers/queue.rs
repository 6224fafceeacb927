//! The worker loop of a controller: changes to keys, keys to reconciliations.
//!
//! Whoever follows changes only queues keys and goes on reading, so that nothing piles up while one key waits for a
//! webhook or for the disk.

use std::{hash::Hash, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use quintet_foundation::{
    backoff::Backoff,
    workqueue::{LaneId, Outcome, Reason, WorkQueue},
};

use crate::{
    api::Api,
    status::Failure,
    store::{Event, Tap},
};

/// Keys that are reconciled at the same time: enough that their writes share the way to the disk.
const WORKERS: usize = 32;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), cap: Duration::from_mins(1) };

/// The work queue of one controller. Clones are the same queue.
pub(crate) struct Queue<K> {
    queue: WorkQueue<K>,
    lane: LaneId,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), lane: self.lane }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// A queue that begins with some keys.
    pub(crate) fn new(keys: impl IntoIterator<Item = K>) -> Self {
        let queue = WorkQueue::new();
        let lane = queue.add_lane("controller", WORKERS, ());
        queue.open(lane);
        keys.into_iter().for_each(|key| queue.add(lane, key, Reason::Start));
        Self { queue, lane }
    }

    /// Queues a key.
    pub(crate) fn add(&self, key: K) {
        self.queue.add(self.lane, key, Reason::Changed("object"));
    }

    /// Queues a key after a delay.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        self.queue.add_after(self.lane, key, delay);
    }
}

/// Queues the keys that changes concern and reconciles them for as long as the server runs. Failures are retried with
/// backoff; `404 Not Found` is a success.
pub(crate) fn follow<K, N, W>(api: &Api, mut changes: Tap, queue: Queue<K>, mut note: N, reconcile: W)
where
    K: Clone + Eq + Hash + std::fmt::Debug + Send + Sync + 'static,
    N: FnMut(&Queue<K>, &Arc<str>, &Arc<Event>) + Send + 'static,
    W: Fn(K) -> BoxFuture<'static, Result<(), Failure>> + Send + 'static,
{
    let noted = queue.clone();
    api.spawn(async move {
        while let Some((bucket, event)) = changes.recv().await {
            note(&noted, &bucket, &event);
        }
    });
    api.spawn(async move {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(job) = queue.queue.next() => {
                    let reconciled = reconcile(job.key.clone());
                    running.push(async move { (job, reconciled.await) });
                }
                Some((job, reconciled)) = running.next() => {
                    let outcome = match reconciled {
                        Err(failure) if failure.code() != 404 => {
                            if failure.code() != 409 {
                                tracing::warn!("reconciling {:?} failed, will retry: {failure}", job.key);
                            }
                            let after = BACKOFF.nominal(job.failures.saturating_add(1));
                            Outcome::Retry { after, after_change: after }
                        }
                        _ => Outcome::Done,
                    };
                    queue.queue.finish(job, outcome);
                }
                else => break,
            }
        }
    });
}
