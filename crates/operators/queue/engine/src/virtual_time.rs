//! Virtual time: cycles of a copy of the engine whose decisions take effect at once and whose workloads end on
//! schedule.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::Outcome;
use crate::engine::Engine;
use crate::livelock::{Livelock, LivelockDetector};
use crate::model::Workload;
use crate::names::{QueueId, WorkloadId};
use crate::time::{Span, Time};

/// What happened to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    Started(WorkloadId),
    Preempted(WorkloadId),
    Ended(WorkloadId),
}

/// An engine running in virtual time.
pub(crate) struct VirtualRun {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    ends: BTreeSet<(Time, WorkloadId)>,
    end_of: BTreeMap<WorkloadId, Time>,
    /// Flush inadmissible workloads at once instead of after the usual delay.
    eager: bool,
    /// After so many cycles without any effect none will have one: an active head may go on with the next
    /// flavor, so as many as there are flavors to try.
    patience: usize,
    detector: LivelockDetector,
    /// A livelock, if one was detected.
    pub(crate) livelock: Option<Livelock>,
}

impl VirtualRun {
    pub(crate) fn new(engine: Engine, now: Time, eager: bool) -> Self {
        let groups = engine.state.queues().flat_map(|(_, queue)| &queue.spec.groups);
        let patience = groups.map(|group| group.flavors.len()).max().unwrap_or(0);
        Self {
            engine,
            now,
            ends: BTreeSet::new(),
            end_of: BTreeMap::new(),
            eager,
            patience,
            detector: LivelockDetector::new(now),
            livelock: None,
        }
    }

    /// A workload arrives now.
    pub(crate) fn arrive(&mut self, workload: Workload) -> WorkloadId {
        self.detector = LivelockDetector::new(self.now);
        self.engine.set_workload(workload, self.now)
    }

    /// A running workload ends at this time.
    pub(crate) fn end_at(&mut self, id: WorkloadId, at: Time) {
        self.forget_end(id);
        self.ends.insert((at, id));
        self.end_of.insert(id, at);
    }

    fn forget_end(&mut self, id: WorkloadId) {
        if let Some(at) = self.end_of.remove(&id) {
            self.ends.remove(&(at, id));
        }
    }

    /// Runs cycles until nothing more happens at this time, or until a livelock is detected. It is stopped where one
    /// of its workloads holds the quota, so that time can go on. `runtime` is how long a workload that starts will
    /// run; `None` is forever.
    pub(crate) fn run_until_idle(
        &mut self,
        runtime: &dyn Fn(&Engine, WorkloadId) -> Option<Span>,
        observe: &mut dyn FnMut(&Engine, Time, Transition),
    ) {
        let mut idle = 0;
        let mut flushed_early: BTreeSet<QueueId> = BTreeSet::new();
        loop {
            self.engine.process_flushes(self.now, !self.eager);
            let active = self.engine.active();
            let report = self.engine.schedule(self.now);
            // Where a head became inadmissible, the next is tried.
            let mut moved = self.engine.active() < active;
            let mut started = false;
            for decision in &report.decisions {
                let id = decision.workload;
                match &decision.outcome {
                    Outcome::Admitted(_) => {
                        (moved, started) = (true, true);
                        self.detector.started(&self.engine, id);
                        if let Some(runtime) = runtime(&self.engine, id) {
                            self.end_at(id, self.now + runtime);
                        }
                        observe(&self.engine, self.now, Transition::Started(id));
                    }
                    Outcome::Evicted { .. } => {
                        moved = true;
                        self.preempt(id, observe);
                    }
                    Outcome::Unadmitted(unadmitted) => {
                        let victims =
                            unadmitted.evict.iter().map(|target| target.workload).chain(unadmitted.migrate);
                        for victim in victims.collect::<Vec<_>>() {
                            moved = true;
                            self.preempt(victim, observe);
                        }
                    }
                    Outcome::WaitingForPodsReady => {}
                }
            }
            let has_flushed = if self.eager {
                self.engine.process_flushes(self.now, false) > 0
            } else {
                flushed_early.iter().map(|queue| self.engine.flush_early(*queue, self.now)).sum::<usize>() > 0
            };
            if let Some(workloads) = self.detector.detect(&self.engine, started) {
                self.detector = LivelockDetector::new(self.now);
                if !flushed_early.is_empty() {
                    return;
                }
                let detected = Livelock::new(&self.engine, self.now, &workloads);
                flushed_early.clone_from(&detected.queues);
                self.note(detected);
                if self.eager {
                    return;
                }
                // Inadmissible workloads are tried now: a flush later would start the livelock again.
            }
            idle = if moved || has_flushed { 0 } else { idle + 1 };
            if report.heads == 0 && !has_flushed || idle > self.patience {
                return;
            }
        }
    }

    fn note(&mut self, detected: Livelock) {
        match &mut self.livelock {
            Some(known) => known.merge(detected),
            None => self.livelock = Some(detected),
        }
    }

    fn preempt(&mut self, id: WorkloadId, observe: &mut dyn FnMut(&Engine, Time, Transition)) {
        self.detector.preempted(&self.engine, id);
        self.forget_end(id);
        self.engine.return_to_queue(id, self.now);
        observe(&self.engine, self.now, Transition::Preempted(id));
    }

    /// When the next workload ends or the engine has something to do.
    pub(crate) fn next_at(&self) -> Option<Time> {
        let end = self.ends.first().map(|(at, _)| *at);
        let due = self.engine.next_due().map(|at| at.max(self.now));
        match (end, due) {
            (Some(end), Some(due)) => Some(end.min(due)),
            (end, due) => end.or(due),
        }
    }

    /// Moves to a time and ends what ends until then.
    pub(crate) fn advance_to(&mut self, at: Time, observe: &mut dyn FnMut(&Engine, Time, Transition)) {
        self.now = at;
        // Where inadmissible workloads are flushed at once, a livelock happens within one instant.
        if self.eager || self.ends.first().is_some_and(|(end, _)| *end <= at) {
            self.detector = LivelockDetector::new(at);
        }
        while let Some((end, id)) = self.ends.first().copied().filter(|(end, _)| *end <= at) {
            self.forget_end(id);
            observe(&self.engine, end, Transition::Ended(id));
            if let Some(key) = self.engine.state.workload(id).map(|workload| workload.key.clone()) {
                self.engine.remove_workload(&key, at);
            }
        }
    }
}
