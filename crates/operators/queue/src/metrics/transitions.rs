//! What the transition of a Workload from one state to the next means for counters and durations. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quintet_api::conditions;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::PodsReadyReason;
use quintet_api::kueue::v1beta2::{ClusterQueue, Cohort, LocalQueue, Workload};
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;

use super::Metric;
use super::families::Subject;

/// A counter that grows, or a duration in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Count(Metric, Vec<String>),
    Observe(Metric, Vec<String>, f64),
}

impl Change {
    /// What it is about.
    pub(super) fn subject(&self) -> Option<Subject> {
        let (Self::Count(metric, values) | Self::Observe(metric, values, _)) = self;
        metric.subject(values)
    }
}

/// Which queues belong to which Cohorts.
#[derive(Clone, Copy)]
pub(crate) struct QueueTree<'o> {
    pub(crate) cluster_queues: &'o BTreeMap<ObjectKey, Arc<Entry<ClusterQueue>>>,
    pub(crate) local_queues: &'o BTreeMap<ObjectKey, Arc<Entry<LocalQueue>>>,
    pub(crate) cohorts: &'o BTreeMap<ObjectKey, Arc<Entry<Cohort>>>,
}

impl QueueTree<'_> {
    /// The Cohorts above a ClusterQueue, the nearest first. Cohorts that are each other's parents are listed once.
    pub(super) fn above(&self, queue: &str) -> Vec<String> {
        let queue = self.cluster_queues.get(&ObjectKey::cluster(queue));
        self.from(queue.and_then(|entry| entry.object.spec.cohort_name.clone()))
    }

    /// A Cohort and those above it.
    pub(super) fn from(&self, first: Option<String>) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut next = first;
        while let Some(cohort) = next.filter(|cohort| !found.contains(cohort)) {
            let entry = self.cohorts.get(&ObjectKey::cluster(&cohort));
            next = entry.and_then(|entry| entry.object.spec.parent_name.clone());
            found.push(cohort);
        }
        found
    }

    /// The ClusterQueue that a Workload is queued in.
    pub(crate) fn queue_of(&self, workload: &Workload) -> Option<String> {
        self.local_queue_of(workload)?.spec.cluster_queue.clone()
    }

    /// The LocalQueue of a Workload.
    pub(super) fn local_queue_of(&self, workload: &Workload) -> Option<&LocalQueue> {
        let namespace = workload.metadata.namespace.as_deref()?;
        let key = ObjectKey::new(namespace, workload.spec.queue_name.as_deref()?);
        self.local_queues.get(&key).map(|entry| &entry.object)
    }
}

fn find(workload: &Workload, kind: WorkloadCondition) -> Option<&Condition> {
    conditions::find(workload.status.as_ref()?.conditions.as_deref()?, kind.as_str())
}

fn since(workload: &Workload, kind: WorkloadCondition) -> Option<Timestamp> {
    find(workload, kind).filter(|own| own.status == "True").map(|own| own.last_transition_time.0)
}

/// The time of a condition that has become true.
fn became(old: &Workload, new: &Workload, kind: WorkloadCondition) -> Option<Timestamp> {
    since(new, kind).filter(|_| since(old, kind).is_none())
}

/// The ClusterQueue of an admitted Workload, and since when it is admitted.
pub(super) fn admission(workload: &Workload) -> Option<(String, Timestamp)> {
    Some((cluster_queue(workload)?, since(workload, WorkloadCondition::Admitted)?))
}

fn cluster_queue(workload: &Workload) -> Option<String> {
    workload.status.as_ref()?.admission.as_ref()?.cluster_queue.clone()
}

/// Since when a Workload waits: its creation, or when it was queued again.
fn queued(workload: &Workload) -> Option<Timestamp> {
    let requeued = find(workload, WorkloadCondition::Requeued).map(|own| own.last_transition_time.0);
    requeued.or_else(|| workload.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn seconds(from: Option<Timestamp>, to: Timestamp) -> Option<f64> {
    from.map(|from| to.duration_since(from).as_secs_f64().max(0.0))
}

/// Collects changes of a ClusterQueue and of a LocalQueue.
struct Changes {
    found: Vec<Change>,
    queue: String,
    local_queue: [String; 2],
    class: String,
}

impl Changes {
    fn of_queue(&self, more: &[&str]) -> Vec<String> {
        std::iter::once(self.queue.clone()).chain(more.iter().map(|text| (*text).to_owned())).collect()
    }

    fn of_local_queue(&self, more: &[&str]) -> Vec<String> {
        self.local_queue.iter().cloned().chain(more.iter().map(|text| (*text).to_owned())).collect()
    }

    fn count(&mut self, metric: Metric, local: Metric) {
        let class = self.class.clone();
        self.found.push(Change::Count(metric, self.of_queue(&[&class])));
        self.found.push(Change::Count(local, self.of_local_queue(&[&class])));
    }

    fn observe(&mut self, metric: Metric, local: Metric, seconds: Option<f64>) {
        let Some(seconds) = seconds else { return };
        let class = self.class.clone();
        self.found.push(Change::Observe(metric, self.of_queue(&[&class]), seconds));
        self.found.push(Change::Observe(local, self.of_local_queue(&[&class]), seconds));
    }
}

/// What has happened between two states of a Workload.
pub(super) fn between(old: &Workload, new: &Workload, cohorts: &QueueTree<'_>) -> Vec<Change> {
    use WorkloadCondition as Of;
    let queue = cluster_queue(new).or_else(|| cluster_queue(old)).or_else(|| cohorts.queue_of(new));
    let Some(queue) = queue else { return Vec::new() };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut changes = Changes {
        found: Vec::new(),
        queue,
        local_queue: [text(&new.spec.queue_name), text(&new.metadata.namespace)],
        class: new.spec.priority_class_ref.as_ref().map(|class| class.name.clone()).unwrap_or_default(),
    };
    if let Some(at) = became(old, new, Of::QuotaReserved) {
        changes.count(Metric::QuotaReserved, Metric::LocalQuotaReserved);
        let waited = seconds(queued(new), at);
        changes.observe(Metric::QuotaReservedWait, Metric::LocalQuotaReservedWait, waited);
    }
    if let Some(at) = became(old, new, Of::Admitted) {
        changes.count(Metric::Admitted, Metric::LocalAdmitted);
        changes.observe(Metric::AdmissionWait, Metric::LocalAdmissionWait, seconds(queued(new), at));
        if new.status.as_ref().is_some_and(|status| status.admission_checks.is_some()) {
            let waited = seconds(since(new, Of::QuotaReserved), at);
            changes.observe(Metric::ChecksWait, Metric::LocalChecksWait, waited);
        }
        for cohort in cohorts.above(&changes.queue) {
            changes.found.push(Change::Count(Metric::CohortAdmitted, vec![cohort, changes.class.clone()]));
        }
    }
    let cluster = |workload: &Workload| workload.status.as_ref()?.cluster_name.clone();
    if let Some(cluster) = cluster(new).filter(|_| cluster(old).is_none()) {
        changes.found.push(Change::Count(Metric::MultiKueueAdmitted, changes.of_queue(&[&cluster])));
    }
    let starts = find(new, Of::PodsReady).is_some_and(|own| own.reason == PodsReadyReason::Started.as_str());
    if let Some(at) = became(old, new, Of::PodsReady).filter(|_| starts) {
        changes.observe(Metric::ReadyWait, Metric::LocalReadyWait, seconds(queued(new), at));
        let waited = seconds(since(new, Of::Admitted), at);
        changes.observe(Metric::AdmittedUntilReady, Metric::LocalAdmittedUntilReady, waited);
    }
    if let Some(at) = became(old, new, Of::Finished) {
        changes.count(Metric::Finished, Metric::LocalFinished);
        let status = new.status.as_ref();
        let earlier = status.and_then(|status| status.accumulated_past_execution_time_seconds).unwrap_or(0);
        let ran = seconds(since(new, Of::Admitted), at).map(|ran| ran + f64::from(earlier));
        changes.observe(Metric::ExecutionTime, Metric::LocalExecutionTime, ran);
    }
    evictions(old, new, &mut changes);
    changes.found
}

fn evictions(old: &Workload, new: &Workload, changes: &mut Changes) {
    use WorkloadCondition as Of;
    let counts = |workload: &Workload| -> BTreeMap<(String, String), i32> {
        let stats = workload.status.as_ref().and_then(|status| status.scheduling_stats.as_ref());
        let evictions = stats.into_iter().flat_map(|stats| stats.evictions.iter().flatten());
        evictions.map(|one| ((one.reason.clone(), one.underlying_cause.clone()), one.count)).collect()
    };
    let before = counts(old);
    for ((reason, cause), count) in counts(new) {
        let known = before.get(&(reason.clone(), cause.clone())).copied().unwrap_or_default();
        if count <= known {
            continue;
        }
        let class = changes.class.clone();
        let more: [&str; 3] = [&reason, &cause, &class];
        changes.found.push(Change::Count(Metric::Evicted, changes.of_queue(&more)));
        changes.found.push(Change::Count(Metric::LocalEvicted, changes.of_local_queue(&more)));
        if known == 0 {
            changes.found.push(Change::Count(Metric::EvictedOnce, changes.of_queue(&more)));
        }
        let evicted = since(new, Of::Evicted);
        if let Some(ran) = evicted.and_then(|at| seconds(since(old, Of::PodsReady), at)) {
            let values = changes.of_queue(&[&reason, &cause]);
            changes.found.push(Change::Observe(Metric::PodsReadyToEvicted, values, ran));
        }
    }
    let is_released = since(old, Of::QuotaReserved).is_some() && since(new, Of::QuotaReserved).is_none();
    let evicted = find(new, Of::Evicted).filter(|own| own.status == "True" && is_released);
    if let (Some(evicted), Some(released)) = (evicted, find(new, Of::QuotaReserved)) {
        let took = seconds(Some(evicted.last_transition_time.0), released.last_transition_time.0);
        let values = changes.of_queue(&[&evicted.reason]);
        changes.found.extend(took.map(|took| Change::Observe(Metric::EvictionLatency, values, took)));
    }
}
