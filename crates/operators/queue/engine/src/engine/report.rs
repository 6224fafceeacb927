//! What the statuses of ClusterQueues, LocalQueues and Cohorts report.

use std::collections::BTreeMap;

use quintet_api::kueue::WorkloadLifecycle;

use super::Engine;
use crate::amount::Amount;
use crate::model::{Fr, Usage, add_usage, usage_of};
use crate::names::{LocalQueueId, QueueId, WorkloadId};

/// Workloads and usage of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Workloads that wait, whether they can be admitted or not.
    pub pending: usize,
    /// Those of them that are not tried again before something changes.
    pub inadmissible: usize,
    /// Workloads with a reservation.
    pub reserving: usize,
    /// Admitted workloads.
    pub admitted: usize,
    /// What is reserved, in the order of the queue's flavors.
    pub reservation: Vec<FlavorReport>,
    /// What admitted workloads use.
    pub usage: Vec<FlavorReport>,
}

/// Usage of a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorReport {
    /// The flavor.
    pub flavor: String,
    /// Its resources, by name.
    pub resources: BTreeMap<String, ResourceReport>,
}

/// Usage of a resource, as quantities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceReport {
    /// All of it.
    pub total: String,
    /// What is beyond the nominal quota.
    pub borrowed: String,
}

/// Sums over workloads that hold quota.
#[derive(Default)]
struct Holdings {
    reserving: usize,
    admitted: usize,
    reserved: Usage,
    used: Usage,
}

impl Engine {
    /// The report of a ClusterQueue; `None` if it does not exist.
    pub fn queue_report(&self, name: &str) -> Option<QueueReport> {
        let id = self.state.names.queues.get(name)?;
        self.state.queue(id)?;
        let holdings = self.holdings(id, |_| true);
        let (active, inadmissible) = self.pending(id).map_or((0, 0), crate::queue::PendingQueue::counts);
        Some(QueueReport { inadmissible, ..self.report(id, &holdings, active + inadmissible) })
    }

    /// The report of a LocalQueue. A queue that is missing has no flavors to report.
    pub fn local_queue_report(&self, namespace: &str, name: &str) -> QueueReport {
        let Some(id) = self.local_queue_id(namespace, name) else { return QueueReport::default() };
        let Some(local_queue) = self.state.local_queue(id) else { return QueueReport::default() };
        let queue = local_queue.queue;
        if self.state.queue(queue).is_none() {
            let pending = if local_queue.stopped { 0 } else { self.waiting_in(id).count() };
            return QueueReport { pending, ..QueueReport::default() };
        }
        let is_of = |workload: WorkloadId| {
            self.state.workload(workload).is_some_and(|workload| workload.local_queue == id)
        };
        let (active, inadmissible) = if local_queue.stopped { (0, 0) } else { self.counts_in(id) };
        let report = self.report(queue, &self.holdings(queue, is_of), active + inadmissible);
        QueueReport { inadmissible, ..report }
    }

    /// The fair share of a ClusterQueue, as its status has it.
    pub fn queue_share(&self, name: &str) -> Option<i64> {
        let queue = self.state.queue(self.state.names.queues.get(name)?)?;
        Some(self.state.share(queue.node).rounded())
    }

    /// The fair share of a ClusterQueue before it is rounded; infinite for a borrower without weight.
    pub fn exact_queue_share(&self, name: &str) -> Option<f64> {
        let queue = self.state.queue(self.state.names.queues.get(name)?)?;
        Some(self.state.share(queue.node).weighted())
    }

    /// The same of a Cohort.
    pub fn exact_cohort_share(&self, name: &str) -> Option<f64> {
        let node = self.state.cohort(self.state.names.cohorts.get(name)?)?;
        Some(self.state.share(node).weighted())
    }

    /// The fair share of a Cohort, as its status has it.
    pub fn cohort_share(&self, name: &str) -> Option<i64> {
        let node = self.state.cohort(self.state.names.cohorts.get(name)?)?;
        Some(self.state.share(node).rounded())
    }

    /// Whether a ClusterQueue of this name exists, and whether it can admit.
    pub fn is_queue_active(&self, name: &str) -> Option<bool> {
        let id = self.state.names.queues.get(name)?;
        self.state.queue(id).map(|queue| queue.inactive.is_empty())
    }

    /// The id of a ClusterQueue.
    pub fn queue_id(&self, name: &str) -> Option<QueueId> {
        self.state.names.queues.get(name)
    }

    /// A LocalQueue and the ClusterQueue it feeds, which may not exist; `None` if there is no such LocalQueue.
    pub fn local_queue(&self, namespace: &str, name: &str) -> Option<(LocalQueueId, QueueId)> {
        let id = self.local_queue_id(namespace, name)?;
        Some((id, self.state.local_queue(id)?.queue))
    }

    fn local_queue_id(&self, namespace: &str, name: &str) -> Option<LocalQueueId> {
        self.state.names.find_local_queue(namespace, name)
    }

    fn holdings(&self, queue: QueueId, counts: impl Fn(WorkloadId) -> bool) -> Holdings {
        let mut sums = Holdings::default();
        for id in self.state.reserved(queue).filter(|id| counts(*id)) {
            let (Some(workload), Some(held)) = (self.state.workload(id), self.state.held(id)) else {
                continue;
            };
            let is_admitted = workload.is_admitted();
            sums.reserving += 1;
            sums.admitted += usize::from(is_admitted);
            for (fr, amount) in &held.usage {
                add_usage(&mut sums.reserved, *fr, *amount);
                if is_admitted {
                    add_usage(&mut sums.used, *fr, *amount);
                }
            }
        }
        sums
    }

    fn report(&self, queue: QueueId, holdings: &Holdings, pending: usize) -> QueueReport {
        QueueReport {
            pending,
            inadmissible: 0,
            reserving: holdings.reserving,
            admitted: holdings.admitted,
            reservation: self.flavors_of(queue, &holdings.reserved),
            usage: self.flavors_of(queue, &holdings.used),
        }
    }

    fn flavors_of(&self, queue: QueueId, usage: &Usage) -> Vec<FlavorReport> {
        let Some(row) = self.state.queue(queue) else { return Vec::new() };
        let names = &self.state.names;
        let flavors = row
            .spec
            .groups
            .iter()
            .flat_map(|group| group.flavors.iter().map(move |flavor| (flavor.flavor, &group.resources)));
        let report = |(flavor, resources): (_, &Vec<_>)| FlavorReport {
            flavor: names.flavor_name(flavor).to_owned(),
            resources: resources
                .iter()
                .map(|resource| {
                    let fr = Fr { flavor, resource: *resource };
                    let total = usage_of(usage, fr);
                    let nominal = self.state.tree.quota(row.node, fr).nominal;
                    let borrowed =
                        if row.spec.cohort.is_some() { (total - nominal).floor_zero() } else { Amount::ZERO };
                    let text = |amount: Amount| names.format(*resource, amount.get());
                    let report = ResourceReport { total: text(total), borrowed: text(borrowed) };
                    (names.resource_name(*resource).to_owned(), report)
                })
                .collect(),
        };
        flavors.map(report).collect()
    }
}
