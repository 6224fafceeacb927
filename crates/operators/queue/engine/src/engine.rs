//! The engine: objects come in, decisions come out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::afs::{self, Consumed};
use crate::cycle::{
    Admitted, CycleReport, Decision, Entry, EntryStatus, Order, Outcome, Processing, Unadmitted, Victims,
    evaluate,
};
use crate::flavors::Subject;
use crate::labels::Labels;
use crate::model::{
    CheckState, CohortSpec, ConditionKind, ConditionReason, LocalQueue, QueueSpec, Workload, WorkloadKey,
};
use crate::names::{CohortId, LocalQueueId, NamespaceId, QueueId, WorkloadId};
use crate::quantity::Quantity;
use crate::queue::{Pending, PendingQueue, RequeueReason, SecondPass};
use crate::settings::Settings;
use crate::state::{Queue, State};
use crate::time::{Span, Time};

/// How long after an event parked workloads are woken: events come in bursts.
const FLUSH_DELAY: Span = Span::secs(1);

/// What parked workloads belong together: a queue alone, or all below a root cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FlushScope {
    Queue(QueueId),
    Root(CohortId),
}

/// Quotas, queues, topology and workloads, and the scheduling of the latter.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// The state decisions are made on. Change it through the engine, so that queues follow.
    pub state: State,
    queues: BTreeMap<QueueId, PendingQueue>,
    /// Workloads that wait, by the LocalQueue they ask, whether it exists or not.
    waiting: HashMap<LocalQueueId, BTreeSet<WorkloadId>>,
    second_pass: SecondPass,
    flushes: BTreeMap<FlushScope, Time>,
    cycle: i64,
    /// Evictions decided and not seen to happen yet.
    expected: BTreeSet<WorkloadId>,
}

impl Engine {
    /// An engine without objects.
    pub fn new(settings: Settings) -> Self {
        Self {
            state: State::new(settings),
            ..Self::default()
        }
    }

    fn settings(&self) -> &Settings {
        &self.state.settings
    }

    /// The pending workloads of a queue.
    pub fn pending(&self, queue: QueueId) -> Option<&PendingQueue> {
        self.queues.get(&queue)
    }

    /// The pending workloads of a queue, to change.
    pub fn pending_mut(&mut self, queue: QueueId) -> Option<&mut PendingQueue> {
        self.queues.get_mut(&queue)
    }

    /// The number of the last cycle.
    pub fn cycle_number(&self) -> i64 {
        self.cycle
    }

    // --- objects ---

    /// Adds or changes a queue.
    pub fn set_queue(&mut self, spec: QueueSpec, now: Time) {
        let (id, strategy) = (spec.id, spec.strategy);
        let by_usage = spec.usage_based_admission && self.settings().afs().is_some();
        self.state.set_queue(spec);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.strategy = strategy;
        } else {
            self.queues.insert(id, PendingQueue::new(strategy, by_usage));
            let feeding: Vec<_> = self
                .state
                .local_queues()
                .filter(|(_, local_queue)| local_queue.queue == id)
                .map(|(local_queue, _)| local_queue)
                .collect();
            for local_queue in feeding {
                self.push_waiting(local_queue, now);
            }
        }
        self.request_flush(id, now);
    }

    /// Removes a queue.
    pub fn remove_queue(&mut self, id: QueueId) {
        self.state.remove_queue(id);
        self.queues.remove(&id);
    }

    /// Adds, changes or removes a cohort.
    pub fn set_cohort(&mut self, id: CohortId, spec: Option<CohortSpec>, now: Time) {
        let exists = spec.is_some();
        self.state.set_cohort(id, spec);
        if exists && let Some(node) = self.state.cohort(id) {
            let root = self.state.tree.root(node);
            if let Some(queue) = self.state.tree.all_queues_below(root).first().copied() {
                self.request_flush(queue, now);
            }
        }
    }

    /// Adds, changes or removes a LocalQueue; a stopped one feeds nothing.
    pub fn set_local_queue(&mut self, id: LocalQueueId, local_queue: Option<LocalQueue>, now: Time) {
        let feeds = |local_queue: &Option<LocalQueue>| {
            local_queue
                .as_ref()
                .filter(|local_queue| !local_queue.stopped)
                .map(|local_queue| local_queue.queue)
        };
        let before = feeds(&self.state.local_queue(id).cloned());
        let after = feeds(&local_queue);
        self.state.set_local_queue(id, local_queue);
        if before != after {
            if let Some(queue) = before.and_then(|queue| self.queues.get_mut(&queue)) {
                for workload in self.waiting.get(&id).into_iter().flatten() {
                    queue.remove(*workload);
                }
            }
            self.push_waiting(id, now);
        }
    }

    fn push_waiting(&mut self, local_queue: LocalQueueId, _now: Time) {
        let Some(feeds) = self
            .state
            .local_queue(local_queue)
            .filter(|local_queue| !local_queue.stopped)
        else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&feeds.queue) else {
            return;
        };
        for id in self.waiting.get(&local_queue).into_iter().flatten() {
            if let Some(workload) = self.state.workload(*id) {
                queue.push_if_absent(*id, Pending::new(Arc::clone(workload)), &self.state.settings);
            }
        }
    }

    /// Says which labels a namespace has. Queues that serve it only now are woken.
    pub fn set_namespace(&mut self, id: NamespaceId, labels: Option<Labels>, now: Time) {
        let serves = |queue: &Queue, labels: Option<&Labels>| {
            labels.is_some_and(|labels| {
                queue
                    .spec
                    .namespaces
                    .as_ref()
                    .is_some_and(|selector| selector.matches(labels))
            })
        };
        let before = self.state.namespace(id).cloned();
        let woken: Vec<QueueId> = self
            .state
            .queues()
            .filter(|(_, queue)| !serves(queue, before.as_ref()) && serves(queue, labels.as_ref()))
            .map(|(queue, _)| queue)
            .collect();
        self.state.set_namespace(id, labels);
        for queue in woken {
            self.request_flush(queue, now);
        }
    }

    /// Adds or changes a workload: it is queued, accounted or dropped as its status says.
    pub fn set_workload(&mut self, workload: Workload, now: Time) -> WorkloadId {
        let local_queue = workload.local_queue;
        let known = self.state.workload_id(&workload.key);
        let before = known
            .and_then(|id| self.state.workload(id))
            .map(|old| old.local_queue);
        let old_queue = known.and_then(|id| self.state.held(id)).map(|held| held.queue);
        let (id, _) = self.state.set_workload(workload);
        let holds = self.state.held(id).is_some();
        if let Some(queue) = old_queue.filter(|_| !holds) {
            self.request_flush(queue, now);
        }
        let admissible = self
            .state
            .workload(id)
            .is_some_and(|workload| workload.is_admissible(&self.settings().gates));
        if before.is_some_and(|before| before != local_queue) || !admissible {
            self.forget_pending(id, before.unwrap_or(local_queue));
        }
        if admissible {
            self.expected.remove(&id);
            self.push(id, now);
        } else if self
            .state
            .workload(id)
            .is_some_and(|workload| workload.is_evicted())
        {
            self.expected.remove(&id);
        }
        id
    }

    fn push(&mut self, id: WorkloadId, now: Time) {
        let Some(workload) = self.state.workload(id).map(Arc::clone) else {
            return;
        };
        let is_parent = workload.links.as_ref().is_some_and(|links| links.is_parent);
        if self.settings().gates.concurrent_admission && is_parent {
            return;
        }
        self.waiting.entry(workload.local_queue).or_default().insert(id);
        let feeds = self
            .state
            .local_queue(workload.local_queue)
            .filter(|local_queue| !local_queue.stopped);
        let Some(queue) = feeds.and_then(|feeds| self.queues.get_mut(&feeds.queue)) else {
            return;
        };
        let settings = &self.state.settings;
        let mut pending = Pending::new(workload);
        if settings.gates.preserve_scan_progress
            && let Some(known) = queue.get(id)
        {
            let progress = known.progress.clone();
            pending.progress = progress.filter(|progress| progress.matches_shape(pending.shape));
        }
        queue.push_or_update(id, pending, settings, now);
    }

    fn forget_pending(&mut self, id: WorkloadId, local_queue: LocalQueueId) {
        if let Some(waiting) = self.waiting.get_mut(&local_queue) {
            waiting.remove(&id);
            if waiting.is_empty() {
                self.waiting.remove(&local_queue);
            }
        }
        if let Some(feeds) = self.state.local_queue(local_queue)
            && let Some(queue) = self.queues.get_mut(&feeds.queue)
        {
            queue.remove(id);
        }
    }

    /// Removes a workload.
    pub fn remove_workload(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.state.workload_id(key) else {
            return;
        };
        let local_queue = self.state.workload(id).map(|workload| workload.local_queue);
        let queue = self.state.held(id).map(|held| held.queue);
        let fed = local_queue
            .and_then(|local_queue| self.state.local_queue(local_queue))
            .map(|feeds| feeds.queue);
        if let Some(local_queue) = local_queue {
            self.forget_pending(id, local_queue);
            self.state.afs.drop_penalty(local_queue, key);
        }
        self.second_pass.remove(id);
        self.expected.remove(&id);
        self.state.remove_workload(id);
        if let Some(queue) = queue.or(fed) {
            self.request_flush(queue, now);
        }
    }

    /// Something changed that concerns all queues, such as nodes.
    pub fn request_flush_all(&mut self, now: Time) {
        let ids: Vec<_> = self.state.queues().map(|(id, _)| id).collect();
        for id in ids {
            self.request_flush(id, now);
        }
    }

    /// Asks for the parked workloads of a queue, or of the whole tree it is in, to be woken soon.
    pub fn request_flush(&mut self, queue: QueueId, now: Time) {
        let scope = self.state.queue(queue).map_or(FlushScope::Queue(queue), |row| {
            match self.state.tree.kind(self.state.tree.root(row.node)) {
                crate::quota::NodeKind::Cohort(root) => FlushScope::Root(root),
                crate::quota::NodeKind::Queue(queue) => FlushScope::Queue(queue),
            }
        });
        self.flushes.entry(scope).or_insert(now + FLUSH_DELAY);
    }

    /// Wakes parked workloads whose time has come; `None` wakes all that were asked for.
    pub fn process_flushes(&mut self, now: Time, due_only: bool) -> usize {
        let due: Vec<FlushScope> = self
            .flushes
            .iter()
            .filter(|(_, at)| !due_only || **at <= now)
            .map(|(scope, _)| *scope)
            .collect();
        let mut moved = 0;
        for scope in due {
            self.flushes.remove(&scope);
            let queues = match scope {
                FlushScope::Queue(queue) => vec![queue],
                FlushScope::Root(root) => self
                    .state
                    .cohort(root)
                    .map_or_else(Vec::new, |node| self.state.tree.all_queues_below(node)),
            };
            for queue in queues {
                moved += self.flush(queue, now);
            }
        }
        moved
    }

    /// Wakes the parked workloads of one queue now.
    pub fn flush(&mut self, queue: QueueId, now: Time) -> usize {
        let Some(row) = self.state.queue(queue) else {
            return 0;
        };
        let selector = row.spec.namespaces.as_ref();
        let serves = |namespace: NamespaceId| {
            let labels = self.state.namespace(namespace);
            labels.is_some_and(|labels| selector.is_some_and(|selector| selector.matches(labels)))
        };
        self.queues
            .get_mut(&queue)
            .map_or(0, |pending| pending.flush(&serves, now))
    }

    /// When something is due although nothing happens: a flush or a second pass.
    pub fn next_due(&self) -> Option<Time> {
        self.flushes
            .values()
            .copied()
            .chain(self.second_pass.next_at())
            .min()
    }

    /// Takes the second passes that are due.
    pub fn take_second_passes(&mut self, now: Time) -> Vec<WorkloadId> {
        self.second_pass
            .take_ready(now)
            .into_iter()
            .map(|(id, _)| id)
            .collect()
    }

    /// Workloads waiting for a LocalQueue, in flight not included.
    pub fn waiting_in(&self, local_queue: LocalQueueId) -> impl Iterator<Item = WorkloadId> + '_ {
        self.waiting.get(&local_queue).into_iter().flatten().copied()
    }

    /// How a LocalQueue's usage orders its workloads.
    pub fn local_queue_usage(&self, local_queue: LocalQueueId) -> f64 {
        usage_of(&self.state, local_queue)
    }

    /// Enqueues a workload for its second pass if it needs one; false if it does not or waits already.
    pub fn queue_second_pass(&mut self, id: WorkloadId, iteration: u32, now: Time) -> bool {
        if self
            .state
            .workload(id)
            .is_some_and(|workload| workload.needs_second_pass())
        {
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

    // --- the cycle ---

    /// Takes the heads without deciding about them: second passes that are due, and the first of every
    /// queue `is_active` accepts. They are in flight until they are requeued or removed.
    pub fn take_heads(&mut self, now: Time, is_active: &dyn Fn(&State, QueueId) -> bool) -> Vec<Entry> {
        let mut heads = Vec::new();
        for (id, iteration) in self.second_pass.take_ready(now) {
            let Some(workload) = self
                .state
                .workload(id)
                .filter(|workload| workload.needs_second_pass())
            else {
                continue;
            };
            if let Some(queue) = workload.admission.as_ref().map(|admission| admission.queue) {
                let mut entry = Entry::new(id, Subject::new(Arc::clone(workload), queue, self.cycle));
                entry.second_pass = Some(iteration);
                heads.push(entry);
            }
        }
        let Self {
            state,
            queues,
            waiting,
            ..
        } = self;
        for (queue, pending) in queues.iter_mut().filter(|(id, _)| is_active(state, **id)) {
            let usage = |local_queue| usage_of(state, local_queue);
            let Some((id, head)) = pending.pop(&usage) else {
                continue;
            };
            if let Some(waiting) = waiting.get_mut(&head.workload.local_queue) {
                waiting.remove(&id);
            }
            let mut entry = Entry::new(id, Subject::new(Arc::clone(&head.workload), *queue, self.cycle));
            entry.is_preemptor = pending.is_preemptor(id, head.workload.generation);
            entry.subject.progress = head.progress.map(|progress| *progress);
            heads.push(entry);
        }
        heads
    }

    /// Runs one cycle. The decisions are in effect in the engine when this returns; the caller writes
    /// them to the API and reports failures with [`Engine::admission_failed`].
    pub fn schedule(&mut self, now: Time) -> CycleReport {
        self.cycle += 1;
        let heads = self.take_heads(now, &State::is_queue_active);
        if heads.is_empty() {
            return CycleReport::default();
        }
        let count = heads.len();
        let (mut entries, refused) = self.nominate(heads, now);
        let mut order = Order::new(&self.state.settings, &entries);
        let blocked = self.state.settings.block_admission && !self.state.all_pods_ready();

        let mark = self.state.mark();
        let report = CycleReport {
            heads: count,
            ..CycleReport::default()
        };
        let mut processing = Processing {
            state: &mut self.state,
            expected: &self.expected,
            victims: Victims::default(),
            report,
            now,
        };
        let mut decided = Vec::new();
        let mut stopped = false;
        while let Some(at) = order.next(processing.state, &entries) {
            let Some(entry) = entries.get_mut(at) else {
                continue;
            };
            let admit = processing.process(entry);
            decided.push(at);
            if admit && blocked && !entry.subject.workload.needs_second_pass() {
                entry.status = EntryStatus::Nominated;
                stopped = true;
                break;
            }
            if admit {
                entry.status = EntryStatus::Assumed;
            }
        }
        let mut report = processing.report;
        self.state.rollback(mark);

        // Entries that never had their turn, behind a block or behind a second pass of their queue.
        let turned: BTreeSet<usize> = decided.iter().copied().collect();
        let rest = (0..entries.len()).filter(|at| !turned.contains(at));
        let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
        let last = decided.last().copied().filter(|_| stopped);
        for at in decided.into_iter().chain(rest) {
            let Some(entry) = entries.get_mut(at).and_then(Option::take) else {
                continue;
            };
            let (workload, queue) = (entry.id, entry.subject.queue);
            let outcome = match entry.status {
                EntryStatus::Assumed => self.assume(&entry, now),
                EntryStatus::Evicted => Outcome::Evicted {
                    message: eviction_message(&entry.subject.workload),
                    cause: entry.message,
                },
                _ if last == Some(at) => {
                    self.back_to_queue(entry, now);
                    Outcome::WaitingForPodsReady
                }
                _ => self.back_to_queue(entry, now),
            };
            report.decisions.push(Decision {
                workload,
                queue,
                outcome,
            });
        }
        for entry in refused {
            let (workload, queue) = (entry.id, entry.subject.queue);
            let outcome = self.back_to_queue(entry, now);
            report.decisions.push(Decision {
                workload,
                queue,
                outcome,
            });
        }
        report
    }

    /// Evaluates heads; those that cannot be evaluated are refused with a reason.
    fn nominate(&mut self, heads: Vec<Entry>, now: Time) -> (Vec<Entry>, Vec<Entry>) {
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for mut entry in heads {
            let workload = Arc::clone(&entry.subject.workload);
            if !workload.needs_second_pass() && self.state.held(entry.id).is_some() {
                self.land(&entry);
                continue;
            }
            if let Some((reason, message, requeue)) = self.refusal(&entry) {
                (entry.reason, entry.message, entry.requeue) = (reason.to_owned(), message, requeue);
                refused.push(entry);
                continue;
            }
            let (assignment, targets) = evaluate(&mut self.state, &mut entry.subject, now);
            entry.record(assignment, targets, &self.state);
            entries.push(entry);
        }
        (entries, refused)
    }

    fn land(&mut self, entry: &Entry) {
        if let Some(queue) = self.queues.get_mut(&entry.subject.queue) {
            queue.remove(entry.id);
        }
    }

    fn refusal(&self, entry: &Entry) -> Option<(&'static str, String, RequeueReason)> {
        let workload = &entry.subject.workload;
        let queue = entry.subject.queue;
        let name = self.state.names.queue_name(queue);
        let generic = RequeueReason::Generic;
        if workload.has_failed_checks() {
            return Some((
                "PendingEvaluation",
                "The workload has failed admission checks".to_owned(),
                generic,
            ));
        }
        let Some(row) = self.state.queue(queue) else {
            return Some(("Misconfigured", format!("ClusterQueue {name} not found"), generic));
        };
        if !row.inactive.is_empty() {
            return Some(("Suspended", format!("ClusterQueue {name} is inactive"), generic));
        }
        let namespace = workload.key.namespace;
        let Some(labels) = self.state.namespace(namespace) else {
            let name = self.state.names.namespaces.name(namespace);
            let message =
                format!("workload namespace \"{name}\" does not exist: namespaces \"{name}\" not found");
            return Some(("Misconfigured", message, generic));
        };
        if !row
            .spec
            .namespaces
            .as_ref()
            .is_some_and(|selector| selector.matches(labels))
        {
            let message = "workload namespace doesn't match ClusterQueue selector".to_owned();
            return Some(("Misconfigured", message, RequeueReason::NamespaceMismatch));
        }
        let invalid = workload.links.as_ref().and_then(|links| links.invalid.clone())?;
        Some(("Misconfigured", invalid, generic))
    }

    /// Gives the workload what was decided.
    fn assume(&mut self, entry: &Entry, now: Time) -> Outcome {
        let (id, queue) = (entry.id, entry.subject.queue);
        let admission = entry.assignment.admission(queue);
        let mut workload = Workload::clone(&entry.subject.workload);
        let had_reservation = workload.has_reservation();
        let recovered = !workload.unhealthy_nodes.is_empty();
        let required = self
            .state
            .queue(queue)
            .map_or_else(Vec::new, |row| required_checks(row, &admission));
        workload.admission = Some(Box::new(admission.clone()));
        workload.unhealthy_nodes.clear();
        workload.set_condition(ConditionKind::QuotaReserved, true, ConditionReason::Other, now);
        for kind in [
            ConditionKind::Evicted,
            ConditionKind::Preempted,
            ConditionKind::BlockedOnPreemptionGates,
        ] {
            if workload.is_true(kind) {
                workload.set_condition(kind, false, ConditionReason::Other, now);
            }
        }
        let listed = required
            .iter()
            .all(|name| workload.checks.iter().any(|check| check.name == *name));
        let ready = workload
            .checks
            .iter()
            .all(|check| check.state == CheckState::Ready);
        let is_admitted = listed && ready && !workload.has_pending_placement();
        if is_admitted {
            workload.set_condition(ConditionKind::Admitted, true, ConditionReason::Other, now);
        }
        let considered = entry.assignment.considered(&self.state.names);
        let replaces = entry
            .targets
            .iter()
            .find(|target| target.reason.is_none())
            .filter(|_| self.settings().gates.elastic_slices)
            .map(|target| target.workload);
        self.charge(entry, had_reservation, now);
        self.land(entry);
        self.state.set_workload(workload);
        self.expected.remove(&id);
        Outcome::Admitted(Box::new(Admitted {
            admission,
            is_listed: listed,
            is_admitted,
            had_reservation,
            recovered,
            replaces,
            considered,
        }))
    }

    /// Charges the admission to its LocalQueue.
    fn charge(&mut self, entry: &Entry, had_reservation: bool, now: Time) {
        let applies = self
            .state
            .queue(entry.subject.queue)
            .is_some_and(|row| row.spec.usage_based_admission);
        let Some(config) = self
            .state
            .settings
            .afs()
            .filter(|_| applies && !had_reservation)
            .cloned()
        else {
            return;
        };
        let ignores = self.settings().ignores_undeclared();
        let mut requests = Consumed::new();
        for demand in &entry.subject.demands {
            for (resource, value) in demand.requests.iter() {
                let covered = self
                    .state
                    .queue(entry.subject.queue)
                    .is_some_and(|row| row.spec.group_of(resource).is_some());
                if ignores && !covered {
                    continue;
                }
                let quantity = if resource == crate::names::ResourceId::CPU {
                    Quantity::milli(value)
                } else {
                    Quantity::units(value)
                };
                let sum = requests.entry(resource).or_default();
                *sum = sum.plus(quantity);
            }
        }
        let workload = &entry.subject.workload;
        let penalty = afs::entry_penalty(&requests, &config);
        self.state
            .afs
            .push_penalty(workload.local_queue, workload.key.clone(), penalty, now);
    }

    /// Puts an entry back and says what clients should see.
    fn back_to_queue(&mut self, mut entry: Entry, now: Time) -> Outcome {
        if entry.status != EntryStatus::NotNominated && entry.requeue == RequeueReason::Generic {
            entry.requeue = RequeueReason::FailedAfterNomination;
        }
        let mut outcome = Unadmitted {
            reason: entry.reason.clone(),
            message: entry.message.clone(),
            requeue: entry.requeue,
            evict: std::mem::take(&mut entry.evict),
            already_evicted: entry.already_evicted,
            migrate: entry.migrate,
            is_gated: entry.status == EntryStatus::PreemptionGated,
            write_status: false,
            second_pass_failed: false,
        };
        self.expected
            .extend(outcome.evict.iter().map(|target| target.workload));
        if self.queue_second_pass(entry.id, entry.second_pass.unwrap_or(0), now) {
            outcome.second_pass_failed = true;
            return Outcome::Unadmitted(Box::new(outcome));
        }
        self.requeue(&entry, now);
        outcome.write_status = !entry.skip_status
            && matches!(
                entry.status,
                EntryStatus::NotNominated | EntryStatus::Skipped | EntryStatus::PreemptionGated
            );
        Outcome::Unadmitted(Box::new(outcome))
    }

    fn requeue(&mut self, entry: &Entry, now: Time) {
        let Some(queue) = self.queues.get_mut(&entry.subject.queue) else {
            return;
        };
        let settings = &self.state.settings;
        let newest = self
            .state
            .workload(entry.id)
            .filter(|workload| workload.is_admissible(&settings.gates));
        let Some(newest) = newest.filter(|workload| self.state.local_queue(workload.local_queue).is_some())
        else {
            queue.remove(entry.id);
            return;
        };
        self.waiting
            .entry(newest.local_queue)
            .or_default()
            .insert(entry.id);
        let mut pending = entry.pending(entry.subject.workload.generation);
        pending.workload = Arc::clone(newest);
        pending.shape = newest.shape;
        queue.requeue(entry.id, pending, entry.requeue, &entry.reason, (settings, now));
    }

    /// An eviction for failed nodes could not be written: the workload's second pass is tried again.
    pub fn eviction_failed(&mut self, id: WorkloadId, now: Time) -> bool {
        self.queue_second_pass(id, 0, now)
    }

    /// A preemption could not be written: it may be decided again.
    pub fn preemption_failed(&mut self, victim: WorkloadId) {
        self.expected.remove(&victim);
    }

    /// An evicted workload has stopped and gives back what it held: it waits again.
    pub fn return_to_queue(&mut self, id: WorkloadId, now: Time) {
        let Some(workload) = self.state.workload(id) else {
            return;
        };
        let mut returned = Workload::clone(workload);
        returned.admission = None;
        for (kind, value) in [
            (ConditionKind::QuotaReserved, false),
            (ConditionKind::Admitted, false),
            (ConditionKind::Evicted, true),
            (ConditionKind::Requeued, true),
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
            !matches!(
                condition.kind,
                ConditionKind::QuotaReserved | ConditionKind::Admitted
            )
        });
        self.state.set_workload(undone);
        if is_gone {
            self.forget_pending(id, workload.local_queue);
            self.state.remove_workload(id);
        } else {
            self.push(id, now);
        }
    }
}

fn usage_of(state: &State, local_queue: LocalQueueId) -> f64 {
    let weight = state
        .local_queue(local_queue)
        .map_or(1.0, |local_queue| local_queue.weight);
    state.settings.afs().map_or(0.0, |config| {
        state.afs.usage(local_queue, weight, config, &state.names)
    })
}

/// The checks of the queue that apply to the flavors of an admission.
pub fn required_checks(queue: &Queue, admission: &crate::model::Admission) -> Vec<Arc<str>> {
    let used: BTreeSet<_> = admission
        .pod_sets
        .iter()
        .flat_map(|pod_set| pod_set.flavors.iter().map(|(_, flavor)| *flavor))
        .collect();
    let all: BTreeSet<_> = queue.spec.flavors().collect();
    let applies = |flavors: &[crate::names::FlavorId]| {
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
