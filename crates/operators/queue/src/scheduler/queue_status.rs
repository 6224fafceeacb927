//! Statuses of ClusterQueues, LocalQueues and Cohorts, derived from the engine.
//!
//! They follow after a delay, so that many admissions are few status writes. At most one write per object is in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quintet_api::conditions::{self, Finding};
use quintet_api::kueue::conditions::ACTIVE;
use quintet_api::kueue::reasons::LocalQueueActiveReason;
use quintet_api::kueue::v1beta2::{
    AdmissionFairSharingStatus, ClusterQueue, ClusterQueueStatus, Cohort, CohortStatus, FairSharingStatus,
    FlavorUsage, LocalQueue, LocalQueueFairSharingStatus, LocalQueueFlavorUsage, LocalQueueResourceUsage,
    LocalQueueStatus, ResourceUsage, StopPolicy,
};
use quintet_controller::cache::Entry;
use quintet_controller::index::{Update, Write};
use quintet_controller::{ApiKind, ObjectKey, StatusPatch};
use quintet_queue_engine::status::api_time;
use quintet_queue_engine::time::Time;
use quintet_queue_engine::{Engine, FlavorReport};

use super::{Decided, engine_time};
use crate::metrics::QueueTree;

/// How long after a change statuses are written.
const DELAY: SignedDuration = SignedDuration::from_millis(200);

/// An object whose status is derived.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusOf {
    /// A ClusterQueue.
    ClusterQueue(ObjectKey),
    /// A LocalQueue.
    LocalQueue(ObjectKey),
    /// A Cohort.
    Cohort(ObjectKey),
}

/// The observed objects, and what is being written.
#[derive(Default)]
pub(super) struct QueueStatuses {
    cluster_queues: BTreeMap<ObjectKey, Arc<Entry<ClusterQueue>>>,
    local_queues: BTreeMap<ObjectKey, Arc<Entry<LocalQueue>>>,
    cohorts: BTreeMap<ObjectKey, Arc<Entry<Cohort>>>,
    in_progress: BTreeSet<StatusOf>,
    due: Option<Timestamp>,
}

impl QueueStatuses {
    /// Something changed that statuses may depend on.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.due.get_or_insert(now + DELAY);
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// The observed queues and Cohorts.
    pub(super) fn queues(&self) -> QueueTree<'_> {
        let Self { cluster_queues, local_queues, cohorts, .. } = self;
        QueueTree { cluster_queues, local_queues, cohorts }
    }

    pub(super) fn observe_cluster_queue(&mut self, update: &Update<ClusterQueue>) {
        observe(&mut self.cluster_queues, update);
    }

    pub(super) fn observe_local_queue(&mut self, update: &Update<LocalQueue>) {
        observe(&mut self.local_queues, update);
    }

    pub(super) fn observe_cohort(&mut self, update: &Update<Cohort>) {
        observe(&mut self.cohorts, update);
    }

    /// A write has ended. Another follows if the status has changed meanwhile.
    pub(super) fn written(&mut self, of: &StatusOf, now: Timestamp) {
        self.in_progress.remove(of);
        self.touch(now);
    }

    /// A write was refused: it is tried again when something changes.
    pub(super) fn refused(&mut self, of: &StatusOf) {
        self.in_progress.remove(of);
    }

    /// The writes of all statuses that differ, if they are due.
    pub(super) fn writes(&mut self, engine: &Engine, now: Timestamp) -> Vec<Write<Decided>> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let mut writes = Vec::new();
        for (key, entry) in &self.cluster_queues {
            let status = cluster_queue_status(entry, engine, now);
            let of = StatusOf::ClusterQueue(key.clone());
            writes.extend(write(
                entry,
                entry.object.status.as_ref(),
                &status,
                of,
                ApiKind::of::<ClusterQueue>(),
            ));
        }
        for (key, entry) in &self.local_queues {
            let status = local_queue_status(entry, engine, now);
            let of = StatusOf::LocalQueue(key.clone());
            writes.extend(write(
                entry,
                entry.object.status.as_ref(),
                &status,
                of,
                ApiKind::of::<LocalQueue>(),
            ));
        }
        if engine.settings().is_fair() {
            for (key, entry) in &self.cohorts {
                let weighted_share = engine.cohort_share(key.name()).unwrap_or_default();
                let status = CohortStatus { fair_sharing: Some(FairSharingStatus { weighted_share }) };
                let of = StatusOf::Cohort(key.clone());
                writes.extend(write(
                    entry,
                    entry.object.status.as_ref(),
                    &status,
                    of,
                    ApiKind::of::<Cohort>(),
                ));
            }
        }
        // The end of a write in progress asks again.
        writes.retain(|write| match &write.decision {
            Decided::Status(of) => self.in_progress.insert(of.clone()),
            Decided::Workload(_) => true,
        });
        writes
    }
}

fn observe<T>(known: &mut BTreeMap<ObjectKey, Arc<Entry<T>>>, update: &Update<T>) {
    match update {
        Update::Applied(entry) => known.insert(entry.key.clone(), Arc::clone(entry)),
        Update::Deleted(key) => known.remove(key),
    };
}

fn write<T, S: serde::Serialize>(
    entry: &Entry<T>,
    current: Option<&S>,
    desired: &S,
    of: StatusOf,
    kind: ApiKind,
) -> Option<Write<Decided>> {
    let patch = StatusPatch::between(entry, &current, &Some(desired))?;
    Some(Write::status(kind, entry.key.clone(), patch, Decided::Status(of)))
}

fn cluster_queue_status(entry: &Entry<ClusterQueue>, engine: &Engine, now: Timestamp) -> ClusterQueueStatus {
    let name = entry.key.name();
    let mut status = entry.object.status.clone().unwrap_or_default();
    let report = engine.queue_report(name).unwrap_or_default();
    status.pending_workloads = Some(count(report.pending));
    status.reserving_workloads = Some(count(report.reserving));
    status.admitted_workloads = Some(count(report.admitted));
    status.flavors_reservation = flavors(&report.reservation, flavor_usage);
    status.flavors_usage = flavors(&report.usage, flavor_usage);
    status.fair_sharing = engine
        .settings()
        .is_fair()
        .then(|| FairSharingStatus { weighted_share: engine.queue_share(name).unwrap_or_default() });
    if let Some(id) = engine.queue_id(name) {
        let (is_active, reason, message) = engine.active_condition(id);
        let generation = entry.object.metadata.generation;
        let conditions = status.conditions.get_or_insert_default();
        set_active(conditions, is_active, reason.as_str(), &message, generation, now);
    }
    status
}

fn local_queue_status(entry: &Entry<LocalQueue>, engine: &Engine, now: Timestamp) -> LocalQueueStatus {
    let mut status = entry.object.status.clone().unwrap_or_default();
    let namespace = entry.key.namespace().unwrap_or_default();
    let report = engine.local_queue_report(namespace, entry.key.name());
    status.pending_workloads = Some(count(report.pending));
    status.reserving_workloads = Some(count(report.reserving));
    status.admitted_workloads = Some(count(report.admitted));
    status.flavors_reservation = flavors(&report.reservation, local_flavor_usage);
    status.flavors_usage = flavors(&report.usage, local_flavor_usage);
    let spec = &entry.object.spec;
    let is_stopped = !matches!(spec.stop_policy, None | Some(StopPolicy::None));
    let queue = engine.is_queue_active(spec.cluster_queue.as_deref().unwrap_or_default());
    let (reason, message) = match (is_stopped, queue) {
        (true, _) => (LocalQueueActiveReason::Stopped, "LocalQueue is stopped"),
        (false, None) => {
            (LocalQueueActiveReason::ClusterQueueDoesNotExist, "Can't submit new workloads to clusterQueue")
        }
        (false, Some(false)) => {
            (LocalQueueActiveReason::ClusterQueueIsInactive, "Can't submit new workloads to clusterQueue")
        }
        (false, Some(true)) => (LocalQueueActiveReason::Ready, "Can submit new workloads to localQueue"),
    };
    let is_ready = reason == LocalQueueActiveReason::Ready;
    if is_ready {
        let consumed = engine.consumed_by(namespace, entry.key.name());
        status.fair_sharing = consumed
            .map(|consumed| usage_status(status.fair_sharing.take(), consumed))
            .or(status.fair_sharing);
    }
    let generation = entry.object.metadata.generation;
    let conditions = status.conditions.get_or_insert_default();
    set_active(conditions, is_ready, reason.as_str(), message, generation, now);
    status
}

/// What a LocalQueue has used. The time is that of the last change: a queue that nobody uses is not written about.
fn usage_status(
    current: Option<LocalQueueFairSharingStatus>,
    (consumed, at): (BTreeMap<String, quintet_api::Quantity>, Time),
) -> LocalQueueFairSharingStatus {
    let current = current.and_then(|current| current.admission_fair_sharing_status).filter(|current| {
        let known = current.consumed_resources.iter();
        known
            .map(|(name, quantity)| (name, quantity.0.parse().ok()))
            .eq(consumed.iter().map(|(name, quantity)| (name, Some(*quantity))))
    });
    let changed = || AdmissionFairSharingStatus {
        consumed_resources: consumed
            .iter()
            .map(|(name, quantity)| (name.clone(), Quantity(quantity.to_string())))
            .collect(),
        last_update: api_time(at),
    };
    LocalQueueFairSharingStatus {
        admission_fair_sharing_status: Some(current.unwrap_or_else(changed)),
        weighted_share: 0,
    }
}

fn set_active(
    conditions: &mut Vec<Condition>,
    is_active: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let finding =
        Finding { type_: ACTIVE, holds: Some(is_active), reason, message, observed_generation: generation };
    conditions::set(conditions, &finding, &api_time(engine_time(now)));
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// None rather than an empty list, as Go writes it.
fn flavors<T>(reports: &[FlavorReport], of: fn(&FlavorReport) -> T) -> Option<Vec<T>> {
    (!reports.is_empty()).then(|| reports.iter().map(of).collect())
}

fn flavor_usage(report: &FlavorReport) -> FlavorUsage {
    let resources = report.resources.iter().map(|(name, usage)| ResourceUsage {
        name: name.clone(),
        total: Some(Quantity(usage.total.clone())),
        borrowed: Some(Quantity(usage.borrowed.clone())),
    });
    FlavorUsage { name: report.flavor.clone(), resources: resources.collect() }
}

fn local_flavor_usage(report: &FlavorReport) -> LocalQueueFlavorUsage {
    let resources = report.resources.iter().map(|(name, usage)| LocalQueueResourceUsage {
        name: name.clone(),
        total: Some(Quantity(usage.total.clone())),
    });
    LocalQueueFlavorUsage { name: report.flavor.clone(), resources: resources.collect() }
}
