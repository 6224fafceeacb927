//! Fingerprints of the engine: to detect that a state returns, and to compare engines.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::Engine;
use crate::model::Workload;
use crate::names::WorkloadId;
use crate::time::Time;

impl Engine {
    /// A fingerprint of what cycles depend on and change. If it is the same after some cycles, and nothing came from
    /// outside, the same cycles follow again. Of what has happened since `start` only the order counts, not the time.
    pub(crate) fn fingerprint(&self, start: Time) -> u64 {
        let mut hasher = DefaultHasher::new();
        let conditions = self.state.workloads().flat_map(|(_, workload)| &workload.conditions);
        let times: BTreeSet<Time> = conditions.map(|own| own.since).filter(|since| *since >= start).collect();
        let times: Vec<Time> = times.into_iter().collect();
        for (id, workload) in self.state.workloads() {
            (id, &workload.admission, &workload.unhealthy_nodes).hash(&mut hasher);
            for condition in &workload.conditions {
                let since = times.binary_search(&condition.since).map_err(|_| condition.since);
                (condition.kind, condition.status, condition.reason, since).hash(&mut hasher);
            }
        }
        for (id, queue) in &self.queues {
            let generation = self.state.queue(*id).map_or(0, |queue| self.state.tree.generation(queue.node));
            id.hash(&mut hasher);
            queue.hash_into(self.cycle, generation, &mut hasher);
        }
        self.expected.hash(&mut hasher);
        self.flushes.keys().for_each(|scope| scope.hash(&mut hasher));
        if self.settings().afs().is_some() {
            for (id, _) in self.state.local_queues() {
                (id, self.local_queue_usage(id).to_bits()).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// A fingerprint of who holds what and who may wait, by names: engines that were fed the same objects, in whatever
    /// order, have the same.
    pub fn holdings_fingerprint(&self) -> u64 {
        let names = &self.state.names;
        let of_workload = |(id, workload): (WorkloadId, &Arc<Workload>)| {
            let mut hasher = DefaultHasher::new();
            self.state.key_text(&workload.key).hash(&mut hasher);
            workload.is_admissible(&self.settings().gates).hash(&mut hasher);
            if let Some(held) = self.state.held(id) {
                let usage: BTreeSet<_> = held
                    .usage
                    .iter()
                    .map(|(fr, amount)| {
                        (names.flavor_name(fr.flavor), names.resource_name(fr.resource), amount.get())
                    })
                    .collect();
                (names.queue_name(held.queue), usage).hash(&mut hasher);
            }
            hasher.finish()
        };
        self.state.workloads().map(of_workload).fold(0, u64::wrapping_add)
    }
}
