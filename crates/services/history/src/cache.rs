//! Loaded sessions: bounded by number, memory and age, least recently used first out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::model::snapshot::Snapshot;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Sessions.
    pub entries: usize,
    /// Bytes of all sessions together; 0 for no limit. One session is kept however large it is.
    pub bytes: u64,
    /// How long a session is kept after it was last read; zero for no limit.
    pub ttl: Duration,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { entries: 100, bytes: 2 * 1024 * 1024 * 1024, ttl: Duration::ZERO }
    }
}

struct Entry {
    snapshot: Arc<Snapshot>,
    bytes: u64,
    used: Instant,
    turn: u64,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<String, Entry>,
    turn: u64,
}

/// The sessions in memory.
pub(crate) struct Cache {
    limits: CacheLimits,
    entries: Mutex<Entries>,
}

impl Cache {
    pub(crate) fn new(limits: CacheLimits) -> Self {
        Self { limits, entries: Mutex::default() }
    }

    /// A loaded session. Reading it keeps it longer.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Snapshot>> {
        let mut entries = self.entries.lock();
        entries.turn += 1;
        let turn = entries.turn;
        let entry = entries.by_key.get_mut(key)?;
        if self.is_expired(entry) {
            entries.by_key.remove(key);
            return None;
        }
        entry.used = Instant::now();
        entry.turn = turn;
        Some(Arc::clone(&entry.snapshot))
    }

    /// Keeps a session, and drops others while there are too many or they are too large together.
    pub(crate) fn insert(&self, key: String, snapshot: Arc<Snapshot>) {
        let bytes = snapshot.bytes() as u64;
        let mut entries = self.entries.lock();
        entries.turn += 1;
        let turn = entries.turn;
        entries.by_key.insert(key, Entry { snapshot, bytes, used: Instant::now(), turn });
        entries.by_key.retain(|_, entry| !self.is_expired(entry));
        loop {
            let total: u64 = entries.by_key.values().map(|entry| entry.bytes).sum();
            let too_large = self.limits.bytes > 0 && total > self.limits.bytes;
            let count = entries.by_key.len();
            if count <= 1 || (count <= self.limits.entries && !too_large) {
                return;
            }
            let oldest = entries.by_key.iter().min_by_key(|(_, entry)| entry.turn);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            entries.by_key.remove(&oldest);
        }
    }

    fn is_expired(&self, entry: &Entry) -> bool {
        !self.limits.ttl.is_zero() && entry.used.elapsed() > self.limits.ttl
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Cache, CacheLimits};
    use crate::model::snapshot::Snapshot;

    fn snapshot(tasks: usize) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::default();
        for number in 0..tasks {
            let id = format!("{number:048x}");
            let event = format!(
                r#"{{"eventType":"TASK_DEFINITION_EVENT","taskDefinitionEvent":{{"taskId":"{id}"}}}}"#
            );
            assert!(snapshot.ingest(event.as_bytes()).is_ok());
        }
        snapshot.finish();
        Arc::new(snapshot)
    }

    #[test]
    fn the_least_recently_used_session_goes_first() {
        let cache = Cache::new(CacheLimits { entries: 2, ..CacheLimits::default() });
        for key in ["a", "b"] {
            cache.insert(key.to_owned(), snapshot(1));
        }
        assert!(cache.get("a").is_some());
        cache.insert("c".to_owned(), snapshot(1));
        assert!(cache.get("a").is_some() && cache.get("b").is_none() && cache.get("c").is_some());
    }

    #[test]
    fn memory_is_bounded_but_one_session_is_kept() {
        let large = snapshot(1000);
        let cache = Cache::new(CacheLimits { bytes: large.bytes() as u64 / 2, ..CacheLimits::default() });
        cache.insert("a".to_owned(), snapshot(1));
        cache.insert("large".to_owned(), large);
        assert!(cache.get("large").is_some() && cache.get("a").is_none());
    }

    #[test]
    fn unread_sessions_expire() {
        let cache = Cache::new(CacheLimits { ttl: Duration::from_nanos(1), ..CacheLimits::default() });
        cache.insert("a".to_owned(), snapshot(1));
        assert!(cache.get("a").is_none());
    }
}
