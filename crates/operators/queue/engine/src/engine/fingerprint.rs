//! Fingerprints of the engine, to detect that a state returns.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Engine;
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
}
