//! Preemption livelocks: queues that preempt each other's workloads in turn until another workload ends or arrives.
//!
//! Kueue's rules allow it: a queue preempts for a workload, another queue's workload is ordered before that one
//! and takes the quota, and it is reclaimed again. On a cluster the pods of these workloads start and stop all
//! the time; in virtual time the livelock is detected here.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::engine::Engine;
use crate::model::WorkloadKey;
use crate::names::{QueueId, WorkloadId};
use crate::time::Time;

/// Preemptions that any state may need before it is idle; a larger one may need [`MOST_PER_WORKLOAD`] for each
/// workload. More are taken for a livelock although no state has returned, as when cohorts have livelocks of
/// different periods.
const FEWEST_PREEMPTIONS: usize = 1_000;
const MOST_PER_WORKLOAD: usize = 10;

/// How many workloads or queues a message names.
const MOST_NAMES: usize = 5;

/// Workloads that preempt each other until something else happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Livelock {
    /// When it was first detected.
    pub since: Time,
    /// How often it was detected; it is stopped each time, so that virtual time can go on.
    pub occurrences: usize,
    /// The workloads that are preempted repeatedly.
    pub workloads: BTreeSet<WorkloadKey>,
    /// The queues they are in.
    pub queues: BTreeSet<QueueId>,
}

impl Livelock {
    pub(crate) fn new(engine: &Engine, at: Time, workloads: &BTreeSet<WorkloadId>) -> Self {
        let workloads = || workloads.iter().filter_map(|id| engine.state.workload(*id));
        let queue = |local_queue| engine.state.local_queue(local_queue).map(|feeds| feeds.queue);
        Self {
            since: at,
            occurrences: 1,
            workloads: workloads().map(|workload| workload.key.clone()).collect(),
            queues: workloads().filter_map(|workload| queue(workload.local_queue)).collect(),
        }
    }

    /// Merges one that was detected later.
    pub(crate) fn merge(&mut self, later: Self) {
        self.occurrences += later.occurrences;
        self.workloads.extend(later.workloads);
        self.queues.extend(later.queues);
    }

    /// What happens and what ends it, for people. `engine` is the one it was detected in.
    pub fn message(&self, engine: &Engine) -> String {
        let names = &engine.state.names;
        let workload = |key: &WorkloadKey| format!("{}/{}", names.namespaces.name(key.namespace), key.name);
        let workloads: Vec<String> = self.workloads.iter().map(workload).collect();
        let queues: Vec<String> = self.queues.iter().map(|id| names.queue_name(*id).to_owned()).collect();
        describe(&workloads, &queues, engine.state.settings.gates.prioritize_preemptors)
    }
}

/// What happens and what ends it.
pub(crate) fn describe(workloads: &[String], queues: &[String], prioritizes_preemptors: bool) -> String {
    let gate = if prioritizes_preemptors { "" } else { "the feature gate PrioritizePreemptorWorkloads, or " };
    let remedy = "another preemption policy (withinClusterQueue, reclaimWithinCohort) of one of these queues";
    format!(
        "the preemption policies of {} cause a livelock: {} would be preempted and admitted repeatedly until another workload \
         ends or arrives; {gate}{remedy} can end it",
        enumeration(queues),
        enumeration(workloads),
    )
}

/// The first of them, and how many more there are.
fn enumeration(names: &[String]) -> String {
    let shown = names.get(..MOST_NAMES.min(names.len())).unwrap_or_default().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Follows a run while no workload arrives or ends. Once a state returns, everything after it repeats.
pub(crate) struct LivelockDetector {
    since: Time,
    /// A sum of hashes of what workloads hold, relative to the start.
    holders: u64,
    /// All values of `holders`. Only when one returns is the whole state hashed.
    seen: BTreeSet<u64>,
    /// States whose holders returned, with the number of preemptions then.
    states: BTreeMap<u64, usize>,
    preempted: Vec<WorkloadId>,
}

impl LivelockDetector {
    /// Starts again: a workload arrived or ended.
    pub(crate) fn new(since: Time) -> Self {
        Self { since, holders: 0, seen: BTreeSet::new(), states: BTreeMap::new(), preempted: Vec::new() }
    }

    /// A workload got its quota.
    pub(crate) fn started(&mut self, engine: &Engine, id: WorkloadId) {
        self.holders = self.holders.wrapping_add(self.holding(engine, id));
    }

    /// A workload loses its quota.
    pub(crate) fn preempted(&mut self, engine: &Engine, id: WorkloadId) {
        self.holders = self.holders.wrapping_sub(self.holding(engine, id));
        self.preempted.push(id);
    }

    /// After a cycle: the workloads of a livelock, if there is one. Either a state returned, or there were more
    /// preemptions than any state needs. `started` is whether a workload started in this cycle: in every period
    /// one does, and it holds its quota when time goes on from here.
    pub(crate) fn detect(&mut self, engine: &Engine, started: bool) -> Option<BTreeSet<WorkloadId>> {
        if self.preempted.is_empty() {
            return None;
        }
        if started && !self.seen.insert(self.holders) {
            let before = self.states.insert(engine.fingerprint(self.since), self.preempted.len());
            if let Some(period) = before.and_then(|before| self.preempted.get(before..)) {
                return Some(period.iter().copied().collect());
            }
        }
        let too_many = self.preempted.len() > FEWEST_PREEMPTIONS
            && self.preempted.len() > MOST_PER_WORKLOAD * engine.state.workload_count();
        too_many.then(|| self.preempted_twice())
    }

    fn preempted_twice(&self) -> BTreeSet<WorkloadId> {
        let mut once = BTreeSet::new();
        self.preempted.iter().copied().filter(|id| !once.insert(*id)).collect()
    }

    /// What a workload holds, as a number.
    fn holding(&self, engine: &Engine, id: WorkloadId) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(workload) = engine.state.workload(id) {
            let held_before = workload.reservation_time().is_some_and(|since| since < self.since);
            (id, held_before, &workload.admission).hash(&mut hasher);
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests;
