//! Whether a Job has succeeded or failed, and why.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};

use super::super::labels;
use super::super::settings::Settings;
use super::policies::met_success_rule;
use super::tally::Tally;
use crate::pod::Phase;
use crate::time;

/// How a Job ends. It stays so once it is in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) is_success: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Outcome {
    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self { is_success: false, reason: reason.to_owned(), message: message.into() }
    }

    fn success(reason: &str, message: impl Into<String>) -> Self {
        Self { is_success: true, reason: reason.to_owned(), message: message.into() }
    }

    /// All completions were reached.
    pub(super) fn completed() -> Self {
        Self::success(labels::COMPLETIONS_REACHED, "Reached expected number of succeeded pods")
    }

    fn of_condition(condition: &JobCondition) -> Self {
        Self {
            is_success: condition.type_ == labels::SUCCESS_CRITERIA_MET,
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
        }
    }

    /// The condition that says how the Job will end, while its pods terminate.
    pub(super) fn interim(&self) -> &'static str {
        if self.is_success { labels::SUCCESS_CRITERIA_MET } else { labels::FAILURE_TARGET }
    }

    /// The condition that says how the Job has ended.
    pub(super) fn terminal(&self) -> &'static str {
        if self.is_success { labels::COMPLETE } else { labels::FAILED }
    }
}

/// Decides whether a Job is over although not all completions may be reached, in upstream's order.
pub(super) fn decide(
    settings: &Settings<'_>,
    status: &JobStatus,
    tally: &Tally<'_>,
    now: Timestamp,
) -> Option<Outcome> {
    let decided = |type_: &str| condition(status, type_).map(Outcome::of_condition);
    decided(labels::SUCCESS_CRITERIA_MET)
        .or_else(|| decided(labels::FAILURE_TARGET))
        .or_else(|| tally.fail_job.as_ref().map(|why| Outcome::failure(labels::POD_FAILURE_POLICY, why)))
        .or_else(|| exceeds_backoff_limit(settings, tally))
        .or_else(|| exceeds_deadline(settings, status, now))
        .or_else(|| fails_indexes(settings, tally))
        .or_else(|| {
            let rule = met_success_rule(settings, &tally.succeeded_indexes)?;
            Some(Outcome::success(labels::SUCCESS_POLICY, format!("Matched rules at index {rule}")))
        })
}

fn exceeds_backoff_limit(settings: &Settings<'_>, tally: &Tally<'_>) -> Option<Outcome> {
    let limit = settings.backoff_limit;
    let restarts = || -> i32 {
        let running = tally.active.iter().filter(|pod| pod.object.status.phase <= Phase::Running);
        running
            .flat_map(|pod| {
                let status = &pod.object.status;
                status.container_statuses.iter().chain(&status.init_container_statuses)
            })
            .map(|container| container.restart_count)
            .sum()
    };
    let exceeds = tally.failed > limit || (settings.restarts_on_failure && restarts() >= limit.max(1));
    exceeds.then(|| {
        Outcome::failure(labels::BACKOFF_LIMIT_EXCEEDED, "Job has reached the specified backoff limit")
    })
}

fn exceeds_deadline(settings: &Settings<'_>, status: &JobStatus, now: Timestamp) -> Option<Outcome> {
    let deadline = deadline(settings, status)?;
    (deadline <= now)
        .then(|| Outcome::failure(labels::DEADLINE_EXCEEDED, "Job was active longer than specified deadline"))
}

/// When the Job has been active for too long.
pub(super) fn deadline(settings: &Settings<'_>, status: &JobStatus) -> Option<Timestamp> {
    let started = status.start_time.as_ref().filter(|_| !settings.is_suspended)?;
    Some(time::after(started.0, settings.active_deadline_seconds?))
}

fn fails_indexes(settings: &Settings<'_>, tally: &Tally<'_>) -> Option<Outcome> {
    settings.backoff_limit_per_index?;
    let failed = tally.failed_indexes.len();
    if settings.max_failed_indexes.is_some_and(|max| failed > max) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Outcome::failure(labels::MAX_FAILED_INDEXES_EXCEEDED, message));
    }
    let is_over = failed > 0 && failed + tally.succeeded >= settings.indexes();
    is_over.then(|| Outcome::failure(labels::FAILED_INDEXES, "Job has failed indexes"))
}

/// The condition of a type, if it is true.
pub(super) fn condition<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == "True")
}
