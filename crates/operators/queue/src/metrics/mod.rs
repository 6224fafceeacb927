//! Metrics of the queue operator, with the names, labels and buckets of Kueue's.
//!
//! Counters and durations follow from transitions of Workloads, as the caches show them; gauges are read from the engine
//! when the statuses of queues are written.

mod families;
mod gauges;
mod subjects;
#[cfg(test)]
mod tests;
mod transitions;

use std::borrow::Cow;
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
use prometheus_client::registry::Registry;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::ObjectKey;
use quintet_controller::metrics::MetricsRegistry;
use quintet_controller::object::Uid;

pub(crate) use families::Metric;
use families::{Buckets, Kind, Subject};
pub(crate) use gauges::{Observed as ObservedQueues, read as read_gauges};
use subjects::Subjects;
pub(crate) use transitions::QueueTree;

use crate::custom_labels::SourceKind;
use crate::settings::{Gates, Settings};

const PREFIX: &str = "kueue";
const MULTIKUEUE: &str = "multikueue_";
const ROLE: &str = "replica_role";

pub(crate) type Labels = Vec<(Cow<'static, str>, String)>;

/// The values of a metric.
enum Store {
    Counter(Series<Labels, Counter>),
    Gauge(Series<Labels, Gauge<f64, AtomicU64>>),
    Histogram(Series<Labels, Histogram, fn() -> Histogram>),
}

/// A value of a gauge.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) metric: Metric,
    pub(crate) values: Vec<String>,
    /// Custom labels of the Workloads that are counted.
    pub(crate) of_workload: Labels,
    pub(crate) value: f64,
}

impl Sample {
    pub(crate) fn new(metric: Metric, values: Vec<String>, value: f64) -> Self {
        Self { metric, values, of_workload: Labels::new(), value }
    }
}

/// All metrics.
pub(crate) struct QueueMetrics {
    stores: Vec<Store>,
    /// Whether replicas contend for the lease.
    is_contended: bool,
    leads: AtomicBool,
    /// What was published last, to be removed when it is gone.
    published: Mutex<BTreeMap<Metric, BTreeSet<Labels>>>,
    objects: Subjects,
    /// The Cohorts in which each admitted Workload is counted.
    admitted: Mutex<BTreeMap<Uid, Vec<String>>>,
    /// Those that a feature gate switches off.
    left_out: Vec<Metric>,
}

/// What has a feature gate of its own.
fn left_out(gates: &Gates) -> Vec<Metric> {
    let of_cohorts = [
        Metric::CohortQuota,
        Metric::CohortReservations,
        Metric::CohortAdmitted,
        Metric::CohortAdmittedNow,
        Metric::CohortInfo,
        Metric::ClusterQueueInfo,
    ];
    let of_cohorts = of_cohorts.into_iter().filter(|_| !gates.cohort_metrics);
    let of_jobs = [Metric::CreationLatency].into_iter().filter(|_| !gates.creation_latency_metric);
    of_cohorts.chain(of_jobs).collect()
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
    pub(crate) fn register(registry: &MetricsRegistry, is_contended: bool, settings: &Settings) -> Arc<Self> {
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
            objects: Subjects::new(settings),
            admitted: Mutex::default(),
            left_out: left_out(&settings.gates),
        });
        registry.register(|registry| {
            // Those of MultiKueue have a prefix of their own.
            metrics.add_to(registry, |name| name.starts_with(MULTIKUEUE));
            metrics.add_to(registry.sub_registry_with_prefix(PREFIX), |name| !name.starts_with(MULTIKUEUE));
        });
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        let version = format!("v{}", env!("CARGO_PKG_VERSION"));
        let build = [version, String::new(), String::new(), String::new(), "rustc".to_owned(), platform];
        metrics.set(Metric::BuildInfo, &build, 1.0);
        metrics
    }

    fn add_to(&self, registry: &mut Registry, is_chosen: impl Fn(&str) -> bool) {
        for (metric, store) in Metric::ALL.iter().zip(&self.stores) {
            let family = metric.family();
            if !is_chosen(family.name) {
                continue;
            }
            match store {
                Store::Counter(series) => registry.register(family.name, family.help, series.clone()),
                Store::Gauge(series) => registry.register(family.name, family.help, series.clone()),
                Store::Histogram(series) => registry.register(family.name, family.help, series.clone()),
            }
        }
    }

    /// From now on this replica decides.
    pub(crate) fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// The labels of a series: those of its metric, the role of this replica, and custom ones of the object that it is about.
    fn labels(&self, metric: Metric, values: &[String], subject: Option<&Subject>) -> Labels {
        let names = metric.family().labels;
        debug_assert_eq!(names.len(), values.len(), "{metric:?}");
        let mut labels: Labels =
            names.iter().map(|name| Cow::Borrowed(*name)).zip(values.iter().cloned()).collect();
        if metric != Metric::BuildInfo {
            let role = match (self.is_contended, self.leads.load(Ordering::Relaxed)) {
                (false, _) => "standalone",
                (true, true) => "leader",
                (true, false) => "follower",
            };
            labels.push((Cow::Borrowed(ROLE), role.to_owned()));
        }
        labels.extend(subject.map(|subject| self.objects.labels_of(subject)).unwrap_or_default());
        labels
    }

    fn store(&self, metric: Metric) -> Option<&Store> {
        if self.left_out.contains(&metric) {
            return None;
        }
        let index = Metric::ALL.iter().position(|known| *known == metric)?;
        self.stores.get(index)
    }

    /// Counts something.
    pub(crate) fn count(&self, metric: Metric, values: &[String], by: u64) {
        if let Some(Store::Counter(series)) = self.store(metric) {
            let subject = metric.subject(values);
            let labels = self.labels(metric, values, subject.as_ref());
            series.get_or_create(&labels).inc_by(by);
            self.remember(subject, metric, labels);
        }
    }

    /// Observes a duration in seconds.
    pub(crate) fn observe(&self, metric: Metric, values: &[String], seconds: f64) {
        if let Some(Store::Histogram(series)) = self.store(metric) {
            let subject = metric.subject(values);
            let labels = self.labels(metric, values, subject.as_ref());
            series.get_or_create(&labels).observe(seconds);
            self.remember(subject, metric, labels);
        }
    }

    /// Sets a gauge that is not published with the others.
    pub(crate) fn set(&self, metric: Metric, values: &[String], value: f64) {
        let labels = self.set_gauge(&Sample::new(metric, values.to_vec(), value));
        self.remember(metric.subject(values), metric, labels);
    }

    fn remember(&self, subject: Option<Subject>, metric: Metric, labels: Labels) {
        if let Some(subject) = subject {
            self.objects.remember(subject, metric, labels);
        }
    }

    fn set_gauge(&self, sample: &Sample) -> Labels {
        let Sample { metric, values, of_workload, value } = sample;
        let mut labels = self.labels(*metric, values, metric.subject(values).as_ref());
        labels.extend(of_workload.iter().cloned());
        if let Some(Store::Gauge(series)) = self.store(*metric) {
            series.get_or_create(&labels).set(*value);
        }
        labels
    }

    /// Ends series.
    fn end(&self, ended: BTreeSet<(Metric, Labels)>) {
        for (metric, labels) in ended {
            match self.store(metric) {
                Some(Store::Counter(series)) => series.remove(&labels),
                Some(Store::Gauge(series)) => series.remove(&labels),
                Some(Store::Histogram(series)) => series.remove(&labels),
                None => false,
            };
        }
    }

    /// Takes in how an object is now that metrics are about; `None` if it is gone. Its counters end with it.
    pub(crate) fn follow_object(&self, kind: SourceKind, key: &ObjectKey, metadata: Option<&ObjectMeta>) {
        let Some(subject) = Subject::of(kind, key) else { return };
        match metadata {
            None => {
                if let Subject::Cohort(name) = &subject {
                    self.admitted.lock().values_mut().for_each(|counted| counted.retain(|own| own != name));
                }
                self.end(self.objects.forget(&subject));
            }
            Some(metadata) => {
                if kind == SourceKind::LocalQueue && !self.objects.exposes(metadata) {
                    self.end(self.objects.take(&subject));
                }
                self.objects.observe(subject, metadata);
            }
        }
    }

    /// Whether there are metrics of a LocalQueue.
    pub(crate) fn exposes(&self, queue: &ObjectMeta) -> bool {
        self.objects.exposes(queue)
    }

    /// Whether there are gauges of the quota of a Cohort.
    pub(crate) fn has_quota(&self, cohort: &str) -> bool {
        self.objects.has_quota(cohort)
    }

    /// The Cohorts of admitted Workloads, once for each: those that it was admitted below, whatever has moved since, as far
    /// as they have not been deleted meanwhile. As Kueue counts.
    pub(crate) fn admitted_below<'w>(
        &self,
        workloads: impl Iterator<Item = (Uid, &'w str)>,
        above: impl Fn(&str) -> Vec<String>,
        known: &BTreeMap<String, Vec<String>>,
    ) -> Vec<String> {
        let mut admitted = self.admitted.lock();
        let mut before = std::mem::take(&mut *admitted);
        for (workload, queue) in workloads {
            let mut counted = before.remove(&workload).unwrap_or_else(|| above(queue));
            counted.retain(|cohort| known.contains_key(cohort));
            admitted.insert(workload, counted);
        }
        admitted.values().flatten().cloned().collect()
    }

    /// Whether admitted Workloads are told apart by labels of their own.
    pub(crate) fn tells_workloads_apart(&self) -> bool {
        self.objects.have_labels_of_workloads()
    }

    /// The custom labels of a Workload.
    pub(crate) fn labels_of_workload(&self, workload: &ObjectMeta) -> Labels {
        self.objects.read(SourceKind::Workload, workload)
    }

    /// Publishes gauges, and removes those of earlier that are not among them.
    pub(crate) fn publish(&self, samples: &[Sample]) {
        let mut now: BTreeMap<Metric, BTreeSet<Labels>> = BTreeMap::new();
        for sample in samples {
            now.entry(sample.metric).or_default().insert(self.set_gauge(sample));
        }
        let before = std::mem::replace(&mut *self.published.lock(), now.clone());
        for (metric, series) in before {
            let Some(Store::Gauge(store)) = self.store(metric) else { continue };
            let kept = now.get(&metric);
            for labels in series.iter().filter(|labels| !kept.is_some_and(|kept| kept.contains(*labels))) {
                store.remove(labels);
            }
        }
        self.end_cohorts(samples);
    }

    /// Ends the counters of Cohorts that no object describes and no queue names any more.
    fn end_cohorts(&self, samples: &[Sample]) {
        let known: BTreeSet<Subject> = samples
            .iter()
            .filter(|sample| sample.metric == Metric::CohortInfo)
            .filter_map(|sample| sample.metric.subject(&sample.values))
            .collect();
        for gone in self.objects.counted_cohorts().iter().filter(|cohort| !known.contains(*cohort)) {
            self.end(self.objects.forget(gone));
        }
        self.objects.keep_deleted(&known);
    }

    /// Counts what has become of a Workload.
    pub(crate) fn follow(&self, old: &Workload, new: &Workload, queues: &QueueTree<'_>) {
        let is_exposed = queues.local_queue_of(new).is_some_and(|queue| self.exposes(&queue.metadata));
        for change in transitions::between(old, new, queues) {
            if !is_exposed && matches!(change.subject(), Some(Subject::LocalQueue { .. })) {
                continue;
            }
            match change {
                transitions::Change::Count(metric, values) => self.count(metric, &values, 1),
                transitions::Change::Observe(metric, values, seconds) => {
                    self.observe(metric, &values, seconds);
                }
            }
        }
    }

    /// A Workload was created for a job of this kind.
    pub(crate) fn created(&self, kind: &str, job: &ObjectMeta, workload: &Workload) {
        let time = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|time| time.0);
        if let (Some(job), Some(created)) = (time(job), time(&workload.metadata))
            && let Some(Store::Histogram(series)) = self.store(Metric::CreationLatency)
        {
            let subject = Subject::LocalQueue {
                namespace: workload.metadata.namespace.clone().unwrap_or_default(),
                name: workload.spec.queue_name.clone().unwrap_or_default(),
            };
            let labels = self.labels(Metric::CreationLatency, &[kind.to_owned()], Some(&subject));
            series.get_or_create(&labels).observe(created.duration_since(job).as_secs_f64().max(0.0));
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
