//! The status of an AppWrapper.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::appwrapper::conditions::RESOURCES_DEPLOYED;
use quintet_api::appwrapper::{AppWrapperComponentStatus, AppWrapperStatus, Phase};
use quintet_api::conditions::{self, Finding};
use quintet_controller::StatusPatch;
use std::time::Duration;

use super::observe::Observed;

/// The next status, as it is put together.
pub(super) struct Draft<'a> {
    observed: &'a Observed,
    pub(super) status: AppWrapperStatus,
}

impl<'a> Draft<'a> {
    /// The status as it is.
    pub(super) fn new(observed: &'a Observed) -> Self {
        Self { observed, status: observed.status().cloned().unwrap_or_default() }
    }

    /// The difference to the status as it is.
    pub(super) fn patch(self) -> Option<StatusPatch> {
        let before = self.observed.status().cloned().unwrap_or_default();
        StatusPatch::between(&self.observed.appwrapper, &before, &self.status)
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.status.phase = Some(phase.as_str().to_owned());
    }

    pub(super) fn set(&mut self, type_: &str, holds: bool, reason: &str, message: &str) {
        let finding = Finding { type_, holds: Some(holds), reason, message, observed_generation: None };
        conditions::set(self.status.conditions.get_or_insert_default(), &finding, &Time(self.observed.now));
    }

    /// Sets a condition to false, if it is true.
    pub(super) fn clear(&mut self, type_: &str, reason: &str) {
        if self.is_true(type_) {
            self.set(type_, false, reason, "");
        }
    }

    pub(super) fn is_true(&self, type_: &str) -> bool {
        conditions::is_true(self.status.conditions.as_deref().unwrap_or_default(), type_)
    }

    /// How long it still takes until a period has passed since a condition changed; zero if it has, or if the condition
    /// was never set.
    pub(super) fn left(&self, type_: &str, period: Duration) -> Duration {
        let all = self.status.conditions.as_deref().unwrap_or_default();
        let Some(condition) = conditions::find(all, type_) else { return Duration::ZERO };
        left(condition.last_transition_time.0, period, self.observed.now)
    }

    /// The status of a component.
    pub(super) fn component(&mut self, number: usize) -> Option<&mut AppWrapperComponentStatus> {
        self.status.component_status.as_mut()?.get_mut(number)
    }

    /// Says whether a component is deployed; `None` if it is about to be.
    pub(super) fn set_component(&mut self, number: usize, holds: Option<bool>, reason: &str) {
        let now = Time(self.observed.now);
        if let Some(component) = self.component(number) {
            let finding =
                Finding { type_: RESOURCES_DEPLOYED, holds, reason, message: "", observed_generation: None };
            conditions::set(component.conditions.get_or_insert_default(), &finding, &now);
        }
    }
}

/// What is left of a period that began at a time.
fn left(since: Timestamp, period: Duration, now: Timestamp) -> Duration {
    let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
    let passed = now.duration_since(since);
    Duration::try_from(period.saturating_sub(passed)).unwrap_or_default()
}
