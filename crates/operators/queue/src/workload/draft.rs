//! A Workload as it shall become, and what is recorded about it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::evicted_due_to;
use quintet_api::kueue::v1beta2::{Workload, WorkloadStatus};
use quintet_controller::{Action, Event, Next, Plan, Step};
use quintet_queue_engine::status;
use quintet_queue_engine::time::Time;

use super::Observed;
use crate::field_managers;
use crate::scheduler::engine_time;

/// Changes to a Workload.
pub(super) struct Draft<'o> {
    pub(super) observed: &'o Observed,
    pub(super) object: Workload,
    pub(super) steps: Vec<Step>,
    pub(super) events: Vec<Event>,
    requeue: Option<Duration>,
}

impl<'o> Draft<'o> {
    pub(super) fn new(observed: &'o Observed) -> Self {
        let object = observed.workload.object.clone();
        Self { observed, object, steps: Vec::new(), events: Vec::new(), requeue: None }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.observed.now
    }

    /// The time as the engine counts it.
    pub(super) fn time(&self) -> Time {
        engine_time(self.observed.now)
    }

    pub(super) fn status(&mut self) -> &mut WorkloadStatus {
        self.object.status.get_or_insert_default()
    }

    pub(super) fn condition(&self, kind: WorkloadCondition) -> Option<&Condition> {
        conditions::find(self.object.status.as_ref()?.conditions.as_deref()?, kind.as_str())
    }

    /// The condition, if its status is `False`.
    pub(super) fn false_condition(&self, kind: WorkloadCondition) -> Option<&Condition> {
        self.condition(kind).filter(|condition| condition.status == "False")
    }

    pub(super) fn set(&mut self, kind: WorkloadCondition, holds: bool, reason: &str, message: &str) {
        let now = self.time();
        status::set_condition(&mut self.object, kind, holds, reason, message, now);
    }

    /// Begins an eviction: the controller of the job stops it and gives the quota back.
    pub(super) fn evict(&mut self, reason: &str, cause: &str, message: &str) {
        let now = self.time();
        status::evict(&mut self.object, reason, cause, message, now);
        if self.object.has_quota_reservation() {
            let reason = evicted_due_to(reason);
            self.events.push(Event::normal(&reason, &reason, message));
        }
    }

    /// Marks the Workload for deactivation, which is the next reconcile's.
    pub(super) fn target_deactivation(&mut self, reason: &str, message: &str) {
        self.set(WorkloadCondition::DeactivationTarget, true, reason, message);
    }

    pub(super) fn step(&mut self, action: Action) {
        self.steps.push(action.into());
    }

    /// Reconciles again at a time, or earlier.
    pub(super) fn requeue_at(&mut self, at: Timestamp) {
        let wait = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        // Conditions have whole seconds: what is due by them is due a little later by the clock.
        let wait = wait.max(Duration::from_millis(10));
        self.requeue = Some(self.requeue.map_or(wait, |earlier| earlier.min(wait)));
    }

    pub(super) fn into_plan(self) -> Plan {
        let status = field_managers::status_patch(&self.observed.workload, self.object.status.as_ref());
        let next = self.requeue.map_or(Next::AwaitChange, Next::After);
        Plan { steps: self.steps, status, events: self.events, awaits: Vec::new(), next }
    }
}
