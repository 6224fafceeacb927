//! What the scheduler counts.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::conditions;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::ObjectKey;
use quintet_controller::index::Update;
use quintet_queue_engine::{CycleReport, Decision};

use super::{Effect, Scheduler, SchedulerEvent};
use crate::custom_labels::SourceKind;
use crate::metrics::{Metric, ObservedQueues, QueueMetrics, read_gauges};

impl Scheduler {
    /// Counts a cycle that had something to decide.
    pub(super) fn count_cycle(&self, report: &CycleReport, took: Duration) {
        let Some(metrics) = self.metrics.as_ref().filter(|_| report.heads > 0) else { return };
        let result = if report.admitted() > 0 { "success" } else { "inadmissible" }.to_owned();
        metrics.count(Metric::AdmissionAttempts, std::slice::from_ref(&result), 1);
        metrics.observe(Metric::AdmissionAttemptDuration, &[result], took.as_secs_f64());
        let names = self.engine.names();
        for ((queue, result), count) in &report.recomputations {
            let labels = [names.queue_name(*queue).to_owned(), (*result).to_owned()];
            metrics.count(Metric::PreemptionRecomputations, &labels, u64::from(*count));
        }
        for (queue, count) in &report.skipped_preemptions {
            let labels = [names.queue_name(*queue).to_owned()];
            metrics.set(Metric::PreemptionSkips, &labels, f64::from(*count));
        }
    }

    /// Counts a preemption for the queue that it makes room in.
    pub(super) fn count_preemption(&self, decision: &Decision, effect: Effect, victim: &Workload) {
        let Some(metrics) = self.metrics.as_ref().filter(|_| effect == Effect::Preemption) else { return };
        let status = victim.status.as_ref().and_then(|status| status.conditions.as_deref());
        let preempted = conditions::find(status.unwrap_or_default(), WorkloadCondition::Preempted.as_str());
        let preemptor = self.engine.workload(decision.workload).map(|preemptor| {
            let namespace = self.engine.names().namespaces.name(preemptor.key.namespace);
            ObjectKey::new(namespace, &preemptor.key.name)
        });
        let preemptor = preemptor.and_then(|key| self.workloads.get(&key));
        let queue = preemptor.and_then(|entry| self.statuses.queues().queue_of(&entry.object));
        if let (Some(preempted), Some(queue)) = (preempted, queue) {
            metrics.count(Metric::Preempted, &[queue, preempted.reason.clone()], 1);
        }
    }

    /// Counts what has become of a Workload that is known already, and follows the objects that metrics are about.
    pub(super) fn count_transition(&self, event: &SchedulerEvent) {
        let Some(metrics) = &self.metrics else { return };
        match event {
            SchedulerEvent::ClusterQueue(update) => {
                follow_object(metrics, SourceKind::ClusterQueue, update, |queue| &queue.metadata);
            }
            SchedulerEvent::LocalQueue(update) => {
                follow_object(metrics, SourceKind::LocalQueue, update, |queue| &queue.metadata);
            }
            SchedulerEvent::Cohort(update) => {
                follow_object(metrics, SourceKind::Cohort, update, |cohort| &cohort.metadata);
            }
            SchedulerEvent::Workload(Update::Applied(new)) => {
                let known = self.workloads.get(&new.key);
                let old = known.filter(|old| old.uid == new.uid && old.version < new.version);
                if let Some(old) = old {
                    metrics.follow(&old.object, &new.object, &self.statuses.queues());
                }
            }
            _ => {}
        }
    }

    /// Publishes gauges when statuses are written, too.
    pub(super) fn publish_gauges(&self, now: Timestamp) {
        let Some(metrics) = self.metrics.as_ref() else { return };
        metrics.lead();
        if self.statuses.due().is_some_and(|due| due <= now) {
            metrics.publish(&read_gauges(&ObservedQueues {
                engine: &self.engine,
                queues: self.statuses.queues(),
                workloads: &self.workloads,
                configuration: &self.configuration,
                metrics,
            }));
        }
    }
}

fn follow_object<T>(
    metrics: &QueueMetrics,
    kind: SourceKind,
    update: &Update<T>,
    metadata: impl Fn(&T) -> &ObjectMeta,
) {
    let present = match update {
        Update::Applied(entry) => Some(metadata(&entry.object)),
        Update::Deleted(_) => None,
    };
    metrics.follow_object(kind, update.key(), present);
}
