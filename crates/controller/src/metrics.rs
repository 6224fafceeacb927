//! Metrics of the controller runtime.
//!
//! Metrics that controller-runtime and client-go have too have their names and labels, so that dashboards and
//! alerts made for the Go operators go on working; the others begin with `quintet_`.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::{error::Class, index::IndexMetrics, object::ApiKind};

/// The registry that `/metrics` shows. Operators add their own families to it.
#[derive(Clone, Debug, Default)]
pub struct MetricsRegistry(Arc<Mutex<Registry>>);

impl MetricsRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds families.
    pub fn register<R>(&self, register: impl FnOnce(&mut Registry) -> R) -> R {
        register(&mut self.0.lock())
    }

    /// All metrics in Prometheus' text format, which is what the Go operators serve.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.0.lock());
        prometheus_text(&text)
    }
}

/// OpenMetrics as Prometheus' text format 0.0.4. There, a counter is called as its samples are, with `_total`: it may
/// have the name of a gauge before that, as `kueue_finished_workloads` has.
fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if line.starts_with("# HELP ") {
            help = Some(line);
            continue;
        }
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let counter = line.strip_prefix("# TYPE ").and_then(|family| family.strip_suffix(" counter"));
        let lines = match (help.take(), counter) {
            (Some(help), Some(name)) => {
                let help = help.replacen(name, &format!("{name}_total"), 1);
                format!("{help}\n# TYPE {name}_total counter\n")
            }
            (None, Some(name)) => format!("# TYPE {name}_total counter\n"),
            (Some(help), None) => format!("{help}\n{line}\n"),
            (None, None) => format!("{line}\n"),
        };
        text.push_str(&lines);
    }
    text
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQueue {
    name: &'static str,
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    group: String,
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKindAndResult {
    group: String,
    kind: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVerb {
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPublication {
    kind: &'static str,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLease {
    name: String,
}

/// The metrics of the controller runtime.
#[derive(Debug)]
pub struct Metrics {
    reconciles: Family<ByResult, Counter>,
    errors: Family<ByResult, Counter>,
    panics: Family<ByController, Counter>,
    reconcile_time: Family<ByController, Histogram, fn() -> Histogram>,
    active: Family<ByController, Gauge>,
    depth: Family<ByQueue, Gauge>,
    adds: Family<ByQueue, Counter>,
    retries: Family<ByQueue, Counter>,
    waited: Family<ByQueue, Histogram, fn() -> Histogram>,
    requests: Family<ByVerb, Counter>,
    request_time: Family<ByVerb, Histogram, fn() -> Histogram>,
    unreadable: Family<ByKind, Counter>,
    watch_failures: Family<ByKindAndResult, Counter>,
    events: Family<ByOutcome, Counter>,
    leading: Family<ByLease, Gauge>,
    ca_published: Family<ByPublication, Gauge>,
    pub(crate) index: IndexMetrics,
}

fn seconds() -> Histogram {
    // 1 ms to about 4 minutes.
    Histogram::new(exponential_buckets(0.001, 2.0, 18))
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &MetricsRegistry) -> Arc<Self> {
        let metrics = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
            reconcile_time: Family::new_with_constructor(seconds),
            active: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(seconds),
            requests: Family::default(),
            request_time: Family::new_with_constructor(seconds),
            unreadable: Family::default(),
            watch_failures: Family::default(),
            events: Family::default(),
            leading: Family::default(),
            ca_published: Family::default(),
            index: IndexMetrics::default(),
        };
        registry.register(|registry| metrics.add_to(registry));
        Arc::new(metrics)
    }

    fn add_to(&self, registry: &mut Registry) {
        self.index.add_to(registry);
        // The encoder appends `_total` to counters.
        registry.register(
            "controller_runtime_reconcile",
            "Reconciliations per controller and result",
            self.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciliations per controller and error class",
            self.errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Reconciliations that panicked",
            self.panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Time a reconciliation took",
            self.reconcile_time.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Reconciliations in progress",
            self.active.clone(),
        );
        registry.register("workqueue_depth", "Objects ready to be reconciled", self.depth.clone());
        registry.register("workqueue_adds", "Objects added to the queue", self.adds.clone());
        registry.register("workqueue_retries", "Objects added again after a failure", self.retries.clone());
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time an object waited until it was reconciled",
            self.waited.clone(),
        );
        registry.register(
            "quintet_api_requests",
            "Requests to the API server per verb and result",
            self.requests.clone(),
        );
        registry.register(
            "quintet_api_request_duration_seconds",
            "Time until the API server responded",
            self.request_time.clone(),
        );
        registry.register(
            "quintet_unreadable_objects",
            "Times an object could not be decoded and was left out",
            self.unreadable.clone(),
        );
        registry.register(
            "quintet_watch_failures",
            "Times a list or watch failed and was retried",
            self.watch_failures.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "Whether this replica holds the lease",
            self.leading.clone(),
        );
        registry.register(
            "quintet_webhook_ca_published",
            "Whether the API server trusts our webhooks by this object",
            self.ca_published.clone(),
        );
        registry.register("quintet_events", "Events recorded, aggregated or dropped", self.events.clone());
    }

    pub(crate) fn leading(&self, lease: &str, leads: bool) {
        self.leading.get_or_create(&ByLease { name: lease.to_owned() }).set(i64::from(leads));
    }

    pub(crate) fn ca_published(&self, kind: &'static str, name: &str, is_published: bool) {
        let labels = ByPublication { kind, name: name.to_owned() };
        self.ca_published.get_or_create(&labels).set(i64::from(is_published));
    }

    pub(crate) fn reconciled(&self, controller: &'static str, result: &'static str, took: Duration) {
        self.reconciles.get_or_create(&ByResult { controller, result }).inc();
        self.reconcile_time.get_or_create(&ByController { controller }).observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self, controller: &'static str, class: Class) {
        self.errors.get_or_create(&ByResult { controller, result: class.label() }).inc();
    }

    pub(crate) fn panicked(&self, controller: &'static str) {
        self.panics.get_or_create(&ByController { controller }).inc();
    }

    pub(crate) fn active(&self, controller: &'static str, by: i64) {
        self.active.get_or_create(&ByController { controller }).inc_by(by);
    }

    pub(crate) fn queue(&self, controller: &'static str) -> QueueMetrics {
        let labels = ByQueue { name: controller, controller };
        QueueMetrics {
            depth: self.depth.get_or_create(&labels).clone(),
            adds: self.adds.get_or_create(&labels).clone(),
            retries: self.retries.get_or_create(&labels).clone(),
            waited: self.waited.get_or_create(&labels).clone(),
        }
    }

    pub(crate) fn request(&self, verb: &'static str, failure: Option<Class>, took: Duration) {
        let labels = ByVerb { verb, result: failure.map_or("ok", Class::label) };
        self.requests.get_or_create(&labels).inc();
        self.request_time.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn unreadable(&self, kind: &ApiKind) {
        self.unreadable.get_or_create(&ByKind::of(kind)).inc();
    }

    pub(crate) fn watch_failed(&self, kind: &ApiKind, class: Class) {
        let ByKind { group, kind } = ByKind::of(kind);
        self.watch_failures.get_or_create(&ByKindAndResult { group, kind, result: class.label() }).inc();
    }

    pub(crate) fn event(&self, result: &'static str) {
        self.events.get_or_create(&ByOutcome { result }).inc();
    }
}

impl ByKind {
    fn of(kind: &ApiKind) -> Self {
        Self { group: kind.group.to_string(), kind: kind.kind.to_string() }
    }
}

/// One controller's queue metrics, resolved once.
#[derive(Clone, Debug)]
pub(crate) struct QueueMetrics {
    pub(crate) depth: Gauge,
    pub(crate) adds: Counter,
    pub(crate) retries: Counter,
    pub(crate) waited: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_called_as_its_samples_are() {
        let registry = MetricsRegistry::new();
        let (now, ever) = (Gauge::<i64>::default(), Counter::<u64>::default());
        registry.register(|registry| {
            registry.register("finished_workloads", "Those there are", now.clone());
            registry.register("finished_workloads", "Those there were", ever.clone());
        });
        now.set(1);
        ever.inc_by(2);
        let expected = "# HELP finished_workloads Those there are.\n\
            # TYPE finished_workloads gauge\n\
            finished_workloads 1\n\
            # HELP finished_workloads_total Those there were.\n\
            # TYPE finished_workloads_total counter\n\
            finished_workloads_total 2\n";
        assert_eq!(registry.encode(), expected);
    }
}
