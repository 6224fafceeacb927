//! The engine: models of objects in, decisions out.

mod fingerprint;
mod flush;
mod objects;
mod outcomes;
mod report;
mod usage;

pub use report::{FlavorReport, QueueReport, ResourceReport};
pub use usage::charged_by;
pub(crate) use usage::order_of;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_api::kueue::reasons::ClusterQueueActiveReason;

use crate::ingest::{PodDefaults, PodUsage};
use crate::model::{Workload, WorkloadKey};
use crate::names::{IdMap, LocalQueueId, Names, QueueId, WorkloadId};
use crate::queue::{PendingQueue, SecondPass};
use crate::settings::Settings;
use crate::state::State;
use crate::time::Time;
use flush::FlushScope;

/// Quotas, queues, topology and workloads, and the scheduling of the latter.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// The state decisions are made on. It is changed through the engine, so that queues follow.
    pub(crate) state: State,
    pub(crate) queues: BTreeMap<QueueId, PendingQueue>,
    /// Queues that may have active or in-flight workloads; only these are visited.
    pub(crate) busy: BTreeSet<QueueId>,
    /// Pending workloads by the LocalQueue they name, whether it exists or not.
    pub(crate) waiting: IdMap<LocalQueueId, BTreeSet<WorkloadId>>,
    pub(crate) second_pass: SecondPass,
    flushes: BTreeMap<FlushScope, Time>,
    pub(crate) cycle: i64,
    /// Evictions decided and not observed yet.
    pub(crate) expected: BTreeSet<WorkloadId>,
    /// The workload that would have been admitted if the pods of others were ready: once they are, it goes first.
    pub(crate) awaits_pods: Option<WorkloadId>,
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

    /// The pending workloads of a queue, to change, for this crate's tests.
    #[doc(hidden)]
    pub fn pending_mut(&mut self, queue: QueueId) -> Option<&mut PendingQueue> {
        self.busy.insert(queue);
        self.queues.get_mut(&queue)
    }

    /// The number of the last cycle.
    pub fn cycle_number(&self) -> i64 {
        self.cycle
    }

    /// Takes the second passes that are due.
    pub fn take_second_passes(&mut self, now: Time) -> Vec<WorkloadId> {
        self.second_pass.take_ready(now).into_iter().map(|(id, _)| id).collect()
    }

    /// How many workloads are active, in all queues.
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
}
