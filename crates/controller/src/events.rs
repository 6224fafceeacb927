//! The event recorder: what users see in `kubectl describe`.
//!
//! Recording never waits and never fails a reconcile: events go through a bounded channel to one task,
//! which folds repetitions into a series and keeps a noisy object from flooding the API server.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::events::v1::Event as ApiEvent;
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};

use crate::{
    api::{Api, PatchKind},
    clock::Clock,
    error::{Class, Error},
    metrics::Metrics,
    object::{ApiKind, ObjectKey, Uid},
    plan::Event,
    tasks::Tasks,
};

pub use crate::plan::Regarding;

/// Events that may wait to be written; more are dropped and counted. A thousand is a burst of several
/// seconds at the rate an API server takes them.
const CHANNEL: usize = 1024;

/// The API rejects longer notes.
const NOTE_BYTES: usize = 1024;

/// A series is written again this often while it goes on.
const SERIES_PERIOD: Duration = Duration::from_secs(30);

/// A series ends when nothing was added for this long, as in client-go.
const SERIES_END: Duration = Duration::from_mins(6);

/// Series remembered at a time; beyond that, repetitions become events of their own.
const SERIES_LIMIT: usize = 4096;

/// Events per object in a burst, and the time after which one more is allowed, as in client-go.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_mins(5);

/// Records events of controllers.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Recorded>,
    metrics: Arc<Metrics>,
}

struct Recorded {
    reporter: &'static str,
    regarding: Regarding,
    event: Event,
}

impl Recorder {
    /// Starts the task that writes events. `instance` says which replica reports.
    pub fn start(api: Api, clock: Clock, metrics: Arc<Metrics>, tasks: &Tasks, instance: &str) -> Self {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        let writer = Writer {
            api,
            clock,
            metrics: Arc::clone(&metrics),
            instance: truncated(instance, 128).to_owned(),
            series: HashMap::new(),
            budgets: HashMap::new(),
        };
        tasks.spawn("events", writer.run(receiver, tasks.clone()));
        Self { sender, metrics }
    }

    /// Records an event, unless there are too many.
    pub fn record(&self, reporter: &'static str, regarding: Regarding, event: Event) {
        if self.sender.try_send(Recorded { reporter, regarding, event }).is_err() {
            self.metrics.event("dropped");
        }
    }
}

/// Events with the same hash of object, reporter and text are one series.
#[derive(Clone, Debug)]
struct Series {
    key: ObjectKey,
    count: u32,
    written: u32,
    last_seen: Instant,
    last_written: Instant,
}

/// The token bucket of an object.
struct Budget {
    left: u32,
    since: Instant,
}

struct Writer {
    api: Api,
    clock: Clock,
    metrics: Arc<Metrics>,
    instance: String,
    series: HashMap<u64, Series>,
    budgets: HashMap<Uid, Budget>,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Recorded>, tasks: Tasks) {
        let mut tick = tokio::time::interval(SERIES_PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = tasks.stopping() => break,
                recorded = receiver.recv() => match recorded {
                    Some(recorded) => self.take(recorded).await,
                    None => return,
                },
                _ = tick.tick(), if !(self.series.is_empty() && self.budgets.is_empty()) => self.write_series().await,
            }
        }
        // Events recorded before the end are still written, if that is quick.
        while let Ok(recorded) = receiver.try_recv() {
            self.take(recorded).await;
        }
    }

    async fn take(&mut self, recorded: Recorded) {
        let now = Instant::now();
        let id = {
            let mut hasher = DefaultHasher::new();
            let Event { kind, reason, action, note, regarding: _ } = &recorded.event;
            (recorded.reporter, &recorded.regarding, kind, reason, action, note).hash(&mut hasher);
            hasher.finish()
        };
        if let Some(series) = self.series.get_mut(&id)
            && now.duration_since(series.last_seen) < SERIES_END
        {
            series.count = series.count.saturating_add(1);
            series.last_seen = now;
            self.metrics.event("aggregated");
            if series.count == 2 {
                // Show at once that it is a series; later counts follow with the tick.
                self.write_one(id).await;
            }
            return;
        }
        if !self.within_budget(&recorded.regarding.uid, now) {
            self.metrics.event("limited");
            return;
        }
        let (kind, key, body) = self.event(&recorded, id);
        match self.api.create(&kind, &key, &body).await {
            Ok(_) => {
                self.metrics.event("recorded");
                if self.series.len() < SERIES_LIMIT {
                    let series = Series { key, count: 1, written: 1, last_seen: now, last_written: now };
                    self.series.insert(id, series);
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    fn event(&self, recorded: &Recorded, id: u64) -> (ApiKind, ObjectKey, serde_json::Value) {
        let kind = ApiKind::of::<ApiEvent>();
        let Recorded { reporter, regarding, event } = recorded;
        let namespace = regarding.key.namespace().unwrap_or("default");
        let now = self.clock.now();
        let unique = id ^ u64::try_from(now.as_microsecond()).unwrap_or_default();
        // Room for a dot and sixteen digits within the 253 that a name may have.
        let name = format!("{}.{unique:016x}", truncated(regarding.key.name(), 236));
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": { "name": name, "namespace": namespace },
            "eventTime": format!("{now:.6}"),
            "reportingController": reporter,
            "reportingInstance": self.instance,
            "type": event.kind,
            "reason": truncated(&event.reason, 128),
            "action": truncated(&event.action, 128),
            "note": truncated(&event.note, NOTE_BYTES),
            "regarding": {
                "apiVersion": regarding.kind.api_version(),
                "kind": regarding.kind.kind,
                "namespace": regarding.key.namespace().unwrap_or_default(),
                "name": regarding.key.name(),
                "uid": regarding.uid,
            },
        });
        (kind, ObjectKey::new(namespace, &name), body)
    }

    async fn write_series(&mut self) {
        let now = Instant::now();
        let due = |series: &Series| {
            series.count > series.written && now.duration_since(series.last_written) >= SERIES_PERIOD
        };
        let due: Vec<u64> = self.series.iter().filter(|(_, series)| due(series)).map(|(id, _)| *id).collect();
        for id in due {
            self.write_one(id).await;
        }
        self.series.retain(|_, series| now.duration_since(series.last_seen) < SERIES_END);
        self.budgets.retain(|_, budget| now.duration_since(budget.since) < REFILL * BURST);
    }

    async fn write_one(&mut self, id: u64) {
        let Some(series) = self.series.get_mut(&id) else {
            return;
        };
        (series.written, series.last_written) = (series.count, Instant::now());
        let patch = json!({ "series": {
            "count": series.count,
            "lastObservedTime": format!("{:.6}", self.clock.now()),
        }});
        let (kind, key) = (ApiKind::of::<ApiEvent>(), series.key.clone());
        if let Err(error) = self.api.patch(&kind, &key, None, &PatchKind::Merge, &patch).await {
            if error.is_not_found() {
                // Expired: the next one begins a new series.
                self.series.remove(&id);
            }
            self.failed(&error);
        }
    }

    fn within_budget(&mut self, uid: &Uid, now: Instant) -> bool {
        let budget = self.budgets.entry(uid.clone()).or_insert(Budget { left: BURST, since: now });
        let refills = now.duration_since(budget.since).as_secs() / REFILL.as_secs();
        if refills > 0 {
            budget.left = BURST.min(budget.left.saturating_add(u32::try_from(refills).unwrap_or(BURST)));
            budget.since = now;
        }
        budget.left = match budget.left.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }

    fn failed(&self, error: &Error) {
        self.metrics.event("failed");
        match error.class() {
            _ if error.is_quiet() => tracing::debug!("event lost: {error}"),
            Class::Invalid | Class::Bug => tracing::error!("event lost: {error}"),
            _ => tracing::debug!("event lost: {error}"),
        }
    }
}

/// The longest prefix of `text` of at most `bytes` that does not cut a character.
fn truncated(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
