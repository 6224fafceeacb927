//! Admission fair sharing: what LocalQueues are charged.

use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_api::Quantity;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::v1beta2;
use quintet_api::quantity::Notation::DecimalSi;

use super::Engine;
use crate::afs::{self, Consumed};
use crate::cycle::Entry;
use crate::ingest;
use crate::model::{QueueSpec, Workload};
use crate::names::{LocalQueueId, ResourceId, WorkloadId};
use crate::requests::Requests;
use crate::settings::{AdmissionFairSharing, Settings};
use crate::state::State;
use crate::time::Time;

/// What orders a LocalQueue: less first.
pub(crate) fn order_of(state: &State, local_queue: LocalQueueId) -> f64 {
    let weight = state.local_queue(local_queue).map_or(1.0, |local_queue| local_queue.weight);
    state.settings.afs().map_or(0.0, |config| state.afs.usage(local_queue, weight, config, &state.names))
}

/// By which rules an admission is charged to its LocalQueue, if it is: its queue shares fairly, and it was
/// not charged when it got its reservation.
pub fn charged_by<'s>(
    settings: &'s Settings,
    queue: &QueueSpec,
    had_reservation: bool,
) -> Option<&'s AdmissionFairSharing> {
    settings.afs().filter(|_| queue.usage_based_admission && !had_reservation)
}

fn consumed(requests: &Requests) -> Consumed {
    let quantity = |(resource, value)| {
        let is_cpu = resource == ResourceId::CPU;
        let of = if is_cpu { Quantity::from_millis } else { Quantity::from_units };
        (resource, of(value, DecimalSi))
    };
    requests.iter().map(quantity).collect()
}

impl Engine {
    /// Charges the admission to its LocalQueue.
    pub(crate) fn charge(&mut self, entry: &Entry, had_reservation: bool, now: Time) {
        let Some(row) = self.state.queue(entry.subject.queue).map(Arc::clone) else {
            return;
        };
        let Some(config) = charged_by(&self.state.settings, &row.spec, had_reservation).cloned() else {
            return;
        };
        let ignores = self.state.settings.ignores_undeclared();
        let mut total = Requests::new();
        for demand in &entry.subject.demands {
            total.add(&demand.requests);
        }
        let counted = total.iter().filter(|(resource, _)| !ignores || row.spec.group_of(*resource).is_some());
        let penalty = afs::entry_penalty(&consumed(&counted.collect()), &config);
        let workload = &entry.subject.workload;
        self.state.afs.push_penalty(workload.local_queue, workload.key.clone(), penalty, now);
    }

    /// A workload changed: its charge becomes usage when it starts, and is dropped when it never will.
    pub(super) fn follow_charge(&mut self, id: WorkloadId, before: Option<&Workload>, now: Time) {
        let Some(config) = self.state.settings.afs().cloned() else {
            return;
        };
        let Some(workload) = self.state.workload(id).map(Arc::clone) else {
            return;
        };
        let moved = before.filter(|before| before.local_queue != workload.local_queue);
        if let Some(before) = moved {
            self.state.afs.drop_penalty(before.local_queue, &before.key);
        }
        if workload.is_finished() || !workload.active && !workload.has_quota_reservation() {
            self.state.afs.drop_penalty(workload.local_queue, &workload.key);
        } else if workload.is_admitted() && self.has_charge(&workload) {
            let running = consumed(&self.state.running_in(workload.local_queue, Some(id)));
            self.state.afs.convert_penalty(workload.local_queue, &workload.key, &running, &config, now);
        }
    }

    fn has_charge(&self, workload: &Workload) -> bool {
        let entry = self.state.afs.get(workload.local_queue);
        entry.is_some_and(|entry| entry.penalties.contains_key(&workload.key))
    }

    /// Decays the usage of all LocalQueues towards what runs now; to be called every sampling interval.
    pub fn sample_usage(&mut self, now: Time) {
        let Some(config) = self.state.settings.afs().cloned() else {
            return;
        };
        let all: Vec<LocalQueueId> = self.state.local_queues().map(|(id, _)| id).collect();
        for local_queue in all {
            let mut running = consumed(&self.state.running_in(local_queue, None));
            // What only others use is nothing, but not unknown.
            if let Some(queue) = self.state.local_queue(local_queue).map(|local_queue| local_queue.queue) {
                for resource in self.state.resources_running_in(queue) {
                    running.entry(resource).or_default();
                }
            }
            self.state.afs.sample(local_queue, &running, &config, now);
        }
    }
    /// Takes in what the status of a LocalQueue says that it has used. Nothing changes if the engine knows more.
    pub fn restore_usage(&mut self, object: &v1beta2::LocalQueue, now: Time) {
        if self.state.settings.afs().is_none() {
            return;
        }
        let metadata = &object.metadata;
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let names = &mut self.state.names;
        let local_queue = names.local_queue(&of(&metadata.namespace), &of(&metadata.name));
        let sharing = object.status.as_ref().and_then(|status| status.fair_sharing.as_ref());
        let recorded = sharing.and_then(|sharing| sharing.admission_fair_sharing_status.as_ref());
        let (consumed, at) = recorded.map_or_else(
            || (Consumed::new(), now),
            |recorded| {
                let quantities = recorded.consumed_resources.iter();
                let known = quantities
                    .filter_map(|(name, quantity)| Some((names.resource(name), quantity.0.parse().ok()?)));
                (known.collect(), ingest::time(&recorded.last_update))
            },
        );
        self.state.afs.restore(local_queue, consumed, at, recorded.is_some());
    }

    /// What a LocalQueue has used, by resource, and as of when; `None` if usage does not count.
    pub fn consumed_by(&self, namespace: &str, name: &str) -> Option<(BTreeMap<String, Quantity>, Time)> {
        self.state.settings.afs()?;
        let id = self.names().find_local_queue(namespace, name)?;
        let entry = self.state.afs.get(id)?;
        let by_name = |(resource, quantity): (&ResourceId, &Quantity)| {
            (self.state.names.resource_name(*resource).to_owned(), *quantity)
        };
        Some((entry.consumed.iter().map(by_name).collect(), entry.last_update))
    }
}
