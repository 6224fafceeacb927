//! What indexes count.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByIndex {
    index: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    index: &'static str,
    result: &'static str,
}

/// The metrics of all indexes.
#[derive(Debug)]
pub(crate) struct IndexMetrics {
    events: Family<ByIndex, Counter>,
    decisions: Family<ByIndex, Counter>,
    decide_time: Family<ByIndex, Histogram, fn() -> Histogram>,
    writes: Family<ByResult, Counter>,
    outstanding: Family<ByIndex, Gauge>,
    audits: Family<ByResult, Counter>,
}

impl Default for IndexMetrics {
    fn default() -> Self {
        Self {
            events: Family::default(),
            decisions: Family::default(),
            // 10 µs to about 40 s.
            decide_time: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-5, 2.0, 22))),
            writes: Family::default(),
            outstanding: Family::default(),
            audits: Family::default(),
        }
    }
}

impl IndexMetrics {
    pub(crate) fn add_to(&self, registry: &mut Registry) {
        // The encoder appends `_total` to counters.
        registry.register(
            "quintet_index_events",
            "Changes of objects applied to an index",
            self.events.clone(),
        );
        registry.register(
            "quintet_index_decisions",
            "Writes that an index decided on",
            self.decisions.clone(),
        );
        registry.register(
            "quintet_index_decide_duration_seconds",
            "Time that one run of decide took",
            self.decide_time.clone(),
        );
        registry.register("quintet_index_writes", "Writes of an index per outcome", self.writes.clone());
        registry.register(
            "quintet_index_outstanding_writes",
            "Writes of an index that wait or are inflight",
            self.outstanding.clone(),
        );
        registry.register(
            "quintet_index_audits",
            "Comparisons of an index with one rebuilt from the caches, per result",
            self.audits.clone(),
        );
    }

    /// The metrics of one index, found once and then only touched.
    pub(crate) fn of(&self, index: &'static str) -> MetricsOfIndex {
        let label = ByIndex { index };
        MetricsOfIndex {
            index,
            events: self.events.get_or_create(&label).clone(),
            decisions: self.decisions.get_or_create(&label).clone(),
            decide_time: self.decide_time.get_or_create(&label).clone(),
            writes: self.writes.clone(),
            outstanding: self.outstanding.get_or_create(&label).clone(),
            audits: self.audits.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct MetricsOfIndex {
    index: &'static str,
    events: Counter,
    decisions: Counter,
    decide_time: Histogram,
    writes: Family<ByResult, Counter>,
    outstanding: Gauge,
    audits: Family<ByResult, Counter>,
}

impl MetricsOfIndex {
    pub(crate) fn applied(&self) {
        self.events.inc();
    }

    pub(crate) fn decided(&self, writes: usize, took: Duration) {
        self.decisions.inc_by(writes as u64);
        self.decide_time.observe(took.as_secs_f64());
    }

    pub(crate) fn wrote(&self, result: &'static str) {
        self.writes.get_or_create(&ByResult { index: self.index, result }).inc();
    }

    pub(crate) fn outstanding(&self, writes: usize) {
        self.outstanding.set(i64::try_from(writes).unwrap_or(i64::MAX));
    }

    pub(crate) fn audited(&self, result: &'static str) {
        self.audits.get_or_create(&ByResult { index: self.index, result }).inc();
    }
}
