//! Flushes: inadmissible workloads become active again after events.

use quintet_api::kueue::reasons::QuotaReservedReason;

use super::Engine;
use crate::names::{CohortId, NamespaceId, QueueId, WorkloadId};
use crate::quota::NodeKind;
use crate::time::{Span, Time};

/// How long after an event inadmissible workloads are flushed: events come in bursts.
const FLUSH_DELAY: Span = Span::secs(1);

/// What is flushed together: a queue alone, or all below a root cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum FlushScope {
    Queue(QueueId),
    Root(CohortId),
}

impl Engine {
    /// Requests a flush of all queues.
    pub fn request_flush_all(&mut self, now: Time) {
        let ids: Vec<_> = self.state.queues().map(|(id, _)| id).collect();
        for id in ids {
            self.request_flush(id, now);
        }
    }

    /// Requests a flush of the inadmissible workloads of a queue, or of the whole tree it is in. Where cohorts form a
    /// cycle nothing is flushed; breaking the cycle requests it again.
    pub fn request_flush(&mut self, queue: QueueId, now: Time) {
        if let Some(scope) = self.flush_scope(queue) {
            self.flushes.entry(scope).or_insert(now + FLUSH_DELAY);
        }
    }

    /// Requests a flush for a workload that waits only because others of its shape did not fit, so that it is evaluated
    /// itself.
    pub fn evaluate_again(&mut self, id: WorkloadId, now: Time) {
        if self.unfit_reason(id).is_some()
            && let Some(queue) = self.queue_of(id)
        {
            self.request_flush(queue, now);
        }
    }

    /// Why workloads of this one's shape did not fit, if it waits because of that.
    pub fn unfit_reason(&self, id: WorkloadId) -> Option<QuotaReservedReason> {
        self.pending(self.queue_of(id)?)?.unfit_reason(id)
    }

    /// The queue that a workload waits in.
    fn queue_of(&self, id: WorkloadId) -> Option<QueueId> {
        let local_queue = self.state.workload(id)?.local_queue;
        self.state.local_queue(local_queue).map(|feeds| feeds.queue)
    }

    /// Requests a flush of all queues below the root of a cohort, unless its ancestors form a cycle.
    pub(super) fn request_cohort_flush(&mut self, cohort: CohortId, now: Time) {
        let root = self.state.cohort(cohort).map(|node| self.state.tree.kind(self.state.tree.root(node)));
        if let Some(NodeKind::Cohort(root)) = root
            && !self.state.is_in_cycle(root)
        {
            self.flushes.entry(FlushScope::Root(root)).or_insert(now + FLUSH_DELAY);
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

    /// Flushes the inadmissible workloads of a queue, or of the whole tree it is in, if that was requested, without
    /// waiting for the delay. Returns how many.
    pub(crate) fn flush_early(&mut self, queue: QueueId, now: Time) -> usize {
        let scope = self.flush_scope(queue).filter(|scope| self.flushes.contains_key(scope));
        scope.map_or(0, |scope| self.process_flush(scope, now))
    }

    /// Flushes inadmissible workloads as requested: all of them, or with `due_only` those that are due. Returns
    /// how many.
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

    /// Flushes the inadmissible workloads of one queue now.
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
}
