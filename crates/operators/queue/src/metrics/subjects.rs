//! What is known of the objects that series are about: the values of custom labels, and which series end with them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use quintet_api::config::kueue::LocalQueueMetrics;
use quintet_controller::ObjectKey;

use super::families::Subject;
use super::{Labels, Metric};
use crate::custom_labels::{CustomLabel, SourceKind};
use crate::settings::{Settings, matches};

/// Which objects have metrics, and with which labels of their own.
pub(super) struct Subjects {
    labels: Vec<CustomLabel>,
    are_local_queues_exposed: bool,
    local_queue_metrics: Option<LocalQueueMetrics>,
    known: Mutex<BTreeMap<Subject, Known>>,
    /// Cohorts that were deleted while queues name them.
    deleted_cohorts: Mutex<BTreeSet<String>>,
}

#[derive(Default)]
struct Known {
    /// Custom labels with their values; `None` before it was observed.
    labels: Option<Labels>,
    /// Counters and durations of it.
    series: BTreeSet<(Metric, Labels)>,
}

impl Subject {
    /// The object of this kind and name.
    pub(crate) fn of(kind: SourceKind, key: &ObjectKey) -> Option<Self> {
        let name = key.name().to_owned();
        match kind {
            SourceKind::ClusterQueue => Some(Self::ClusterQueue(name)),
            SourceKind::Cohort => Some(Self::Cohort(name)),
            SourceKind::LocalQueue => Some(Self::LocalQueue { namespace: key.namespace()?.to_owned(), name }),
            SourceKind::Workload => None,
        }
    }

    fn kind(&self) -> SourceKind {
        match self {
            Self::ClusterQueue(_) => SourceKind::ClusterQueue,
            Self::Cohort(_) => SourceKind::Cohort,
            Self::LocalQueue { .. } => SourceKind::LocalQueue,
        }
    }
}

impl Subjects {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            labels: settings.custom_labels.clone(),
            are_local_queues_exposed: settings.gates.local_queue_metrics,
            local_queue_metrics: settings.configuration.metrics.local_queue_metrics.clone(),
            known: Mutex::default(),
            deleted_cohorts: Mutex::default(),
        }
    }

    /// Whether there are metrics of a LocalQueue.
    pub(super) fn exposes(&self, queue: &ObjectMeta) -> bool {
        self.are_local_queues_exposed
            && self.local_queue_metrics.as_ref().is_none_or(|settings| {
                let labels = queue.labels.clone().unwrap_or_default();
                settings.enable
                    && settings
                        .local_queue_selector
                        .as_ref()
                        .is_none_or(|selector| matches(selector, &labels))
            })
    }

    /// Whether Workloads are told apart by their own labels.
    pub(super) fn have_labels_of_workloads(&self) -> bool {
        self.labels.iter().any(|label| label.is_of(SourceKind::Workload))
    }

    /// The custom labels of a kind, with the values that an object has.
    pub(super) fn read(&self, kind: SourceKind, metadata: &ObjectMeta) -> Labels {
        let of_kind = self.labels.iter().filter(|label| label.is_of(kind));
        of_kind.map(|label| (label.metric_label().into(), label.value(metadata))).collect()
    }

    /// The custom labels of a series. An object that is not known has the values of one without labels.
    pub(super) fn labels_of(&self, subject: &Subject) -> Labels {
        if self.labels.is_empty() {
            return Labels::new();
        }
        let known = self.known.lock().get(subject).and_then(|known| known.labels.clone());
        known.unwrap_or_else(|| self.read(subject.kind(), &ObjectMeta::default()))
    }

    /// Takes in how an object is now.
    pub(super) fn observe(&self, subject: Subject, metadata: &ObjectMeta) {
        if let Subject::Cohort(name) = &subject {
            self.deleted_cohorts.lock().remove(name);
        }
        if !self.labels.is_empty() {
            let labels = self.read(subject.kind(), metadata);
            self.known.lock().entry(subject).or_default().labels = Some(labels);
        }
    }

    /// Remembers a series until its object is gone.
    pub(super) fn remember(&self, subject: Subject, metric: Metric, labels: Labels) {
        self.known.lock().entry(subject).or_default().series.insert((metric, labels));
    }

    /// The series that end because there are no metrics of an object any more.
    pub(super) fn take(&self, subject: &Subject) -> BTreeSet<(Metric, Labels)> {
        self.known.lock().get_mut(subject).map(|known| std::mem::take(&mut known.series)).unwrap_or_default()
    }

    /// The same of an object that is gone.
    pub(super) fn forget(&self, subject: &Subject) -> BTreeSet<(Metric, Labels)> {
        if let Subject::Cohort(name) = subject {
            self.deleted_cohorts.lock().insert(name.clone());
        }
        self.known.lock().remove(subject).map(|known| known.series).unwrap_or_default()
    }

    /// Whether there are gauges of the quota of a Cohort: not once it was deleted, as in Kueue.
    pub(super) fn has_quota(&self, cohort: &str) -> bool {
        !self.deleted_cohorts.lock().contains(cohort)
    }

    /// Forgets deleted Cohorts that no queue names any more.
    pub(super) fn keep_deleted(&self, named: &BTreeSet<Subject>) {
        self.deleted_cohorts.lock().retain(|name| named.contains(&Subject::Cohort(name.clone())));
    }

    /// Cohorts with series.
    pub(super) fn counted_cohorts(&self) -> Vec<Subject> {
        let known = self.known.lock();
        let cohorts = known
            .iter()
            .filter(|(subject, known)| matches!(subject, Subject::Cohort(_)) && !known.series.is_empty());
        cohorts.map(|(subject, _)| subject.clone()).collect()
    }
}
