//! Outcomes of writes, evictions and second passes.

use std::sync::Arc;

use quintet_api::kueue::conditions::WorkloadCondition;

use super::Engine;
use crate::cycle::{Decision, Outcome, preempting, preemption_outcome};
use crate::model::{ConditionReason, Workload};
use crate::names::WorkloadId;
use crate::time::Time;

impl Engine {
    /// Enqueues a workload for its second pass if it needs one; false if it does not or waits already.
    pub fn queue_second_pass(&mut self, id: WorkloadId, iteration: u32, now: Time) -> bool {
        if self.state.workload(id).is_some_and(|workload| workload.needs_second_pass()) {
            return self.second_pass.push(id, iteration, now);
        }
        if iteration > 0 {
            self.second_pass.remove(id);
        }
        false
    }

    /// Lets every waiting second pass be tried in the next cycle.
    pub fn make_second_passes_due(&mut self) {
        self.second_pass.make_due();
    }

    /// An eviction for failed nodes could not be written: the workload's second pass is tried again, unless it is gone.
    /// True if it is, which [`second_pass_event`](crate::status::second_pass_event) reports. As
    /// `handleFailedTASReplacement` in Kueue's `pkg/scheduler/scheduler.go`.
    pub fn eviction_failed(&mut self, id: WorkloadId, is_gone: bool, now: Time) -> bool {
        !is_gone && self.queue_second_pass(id, 0, now)
    }

    /// A preemption could not be written: it may be decided again.
    pub fn preemption_failed(&mut self, victim: WorkloadId) {
        self.expected.remove(&victim);
    }

    /// Evictions for a preemptor that could not be written, to be reported before its decision is written. They may
    /// be decided again. If none of its victims is evicted, the preemptor does not wait for them.
    pub fn preemptions_failed(&mut self, decision: &mut Decision, failed: &[WorkloadId]) {
        let Outcome::Unadmitted(outcome) = &mut decision.outcome else {
            return;
        };
        let failures = outcome.evict.iter().filter(|target| failed.contains(&target.workload)).count();
        if failures == 0 {
            return;
        }
        let wanted = outcome.evict.len() + outcome.already_evicted;
        outcome.evict.retain(|target| !failed.contains(&target.workload));
        for victim in failed {
            self.expected.remove(victim);
        }
        let base = outcome.message.strip_suffix(&preempting(wanted)).unwrap_or(&outcome.message);
        let (message, requeue) = preemption_outcome(wanted - failures, failures);
        outcome.message = format!("{base}{message}");
        if let Some(requeue) = requeue.filter(|requeue| *requeue != outcome.requeue) {
            outcome.requeue = requeue;
            if let Some(queue) = self.queues.get_mut(&decision.queue) {
                queue.forget_preemptor(decision.workload);
            }
        }
    }

    /// An evicted workload has stopped and gives back what it held: it waits again.
    pub fn return_to_queue(&mut self, id: WorkloadId, now: Time) {
        let Some(workload) = self.state.workload(id) else {
            return;
        };
        let mut returned = Workload::clone(workload);
        returned.admission = None;
        for (kind, value) in [
            (WorkloadCondition::QuotaReserved, false),
            (WorkloadCondition::Admitted, false),
            (WorkloadCondition::Evicted, true),
            (WorkloadCondition::Requeued, true),
        ] {
            returned.set_condition(kind, value, ConditionReason::Other, now);
        }
        self.set_workload(returned, now);
    }

    /// An admission could not be written: what it took is given back, and the workload queued again
    /// unless it is gone.
    pub fn admission_failed(&mut self, id: WorkloadId, is_gone: bool, now: Time) {
        let Some(workload) = self.state.workload(id).map(Arc::clone) else {
            return;
        };
        self.state.afs.drop_penalty(workload.local_queue, &workload.key);
        let mut undone = Workload::clone(&workload);
        undone.admission = None;
        undone.conditions.retain(|condition| {
            !matches!(condition.kind, WorkloadCondition::QuotaReserved | WorkloadCondition::Admitted)
        });
        let held = self.state.held(id).map(|held| held.queue);
        self.state.set_workload(undone);
        if is_gone {
            self.forget_pending(id, workload.local_queue);
            self.state.remove_workload(id);
            if let Some(queue) = held {
                self.request_flush(queue, now);
            }
        } else {
            self.push(id, now);
            self.keep_turn(id);
        }
    }

    /// A workload that is pending again, because its admission did not take effect, goes before the one that waited for its
    /// pods, as it did before.
    pub fn keep_turn(&mut self, id: WorkloadId) {
        if self.state.settings.block_admission {
            self.awaits_pods = Some(id);
        }
    }
}
