//! What becomes of a check: its state follows the conditions of its ProvisioningRequest. As `syncCheckStates` of Kueue.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::kueue::conditions::ProvisioningRequestCondition as Kind;
use quintet_api::kueue::v1beta2::{
    AdmissionCheckState, CheckState, PodSetUpdate, ProvisioningRequestRetryStrategy,
};
use quintet_queue_engine::status::condition_message;

use super::request::{Condition, ProvisioningRequest};

const INACTIVE: &str = "the check is not active";
const NOT_NEEDED: &str = "the provisioning request is not needed";

/// The request of a check, and what else decides.
pub(super) struct Facts<'f> {
    pub(super) request: &'f ProvisioningRequest,
    pub(super) attempt: i32,
    pub(super) strategy: Option<&'f ProvisioningRequestRetryStrategy>,
    /// Whether the Workload is admitted.
    pub(super) is_admitted: bool,
    /// Whether the Workload may run.
    pub(super) is_active: bool,
    /// What pods get that use the capacity.
    pub(super) updates: Vec<PodSetUpdate>,
}

impl Facts<'_> {
    /// Whether this attempt failed, so that another one may follow. A booking that expires after the admission is none that
    /// failed: the pods were there in time.
    pub(super) fn has_failed(&self) -> bool {
        self.request.true_condition(Kind::Failed).is_some()
            || (!self.is_admitted && self.request.true_condition(Kind::BookingExpired).is_some())
    }
}

/// A check whose configuration is missing.
pub(super) fn deactivate(check: &mut AdmissionCheckState, now: &Time) {
    set(check, CheckState::Pending, INACTIVE, now);
}

/// A check of a Workload that needs no capacity.
pub(super) fn skip(check: &mut AdmissionCheckState, now: &Time) {
    if check.state != CheckState::Ready {
        set(check, CheckState::Ready, NOT_NEEDED, now);
        check.pod_set_updates = None;
    }
}

/// A check with a request.
pub(super) fn follow(check: &mut AdmissionCheckState, facts: Facts<'_>, now: &Time) {
    let request = facts.request;
    if let Some(failed) = request.true_condition(Kind::Failed) {
        retry_or_reject(check, &facts, "failure", failed, now);
    } else if let Some(revoked) = request.true_condition(Kind::CapacityRevoked) {
        // The nodes are gone, so that pods which have to be replaced would wait forever.
        if facts.is_active {
            set(check, CheckState::Rejected, &revoked.message, now);
        }
    } else if let Some(expired) = request.true_condition(Kind::BookingExpired) {
        if !facts.is_admitted {
            retry_or_reject(check, &facts, "booking expired", expired, now);
        }
    } else if let Some(provisioned) = request.true_condition(Kind::Provisioned) {
        if check.state != CheckState::Ready {
            set(check, CheckState::Ready, &provisioned.message, now);
            check.pod_set_updates = Some(facts.updates);
        }
    } else if request.true_condition(Kind::Accepted).is_some() {
        // It says when the capacity is expected.
        if let Some(expected) = request.condition(Kind::Provisioned) {
            set(check, CheckState::Pending, &expected.message, now);
        }
    } else {
        set(check, CheckState::Pending, "", now);
    }
}

fn retry_or_reject(
    check: &mut AdmissionCheckState,
    facts: &Facts<'_>,
    what: &str,
    condition: &Condition,
    now: &Time,
) {
    let limit = facts.strategy.and_then(|own| own.backoff_limit_count).unwrap_or(3);
    if facts.attempt > limit {
        set(check, CheckState::Rejected, &condition.message, now);
        return;
    }
    let message = format!("Retrying after {what}: {}", condition.message);
    // A request of an attempt that was retried already is followed by the next one.
    let is_news = facts.attempt > check.retry_count.unwrap_or(0);
    let state = if is_news { CheckState::Retry } else { check.state };
    set(check, state, &message, now);
    if is_news {
        check.requeue_after_seconds = Some(backoff(check.retry_count.unwrap_or(0), facts.strategy));
    }
}

/// The seconds before the next attempt: they double with every retry.
fn backoff(retries: i32, strategy: Option<&ProvisioningRequestRetryStrategy>) -> i32 {
    let base = strategy.and_then(|own| own.backoff_base_seconds).unwrap_or(60);
    let longest = strategy.and_then(|own| own.backoff_max_seconds).unwrap_or(1800);
    let factor = 2_i32.saturating_pow(u32::try_from(retries).unwrap_or(0));
    base.saturating_mul(factor).min(longest).max(0)
}

fn set(check: &mut AdmissionCheckState, state: CheckState, message: &str, now: &Time) {
    if check.state != state {
        check.state = state;
        check.last_transition_time = now.clone();
    }
    check.message = condition_message(message.to_owned());
}
