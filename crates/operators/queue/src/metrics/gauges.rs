//! Gauges: what queues and Cohorts are and hold, read from the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use quintet_api::Quantity;
use quintet_api::config::kueue::QueueConfiguration;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::{AdmittedReason, QuotaReservedReason};
use quintet_api::kueue::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceGroup, StopPolicy, Workload};
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;
use quintet_queue_engine::{Engine, FlavorReport, QueueReport};

use super::{Labels, Metric, QueueMetrics, QueueTree, Sample};
use crate::concurrent_admission::parent_reference;

const STATUSES: [&str; 2] = ["active", "inadmissible"];

/// What gauges are read from.
pub(crate) struct Observed<'o> {
    pub(crate) engine: &'o Engine,
    pub(crate) queues: QueueTree<'o>,
    pub(crate) workloads: &'o BTreeMap<ObjectKey, Arc<Entry<Workload>>>,
    pub(crate) configuration: &'o QueueConfiguration,
    pub(crate) metrics: &'o QueueMetrics,
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
    if observed.metrics.tells_workloads_apart() {
        gauges.admitted_by_label();
    }
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

/// An infinite share is not a number.
fn share(share: f64) -> f64 {
    if share.is_finite() { share } else { f64::NAN }
}

impl Gauges<'_> {
    fn add(&mut self, metric: Metric, labels: &[&str], value: f64) {
        self.samples.push(Sample::new(metric, texts(labels), value));
    }

    fn is_exposed(&self, queue: &LocalQueue) -> bool {
        self.observed.metrics.exposes(&queue.metadata)
    }

    fn cluster_queue(&mut self, entry: &Entry<ClusterQueue>) {
        let engine = self.observed.engine;
        let name = entry.key.name();
        let Some(report) = engine.queue_report(name) else { return };
        let is_active = engine.is_queue_active(name) == Some(true);
        self.counts(&report, is_active, &[name], [Metric::PendingWorkloads, Metric::ReservingWorkloads]);
        if !self.observed.metrics.tells_workloads_apart() {
            self.add(Metric::AdmittedNow, &[name], number(report.admitted));
        }
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
                let value = share(engine.exact_queue_share(name).unwrap_or_default());
                self.add(Metric::WeightedShare, &[name, &parent], value);
            }
        }
    }

    /// In a queue that is not active nothing is tried.
    fn counts(&mut self, report: &QueueReport, is_active: bool, labels: &[&str], metrics: [Metric; 2]) {
        let [pending, reserving] = metrics;
        let inadmissible = if is_active { report.inadmissible } else { report.pending };
        let counts = [report.pending - inadmissible, inadmissible];
        for (status, count) in STATUSES.into_iter().zip(counts) {
            self.add(pending, &[labels, &[status]].concat(), number(count));
        }
        self.add(reserving, labels, number(report.reserving));
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
        let queue = entry.object.spec.cluster_queue.clone().unwrap_or_default();
        let is_queue_active = engine.is_queue_active(&queue) == Some(true);
        let pending = [Metric::LocalPendingWorkloads, Metric::LocalReservingWorkloads];
        self.counts(&report, is_queue_active, &labels, pending);
        self.add(Metric::LocalAdmittedNow, &labels, number(report.admitted));
        let is_open = matches!(entry.object.spec.stop_policy, None | Some(StopPolicy::None));
        let active = if is_open && is_queue_active { "True" } else { "False" };
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
        let mut quota = SubtreeQuota::default();
        for entry in queues.cohorts.values() {
            let name = entry.key.name().to_owned();
            let above = queues.from(Some(name.clone()));
            quota.add_cohort(&entry.object, &above);
            for cohort in &above {
                known.entry(cohort.clone()).or_insert_with(|| queues.from(Some(cohort.clone())));
            }
        }
        for entry in queues.cluster_queues.values() {
            let above = queues.above(entry.key.name());
            for cohort in &above {
                known.entry(cohort.clone()).or_insert_with(|| queues.from(Some(cohort.clone())));
            }
            quota.add_queue(&entry.object, &above);
            let report = engine.queue_report(entry.key.name()).unwrap_or_default();
            for cohort in &above {
                for flavor in &report.reservation {
                    for (resource, usage) in &flavor.resources {
                        let labels = vec![cohort.clone(), flavor.flavor.clone(), resource.clone()];
                        *sums.entry((Metric::CohortReservations, labels)).or_default() +=
                            amount(&usage.total);
                    }
                }
            }
        }
        let metrics = self.observed.metrics;
        for ((cohort, flavor, resource), value) in quota.sums() {
            sums.insert((Metric::CohortQuota, vec![cohort, flavor, resource]), value);
        }
        for (cohort, count) in self.admitted_below(&known) {
            sums.insert((Metric::CohortAdmittedNow, vec![cohort]), number(count));
        }
        sums.retain(|(metric, labels), _| {
            let is_of_quota = matches!(metric, Metric::CohortQuota | Metric::CohortReservations);
            !is_of_quota || labels.first().is_none_or(|cohort| metrics.has_quota(cohort))
        });
        let samples = sums.into_iter().map(|((metric, labels), value)| Sample::new(metric, labels, value));
        self.samples.extend(samples);
        for (name, above) in known {
            let parent = above.get(1).cloned().unwrap_or_default();
            let root = above.last().cloned().unwrap_or_default();
            self.add(Metric::CohortInfo, &[&name, &parent, &root], 1.0);
            if engine.settings().is_fair() {
                self.add(
                    Metric::CohortWeightedShare,
                    &[&name],
                    share(engine.exact_cohort_share(&name).unwrap_or_default()),
                );
            }
        }
    }

    /// Admitted Workloads by Cohort, among those that are known.
    fn admitted_below(&self, known: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, usize> {
        let Observed { queues, workloads, metrics, .. } = self.observed;
        let admitted = workloads.values().filter_map(|entry| {
            let workload = &entry.object;
            let queue = workload.status.as_ref()?.admission.as_ref()?.cluster_queue.as_deref()?;
            let counts = workload.is_admitted() && !workload.is_finished();
            counts.then(|| (entry.uid.clone(), queue))
        });
        let mut counts: BTreeMap<String, usize> = known.keys().map(|name| (name.clone(), 0)).collect();
        for cohort in metrics.admitted_below(admitted, |queue| queues.above(queue), known) {
            *counts.entry(cohort).or_default() += 1;
        }
        counts
    }

    /// Workloads that are not admitted, and those that have finished.
    fn workloads(&mut self) {
        let mut sums: BTreeMap<(Metric, Vec<String>), usize> = BTreeMap::new();
        let queues = self.observed.queues;
        let observed = self.observed.engine.settings().gates.observability;
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
            } else if observed
                && !entry.deleting
                && !workload.is_admitted()
                && parent_reference(workload).is_none()
            {
                let (reason, cause) = waits_for(workload);
                count(Metric::UnadmittedWorkloads, &[&queue, reason, cause]);
                if is_exposed {
                    count(Metric::LocalUnadmittedWorkloads, &[&name, namespace, &queue, reason, cause]);
                }
            }
        }
        let counted =
            sums.into_iter().map(|((metric, labels), count)| Sample::new(metric, labels, number(count)));
        self.samples.extend(counted);
    }

    /// Admitted Workloads of each ClusterQueue by labels of their own.
    fn admitted_by_label(&mut self) {
        let mut sums: BTreeMap<(String, Labels), usize> = BTreeMap::new();
        for entry in self.observed.workloads.values() {
            let workload = &entry.object;
            let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
            let queue = admission.and_then(|admission| admission.cluster_queue.clone());
            if let Some(queue) = queue.filter(|_| workload.is_admitted() && !workload.is_finished()) {
                let labels = self.observed.metrics.labels_of_workload(&workload.metadata);
                *sums.entry((queue, labels)).or_default() += 1;
            }
        }
        let metric = Metric::AdmittedNow;
        self.samples.extend(sums.into_iter().map(|((queue, of_workload), count)| Sample {
            metric,
            values: vec![queue],
            of_workload,
            value: number(count),
        }));
    }
}

/// Why a Workload is not admitted, and what is behind that. A new one has no conditions yet.
fn waits_for(workload: &Workload) -> (&str, &str) {
    let status = workload.status.as_ref().and_then(|status| status.conditions.as_deref());
    let find =
        |kind: WorkloadCondition| quintet_api::conditions::find(status.unwrap_or_default(), kind.as_str());
    let reason = find(WorkloadCondition::Admitted)
        .map_or(AdmittedReason::NoReservation.as_str(), |own| own.reason.as_str());
    let cause = match find(WorkloadCondition::QuotaReserved) {
        None => QuotaReservedReason::PendingEvaluation.as_str(),
        Some(reserved) if reserved.status == "True" => "",
        Some(reserved) => reserved.reason.as_str(),
    };
    (reason, cause)
}

/// Nominal quota of Cohorts with that of everything below them, as far as it is lent.
#[derive(Default)]
struct SubtreeQuota {
    /// Of Cohorts: the parent, and per flavor and resource the nominal quota and how much of the subtree is lent.
    cohorts: BTreeMap<String, Subtree>,
}

#[derive(Default)]
struct Subtree {
    parent: Option<String>,
    quota: BTreeMap<(String, String), f64>,
    lending: BTreeMap<(String, String), f64>,
}

type QuotaOf = ((String, String), f64, Option<f64>);

/// Flavor and resource, nominal quota, and lending limit.
fn quotas_of<'g>(groups: impl Iterator<Item = &'g ResourceGroup>) -> impl Iterator<Item = QuotaOf> {
    groups.flat_map(|group| &group.flavors).flat_map(|flavor| {
        flavor.resources.iter().map(move |quota| {
            let limit = quota.lending_limit.as_ref().map(|limit| amount(&limit.0));
            ((flavor.name.clone(), quota.name.clone()), amount(&quota.nominal_quota.0), limit)
        })
    })
}

impl SubtreeQuota {
    fn know(&mut self, above: &[String]) {
        for (index, cohort) in above.iter().enumerate() {
            self.cohorts.entry(cohort.clone()).or_default().parent = above.get(index + 1).cloned();
        }
    }

    /// A Cohort, and those above it, itself first.
    fn add_cohort(&mut self, cohort: &Cohort, above: &[String]) {
        self.know(above);
        let Some(subtree) = above.first().and_then(|name| self.cohorts.get_mut(name)) else { return };
        for (of, nominal, limit) in quotas_of(cohort.spec.resource_groups.iter().flatten()) {
            *subtree.quota.entry(of.clone()).or_default() += nominal;
            if let Some(limit) = limit {
                subtree.lending.insert(of, limit);
            }
        }
    }

    /// A ClusterQueue, and the Cohorts above it.
    fn add_queue(&mut self, queue: &ClusterQueue, above: &[String]) {
        self.know(above);
        let Some(subtree) = above.first().and_then(|name| self.cohorts.get_mut(name)) else { return };
        for (of, nominal, limit) in quotas_of(queue.spec.resource_groups.iter().flatten()) {
            *subtree.quota.entry(of).or_default() += limit.map_or(nominal, |limit| limit.min(nominal));
        }
    }

    /// By Cohort, flavor and resource.
    fn sums(&self) -> BTreeMap<(String, String, String), f64> {
        let mut sums: BTreeMap<(String, String, String), f64> = BTreeMap::new();
        let mut lowest_first: Vec<&String> = self.cohorts.keys().collect();
        lowest_first.sort_by_key(|name| std::cmp::Reverse(self.depth(name)));
        for name in lowest_first {
            let Some(subtree) = self.cohorts.get(name) else { continue };
            for ((flavor, resource), own) in &subtree.quota {
                *sums.entry((name.clone(), flavor.clone(), resource.clone())).or_default() += own;
            }
            let Some(parent) = subtree.parent.as_ref() else { continue };
            let of_subtree: Vec<(String, String, f64)> = sums
                .range((name.clone(), String::new(), String::new())..)
                .take_while(|((cohort, ..), _)| cohort == name)
                .map(|((_, flavor, resource), sum)| (flavor.clone(), resource.clone(), *sum))
                .collect();
            for (flavor, resource, sum) in of_subtree {
                let limit = subtree.lending.get(&(flavor.clone(), resource.clone()));
                let lent = limit.map_or(sum, |limit| limit.min(sum));
                *sums.entry((parent.clone(), flavor, resource)).or_default() += lent;
            }
        }
        sums
    }

    /// Cohorts that are each other's parents have an end, too.
    fn depth(&self, name: &str) -> usize {
        let (mut depth, mut next) = (0, self.cohorts.get(name));
        while let Some(parent) =
            next.and_then(|own| own.parent.as_ref()).filter(|_| depth < self.cohorts.len())
        {
            (depth, next) = (depth + 1, self.cohorts.get(parent));
        }
        depth
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_quota_of_a_subtree_is_what_it_lends() {
        let group = |nominal: &str, lending: Option<&str>| {
            json!({ "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": [
                { "name": "cpu", "nominalQuota": nominal, "lendingLimit": lending } ] }] }] })
        };
        let cohort = |spec: serde_json::Value| -> Cohort {
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        let queue = |spec: serde_json::Value| -> ClusterQueue {
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        let above = |names: &[&str]| texts(names);
        let mut quota = SubtreeQuota::default();
        quota.add_cohort(&cohort(group("30", None)), &above(&["root"]));
        quota.add_cohort(&cohort(group("8", Some("3"))), &above(&["ch1", "root"]));
        quota.add_queue(&queue(group("10", Some("8"))), &above(&["ch1", "root"]));
        quota.add_queue(&queue(group("5", None)), &above(&["implicit", "root"]));
        let sums = quota.sums();
        let of = |name: &str| sums[&(name.to_owned(), "f".to_owned(), "cpu".to_owned())];
        assert_eq!((of("ch1"), of("implicit"), of("root")), (16.0, 5.0, 38.0));
    }

    #[test]
    fn a_workload_that_is_not_admitted_has_a_reason_and_a_cause() {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let table = [
            (vec![], ("NoReservation", "PendingEvaluation")),
            (
                vec![
                    condition("QuotaReserved", "False", "WaitingForQuota"),
                    condition("Admitted", "False", "NoReservation"),
                ],
                ("NoReservation", "WaitingForQuota"),
            ),
            (
                vec![
                    condition("QuotaReserved", "True", "QuotaReserved"),
                    condition("Admitted", "False", "UnsatisfiedAdmissionChecks"),
                ],
                ("UnsatisfiedAdmissionChecks", ""),
            ),
        ];
        for (conditions, expected) in table {
            let workload: Workload = serde_json::from_value(
                json!({ "metadata": {}, "spec": {}, "status": { "conditions": conditions } }),
            )
            .unwrap();
            assert_eq!(waits_for(&workload), expected);
        }
    }
}
