//! Admission fair sharing: LocalQueues are ordered by their decayed usage.

use std::collections::BTreeMap;

use quintet_api::Quantity;

use crate::float;
use crate::model::WorkloadKey;
use crate::names::{LocalQueueId, Names, ResourceId};
use crate::settings::AdmissionFairSharing;
use crate::time::Time;

/// Quantities per resource.
pub type Consumed = BTreeMap<ResourceId, Quantity>;

/// What a LocalQueue has used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerEntry {
    /// Decayed usage.
    pub consumed: Consumed,
    /// Penalties of admissions not yet part of the usage, per workload.
    pub penalties: BTreeMap<WorkloadKey, Consumed>,
    /// When usage was decayed last.
    pub last_update: Time,
    /// Whether the persisted history is part of it.
    pub status_accounted: bool,
}

impl LedgerEntry {
    /// The sum of all pending penalties, without zeros.
    pub fn pending(&self) -> Consumed {
        let mut sum = Consumed::new();
        for penalty in self.penalties.values() {
            add(&mut sum, penalty);
        }
        sum.retain(|_, quantity| *quantity != Quantity::ZERO);
        sum
    }
}

/// Usage of all LocalQueues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageLedger {
    entries: BTreeMap<LocalQueueId, LedgerEntry>,
}

impl UsageLedger {
    /// The entry of a LocalQueue.
    pub fn get(&self, local_queue: LocalQueueId) -> Option<&LedgerEntry> {
        self.entries.get(&local_queue)
    }

    /// Presets the usage of a LocalQueue.
    pub fn set(&mut self, local_queue: LocalQueueId, consumed: Consumed, last_update: Time) {
        self.entries.insert(local_queue, LedgerEntry { consumed, last_update, ..LedgerEntry::default() });
    }

    /// Takes in what was recorded of a LocalQueue at a time, if anything was. What was recorded before the present entry
    /// began is added to it, once.
    pub fn restore(&mut self, local_queue: LocalQueueId, recorded: Consumed, at: Time, is_recorded: bool) {
        let entry = self.entries.entry(local_queue).or_insert_with(|| LedgerEntry {
            consumed: recorded.clone(),
            last_update: at,
            status_accounted: true,
            ..LedgerEntry::default()
        });
        if is_recorded && at > entry.last_update {
            (entry.consumed, entry.last_update) = (recorded, at);
        } else if !entry.status_accounted {
            add(&mut entry.consumed, &recorded);
        }
        entry.status_accounted = true;
    }

    /// Forgets a LocalQueue.
    pub fn remove(&mut self, local_queue: LocalQueueId) {
        self.entries.remove(&local_queue);
    }

    /// Charges an admission to its LocalQueue until it shows in the usage; charging twice counts once.
    pub fn push_penalty(
        &mut self,
        local_queue: LocalQueueId,
        workload: WorkloadKey,
        penalty: Consumed,
        now: Time,
    ) {
        let entry = self
            .entries
            .entry(local_queue)
            .or_insert_with(|| LedgerEntry { last_update: now, ..LedgerEntry::default() });
        entry.penalties.insert(workload, penalty);
    }

    /// Takes a charge back, returning it.
    pub fn drop_penalty(&mut self, local_queue: LocalQueueId, workload: &WorkloadKey) -> Option<Consumed> {
        self.entries.get_mut(&local_queue)?.penalties.remove(workload)
    }

    /// Folds a charge into the usage: the workload is admitted. Usage is decayed to `now` first.
    pub fn convert_penalty(
        &mut self,
        local_queue: LocalQueueId,
        workload: &WorkloadKey,
        running: &Consumed,
        config: &AdmissionFairSharing,
        now: Time,
    ) {
        self.sample(local_queue, running, config, now);
        if let Some(entry) = self.entries.get_mut(&local_queue)
            && let Some(penalty) = entry.penalties.remove(workload)
        {
            add(&mut entry.consumed, &penalty);
        }
    }

    /// Decays the usage to `now`, moving it towards what is `running`.
    pub fn sample(
        &mut self,
        local_queue: LocalQueueId,
        running: &Consumed,
        config: &AdmissionFairSharing,
        now: Time,
    ) {
        let entry = self
            .entries
            .entry(local_queue)
            .or_insert_with(|| LedgerEntry { last_update: now, ..LedgerEntry::default() });
        // Another process, whose clock may be ahead, may have recorded the last update.
        let elapsed = now.seconds_since(entry.last_update).max(0.0);
        entry.consumed = decayed(&entry.consumed, running, elapsed, config.half_life.as_secs_f64());
        entry.last_update = entry.last_update.max(now);
    }

    /// The usage that orders a LocalQueue.
    pub fn usage(
        &self,
        local_queue: LocalQueueId,
        weight: f64,
        config: &AdmissionFairSharing,
        names: &Names,
    ) -> f64 {
        match self.entries.get(&local_queue) {
            Some(entry) => usage(&entry.consumed, &entry.pending(), weight, &config.resource_weights, names),
            None => usage(&Consumed::new(), &Consumed::new(), weight, &config.resource_weights, names),
        }
    }

    /// Whether a charge is pending.
    pub fn has_pending(&self, local_queue: LocalQueueId) -> bool {
        self.entries.get(&local_queue).is_some_and(|entry| !entry.pending().is_empty())
    }
}

fn add(sum: &mut Consumed, other: &Consumed) {
    for (resource, quantity) in other {
        let total = sum.entry(*resource).or_default();
        *total += *quantity;
    }
}

/// How much of the past is forgotten after `elapsed` seconds.
fn alpha(elapsed: f64, half_life: f64) -> f64 {
    if half_life == 0.0 { 0.0 } else { 1.0 - 0.5f64.powf(elapsed / half_life) }
}

/// What an admission is charged: the usage it would add within one sampling interval.
pub fn entry_penalty(requests: &Consumed, config: &AdmissionFairSharing) -> Consumed {
    let alpha = alpha(config.sampling_interval.as_secs_f64(), config.half_life.as_secs_f64());
    scaled(requests, alpha)
}

/// Usage after `elapsed` seconds in which `running` was used.
pub fn decayed(old: &Consumed, running: &Consumed, elapsed: f64, half_life: f64) -> Consumed {
    let alpha = alpha(elapsed, half_life);
    let mut sum = scaled(old, 1.0 - alpha);
    add(&mut sum, &scaled(running, alpha));
    sum
}

/// Every quantity times a float.
pub fn scaled(quantities: &Consumed, factor: f64) -> Consumed {
    quantities.iter().map(|(resource, quantity)| (*resource, float::times(*quantity, factor))).collect()
}

/// Weighted usage: resources in order of name, so that the sum is always the same.
pub fn usage(
    consumed: &Consumed,
    penalty: &Consumed,
    weight: f64,
    resource_weights: &BTreeMap<ResourceId, f64>,
    names: &Names,
) -> f64 {
    if weight <= 0.0 {
        return f64::INFINITY;
    }
    let mut all = consumed.clone();
    add(&mut all, penalty);
    let mut ordered: Vec<_> = all.into_iter().collect();
    ordered.sort_by(|a, b| names.resource_name(a.0).cmp(names.resource_name(b.0)));
    let weighted = |(resource, quantity): &(ResourceId, Quantity)| {
        resource_weights.get(resource).copied().unwrap_or(1.0) * float::as_f64(*quantity)
    };
    ordered.iter().map(weighted).sum::<f64>() / weight
}
