//! Changes of objects, as models: what is queued, accounted and flushed.

use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;

use super::Engine;
use crate::labels::Labels;
use crate::model::{CohortSpec, Flavor, LocalQueue, QueueSpec, Workload, WorkloadKey};
use crate::names::{CohortId, FlavorId, LocalQueueId, NamespaceId, QueueId, TopologyId, WorkloadId};
use crate::queue::{Pending, PendingQueue};
use crate::state::{CheckInfo, Queue, State};
use crate::tas::NodeInfo;
use crate::time::Time;

impl Engine {
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
        if exists {
            self.request_cohort_flush(id, now);
        }
    }

    /// Makes a change that may let queues admit again, and flushes those, and those `affected` by it.
    fn change(&mut self, now: Time, affected: impl Fn(&Queue) -> bool, change: impl FnOnce(&mut State)) {
        let idle: Vec<QueueId> =
            self.state.queues().filter(|(_, queue)| !queue.inactive.is_empty()).map(|(id, _)| id).collect();
        change(&mut self.state);
        let flushed: Vec<QueueId> = self
            .state
            .queues()
            .filter(|(id, queue)| queue.inactive.is_empty() && (idle.contains(id) || affected(queue)))
            .map(|(id, _)| id)
            .collect();
        for queue in flushed {
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

    /// Adds or changes nodes, or (without information) removes them. All queues are flushed.
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
            let workload = self.state.workload(*id);
            let queued =
                workload.filter(|workload| !self.state.is_parent_of_variants(workload, Some(feeds.queue)));
            if let Some(workload) = queued {
                queue.push_if_absent(*id, Pending::new(Arc::clone(workload)), &self.state.settings);
            }
        }
    }

    /// Sets the labels of a namespace. Queues whose selector newly matches are flushed.
    pub fn set_namespace(&mut self, id: NamespaceId, labels: Option<Labels>, now: Time) {
        let serves = |queue: &Queue, labels: Option<&Labels>| {
            labels.is_some_and(|labels| {
                queue.spec.namespaces.as_ref().is_some_and(|selector| selector.matches(labels))
            })
        };
        let before = self.state.namespace(id).cloned();
        let flushed: Vec<QueueId> = self
            .state
            .queues()
            .filter(|(_, queue)| !serves(queue, before.as_ref()) && serves(queue, labels.as_ref()))
            .map(|(queue, _)| queue)
            .collect();
        self.state.set_namespace(id, labels);
        for queue in flushed {
            self.request_flush(queue, now);
        }
    }

    /// Adds or changes a workload: it is queued, accounted or dropped according to its status.
    pub fn set_workload(&mut self, workload: Workload, now: Time) -> WorkloadId {
        let local_queue = workload.local_queue;
        let known = self.state.workload_id(&workload.key);
        let old = known.and_then(|id| self.state.workload(id)).map(Arc::clone);
        let before = old.as_ref().map(|old| old.local_queue);
        let old_queue = known.and_then(|id| self.state.held(id)).map(|held| held.queue);
        let (id, _) = self.state.set_workload(workload);
        let holds = self.state.held(id).is_some();
        // Others may fit now: all quota was given back, or some of it, or the holder may be preempted.
        let gates = &self.settings().gates;
        let loosened = old.as_ref().zip(self.state.workload(id)).is_some_and(|(old, new)| {
            let mut counts = old.pod_sets.iter().zip(&new.pod_sets);
            counts.any(|(old, new)| new.count < old.count)
                || old.reclaim_fingerprint != new.reclaim_fingerprint
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

    pub(super) fn push(&mut self, id: WorkloadId, now: Time) {
        let Some(workload) = self.state.workload(id).map(Arc::clone) else {
            return;
        };
        let feeds_queue = self.state.local_queue(workload.local_queue).map(|local_queue| local_queue.queue);
        if self.state.is_parent_of_variants(&workload, feeds_queue) {
            self.forget_pending(id, workload.local_queue);
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

    pub(super) fn forget_pending(&mut self, id: WorkloadId, local_queue: LocalQueueId) {
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
}
