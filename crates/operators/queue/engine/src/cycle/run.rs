//! Scheduling cycles of the engine: heads, nomination, decisions, requeue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::QuotaReservedReason;

use super::{
    Admitted, CycleReport, Decision, Entry, EntryStatus, Head, Order, Outcome, Processed, Processing,
    Unadmitted, Victims, evaluate,
};
use crate::engine::{Engine, order_of};
use crate::flavors::Subject;
use crate::model::{Admission, ConditionReason, Workload};
use crate::names::{FlavorId, QueueId, WorkloadId};
use crate::queue::{Pending, RequeueReason};
use crate::quota::NodeId;
use crate::state::{Queue, State};
use crate::time::Time;

/// A workload that was popped, to be decided about.
fn popped((id, head): (WorkloadId, Pending), queue: QueueId, is_preemptor: bool, cycle: i64) -> Head {
    let subject = Subject::new(Arc::clone(&head.workload), queue, cycle);
    let mut entry = Head::new(Entry::new(id, subject));
    entry.is_preemptor = is_preemptor;
    entry.subject.progress = head.progress.map(|progress| *progress);
    entry
}

impl Engine {
    /// Takes the heads without deciding about them: second passes that are due, and the first of every
    /// queue `is_active` accepts. They are in flight until they are requeued or removed.
    pub fn take_heads(&mut self, now: Time, is_active: &dyn Fn(&State, QueueId) -> bool) -> Vec<Head> {
        let mut heads = Vec::new();
        for (id, iteration) in self.second_pass.take_ready(now) {
            let Some(workload) = self.state.workload(id).filter(|workload| workload.needs_second_pass())
            else {
                continue;
            };
            if let Some(queue) = workload.admission.as_ref().map(|admission| admission.queue) {
                let subject = Subject::new(Arc::clone(workload), queue, self.cycle);
                let mut entry = Head::new(Entry::new(id, subject));
                entry.second_pass = Some(iteration);
                heads.push(entry);
                // It may go back to its queue, which therefore counts this cycle.
                self.busy.insert(queue);
            }
        }
        let Self { state, queues, waiting, busy, .. } = self;
        let mut idle = Vec::new();
        for queue in busy.iter().filter(|id| is_active(state, **id)) {
            let usage = |local_queue| order_of(state, local_queue);
            let pending = queues.get_mut(queue);
            let Some((pending, (id, head))) = pending.and_then(|pending| {
                let popped = pending.pop(&usage)?;
                Some((pending, popped))
            }) else {
                idle.push(*queue);
                continue;
            };
            if let Some(waiting) = waiting.get_mut(&head.workload.local_queue) {
                waiting.remove(&id);
            }
            let is_preemptor = pending.is_preemptor(id, head.workload.generation);
            heads.push(popped((id, head), *queue, is_preemptor, self.cycle));
        }
        for queue in idle {
            self.busy.remove(&queue);
        }
        heads
    }

    /// Runs one cycle. The decisions are in effect in the engine when this returns; the caller writes
    /// them to the API and reports failures with [`Engine::admission_failed`].
    pub fn schedule(&mut self, now: Time) -> CycleReport {
        self.cycle += 1;
        let mut report = CycleReport::default();
        if let Some(first) = self.take_waiting() {
            report.heads += 1;
            self.decide(vec![first], &mut report, now);
        }
        let heads = self.take_heads(now, &State::is_queue_active);
        report.heads += heads.len();
        for heads in self.independent(heads) {
            self.decide(heads, &mut report, now);
        }
        report
    }

    /// The workload that waited for the pods of others, if these are ready now. As Kueue's scheduler, which waits with it in
    /// hand, so that one that was evicted meanwhile does not overtake it.
    fn take_waiting(&mut self) -> Option<Head> {
        if !self.state.all_pods_ready() {
            return None;
        }
        let id = self.awaits_pods.take()?;
        let local_queue = self.state.workload(id)?.local_queue;
        let queue = self.state.local_queue(local_queue)?.queue;
        if !self.state.is_queue_active(queue) {
            return None;
        }
        let pending = self.queues.get_mut(&queue)?;
        let head = pending.pop_out_of_order(id)?;
        if let Some(waiting) = self.waiting.get_mut(&local_queue) {
            waiting.remove(&id);
        }
        let is_preemptor = pending.is_preemptor(id, head.workload.generation);
        Some(popped((id, head), queue, is_preemptor, self.cycle))
    }

    /// Heads that may influence each other, together. Trees of cohorts share no quota, so they are decided
    /// about one after another, which keeps the data of a decision close together in memory. Nodes and
    /// the wait for ready pods are shared by all.
    fn independent(&self, heads: Vec<Head>) -> Vec<Vec<Head>> {
        let shared = self.state.settings.block_admission || self.state.tas.flavors().next().is_some();
        if shared || heads.len() < 2 {
            return if heads.is_empty() { Vec::new() } else { vec![heads] };
        }
        let mut trees: BTreeMap<Option<NodeId>, Vec<Head>> = BTreeMap::new();
        for entry in heads {
            let root = self.state.queue(entry.subject.queue).map(|queue| self.state.tree.root(queue.node));
            trees.entry(root).or_default().push(entry);
        }
        trees.into_values().collect()
    }

    /// Evaluates heads, decides about them in order, and puts the decisions into effect.
    fn decide(&mut self, heads: Vec<Head>, report: &mut CycleReport, now: Time) {
        let (mut entries, rejected) = self.nominate(heads);
        let mut order = Order::new(&self.state.settings, &entries);
        let (blocks, ready) = (self.state.settings.block_admission, self.state.all_pods_ready());
        let mark = self.state.mark();
        let mut processing = Processing {
            state: &mut self.state,
            expected: &self.expected,
            blocked: blocks && !ready,
            victims: Victims::default(),
            report,
        };
        let mut decided = Vec::with_capacity(entries.len());
        let mut waits_for_pods = None;
        while let Some(at) = order.next(processing.state, &entries) {
            let Some(entry) = entries.get_mut(at) else {
                continue;
            };
            decided.push(at);
            match processing.process(entry) {
                Processed::Requeue => {}
                Processed::WaitForPodsReady => {
                    waits_for_pods = Some(at);
                    break;
                }
                Processed::Admit => {
                    entry.status = EntryStatus::Assumed;
                    // From now on it is one of those whose pods the others wait for.
                    processing.blocked |=
                        blocks && !entry.subject.workload.is_true(WorkloadCondition::PodsReady);
                }
            }
        }
        self.state.rollback(mark);

        let mut entries: Vec<Option<Head>> = entries.into_iter().map(Some).collect();
        for at in decided {
            let Some(entry) = entries.get_mut(at).and_then(Option::take) else {
                continue;
            };
            let (workload, queue) = (entry.id, entry.subject.queue);
            let outcome = match entry.status {
                EntryStatus::Assumed => self.assume(entry, now),
                EntryStatus::Evicted => Outcome::Evicted {
                    message: eviction_message(&entry.subject.workload),
                    cause: entry.message,
                },
                _ if waits_for_pods == Some(at) => {
                    self.awaits_pods.get_or_insert(workload);
                    self.requeue_and_update(entry, now);
                    Outcome::WaitingForPodsReady
                }
                _ => self.requeue_and_update(entry, now),
            };
            report.decisions.push(Decision { workload, queue, outcome });
        }
        // Entries that were not processed, behind a block or behind another entry of their queue: nothing was
        // decided about them, so clients see nothing.
        for mut entry in entries.into_iter().flatten() {
            entry.skip_status = true;
            entry.requeue = RequeueReason::FailedAfterNomination;
            self.requeue_undecided(entry, report, now);
        }
        for entry in rejected {
            self.requeue_undecided(entry, report, now);
        }
    }

    fn requeue_undecided(&mut self, entry: Head, report: &mut CycleReport, now: Time) {
        let (workload, queue) = (entry.id, entry.subject.queue);
        let outcome = self.requeue_and_update(entry, now);
        report.decisions.push(Decision { workload, queue, outcome });
    }

    /// Evaluates heads; those that cannot be evaluated are rejected with a reason.
    fn nominate(&mut self, heads: Vec<Head>) -> (Vec<Head>, Vec<Head>) {
        let (mut entries, mut rejected) = (Vec::new(), Vec::new());
        for mut entry in heads {
            let workload = Arc::clone(&entry.subject.workload);
            if !workload.needs_second_pass() && self.state.held(entry.id).is_some() {
                self.dequeue(&entry);
                continue;
            }
            if let Some((reason, message, requeue)) = self.rejection(&entry) {
                (entry.reason, entry.message, entry.requeue) = (Some(reason), message, requeue);
                rejected.push(entry);
                continue;
            }
            let (assignment, targets) = evaluate(&mut self.state, &mut entry.subject);
            entry.record(assignment, targets, &self.state);
            entries.push(entry);
        }
        (entries, rejected)
    }

    fn dequeue(&mut self, entry: &Entry) {
        if let Some(queue) = self.queues.get_mut(&entry.subject.queue) {
            queue.remove(entry.id);
        }
    }

    fn rejection(&self, entry: &Entry) -> Option<(QuotaReservedReason, String, RequeueReason)> {
        let workload = &entry.subject.workload;
        let queue = entry.subject.queue;
        let name = self.state.names.queue_name(queue);
        let generic = RequeueReason::Generic;
        if workload.has_failed_checks() {
            let message = "The workload has failed admission checks".to_owned();
            return Some((QuotaReservedReason::PendingEvaluation, message, generic));
        }
        let Some(row) = self.state.queue(queue) else {
            return Some((
                QuotaReservedReason::Misconfigured,
                format!("ClusterQueue {name} not found"),
                generic,
            ));
        };
        if !row.inactive.is_empty() {
            return Some((
                QuotaReservedReason::Suspended,
                format!("ClusterQueue {name} is inactive"),
                generic,
            ));
        }
        let namespace = workload.key.namespace;
        let Some(labels) = self.state.namespace(namespace) else {
            let name = self.state.names.namespaces.name(namespace);
            let message =
                format!("workload namespace \"{name}\" does not exist: namespaces \"{name}\" not found");
            return Some((QuotaReservedReason::Misconfigured, message, generic));
        };
        if !row.spec.namespaces.as_ref().is_some_and(|selector| selector.matches(labels)) {
            let message = "workload namespace doesn't match ClusterQueue selector".to_owned();
            return Some((QuotaReservedReason::Misconfigured, message, RequeueReason::NamespaceMismatch));
        }
        let links = workload.links.as_ref()?;
        let invalid = links.invalid.clone()?;
        // Without observability, it is the only reason of the scheduler that clients can tell from others.
        let reason = if links.has_invalid_devices && !self.settings().gates.observability {
            QuotaReservedReason::Inadmissible
        } else {
            QuotaReservedReason::Misconfigured
        };
        Some((reason, invalid, generic))
    }

    /// Gives the workload what was decided.
    fn assume(&mut self, entry: Head, now: Time) -> Outcome {
        let (id, queue) = (entry.id, entry.subject.queue);
        let admission = Arc::new(entry.assignment.admission(queue));
        let workload = &entry.subject.workload;
        let had_reservation = workload.has_quota_reservation();
        let recovered = !workload.unhealthy_nodes.is_empty();
        let required = self.state.queue(queue).map_or_else(Vec::new, |row| required_checks(row, &admission));
        let is_listed = required.iter().all(|name| workload.checks.iter().any(|check| check.name == *name));
        let considered = entry.assignment.considered(&self.state.names);
        let slice = entry.targets.iter().find(|target| target.reason.is_none());
        let replaces = slice.filter(|_| self.settings().gates.elastic_slices).map(|target| target.workload);
        self.charge(&entry, had_reservation, now);
        self.dequeue(&entry);
        self.expected.remove(&id);
        // The workload is not shared now, so it is changed in place.
        drop(entry);
        let mut is_admitted = false;
        self.state.update_workload(id, |workload| {
            workload.admission = Some(Arc::clone(&admission));
            workload.unhealthy_nodes.clear();
            workload.set_condition(WorkloadCondition::QuotaReserved, true, ConditionReason::Other, now);
            for kind in [
                WorkloadCondition::Evicted,
                WorkloadCondition::Preempted,
                WorkloadCondition::BlockedOnPreemptionGates,
            ] {
                if workload.is_true(kind) {
                    workload.set_condition(kind, false, ConditionReason::Other, now);
                }
            }
            is_admitted = is_listed && workload.meets_admission();
            if is_admitted {
                workload.set_condition(WorkloadCondition::Admitted, true, ConditionReason::Other, now);
            }
        });
        Outcome::Admitted(Box::new(Admitted {
            admission,
            is_listed,
            is_admitted,
            had_reservation,
            recovered,
            replaces,
            considered,
        }))
    }

    /// Requeues an entry and returns what clients see. As `requeueAndUpdate` in Kueue's
    /// `pkg/scheduler/scheduler.go`.
    pub fn requeue_and_update(&mut self, mut entry: Head, now: Time) -> Outcome {
        if entry.status != EntryStatus::NotNominated && entry.requeue == RequeueReason::Generic {
            entry.requeue = RequeueReason::FailedAfterNomination;
        }
        let mut outcome = Unadmitted {
            reason: entry.reason,
            message: entry.message.clone(),
            requeue: entry.requeue,
            evict: std::mem::take(&mut entry.evict),
            already_evicted: entry.already_evicted,
            migrate: entry.migrate,
            is_gated: entry.status == EntryStatus::PreemptionGated,
            write_status: false,
            second_pass_failed: false,
        };
        self.expected.extend(outcome.evict.iter().map(|target| target.workload));
        if self.queue_second_pass(entry.id, entry.second_pass.unwrap_or(0), now) {
            outcome.second_pass_failed = true;
            return Outcome::Unadmitted(Box::new(outcome));
        }
        self.requeue(&mut entry, now);
        outcome.write_status = !entry.skip_status
            && matches!(
                entry.status,
                EntryStatus::NotNominated | EntryStatus::Skipped | EntryStatus::PreemptionGated
            );
        Outcome::Unadmitted(Box::new(outcome))
    }

    fn requeue(&mut self, entry: &mut Entry, now: Time) {
        let Some(queue) = self.queues.get_mut(&entry.subject.queue) else {
            return;
        };
        let settings = &self.state.settings;
        let newest = self.state.workload(entry.id).filter(|workload| workload.is_admissible(&settings.gates));
        let Some(newest) = newest.filter(|workload| self.state.local_queue(workload.local_queue).is_some())
        else {
            queue.remove(entry.id);
            return;
        };
        self.busy.insert(entry.subject.queue);
        self.waiting.entry(newest.local_queue).or_default().insert(entry.id);
        let mut pending = entry.pending(entry.subject.workload.generation);
        pending.workload = Arc::clone(newest);
        pending.shape = newest.shape;
        queue.requeue(entry.id, pending, entry.requeue, entry.reason, (settings, now));
    }
}

/// The checks of the queue that apply to the flavors of an admission.
pub fn required_checks(queue: &Queue, admission: &Admission) -> Vec<Arc<str>> {
    let used: BTreeSet<_> = admission
        .pod_sets
        .iter()
        .flat_map(|pod_set| pod_set.flavors.iter().map(|(_, flavor)| *flavor))
        .collect();
    let all: BTreeSet<_> = queue.spec.flavors().collect();
    let applies = |flavors: &[FlavorId]| {
        if flavors.is_empty() {
            used.intersection(&all).next().is_some()
        } else {
            flavors.iter().any(|flavor| used.contains(flavor))
        }
    };
    queue
        .spec
        .checks
        .iter()
        .filter(|rule| applies(&rule.flavors))
        .map(|rule| Arc::clone(&rule.name))
        .collect()
}

fn eviction_message(workload: &Workload) -> String {
    format!(
        "Workload was evicted as there was no replacement for unhealthy node(s): {}",
        workload.unhealthy_nodes.join(",")
    )
}
