//! Metrics of the queue operator, with the names, labels and buckets of Kueue's.
//!
//! Counters and durations follow from transitions of Workloads, as the caches show them; gauges are read from the engine
//! when the statuses of queues are written.

mod families;
mod gauges;
#[cfg(test)]
mod tests;
mod transitions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Series;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::metrics::MetricsRegistry;

pub(crate) use families::Metric;
use families::{Buckets, Kind};
pub(crate) use gauges::{Observed as ObservedQueues, read as read_gauges};
pub(crate) use transitions::QueueTree;

const PREFIX: &str = "kueue";
const ROLE: &str = "replica_role";

type Labels = Vec<(&'static str, String)>;

/// The values of a metric.
enum Store {
    Counter(Series<Labels, Counter>),
    Gauge(Series<Labels, Gauge<f64, AtomicU64>>),
    Histogram(Series<Labels, Histogram, fn() -> Histogram>),
}

/// A value of a gauge.
pub(crate) type Sample = (Metric, Vec<String>, f64);

/// All metrics.
pub(crate) struct QueueMetrics {
    stores: Vec<Store>,
    /// Whether replicas contend for the lease.
    is_contended: bool,
    leads: AtomicBool,
    /// What was published last, to be removed when it is gone.
    published: Mutex<BTreeMap<Metric, BTreeSet<Labels>>>,
}

fn usual() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

/// Ten milliseconds, and twice as much ten times.
fn creation() -> Histogram {
    Histogram::new(std::iter::successors(Some(0.01), |bound| Some(bound * 2.0)).take(11))
}

fn waits(count: usize) -> Histogram {
    let doubled = std::iter::successors(Some(2.5), |bound| Some(bound * 2.0));
    Histogram::new(std::iter::once(1.0).chain(doubled).take(count))
}

fn histogram(buckets: Buckets) -> fn() -> Histogram {
    match buckets {
        Buckets::Usual => usual,
        Buckets::Creation => creation,
        Buckets::Waiting => || waits(14),
        Buckets::Long => || waits(16),
    }
}

impl QueueMetrics {
    /// Registers all metrics.
    pub(crate) fn register(registry: &MetricsRegistry, is_contended: bool) -> Arc<Self> {
        let store = |metric: &Metric| match metric.family().kind {
            Kind::Counter => Store::Counter(Series::default()),
            Kind::Gauge => Store::Gauge(Series::default()),
            Kind::Histogram(buckets) => Store::Histogram(Series::new_with_constructor(histogram(buckets))),
        };
        let metrics = Arc::new(Self {
            stores: Metric::ALL.iter().map(store).collect(),
            is_contended,
            leads: AtomicBool::new(false),
            published: Mutex::default(),
        });
        registry.register(|registry| {
            let registry = registry.sub_registry_with_prefix(PREFIX);
            for (metric, store) in Metric::ALL.iter().zip(&metrics.stores) {
                let family = metric.family();
                match store {
                    Store::Counter(series) => registry.register(family.name, family.help, series.clone()),
                    Store::Gauge(series) => registry.register(family.name, family.help, series.clone()),
                    Store::Histogram(series) => registry.register(family.name, family.help, series.clone()),
                }
            }
        });
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        let version = format!("v{}", env!("CARGO_PKG_VERSION"));
        let build = [version, String::new(), String::new(), String::new(), "rustc".to_owned(), platform];
        metrics.set(&(Metric::BuildInfo, build.into(), 1.0));
        metrics
    }

    /// From now on this replica decides.
    pub(crate) fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    fn labels(&self, metric: Metric, values: &[String]) -> Labels {
        let names = metric.family().labels;
        debug_assert_eq!(names.len(), values.len(), "{metric:?}");
        let mut labels: Labels = names.iter().copied().zip(values.iter().cloned()).collect();
        if metric != Metric::BuildInfo {
            let role = match (self.is_contended, self.leads.load(Ordering::Relaxed)) {
                (false, _) => "standalone",
                (true, true) => "leader",
                (true, false) => "follower",
            };
            labels.push((ROLE, role.to_owned()));
        }
        labels
    }

    fn store(&self, metric: Metric) -> Option<&Store> {
        let index = Metric::ALL.iter().position(|known| *known == metric)?;
        self.stores.get(index)
    }

    /// Counts something.
    pub(crate) fn count(&self, metric: Metric, values: &[String], by: u64) {
        if let Some(Store::Counter(series)) = self.store(metric) {
            series.get_or_create(&self.labels(metric, values)).inc_by(by);
        }
    }

    /// Observes a duration in seconds.
    pub(crate) fn observe(&self, metric: Metric, values: &[String], seconds: f64) {
        if let Some(Store::Histogram(series)) = self.store(metric) {
            series.get_or_create(&self.labels(metric, values)).observe(seconds);
        }
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, (metric, values, value): &Sample) -> Labels {
        let labels = self.labels(*metric, values);
        if let Some(Store::Gauge(series)) = self.store(*metric) {
            series.get_or_create(&labels).set(*value);
        }
        labels
    }

    /// Publishes gauges, and removes those of earlier that are not among them.
    pub(crate) fn publish(&self, samples: &[Sample]) {
        let mut now: BTreeMap<Metric, BTreeSet<Labels>> = BTreeMap::new();
        for sample in samples {
            now.entry(sample.0).or_default().insert(self.set(sample));
        }
        let before = std::mem::replace(&mut *self.published.lock(), now.clone());
        for (metric, series) in before {
            let Some(Store::Gauge(store)) = self.store(metric) else { continue };
            let kept = now.get(&metric);
            for labels in series.iter().filter(|labels| !kept.is_some_and(|kept| kept.contains(*labels))) {
                store.remove(labels);
            }
        }
    }

    /// Counts what has become of a Workload.
    pub(crate) fn follow(&self, old: &Workload, new: &Workload, cohorts: &QueueTree<'_>) {
        for change in transitions::between(old, new, cohorts) {
            match change {
                transitions::Change::Count(metric, values) => self.count(metric, &values, 1),
                transitions::Change::Observe(metric, values, seconds) => {
                    self.observe(metric, &values, seconds);
                }
            }
        }
    }

    /// A Workload was created for a job of this kind.
    pub(crate) fn created(&self, kind: &str, job: &ObjectMeta, workload: &ObjectMeta) {
        let time = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|time| time.0);
        if let (Some(job), Some(workload)) = (time(job), time(workload)) {
            let seconds = workload.duration_since(job).as_secs_f64().max(0.0);
            self.observe(Metric::CreationLatency, &[kind.to_owned()], seconds);
        }
    }

    /// The admission gate of a pod of this Workload was removed.
    pub(crate) fn ungated(&self, gate: &str, workload: &Workload, is_group: bool, now: Timestamp) {
        if let Some((queue, admitted)) = transitions::admission(workload) {
            let values = [gate.to_owned(), queue, is_group.to_string()];
            self.observe(Metric::GateRemoval, &values, now.duration_since(admitted).as_secs_f64().max(0.0));
        }
    }
}
