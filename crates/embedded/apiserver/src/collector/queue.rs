//! What has to be looked at: each key once at a time, again if it changed meanwhile, and later if it failed.
//!
//! Those who follow changes only note keys here and go on reading, so that nothing piles up while one key waits for a
//! webhook or for the disk.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    api::Api,
    status::Failure,
    store::{Event, Tap},
};

/// How many keys are looked at at the same time: enough that their writes share the way to the disk.
const AT_A_TIME: usize = 32;
/// The first wait after a failure; every further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Keys to look at. Clones are the same queue.
pub(crate) struct Queue<K>(Arc<Shared<K>>);

struct Shared<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

struct State<K> {
    known: HashMap<K, Known>,
    ready: VecDeque<K>,
    /// Keys that wait for a time: that of the next attempt, or their own. Numbered, as several may share one.
    later: BTreeMap<(Instant, u64), K>,
    number: u64,
}

#[derive(Default)]
struct Known {
    is_ready: bool,
    is_running: bool,
    /// Noted while it was running.
    is_stale: bool,
    failures: u32,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub(crate) fn new(keys: impl IntoIterator<Item = K>) -> Self {
        let state =
            State { known: HashMap::new(), ready: VecDeque::new(), later: BTreeMap::new(), number: 0 };
        let queue = Self(Arc::new(Shared { state: Mutex::new(state), wake: Notify::new() }));
        keys.into_iter().for_each(|key| queue.add(key));
        queue
    }

    /// Asks for a key to be looked at.
    pub(crate) fn add(&self, key: K) {
        let mut state = self.0.state.lock();
        let known = state.known.entry(key.clone()).or_default();
        if known.is_running {
            known.is_stale = true;
        } else if !known.is_ready {
            known.is_ready = true;
            state.ready.push_back(key);
            self.0.wake.notify_one();
        }
    }

    /// Asks for a key to be looked at when its time has come.
    pub(crate) fn add_at(&self, key: K, at: Instant) {
        let mut state = self.0.state.lock();
        state.number += 1;
        let number = state.number;
        state.later.insert((at, number), key);
        self.0.wake.notify_one();
    }

    /// The next key, once there is one. It is running until [`Self::done`].
    async fn next(&self) -> K {
        loop {
            let due = {
                let mut state = self.0.state.lock();
                if let Some(key) = state.ready.pop_front() {
                    let known = state.known.entry(key.clone()).or_default();
                    (known.is_ready, known.is_running) = (false, true);
                    return key;
                }
                state.later.first_key_value().map(|((at, _), _)| *at)
            };
            match due {
                None => self.0.wake.notified().await,
                Some(due) => tokio::select! {
                    () = self.0.wake.notified() => {}
                    () = tokio::time::sleep_until(due) => self.wake_due(),
                },
            }
        }
    }

    /// Makes keys ready whose time has come.
    fn wake_due(&self) {
        let now = Instant::now();
        let due = {
            let mut state = self.0.state.lock();
            let mut rest = state.later.split_off(&(now, u64::MAX));
            std::mem::swap(&mut rest, &mut state.later);
            rest
        };
        for key in due.into_values() {
            self.add(key);
        }
    }

    fn done(&self, key: K, is_settled: bool) {
        let mut state = self.0.state.lock();
        state.number += 1;
        let number = state.number;
        let known = state.known.entry(key.clone()).or_default();
        known.is_running = false;
        known.failures = if is_settled { 0 } else { known.failures.saturating_add(1) };
        let is_stale = std::mem::take(&mut known.is_stale);
        let wait = FIRST_WAIT.saturating_mul(1 << known.failures.saturating_sub(1).min(16)).min(LONGEST_WAIT);
        if !is_settled {
            state.later.insert((Instant::now() + wait, number), key);
            self.0.wake.notify_one();
        } else if is_stale {
            drop(state);
            self.add(key);
        } else {
            state.known.remove(&key);
        }
    }
}

/// Notes the keys that changes concern, and works on them, as long as the server runs. Failures but 404 are tried
/// again, whatever else is to be done meanwhile.
pub(crate) fn follow<K, N, W>(api: &Api, mut changes: Tap, queue: Queue<K>, mut note: N, work: W)
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
                key = queue.next(), if running.len() < AT_A_TIME => {
                    let outcome = work(key.clone());
                    running.push(async move { (key, outcome.await) });
                }
                Some((key, outcome)) = running.next() => {
                    let is_settled = match outcome {
                        Err(failure) if failure.code() != 404 => {
                            if failure.code() != 409 {
                                tracing::warn!("cannot settle {key:?}, and will try again: {failure}");
                            }
                            false
                        }
                        _ => true,
                    };
                    queue.done(key, is_settled);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_looked_at_once_at_a_time_and_again_if_it_changed() {
        let queue = Queue::new(["a"]);
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        let waiting = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(waiting.is_err(), "it is still running");
        queue.done("a", true);
        assert_eq!(queue.next().await, "a");
        queue.done("a", true);
        assert!(queue.0.state.lock().known.is_empty(), "what is done is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_tried_again_later_and_later() {
        let queue = Queue::new(["a", "b"]);
        assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
        queue.done("b", true);
        let mut waits = Vec::new();
        for _ in 0..4 {
            queue.done("a", false);
            let began = Instant::now();
            assert_eq!(queue.next().await, "a");
            waits.push(began.elapsed().as_millis());
        }
        assert_eq!(waits, [50, 100, 200, 400]);
        for _ in 0..20 {
            queue.done("a", false);
            queue.next().await;
        }
        queue.done("a", false);
        let began = Instant::now();
        queue.next().await;
        assert_eq!(began.elapsed(), LONGEST_WAIT);
    }
}
