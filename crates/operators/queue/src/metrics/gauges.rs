//! Gauges: what queues and Cohorts are and hold, read from the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use quintet_api::Quantity;
use quintet_api::config::kueue::QueueConfiguration;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, ResourceGroup, StopPolicy, Workload};
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;
use quintet_queue_engine::{Engine, FlavorReport, QueueReport};

use super::{Metric, QueueTree, Sample};
use crate::settings::matches;

const STATUSES: [&str; 2] = ["active", "inadmissible"];

/// What gauges are read from.
pub(crate) struct Observed<'o> {
    pub(crate) engine: &'o Engine,
    pub(crate) queues: QueueTree<'o>,
    pub(crate) workloads: &'o BTreeMap<ObjectKey, Arc<Entry<Workload>>>,
    pub(crate) configuration: &'o QueueConfiguration,
}

struct Gauges<'o> {
    observed: &'o Observed<'o>,
    samples: Vec<Sample>,
}

/// The values of all gauges.
pub(crate) fn read(observed: &Observed<'_>) -> Vec<Sample> {
    let mut gauges = Gauges { observed, samples: Vec::new() };
    for entry in observed.queues.cluster_queues.values() {
        gauges.cluster_queue(entry);
    }
    for entry in observed.queues.local_queues.values() {
        if gauges.is_exposed(&entry.object) {
            gauges.local_queue(entry);
        }
    }
    gauges.cohorts();
    gauges.workloads();
    gauges.samples
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn number(count: usize) -> f64 {
    count as f64
}

/// A quantity in units. The API server refuses what is not one.
#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn amount(text: &str) -> f64 {
    text.parse::<Quantity>().map_or(f64::NAN, |quantity| quantity.nanos() as f64 / 1e9)
}

/// The largest share stands for an infinite one.
#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn share(share: i64) -> f64 {
    if share == i64::MAX { f64::NAN } else { share as f64 }
}

impl Gauges<'_> {
    fn add(&mut self, metric: Metric, labels: &[&str], value: f64) {
        self.samples.push((metric, texts(labels), value));
    }

    /// Whether there are metrics of a LocalQueue.
    fn is_exposed(&self, queue: &LocalQueue) -> bool {
        self.observed.configuration.metrics.local_queue_metrics.as_ref().is_none_or(|settings| {
            let labels = queue.metadata.labels.clone().unwrap_or_default();
            settings.enable
                && settings.local_queue_selector.as_ref().is_none_or(|selector| matches(selector, &labels))
        })
    }

    fn cluster_queue(&mut self, entry: &Entry<ClusterQueue>) {
        let engine = self.observed.engine;
        let name = entry.key.name();
        let Some(report) = engine.queue_report(name) else { return };
        self.counts(
            &report,
            &[name],
            [Metric::PendingWorkloads, Metric::ReservingWorkloads, Metric::AdmittedNow],
        );
        let status = match (entry.deleting, engine.is_queue_active(name)) {
            (true, _) => "terminating",
            (false, Some(true)) => "active",
            (false, _) => "pending",
        };
        for known in ["pending", "active", "terminating"] {
            self.add(Metric::ClusterQueueStatus, &[name, known], f64::from(u8::from(known == status)));
        }
        let above = self.observed.queues.above(name);
        let (parent, root) =
            (above.first().cloned().unwrap_or_default(), above.last().cloned().unwrap_or_default());
        self.add(Metric::ClusterQueueInfo, &[name, &parent, &root], 1.0);
        if let Some(pending) = engine.queue_id(name).and_then(|id| engine.pending(id)) {
            let (active, inadmissible) = pending.shapes();
            for (status, count) in STATUSES.into_iter().zip([active.len(), inadmissible.len()]) {
                self.add(Metric::PendingHashes, &[name, status], number(count));
            }
            if self.observed.configuration.metrics.enable_cluster_queue_resources {
                for (resource, value) in pending.pending_requests().iter() {
                    let resource_name = engine.names().resource_name(resource).to_owned();
                    let value = amount(&engine.names().format(resource, value));
                    self.add(Metric::ResourcePending, &[name, &resource_name], value);
                }
            }
        }
        if self.observed.configuration.metrics.enable_cluster_queue_resources {
            self.quotas(entry, &parent);
            self.usage(Metric::ResourceReservation, &[&parent, name], &report.reservation);
            self.usage(Metric::ResourceUsage, &[&parent, name], &report.usage);
            if engine.settings().is_fair() {
                let value = share(engine.queue_share(name).unwrap_or_default());
                self.add(Metric::WeightedShare, &[name, &parent], value);
            }
        }
    }

    fn counts(&mut self, report: &QueueReport, labels: &[&str], metrics: [Metric; 3]) {
        let [pending, reserving, admitted] = metrics;
        let counts = [report.pending - report.inadmissible, report.inadmissible];
        for (status, count) in STATUSES.into_iter().zip(counts) {
            self.add(pending, &[labels, &[status]].concat(), number(count));
        }
        self.add(reserving, labels, number(report.reserving));
        self.add(admitted, labels, number(report.admitted));
    }

    fn usage(&mut self, metric: Metric, labels: &[&str], flavors: &[FlavorReport]) {
        for flavor in flavors {
            for (resource, usage) in &flavor.resources {
                self.add(metric, &[labels, &[&flavor.flavor, resource]].concat(), amount(&usage.total));
            }
        }
    }

    fn quotas(&mut self, entry: &Entry<ClusterQueue>, cohort: &str) {
        let name = entry.key.name();
        for group in entry.object.spec.resource_groups.iter().flatten() {
            for flavor in &group.flavors {
                for quota in &flavor.resources {
                    let labels = [cohort, name, &flavor.name, &quota.name];
                    let limit =
                        |limit: Option<&ApiQuantity>| limit.map_or(f64::INFINITY, |limit| amount(&limit.0));
                    self.add(Metric::NominalQuota, &labels, amount(&quota.nominal_quota.0));
                    self.add(Metric::BorrowingLimit, &labels, limit(quota.borrowing_limit.as_ref()));
                    self.add(Metric::LendingLimit, &labels, limit(quota.lending_limit.as_ref()));
                }
            }
        }
    }

    fn local_queue(&mut self, entry: &Entry<LocalQueue>) {
        let engine = self.observed.engine;
        let (namespace, name) = (entry.key.namespace().unwrap_or_default(), entry.key.name());
        let report = engine.local_queue_report(namespace, name);
        let labels = [name, namespace];
        self.counts(
            &report,
            &labels,
            [Metric::LocalPendingWorkloads, Metric::LocalReservingWorkloads, Metric::LocalAdmittedNow],
        );
        let queue = entry.object.spec.cluster_queue.clone().unwrap_or_default();
        let is_open = matches!(entry.object.spec.stop_policy, None | Some(StopPolicy::None));
        let active = if is_open && engine.is_queue_active(&queue) == Some(true) { "True" } else { "False" };
        for known in ["True", "False", "Unknown"] {
            self.add(
                Metric::LocalQueueStatus,
                &[name, namespace, known],
                f64::from(u8::from(known == active)),
            );
        }
        self.usage(Metric::LocalResourceReservation, &labels, &report.reservation);
        self.usage(Metric::LocalResourceUsage, &labels, &report.usage);
        if self.observed.configuration.admission_fair_sharing.is_some()
            && let Some(id) = engine.names().find_local_queue(namespace, name)
        {
            let usage = engine.local_queue_usage(id);
            self.add(Metric::LocalFairSharingUsage, &[name, namespace, &queue], usage);
        }
    }

    /// Cohorts, also those that no object describes, with what is below them.
    fn cohorts(&mut self) {
        let (engine, queues) = (self.observed.engine, self.observed.queues);
        let mut sums: BTreeMap<(Metric, Vec<String>), f64> = BTreeMap::new();
        let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in queues.cohorts.values() {
            let name = entry.key.name().to_owned();
            let above = queues.from(Some(name.clone()));
            quota(entry.object.spec.resource_groups.iter().flatten(), &above, &mut sums);
            known.insert(name, above);
        }
        for entry in queues.cluster_queues.values() {
            let above = queues.above(entry.key.name());
            for cohort in &above {
                known.entry(cohort.clone()).or_insert_with(|| queues.from(Some(cohort.clone())));
            }
            quota(entry.object.spec.resource_groups.iter().flatten(), &above, &mut sums);
            let report = engine.queue_report(entry.key.name()).unwrap_or_default();
            for cohort in &above {
                *sums.entry((Metric::CohortAdmittedNow, vec![cohort.clone()])).or_default() +=
                    number(report.admitted);
                for flavor in &report.reservation {
                    for (resource, usage) in &flavor.resources {
                        let labels = vec![cohort.clone(), flavor.flavor.clone(), resource.clone()];
                        *sums.entry((Metric::CohortReservations, labels)).or_default() +=
                            amount(&usage.total);
                    }
                }
            }
        }
        self.samples.extend(sums.into_iter().map(|((metric, labels), value)| (metric, labels, value)));
        for (name, above) in known {
            let parent = above.get(1).cloned().unwrap_or_default();
            let root = above.last().cloned().unwrap_or_default();
            self.add(Metric::CohortInfo, &[&name, &parent, &root], 1.0);
            if engine.settings().is_fair() {
                self.add(
                    Metric::CohortWeightedShare,
                    &[&name],
                    share(engine.cohort_share(&name).unwrap_or_default()),
                );
            }
        }
    }

    /// Workloads that are not admitted, and those that have finished.
    fn workloads(&mut self) {
        let mut sums: BTreeMap<(Metric, Vec<String>), usize> = BTreeMap::new();
        let queues = self.observed.queues;
        for entry in self.observed.workloads.values() {
            let workload = &entry.object;
            let Some(queue) = queues.queue_of(workload) else { continue };
            let namespace = entry.key.namespace().unwrap_or_default();
            let name = workload.spec.queue_name.clone().unwrap_or_default();
            let local_queue = queues.local_queues.get(&ObjectKey::new(namespace, &name));
            let is_exposed = local_queue.is_some_and(|local_queue| self.is_exposed(&local_queue.object));
            let mut count =
                |metric: Metric, labels: &[&str]| *sums.entry((metric, texts(labels))).or_default() += 1;
            if workload.is_finished() {
                count(Metric::FinishedNow, &[&queue]);
                if is_exposed {
                    count(Metric::LocalFinishedNow, &[&name, namespace]);
                }
            } else if !workload.is_admitted() {
                let kind = if workload.has_quota_reservation() {
                    WorkloadCondition::Admitted
                } else {
                    WorkloadCondition::QuotaReserved
                };
                let conditions = workload.status.as_ref().and_then(|status| status.conditions.as_deref());
                let reason = quintet_api::conditions::find(conditions.unwrap_or_default(), kind.as_str())
                    .map(|own| own.reason.as_str())
                    .unwrap_or_default();
                count(Metric::UnadmittedWorkloads, &[&queue, reason, ""]);
                if is_exposed {
                    count(Metric::LocalUnadmittedWorkloads, &[&name, namespace, &queue, reason, ""]);
                }
            }
        }
        let counted = sums.into_iter().map(|((metric, labels), count)| (metric, labels, number(count)));
        self.samples.extend(counted);
    }
}

/// Adds nominal quotas to those of the Cohorts above.
fn quota<'g>(
    groups: impl Iterator<Item = &'g ResourceGroup>,
    above: &[String],
    sums: &mut BTreeMap<(Metric, Vec<String>), f64>,
) {
    for flavor in groups.flat_map(|group| &group.flavors) {
        for quota in &flavor.resources {
            for cohort in above {
                let labels = vec![cohort.clone(), flavor.name.clone(), quota.name.clone()];
                *sums.entry((Metric::CohortQuota, labels)).or_default() += amount(&quota.nominal_quota.0);
            }
        }
    }
}
