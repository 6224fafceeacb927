//! The Workload and its job, once they have found each other. In the order of Kueue's `jobframework/reconciler.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::JobEvent;
use quintet_api::kueue::metadata::{PRIORITY_CLASS, QUEUE_NAME};
use quintet_api::kueue::reasons::{
    DEACTIVATED_DUE_TO, EvictionReason, FinishedReason, PodsReadyReason, QuotaReservedReason,
};
use quintet_api::kueue::v1beta2::{
    CheckState, PodSet, PriorityClassKind, ReclaimablePod, ResourceFlavor, Workload,
};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Next, Plan, Step};
use quintet_queue_engine::status;
use serde_json::json;

use super::compose::label;
use super::pod_set_info::{self, PodSetInfo};
use super::priority::{MissingClass, Priority};
use super::{JobEnd, admission_gates};
use crate::field_managers;
use crate::scheduler::engine_time;
use crate::settings::Settings;
use crate::workload::{after, without_finalizer};

const NOT_READY: &str = "Not all pods are ready or succeeded";
const RECOVERING: &str = "At least one pod has failed, waiting for recovery";
const READY: &str = "All pods reached readiness and the workload is running";
const ON_HOLD: &str = "Job is on hold";
const OWNER_GONE: &str = "The workload's owner no longer exists";

/// Why a job is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its Workload is deleted.
    WorkloadDeleted,
    /// Its Workload was evicted for this reason.
    WorkloadEvicted(String),
    /// No Workload stands for what it runs.
    NoMatchingWorkload,
    /// Its Workload is not admitted.
    NotAdmitted,
}

impl StopReason {
    /// As conditions of pods have it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::WorkloadDeleted => "WorkloadDeleted".to_owned(),
            Self::WorkloadEvicted(reason) => format!("WorkloadEvictedDueTo{reason}"),
            Self::NoMatchingWorkload => "NoMatchingWorkload".to_owned(),
            Self::NotAdmitted => "NotAdmitted".to_owned(),
        }
    }
}

/// A stop, and what users learn about it.
#[derive(Clone, Debug)]
pub struct Stop<'s> {
    /// Why.
    pub reason: StopReason,
    /// The note of its event.
    pub note: &'s str,
    /// When.
    pub now: Timestamp,
}

/// What the lifecycle needs of a job: one object, or a group of pods.
pub(super) trait ManagedJob {
    /// Where its queue and its priority class are.
    fn metadata(&self) -> &ObjectMeta;
    /// Whether some of it may not run.
    fn is_suspended(&self) -> bool;
    /// Whether pods of it hold their quota.
    fn is_active(&self) -> bool;
    /// When it stops to be active without another change.
    fn active_until(&self) -> Option<Timestamp> {
        None
    }
    /// How it ended, if it did.
    fn end(&self) -> Option<JobEnd>;
    /// Whether it cannot run until its user has changed it.
    fn is_on_hold(&self) -> bool {
        false
    }
    /// Whether as many pods as its Workload has quota for are ready or have succeeded.
    fn has_pods_ready(&self, workload: &Workload) -> bool;
    /// Pods that will not run any more.
    fn reclaimable_pods(&self) -> Vec<ReclaimablePod>;
    /// Whether the Workload has the queue that the job names.
    fn names_queue(&self) -> bool {
        true
    }
    /// Whether its pods are gated, so that it need not be suspended while its Workload waits.
    fn is_elastic(&self) -> bool {
        false
    }
    /// Whether a stop deletes it.
    fn ends_when_stopped(&self) -> bool {
        false
    }
    /// The writes that start it, with their events. The error is for users, and final.
    fn start(&self, infos: &[PodSetInfo], note: &str) -> Result<Vec<Step>, String>;
    /// Whether it has to wait here while another cluster runs it, as nothing else keeps it from running here, too.
    fn waits_while_elsewhere(&self) -> bool {
        false
    }
    /// The writes that stop it, with their events; none if it does not run.
    fn stop(&self, workload: Option<&Workload>, stop: &Stop<'_>) -> Vec<Step>;
    /// The writes that remove its own finalizers.
    fn finalize(&self) -> Vec<Step>;
    /// The writes that delete it.
    fn delete(&self, event: &Event) -> Vec<Step>;
    /// An event about it.
    fn event(&self, event: Event) -> Event;
}

/// A job with its Workload, and what decisions about them depend on.
pub(super) struct Lifecycle<'o, J: ManagedJob> {
    pub(super) job: &'o J,
    pub(super) settings: &'o Settings,
    pub(super) now: Timestamp,
    pub(super) priority: &'o Result<Priority, MissingClass>,
    pub(super) flavors: &'o BTreeMap<String, ResourceFlavor>,
}

/// An event about a job.
pub(super) fn event(reason: JobEvent, note: impl Into<String>) -> Event {
    Event::normal(reason.as_str(), reason.as_str(), note)
}

/// A plan of one step.
pub(super) fn one(step: impl Into<Step>) -> Plan {
    Plan { steps: vec![step.into()], ..Plan::default() }
}

/// A plan of some steps.
pub(super) fn all(steps: Vec<Step>) -> Plan {
    Plan { steps, ..Plan::default() }
}

/// Writes what has changed of a Workload's status.
pub(super) fn write_status(workload: &Entry<Workload>, changed: &Workload) -> Option<Action> {
    field_managers::write_status(workload, changed.status.as_ref())
}

pub(super) fn find(workload: &Workload, kind: WorkloadCondition) -> Option<&Condition> {
    conditions::find(workload.status.as_ref()?.conditions.as_deref()?, kind.as_str())
}

/// Sets `Finished`.
pub(super) fn conclude(
    workload: &Entry<Workload>,
    reason: FinishedReason,
    message: &str,
    now: Timestamp,
) -> Option<Action> {
    let mut changed = workload.object.clone();
    let (kind, now) = (WorkloadCondition::Finished, engine_time(now));
    status::set_condition(&mut changed, kind, true, reason.as_str(), message, now);
    write_status(workload, &changed)
}

/// The next write for a Workload whose job is gone: it is finished, which gives its quota back, and loses its finalizer.
/// As `FinalizeOrphanedWorkload` of Kueue.
pub(super) fn orphaned(workload: &Entry<Workload>, settings: &Settings, now: Timestamp) -> Option<Action> {
    let owners = workload.object.metadata.owner_references.as_deref().unwrap_or_default();
    let has_controller = owners.iter().any(|owner| owner.controller == Some(true));
    let ends = settings.gates.finish_orphaned_workloads
        && has_controller
        && !workload.deleting
        && !workload.object.is_finished();
    if ends {
        return conclude(workload, FinishedReason::OwnerNotFound, OWNER_GONE, now);
    }
    without_finalizer(workload)
}

impl<J: ManagedJob> Lifecycle<'_, J> {
    fn stop(&self, workload: &Entry<Workload>, reason: StopReason, note: &str) -> Vec<Step> {
        self.job.stop(Some(&workload.object), &Stop { reason, note, now: self.now })
    }

    /// Lets the job follow its Workload, and the other way round.
    pub(super) fn follow(&self, workload: &Entry<Workload>) -> Plan {
        if workload.object.is_finished() {
            return self.finish(workload);
        }
        if workload.deleting {
            let steps = self.stop(workload, StopReason::WorkloadDeleted, "Workload is deleted");
            if !steps.is_empty() {
                return all(steps);
            }
            return without_finalizer(workload).map_or_else(Plan::default, one);
        }
        if self.job.is_on_hold() {
            return self.hold(workload);
        }
        if let Some(end) = self.job.end() {
            let reason = if end.succeeded { FinishedReason::Succeeded } else { FinishedReason::Failed };
            return self.conclude(workload, reason, &end.message);
        }
        if let Some(action) = self.report_pods(workload) {
            return one(action);
        }
        if workload.object.is_evicted() {
            return self.evict(workload);
        }
        if let Some(plan) = self.follow_priority(workload) {
            return plan;
        }
        match (self.job.is_suspended(), workload.object.is_admitted()) {
            (true, true) => self.start(workload),
            (true, false) => self.wait(workload),
            (false, false) if self.job.is_elastic() => {
                Plan::awaiting(format!("the admission of Workload {}", workload.key))
            }
            (false, false) => {
                all(self.stop(workload, StopReason::NotAdmitted, "Not admitted by cluster queue"))
            }
            (false, true) => Plan::nothing(),
        }
    }

    /// A job that cannot run needs no quota.
    fn hold(&self, workload: &Entry<Workload>) -> Plan {
        if !workload.object.has_quota_reservation() {
            return Plan::awaiting("a change of the job");
        }
        let mut changed = workload.object.clone();
        let (now, gates) = (engine_time(self.now), &self.settings.scheduling);
        status::unset_quota_reservation(&mut changed, QuotaReservedReason::OnHold, ON_HOLD, now, gates);
        write_status(workload, &changed).map_or_else(Plan::default, one)
    }

    /// A finished Workload no longer needs its job.
    fn finish(&self, workload: &Entry<Workload>) -> Plan {
        let mut steps = self.job.finalize();
        steps.extend(without_finalizer(workload).map(Step::from));
        let note = format!("Workload '{}' is declared finished", workload.key);
        if let Some(last) = steps.last_mut() {
            last.event = Some(self.job.event(event(JobEvent::FinishedWorkload, note)));
        }
        all(steps)
    }

    fn conclude(&self, workload: &Entry<Workload>, reason: FinishedReason, message: &str) -> Plan {
        conclude(workload, reason, message, self.now).map_or_else(Plan::default, one)
    }

    /// What the Workload says about the pods of its job.
    pub(super) fn report_pods(&self, workload: &Entry<Workload>) -> Option<Action> {
        let mut changed = workload.object.clone();
        if self.settings.scheduling.reclaimable_pods {
            let mut reclaimable = clamped(self.job.reclaimable_pods(), &workload.object);
            let known = workload.object.status.as_ref().and_then(|status| status.reclaimable_pods.clone());
            let known = known.unwrap_or_default();
            // A smaller elastic job has fewer pods to reclaim: its Workload has given their quota back already.
            if workload.object.has_quota_reservation() && !self.job.is_elastic() {
                keep_reclaimed(&mut reclaimable, &known);
            }
            if reclaimable != known {
                let status = changed.status.get_or_insert_default();
                status.reclaimable_pods = (!reclaimable.is_empty()).then_some(reclaimable);
                // Another field manager owns them.
                return write_status(workload, &changed);
            }
        }
        if self.settings.pods_ready().is_some() {
            let (is_ready, reason, message) = self.readiness(&workload.object);
            let known = find(&workload.object, WorkloadCondition::PodsReady);
            let status_text = if is_ready { "True" } else { "False" };
            if known.is_none_or(|known| known.status != status_text || known.reason != reason.as_str()) {
                let (kind, now) = (WorkloadCondition::PodsReady, engine_time(self.now));
                status::set_condition(&mut changed, kind, is_ready, reason.as_str(), message, now);
            }
        }
        write_status(workload, &changed)
    }

    fn readiness(&self, workload: &Workload) -> (bool, PodsReadyReason, &'static str) {
        let known = find(workload, WorkloadCondition::PodsReady);
        let known_reason = known.and_then(|known| PodsReadyReason::from_name(&known.reason));
        if !workload.is_admitted() {
            return (false, PodsReadyReason::WaitForStart, NOT_READY);
        }
        if self.job.has_pods_ready(workload) {
            let recovers =
                matches!(known_reason, Some(PodsReadyReason::WaitForRecovery | PodsReadyReason::Recovered));
            let reason = if recovers { PodsReadyReason::Recovered } else { PodsReadyReason::Started };
            return (true, reason, READY);
        }
        match known_reason {
            None | Some(PodsReadyReason::WaitForStart | PodsReadyReason::PodsReady) => {
                (false, PodsReadyReason::WaitForStart, NOT_READY)
            }
            Some(_) => (false, PodsReadyReason::WaitForRecovery, RECOVERING),
        }
    }

    /// Stops the job of an evicted Workload, and gives the quota back when its pods are gone.
    fn evict(&self, workload: &Entry<Workload>) -> Plan {
        let Some(evicted) = find(&workload.object, WorkloadCondition::Evicted) else {
            return Plan::nothing();
        };
        let mut steps =
            self.stop(workload, StopReason::WorkloadEvicted(evicted.reason.clone()), &evicted.message);
        if !steps.is_empty() {
            // What is deleted is not looked at again: its Workload would end without a word about its eviction.
            let release = self.job.ends_when_stopped().then(|| self.release(workload)).flatten();
            steps.extend(release.map(Step::from));
            return all(steps);
        }
        if workload.object.has_quota_reservation() {
            return self.release(workload).map_or_else(|| self.await_pods(), one);
        }
        // It is queued with the priority and in the queue that its job names now.
        let retained = self.retain(workload, evicted).or_else(|| self.follow_priority(workload));
        retained.or_else(|| self.follow_queue(workload)).unwrap_or_default()
    }

    fn await_pods(&self) -> Plan {
        let next = self.job.active_until().map_or(Next::AwaitChange, |until| self.requeue_at(until));
        Plan { next, ..Plan::awaiting("the end of its pods") }
    }

    fn requeue_at(&self, time: Timestamp) -> Next {
        let wait = Duration::try_from(time.duration_since(self.now)).unwrap_or_default();
        Next::After(wait.max(Duration::from_millis(1)))
    }

    /// Gives the quota of an evicted Workload back, unless pods of its job are active.
    pub(super) fn release(&self, workload: &Entry<Workload>) -> Option<Action> {
        let evicted =
            find(&workload.object, WorkloadCondition::Evicted).filter(|own| own.status == "True")?;
        if !workload.object.has_quota_reservation() || self.job.is_active() {
            return None;
        }
        let mut changed = workload.object.clone();
        let (now, gates) = (engine_time(self.now), &self.settings.scheduling);
        let requeues = [EvictionReason::Preempted.as_str(), EvictionReason::NodeFailures.as_str()];
        // A pod never runs again: its Workload ends with it. One that has not been let through yet waits on.
        let is_of_pod = gates.skip_reassignment_for_pod_owned && is_of_single_pod(&workload.object);
        let ends = is_of_pod && !self.job.is_suspended();
        let is_requeued = requeues.contains(&evicted.reason.as_str()) && !ends;
        let kind = WorkloadCondition::Requeued;
        status::set_condition(&mut changed, kind, is_requeued, &evicted.reason, &evicted.message, now);
        let reason = if gates.observability {
            QuotaReservedReason::PendingEvaluation
        } else {
            QuotaReservedReason::Pending
        };
        status::unset_quota_reservation(&mut changed, reason, &evicted.message, now, gates);
        write_status(workload, &changed)
    }

    /// Jobs of Workloads that were deactivated by the operator, not by users, are kept for a time only.
    fn retain(&self, workload: &Entry<Workload>, evicted: &Condition) -> Option<Plan> {
        let kept = self.settings.retention().after_deactivated_by_kueue?;
        // One that was activated again is evicted until it gets quota.
        if workload.object.is_active() || !evicted.reason.starts_with(DEACTIVATED_DUE_TO) {
            return None;
        }
        let ends = after(evicted.last_transition_time.0, kept.0);
        if ends > self.now {
            return Some(Plan { next: self.requeue_at(ends), ..Plan::default() });
        }
        let note = "Deleted job: deactivation retention period expired";
        Some(all(self.job.delete(&event(JobEvent::Deleted, note))))
    }

    /// The Workload follows the admission gates of its job.
    pub(super) fn follow_gates(&self, workload: &Entry<Workload>) -> Option<Plan> {
        let mut desired = workload.object.clone();
        let event = admission_gates::follow(self.job.metadata(), &mut desired.metadata, self.settings)?;
        let update = Action::update(ApiKind::of::<Workload>(), workload, &desired)?;
        Some(one(update.with_event(self.job.event(event))))
    }

    /// The Workload follows the priority class of its job. The class of its pods is that of its creation.
    pub(super) fn follow_priority(&self, workload: &Entry<Workload>) -> Option<Plan> {
        let name = label(self.job.metadata(), PRIORITY_CLASS)?;
        let known = workload.object.spec.priority_class_ref.as_ref();
        let may_follow = match known {
            Some(known) => known.kind == PriorityClassKind::WorkloadPriorityClass && known.name != name,
            None => !workload.object.has_quota_reservation(),
        };
        if !may_follow {
            return None;
        }
        let priority = match self.priority {
            Ok(priority) => priority,
            Err(missing) => return Some(self.without_class(missing)),
        };
        let mut desired = workload.object.clone();
        desired.spec.priority = Some(priority.value);
        desired.spec.priority_class_ref.clone_from(&priority.class);
        let update = Action::update(ApiKind::of::<Workload>(), workload, &desired)?;
        let note = format!("Updated workload priority class: {}", workload.key);
        Some(one(update.with_event(self.job.event(event(JobEvent::UpdatedWorkload, note)))))
    }

    /// The class that the job names does not exist.
    pub(super) fn without_class(&self, missing: &MissingClass) -> Plan {
        let plan = missing.plan();
        let events = plan.events.into_iter().map(|event| self.job.event(event)).collect();
        Plan { events, ..plan }
    }

    fn start(&self, workload: &Entry<Workload>) -> Plan {
        let status = workload.object.status.as_ref();
        let elsewhere = status.and_then(|status| status.cluster_name.as_deref());
        if let Some(cluster) = elsewhere.filter(|_| self.job.waits_while_elsewhere()) {
            return Plan::awaiting(format!("its end on cluster {cluster}"));
        }
        let admission = status.and_then(|status| status.admission.as_ref());
        let queue = admission.and_then(|admission| admission.cluster_queue.as_deref()).unwrap_or_default();
        let infos = pod_set_info::of_workload(&workload.object, self.flavors, self.settings);
        let note = format!("Admitted by clusterQueue {queue}");
        match infos.and_then(|infos| self.job.start(&infos, &note)) {
            Ok(steps) => all(steps),
            Err(conflict) => self.conclude(workload, FinishedReason::FailedToStart, &conflict),
        }
    }

    /// The Workload of a job that waits follows its queue.
    fn follow_queue(&self, workload: &Entry<Workload>) -> Option<Plan> {
        let queue = label(self.job.metadata(), QUEUE_NAME);
        let has_moved = self.job.names_queue() && workload.object.spec.queue_name.as_deref() != queue;
        (has_moved && !workload.object.has_quota_reservation()).then(|| {
            let patch = json!({ "spec": { "queueName": queue } });
            one(Action::merge_exactly(ApiKind::of::<Workload>(), workload, patch))
        })
    }

    /// A suspended job that is not admitted.
    fn wait(&self, workload: &Entry<Workload>) -> Plan {
        if let Some(plan) = self.follow_queue(workload) {
            return plan;
        }
        let status = workload.object.status.as_ref();
        let checks = status.into_iter().flat_map(|status| status.admission_checks.iter().flatten());
        let waiting: Vec<String> = checks
            .filter(|check| check.state == CheckState::Pending && !check.message.is_empty())
            .map(|check| format!("{}: {}", check.name, check.message))
            .collect();
        let events = if waiting.is_empty() {
            Vec::new()
        } else {
            vec![self.job.event(event(JobEvent::UpdatedAdmissionCheck, waiting.join("; ")))]
        };
        Plan {
            events,
            awaits: vec![format!("the admission of Workload {}", workload.key)],
            ..Plan::default()
        }
    }
}

/// Whether a pod that belongs to no group is all there is of a Workload's job.
fn is_of_single_pod(workload: &Workload) -> bool {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    matches!(owners, [owner] if owner.kind == "Pod" && owner.controller == Some(true))
}

/// Pod sets with as many pods as were admitted.
pub(super) fn with_assigned_counts(mut sets: Vec<PodSet>, workload: &Workload) -> Vec<PodSet> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    for assignment in
        admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten())
    {
        if let Some(set) = sets.iter_mut().find(|set| set.name == assignment.name) {
            set.count = assignment.count.or(set.count);
        }
    }
    sets
}

/// Quota that was given back is not taken again while a Workload has a reservation, whatever its job reports.
fn keep_reclaimed(pods: &mut Vec<ReclaimablePod>, known: &[ReclaimablePod]) {
    for earlier in known {
        match pods.iter_mut().find(|own| own.name == earlier.name) {
            Some(own) => own.count = own.count.max(earlier.count),
            None => pods.push(earlier.clone()),
        }
    }
}

/// No more than there are.
fn clamped(mut pods: Vec<ReclaimablePod>, workload: &Workload) -> Vec<ReclaimablePod> {
    let sets = workload.spec.pod_sets.as_deref().unwrap_or_default();
    for pod in &mut pods {
        if let Some(set) = sets.iter().find(|set| set.name.as_ref() == Some(&pod.name)) {
            pod.count = pod.count.min(set.count.unwrap_or(1));
        }
    }
    pods
}
