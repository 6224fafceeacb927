//! The engine: objects come in, decisions come out.

mod fingerprint;
mod usage;

pub use usage::charged_by;
pub(crate) use usage::order_of;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::ClusterQueueActiveReason;

use crate::cycle::{Decision, Outcome, preempting, preemption_outcome};
use crate::ingest::{PodDefaults, PodUsage};
use crate::labels::Labels;
use crate::model::{CohortSpec, ConditionReason, Flavor, LocalQueue, QueueSpec, Workload, WorkloadKey};
use crate::names::{
    CohortId, FlavorId, IdMap, LocalQueueId, Names, NamespaceId, QueueId, TopologyId, WorkloadId,
};
use crate::queue::{Pending, PendingQueue, SecondPass};
use crate::quota::NodeKind;
use crate::settings::Settings;
use crate::state::{CheckInfo, Queue, State};
use crate::tas::NodeInfo;
use crate::time::{Span, Time};

/// How long after an event parked workloads are woken: events come in bursts.
const FLUSH_DELAY: Span = Span::secs(1);

/// What parked workloads belong together: a queue alone, or all below a root cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum FlushScope {
    Queue(QueueId),
    Root(CohortId),
}

/// Quotas, queues, topology and workloads, and the scheduling of the latter.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// The state decisions are made on. It is changed through the engine, so that queues follow.
    pub(crate) state: State,
    pub(crate) queues: BTreeMap<QueueId, PendingQueue>,
    /// Queues somebody may be active or in flight in; the others are not looked at.
    pub(crate) busy: BTreeSet<QueueId>,
    /// Workloads that wait, by the LocalQueue they ask, whether it exists or not.
    pub(crate) waiting: IdMap<LocalQueueId, BTreeSet<WorkloadId>>,
    pub(crate) second_pass: SecondPass,
    flushes: BTreeMap<FlushScope, Time>,
    pub(crate) cycle: i64,
    /// Evictions decided and not seen to happen yet.
    pub(crate) expected: BTreeSet<WorkloadId>,
    /// LimitRanges and RuntimeClasses.
    pub(crate) pod_defaults: PodDefaults,
    /// Pods outside topology aware scheduling.
    pub(crate) pod_usage: PodUsage,
}

impl Engine {
    /// An engine without objects.
    pub fn new(settings: Settings) -> Self {
        Self { state: State::new(settings), ..Self::default() }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.state.settings
    }

    /// The names behind ids.
    pub fn names(&self) -> &Names {
        &self.state.names
    }

    /// The id of a workload.
    pub fn workload_id(&self, namespace: &str, name: &str) -> Option<WorkloadId> {
        let namespace = self.state.names.namespaces.get(namespace)?;
        self.state.workload_id(&WorkloadKey { namespace, name: name.into() })
    }

    /// A workload.
    pub fn workload(&self, id: WorkloadId) -> Option<&Arc<Workload>> {
        self.state.workload(id)
    }

    /// Whether a queue can admit, with the reason and message of its `Active` condition.
    pub fn active_condition(&self, queue: QueueId) -> (bool, ClusterQueueActiveReason, String) {
        self.state.active_condition(queue)
    }

    /// The pending workloads of a queue in the order in which they are tried, as the visibility API lists
    /// them.
    pub fn pending_in_order(&self, queue: QueueId) -> Vec<WorkloadId> {
        let usage = |local_queue| self.local_queue_usage(local_queue);
        self.pending(queue).map_or_else(Vec::new, |pending| pending.ordered(&usage, &self.state.settings))
    }

    /// What decisions are made on, for this crate's tests and benchmarks.
    #[doc(hidden)]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// As [`Engine::state`], to change.
    #[doc(hidden)]
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// The pending workloads of a queue.
    pub fn pending(&self, queue: QueueId) -> Option<&PendingQueue> {
        self.queues.get(&queue)
    }

    /// The pending workloads of a queue, to change.
    pub fn pending_mut(&mut self, queue: QueueId) -> Option<&mut PendingQueue> {
        self.busy.insert(queue);
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
        let changed = self.state.queue(id).is_none_or(|known| known.spec != spec);
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
                self.push_waiting(local_queue);
            }
        }
        if changed {
            self.request_flush(id, now);
        }
    }

    /// Removes a queue.
    pub fn remove_queue(&mut self, id: QueueId) {
        self.state.remove_queue(id);
        self.queues.remove(&id);
        self.busy.remove(&id);
    }

    /// Adds, changes or removes a cohort.
    pub fn set_cohort(&mut self, id: CohortId, spec: Option<CohortSpec>, now: Time) {
        let exists = spec.is_some();
        self.state.set_cohort(id, spec);
        if exists && let Some(node) = self.state.cohort(id) {
            let root = self.state.tree.kind(self.state.tree.root(node));
            if let NodeKind::Cohort(root) = root
                && !self.state.is_in_cycle(root)
            {
                self.flushes.entry(FlushScope::Root(root)).or_insert(now + FLUSH_DELAY);
            }
        }
    }

    /// Makes a change that may let queues admit again, and wakes those, and those `affected` by it.
    fn change(&mut self, now: Time, affected: impl Fn(&Queue) -> bool, change: impl FnOnce(&mut State)) {
        let idle: Vec<QueueId> =
            self.state.queues().filter(|(_, queue)| !queue.inactive.is_empty()).map(|(id, _)| id).collect();
        change(&mut self.state);
        let woken: Vec<QueueId> = self
            .state
            .queues()
            .filter(|(id, queue)| queue.inactive.is_empty() && (idle.contains(id) || affected(queue)))
            .map(|(id, _)| id)
            .collect();
        for queue in woken {
            self.request_flush(queue, now);
        }
    }

    /// Adds, changes or removes a flavor.
    pub fn set_flavor(&mut self, id: FlavorId, flavor: Option<Flavor>, now: Time) {
        let changed = self.state.flavor(id) != flavor.as_ref();
        let uses = |queue: &Queue| changed && queue.spec.flavors().any(|own| own == id);
        self.change(now, uses, |state| match flavor {
            Some(flavor) => state.set_flavor(id, flavor),
            None => state.remove_flavor(id),
        });
    }

    /// Adds, changes or removes a topology, given as the node labels of its levels.
    pub fn set_topology(&mut self, id: TopologyId, levels: Option<Vec<Arc<str>>>, now: Time) {
        let users: Vec<FlavorId> = self
            .state
            .flavors()
            .filter(|(_, flavor)| flavor.topology == Some(id))
            .map(|(flavor, _)| flavor)
            .collect();
        let is_on_it = |queue: &Queue| queue.spec.flavors().any(|own| users.contains(&own));
        self.change(now, is_on_it, |state| match levels {
            Some(levels) => state.set_topology(id, levels),
            None => state.remove_topology(id),
        });
    }

    /// Adds, changes or removes an admission check.
    pub fn set_check(&mut self, name: Arc<str>, check: Option<CheckInfo>, now: Time) {
        self.change(now, |_| false, |state| state.set_check(name, check));
    }

    /// Adds or changes nodes, or (without information) removes them. All queues are woken.
    pub fn set_nodes(&mut self, nodes: Vec<(Arc<str>, Option<NodeInfo>)>, now: Time) {
        self.change(now, |_| true, |state| state.tas.set_nodes(nodes));
    }

    /// Adds, changes or removes a LocalQueue; a stopped one feeds nothing.
    pub fn set_local_queue(&mut self, id: LocalQueueId, local_queue: Option<LocalQueue>) {
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
            self.push_waiting(id);
        }
    }

    fn push_waiting(&mut self, local_queue: LocalQueueId) {
        let Some(feeds) = self.state.local_queue(local_queue).filter(|local_queue| !local_queue.stopped)
        else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&feeds.queue) else {
            return;
        };
        self.busy.insert(feeds.queue);
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
                queue.spec.namespaces.as_ref().is_some_and(|selector| selector.matches(labels))
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
        let old = known.and_then(|id| self.state.workload(id)).map(Arc::clone);
        let before = old.as_ref().map(|old| old.local_queue);
        let old_queue = known.and_then(|id| self.state.held(id)).map(|held| held.queue);
        let (id, _) = self.state.set_workload(workload);
        let holds = self.state.held(id).is_some();
        // Somebody may fit now: all quota was given back, or some of it, or the holder may be preempted.
        let gates = &self.settings().gates;
        let loosened = old.as_ref().zip(self.state.workload(id)).is_some_and(|(old, new)| {
            old.reclaim_fingerprint != new.reclaim_fingerprint
                || old.effective_priority(gates) != new.effective_priority(gates)
        });
        if let Some(queue) = old_queue.filter(|_| !holds || loosened) {
            self.request_flush(queue, now);
        }
        self.follow_charge(id, old.as_deref(), now);
        let admissible =
            self.state.workload(id).is_some_and(|workload| workload.is_admissible(&self.settings().gates));
        if before.is_some_and(|before| before != local_queue) || !admissible {
            self.forget_pending(id, before.unwrap_or(local_queue));
        }
        if admissible {
            self.expected.remove(&id);
            self.push(id, now);
        } else if self.state.workload(id).is_some_and(|workload| workload.is_evicted()) {
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
        let feeds = self.state.local_queue(workload.local_queue).filter(|local_queue| !local_queue.stopped);
        let Some(feeds) = feeds.map(|feeds| feeds.queue) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&feeds) else {
            return;
        };
        self.busy.insert(feeds);
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
        let fed =
            local_queue.and_then(|local_queue| self.state.local_queue(local_queue)).map(|feeds| feeds.queue);
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

    /// Asks for the parked workloads of a queue, or of the whole tree it is in, to be woken soon. Where
    /// cohorts form a cycle nobody is woken; breaking the cycle asks again.
    pub fn request_flush(&mut self, queue: QueueId, now: Time) {
        if let Some(scope) = self.flush_scope(queue) {
            self.flushes.entry(scope).or_insert(now + FLUSH_DELAY);
        }
    }

    fn flush_scope(&self, queue: QueueId) -> Option<FlushScope> {
        let row = self.state.queue(queue)?;
        if row.spec.cohort.is_some_and(|cohort| self.state.is_in_cycle(cohort)) {
            return None;
        }
        Some(match self.state.tree.kind(self.state.tree.root(row.node)) {
            NodeKind::Cohort(root) => FlushScope::Root(root),
            NodeKind::Queue(queue) => FlushScope::Queue(queue),
        })
    }

    /// Wakes the parked workloads of a queue, or of the whole tree it is in, if that was asked for, without waiting
    /// for the time. Says how many.
    pub(crate) fn flush_early(&mut self, queue: QueueId, now: Time) -> usize {
        let scope = self.flush_scope(queue).filter(|scope| self.flushes.contains_key(scope));
        scope.map_or(0, |scope| self.process_flush(scope, now))
    }

    /// Wakes parked workloads as asked for: all of them, or with `due_only` those whose time has come.
    /// Says how many.
    pub fn process_flushes(&mut self, now: Time, due_only: bool) -> usize {
        let due: Vec<FlushScope> =
            self.flushes.iter().filter(|(_, at)| !due_only || **at <= now).map(|(scope, _)| *scope).collect();
        due.into_iter().map(|scope| self.process_flush(scope, now)).sum()
    }

    fn process_flush(&mut self, scope: FlushScope, now: Time) -> usize {
        self.flushes.remove(&scope);
        let queues = match scope {
            FlushScope::Queue(queue) => vec![queue],
            FlushScope::Root(root) if self.state.is_in_cycle(root) => Vec::new(),
            FlushScope::Root(root) => {
                self.state.cohort(root).map_or_else(Vec::new, |node| self.state.tree.all_queues_below(node))
            }
        };
        queues.into_iter().map(|queue| self.flush(queue, now)).sum()
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
        let moved = self.queues.get_mut(&queue).map_or(0, |pending| pending.flush(&serves, now));
        if moved > 0 {
            self.busy.insert(queue);
        }
        moved
    }

    /// When something is due although nothing happens: a flush or a second pass.
    pub fn next_due(&self) -> Option<Time> {
        self.flushes.values().copied().chain(self.second_pass.next_at()).min()
    }

    /// Takes the second passes that are due.
    pub fn take_second_passes(&mut self, now: Time) -> Vec<WorkloadId> {
        self.second_pass.take_ready(now).into_iter().map(|(id, _)| id).collect()
    }

    /// How many workloads wait for their turn, in all queues.
    pub fn active(&self) -> usize {
        self.busy.iter().filter_map(|queue| self.queues.get(queue)).map(|queue| queue.counts().0).sum()
    }

    /// Workloads waiting for a LocalQueue, in flight not included.
    pub fn waiting_in(&self, local_queue: LocalQueueId) -> impl Iterator<Item = WorkloadId> + '_ {
        self.waiting.get(&local_queue).into_iter().flatten().copied()
    }

    /// How many workloads of a LocalQueue are active (with the one in flight) and inadmissible.
    pub fn counts_in(&self, local_queue: LocalQueueId) -> (usize, usize) {
        let feeds = self.state.local_queue(local_queue).map(|local_queue| local_queue.queue);
        feeds.and_then(|queue| self.queues.get(&queue)).map_or((0, 0), |queue| queue.counts_of(local_queue))
    }

    /// How a LocalQueue's usage orders its workloads.
    pub fn local_queue_usage(&self, local_queue: LocalQueueId) -> f64 {
        usage::order_of(&self.state, local_queue)
    }

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

    /// An eviction for failed nodes could not be written: the workload's second pass is tried again.
    pub fn eviction_failed(&mut self, id: WorkloadId, now: Time) -> bool {
        self.queue_second_pass(id, 0, now)
    }

    /// A preemption could not be written: it may be decided again.
    pub fn preemption_failed(&mut self, victim: WorkloadId) {
        self.expected.remove(&victim);
    }

    /// Says which evictions for a preemptor could not be written, before its decision is told to clients.
    /// They may be decided again. If none of its victims goes, the preemptor does not wait for them.
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
        self.state.set_workload(undone);
        if is_gone {
            self.forget_pending(id, workload.local_queue);
            self.state.remove_workload(id);
        } else {
            self.push(id, now);
        }
    }
}
