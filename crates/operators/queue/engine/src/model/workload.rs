//! Workloads and their pod sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::{EvictionReason, PreemptionReason, QuotaReservedReason};
pub use quintet_api::kueue::v1beta2::CheckState;

use super::{Fr, Usage, add_usage};
use crate::amount::Amount;
use crate::labels::{NodeTerm, PreferredTerm, Toleration};
use crate::names::{FlavorId, LocalQueueId, NamespaceId, QueueId, ResourceId};
use crate::requests::Requests;
use crate::settings::{Gates, RequeuingTimestamp, Settings};
use crate::tas::TopologyAssignment;
use crate::time::{Span, Time};

/// What identifies a workload in the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Its namespace.
    pub namespace: NamespaceId,
    /// Its name.
    pub name: Arc<str>,
}

/// A hash of everything about a workload that decides whether it fits: workloads with the same hash
/// fit or do not fit together. 128 bits, so that two shapes do not collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeHash([u64; 2]);

impl ShapeHash {
    /// The shape with this hash.
    #[expect(clippy::cast_possible_truncation, reason = "both halves are kept")]
    pub const fn new(hash: u128) -> Self {
        // Two halves instead of one: a pending workload is eight bytes smaller three times.
        Self([(hash >> 64) as u64, hash as u64])
    }
}

/// The condition reasons that decide something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConditionReason {
    /// The workload is on hold.
    OnHold,
    /// Evicted because pods were not ready in time.
    PodsReadyTimeout,
    /// Evicted by an admission check.
    AdmissionCheck,
    /// Preempted by a queue that borrows.
    InCohortReclaimWhileBorrowing,
    /// It asks for devices that it cannot have.
    Inadmissible,
    /// Any other.
    #[default]
    Other,
}

impl ConditionReason {
    /// The reason of this name.
    pub fn from_name(name: &str) -> Self {
        let known = [
            (QuotaReservedReason::OnHold.as_str(), Self::OnHold),
            (EvictionReason::PodsReadyTimeout.as_str(), Self::PodsReadyTimeout),
            (EvictionReason::AdmissionCheck.as_str(), Self::AdmissionCheck),
            (QuotaReservedReason::Inadmissible.as_str(), Self::Inadmissible),
            (PreemptionReason::InCohortReclaimWhileBorrowing.as_str(), Self::InCohortReclaimWhileBorrowing),
        ];
        known.into_iter().find(|(own, _)| *own == name).map_or(Self::Other, |(_, reason)| reason)
    }
}

/// A condition of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which condition.
    pub kind: WorkloadCondition,
    /// Whether it is true.
    pub status: bool,
    /// Why.
    pub reason: ConditionReason,
    /// Since when.
    pub since: Time,
    /// A fingerprint of the whole condition as last read: equal means unchanged.
    pub fingerprint: u64,
}

/// What a check adds to the pods of a pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetUpdate {
    /// The pod set.
    pub name: Arc<str>,
    /// More node selector entries.
    pub node_selector: BTreeMap<Arc<str>, Arc<str>>,
    /// More tolerations.
    pub tolerations: Vec<Toleration>,
}

/// An admission check of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the check.
    pub name: Arc<str>,
    /// Its state.
    pub state: CheckState,
    /// What it adds to the pods.
    pub updates: Vec<PodSetUpdate>,
}

/// The part of a pod template that decides where it may run. Shared by all workloads of the same
/// template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodShape {
    /// What the pod itself requests, before transformations: what nodes must have.
    pub requests: Requests,
    /// Required labels.
    pub node_selector: BTreeMap<Arc<str>, Arc<str>>,
    /// Required node affinity: one of the terms must match.
    pub affinity: Option<Vec<NodeTerm>>,
    /// Preferred node affinity.
    pub preferred: Vec<PreferredTerm>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
}

/// One layer of slices: groups of `size` pods in one domain of `level`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceLayer {
    /// The topology level, by its node label.
    pub level: Arc<str>,
    /// Pods per slice.
    pub size: i32,
}

/// How the pods of a pod set are to lie in the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyRequest {
    /// All pods in one domain of this level.
    pub required: Option<Arc<str>>,
    /// All pods in one domain of this level if possible.
    pub preferred: Option<Arc<str>>,
    /// Anywhere.
    pub unconstrained: Option<bool>,
    /// Slices, outermost layer first.
    pub slices: Vec<SliceLayer>,
    /// A slice size was given, with or without a level.
    pub slice_size_given: bool,
    /// Pod sets of the same group share a flavor and are placed together.
    pub group: Option<Arc<str>>,
}

impl TopologyRequest {
    /// Whether a topology is requested, beyond naming a group.
    pub fn is_explicit(&self) -> bool {
        self.required.is_some()
            || self.preferred.is_some()
            || self.unconstrained.is_some()
            || self.slice_size_given
            || !self.slices.is_empty()
    }

    /// Whether only slices are requested.
    pub fn is_slice_only(&self) -> bool {
        self.required.is_none() && self.preferred.is_none() && !self.slices.is_empty()
    }
}

/// A pod set.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSet {
    /// Its name.
    pub name: Arc<str>,
    /// Pods in the spec.
    pub count: i32,
    /// Fewest pods it can run with.
    pub min_count: Option<i32>,
    /// Pods still needed: the count without those that finished.
    pub effective_count: i32,
    /// What one pod costs in quota, after exclusions and transformations.
    pub requests: Requests,
    /// Where its pods may run.
    pub pod: Arc<PodShape>,
    /// How they are to lie in the topology.
    pub topology: Option<Box<TopologyRequest>>,
}

impl PodSet {
    /// `count` pods, each of which costs what it requests.
    pub fn new(name: &str, count: i32, pod: Arc<PodShape>) -> Self {
        Self {
            name: name.into(),
            count,
            min_count: None,
            effective_count: count,
            requests: pod.requests.clone(),
            pod,
            topology: None,
        }
    }

    /// Whether it requests a topology itself.
    pub fn is_explicitly_tas(&self) -> bool {
        self.topology.as_ref().is_some_and(|request| request.is_explicit())
    }

    /// The group it belongs to.
    pub fn group(&self) -> Option<&str> {
        self.topology.as_ref().and_then(|request| request.group.as_deref())
    }
}

/// The state of a topology request that waits for checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delayed {
    /// Not placed yet.
    Pending,
    /// Placed.
    Ready,
}

/// What a pod set was given.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct PodSetAdmission {
    /// The pod set.
    pub name: Arc<str>,
    /// The flavor of every resource.
    pub flavors: Vec<(ResourceId, FlavorId)>,
    /// Quota used by all its pods.
    pub usage: Requests,
    /// Pods admitted.
    pub count: i32,
    /// Where they run.
    pub topology: Option<TopologyAssignment>,
    /// A placement still to come.
    pub delayed: Option<Delayed>,
}

/// What a workload was given.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Admission {
    /// By which queue.
    pub queue: QueueId,
    /// Per pod set.
    pub pod_sets: Vec<PodSetAdmission>,
}

/// Relations few workloads have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks")]
pub struct Links {
    /// UID of the job.
    pub job_uid: Option<Arc<str>>,
    /// The slice this one replaces.
    pub replaces: Option<WorkloadKey>,
    /// The job may change its size while running.
    pub elastic: bool,
    /// UID of the parent, if this is a variant.
    pub parent_uid: Option<Arc<str>>,
    /// This is the parent of variants and never queued.
    pub is_parent: bool,
    /// The only flavors this variant may use.
    pub allowed_flavors: Option<Vec<FlavorId>>,
    /// An admission gate is closed.
    pub admission_gated: bool,
    /// It may not preempt now.
    pub preemption_gated: bool,
    /// Its only owner is one pod.
    pub owned_by_pod: bool,
    /// Containers whose requests exceed their limits, or the limits of their namespace.
    pub invalid: Option<String>,
    /// What is invalid are the devices that it asks for.
    pub has_invalid_devices: bool,
}

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its key.
    pub key: WorkloadKey,
    /// Its UID, maybe empty.
    pub uid: Arc<str>,
    /// Its generation.
    pub generation: i64,
    /// When it was made.
    pub created: Time,
    /// The LocalQueue it is submitted to.
    pub local_queue: LocalQueueId,
    /// Its priority.
    pub priority: i32,
    /// Added to the priority.
    pub boost: i32,
    /// `spec.active`.
    pub active: bool,
    /// A fingerprint of the spec: equal means unchanged.
    pub spec_fingerprint: u64,
    /// A fingerprint of the pods given back.
    pub reclaim_fingerprint: u64,
    /// What decides whether it fits; `None` is unknown.
    pub shape: Option<ShapeHash>,
    /// Pod sets.
    pub pod_sets: Vec<PodSet>,
    /// Conditions that are set.
    pub conditions: Vec<Condition>,
    /// Admission checks.
    pub checks: Vec<Check>,
    /// Not before this.
    pub requeue_at: Option<Time>,
    /// What it was given.
    pub admission: Option<Arc<Admission>>,
    /// Nodes of its placement that failed.
    pub unhealthy_nodes: Vec<Arc<str>>,
    /// Rare relations.
    pub links: Option<Box<Links>>,
}

/// Quota that a pod set requests, or holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Total of all pods.
    pub requests: Requests,
    /// Pods.
    pub count: i32,
    /// Flavors, if admitted.
    pub flavors: Vec<(ResourceId, FlavorId)>,
    /// Whether it has a place in the topology.
    pub placed: bool,
    /// A placement still to come.
    pub delayed: Option<Delayed>,
}

impl Demand {
    /// The demand of `count` pods instead; a placed pod set keeps its size.
    #[must_use]
    pub fn scaled_to(&self, count: i32) -> Self {
        let mut scaled = self.clone();
        if !self.placed && self.count != 0 && self.count != count {
            scaled.requests = self.requests.divided(i64::from(self.count)).times(i64::from(count));
            scaled.count = count;
        }
        scaled
    }

    /// The flavor of a resource.
    pub fn flavor_of(&self, resource: ResourceId) -> Option<FlavorId> {
        self.flavors.iter().find(|(id, _)| *id == resource).map(|(_, flavor)| *flavor)
    }
}

impl Workload {
    /// A workload that waits and of which nothing else is known.
    pub fn new(key: WorkloadKey, local_queue: LocalQueueId, pod_sets: Vec<PodSet>) -> Self {
        Self {
            key,
            uid: "".into(),
            generation: 1,
            created: Time::ZERO,
            local_queue,
            priority: 0,
            boost: 0,
            active: true,
            spec_fingerprint: 0,
            reclaim_fingerprint: 0,
            shape: None,
            pod_sets,
            conditions: Vec::new(),
            checks: Vec::new(),
            requeue_at: None,
            admission: None,
            unhealthy_nodes: Vec::new(),
            links: None,
        }
    }

    /// The condition of this kind.
    pub fn condition(&self, kind: WorkloadCondition) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Sets a condition; an unchanged status keeps its time.
    pub fn set_condition(
        &mut self,
        kind: WorkloadCondition,
        status: bool,
        reason: ConditionReason,
        now: Time,
    ) {
        match self.conditions.iter_mut().find(|condition| condition.kind == kind) {
            Some(condition) => {
                if condition.status != status {
                    condition.since = now;
                }
                if (condition.status, condition.reason) != (status, reason) {
                    condition.fingerprint = 0;
                }
                condition.status = status;
                condition.reason = reason;
            }
            None => {
                self.conditions.push(Condition { kind, status, reason, since: now, fingerprint: 0 });
            }
        }
    }

    /// Whether it is on hold.
    pub fn is_on_hold(&self) -> bool {
        self.condition(WorkloadCondition::QuotaReserved)
            .is_some_and(|condition| !condition.status && condition.reason == ConditionReason::OnHold)
    }

    /// Whether it may be queued.
    pub fn is_admissible(&self, gates: &Gates) -> bool {
        let is_held =
            gates.admission_gated_by && self.links.as_ref().is_some_and(|links| links.admission_gated);
        self.active
            && !is_held
            && !self.is_finished()
            && !self.has_quota_reservation()
            && !self.is_on_hold()
            && !self.is_true(WorkloadCondition::WaitingForReplacementPods)
    }

    /// Whether some check is Retry or Rejected.
    pub fn has_failed_checks(&self) -> bool {
        self.checks.iter().any(|check| matches!(check.state, CheckState::Retry | CheckState::Rejected))
    }

    /// Whether an admitted placement uses a failed node.
    pub fn has_placement_on_failed_node(&self) -> bool {
        self.is_admitted()
            && !self.unhealthy_nodes.is_empty()
            && self.admission.as_ref().is_some_and(|admission| {
                admission.pod_sets.iter().filter_map(|pod_set| pod_set.topology.as_ref()).any(|topology| {
                    topology.domains.iter().any(|domain| {
                        domain.values.last().is_some_and(|value| self.unhealthy_nodes.contains(value))
                    })
                })
            })
    }

    /// Whether it has its quota but needs a placement, or a better one.
    pub fn needs_second_pass(&self) -> bool {
        if self.is_finished() || self.is_evicted() || !self.has_quota_reservation() || self.is_on_hold() {
            return false;
        }
        let delayed = !self.checks.is_empty()
            && self.has_all_checks_ready()
            && self.has_pending_placement()
            && !self.is_admitted();
        delayed || self.has_placement_on_failed_node()
    }

    /// Priority with boost, if boosts count.
    pub fn effective_priority(&self, gates: &Gates) -> i64 {
        i64::from(self.priority) + if gates.priority_boost { i64::from(self.boost) } else { 0 }
    }

    /// The time that orders it in its queue.
    pub fn queue_timestamp(&self, settings: &Settings) -> Time {
        if let Some(evicted) = self.condition(WorkloadCondition::Evicted).filter(|condition| condition.status)
        {
            let by_eviction = settings.requeuing_timestamp == RequeuingTimestamp::Eviction;
            match evicted.reason {
                ConditionReason::PodsReadyTimeout if by_eviction => return evicted.since,
                ConditionReason::AdmissionCheck => return evicted.since,
                _ => {}
            }
        }
        if !settings.gates.priority_sorting_within_cohort {
            let preempted = self.condition(WorkloadCondition::Preempted).filter(|condition| {
                condition.status && condition.reason == ConditionReason::InCohortReclaimWhileBorrowing
            });
            if let Some(preempted) = preempted {
                return preempted.since + Span::millis(1);
            }
        }
        self.created
    }

    /// When quota was reserved, if it is.
    pub fn reservation_time(&self) -> Option<Time> {
        self.condition(WorkloadCondition::QuotaReserved)
            .filter(|condition| condition.status)
            .map(|condition| condition.since)
    }

    /// Whether its wait after an eviction is over.
    pub fn backoff_expired(&self, now: Time) -> bool {
        !self.is_held() && self.requeue_at.is_none_or(|at| now >= at)
    }

    /// Whether something may make it wait after an eviction, now or later.
    pub fn has_backoff(&self) -> bool {
        self.requeue_at.is_some() || self.is_held()
    }

    /// Whether it waits for something that is not of the scheduler. Devices that it cannot have are looked at again.
    fn is_held(&self) -> bool {
        self.condition(WorkloadCondition::Requeued)
            .is_some_and(|condition| !condition.status && condition.reason != ConditionReason::Inadmissible)
    }

    /// Whether some pod set can do with fewer pods.
    pub fn can_be_partially_admitted(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.min_count.is_some_and(|least| pod_set.count > least))
    }

    /// Whether some pod set requests a topology.
    pub fn is_explicitly_tas(&self) -> bool {
        self.pod_sets.iter().any(PodSet::is_explicitly_tas)
    }

    /// The slice this workload replaces.
    pub fn replaces(&self) -> Option<&WorkloadKey> {
        self.links.as_ref().and_then(|links| links.replaces.as_ref())
    }

    /// Whether its job may change size while running.
    pub fn is_elastic(&self, gates: &Gates) -> bool {
        gates.elastic_slices && self.links.as_ref().is_some_and(|links| links.elastic)
    }

    /// Whether it may not preempt now.
    pub fn is_preemption_gated(&self) -> bool {
        self.links.as_ref().is_some_and(|links| links.preemption_gated)
    }

    /// Quota it requests, or holds if admitted, per pod set.
    pub fn demands(&self) -> Vec<Demand> {
        match &self.admission {
            Some(admission) => admission.pod_sets.iter().map(|pod_set| self.held(pod_set)).collect(),
            None => self.pod_sets.iter().map(PodSet::demand).collect(),
        }
    }

    fn held(&self, pod_set: &PodSetAdmission) -> Demand {
        let mut demand = Demand {
            requests: pod_set.usage.clone(),
            count: pod_set.count,
            flavors: pod_set.flavors.clone(),
            placed: pod_set.topology.is_some(),
            delayed: pod_set.delayed,
        };
        let left = self.pod_set(&pod_set.name).map_or(0, |spec| spec.effective_count);
        if left < demand.count {
            demand.requests = demand.requests.divided(i64::from(demand.count)).times(i64::from(left));
            demand.count = left;
        }
        demand
    }

    /// The pod set of this name.
    pub fn pod_set(&self, name: &str) -> Option<&PodSet> {
        self.pod_sets.iter().find(|pod_set| &*pod_set.name == name)
    }

    /// The quota it holds.
    pub fn quota_usage(&self) -> Usage {
        let mut usage = Usage::new();
        for demand in self.demands() {
            for (resource, value) in demand.requests.iter() {
                if let Some(flavor) = demand.flavor_of(resource) {
                    add_usage(&mut usage, Fr { flavor, resource }, Amount::new(value));
                }
            }
        }
        usage
    }
}

impl WorkloadLifecycle for Workload {
    fn condition_status(&self, condition: WorkloadCondition) -> Option<bool> {
        self.condition(condition).map(|condition| condition.status)
    }

    fn is_active(&self) -> bool {
        self.active
    }

    fn has_all_checks_ready(&self) -> bool {
        self.checks.iter().all(|check| check.state == CheckState::Ready)
    }

    fn has_pending_placement(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| {
            admission
                .pod_sets
                .iter()
                .any(|pod_set| pod_set.topology.is_none() && pod_set.delayed == Some(Delayed::Pending))
        })
    }
}

impl PodSet {
    /// Quota it requests while pending.
    pub fn demand(&self) -> Demand {
        Demand {
            requests: self.requests.times(i64::from(self.effective_count)),
            count: self.effective_count,
            flavors: Vec::new(),
            placed: false,
            delayed: None,
        }
    }
}
