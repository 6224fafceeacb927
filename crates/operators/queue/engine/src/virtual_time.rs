//! Running the engine ahead of time: decisions take effect at once and workloads end when they should.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::Outcome;
use crate::engine::Engine;
use crate::livelock::{Livelock, LivelockDetector};
use crate::model::Workload;
use crate::names::{QueueId, WorkloadId};
use crate::time::{Span, Time};

/// What happened.
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
    /// Wake parked workloads at once instead of after the usual delay.
    eager: bool,
    /// After so many cycles without any effect none will have one: a head that is not parked may go on with
    /// the next flavor, so as many as there are flavors to go through.
    patience: usize,
    detector: LivelockDetector,
    /// What never came to rest.
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

    /// Cycles until nothing more happens now, or until it is clear that this never is: then somebody holds what
    /// the others want, time can go on, and `livelock` says who they are. `runtime` says how long a workload that
    /// starts will run; `None` is for ever.
    pub(crate) fn run_until_idle(
        &mut self,
        runtime: &dyn Fn(&Engine, WorkloadId) -> Option<Span>,
        seen: &mut dyn FnMut(&Engine, Time, Transition),
    ) {
        let mut idle = 0;
        let mut hurried: BTreeSet<QueueId> = BTreeSet::new();
        loop {
            self.engine.process_flushes(self.now, !self.eager);
            let active = self.engine.active();
            let report = self.engine.schedule(self.now);
            // Where a head was parked, those behind it have their turn.
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
                        seen(&self.engine, self.now, Transition::Started(id));
                    }
                    Outcome::Evicted { .. } => {
                        moved = true;
                        self.preempt(id, seen);
                    }
                    Outcome::Unadmitted(unadmitted) => {
                        let victims =
                            unadmitted.evict.iter().map(|target| target.workload).chain(unadmitted.migrate);
                        for victim in victims.collect::<Vec<_>>() {
                            moved = true;
                            self.preempt(victim, seen);
                        }
                    }
                    Outcome::WaitingForPodsReady => {}
                }
            }
            let woken = if self.eager {
                self.engine.process_flushes(self.now, false) > 0
            } else {
                hurried.iter().map(|queue| self.engine.flush_early(*queue, self.now)).sum::<usize>() > 0
            };
            if let Some(workloads) = self.detector.detect(&self.engine, started) {
                self.detector = LivelockDetector::new(self.now);
                if !hurried.is_empty() {
                    return;
                }
                let noticed = Livelock::new(&self.engine, self.now, &workloads);
                hurried.clone_from(&noticed.queues);
                self.note(noticed);
                if self.eager {
                    return;
                }
                // Those that are parked have their turn now: to wake them later would begin it all anew.
            }
            idle = if moved || woken { 0 } else { idle + 1 };
            if report.heads == 0 && !woken || idle > self.patience {
                return;
            }
        }
    }

    fn note(&mut self, noticed: Livelock) {
        match &mut self.livelock {
            Some(known) => known.merge(noticed),
            None => self.livelock = Some(noticed),
        }
    }

    fn preempt(&mut self, id: WorkloadId, seen: &mut dyn FnMut(&Engine, Time, Transition)) {
        self.detector.preempted(&self.engine, id);
        self.forget_end(id);
        self.engine.return_to_queue(id, self.now);
        seen(&self.engine, self.now, Transition::Preempted(id));
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
    pub(crate) fn advance_to(&mut self, at: Time, seen: &mut dyn FnMut(&Engine, Time, Transition)) {
        self.now = at;
        // Where parked workloads are woken at once, what goes round does so at one moment.
        if self.eager || self.ends.first().is_some_and(|(end, _)| *end <= at) {
            self.detector = LivelockDetector::new(at);
        }
        while let Some((end, id)) = self.ends.first().copied().filter(|(end, _)| *end <= at) {
            self.forget_end(id);
            seen(&self.engine, end, Transition::Ended(id));
            if let Some(key) = self.engine.state.workload(id).map(|workload| workload.key.clone()) {
                self.engine.remove_workload(&key, at);
            }
        }
    }
}
