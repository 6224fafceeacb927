//! The status of a Job: its conditions.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use quintet_controller::Event;

use super::labels;
use crate::time;

/// When a Job finished, if it has.
pub(crate) fn finished_at(status: &JobStatus) -> Option<Timestamp> {
    let finished = |condition: &&JobCondition| {
        matches!(condition.type_.as_str(), labels::COMPLETE | labels::FAILED) && condition.status == "True"
    };
    let condition = status.conditions.iter().flatten().find(finished)?;
    Some(condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// Sets a condition and returns whether its status has changed.
pub(super) fn set_condition(
    status: &mut JobStatus,
    type_: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let value = if holds { "True" } else { "False" };
    let existing = conditions.iter_mut().find(|condition| condition.type_ == type_);
    if existing.as_ref().is_some_and(|condition| condition.status == value) {
        return false;
    }
    let new = JobCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(time::second(now)),
        last_transition_time: Some(time::second(now)),
    };
    match existing {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
    true
}

/// Sets condition `Suspended`, and restarts the clock of the active deadline when it changes. A Job that was never suspended
/// has no such condition.
pub(super) fn suspension(status: &mut JobStatus, is_suspended: bool, now: Timestamp) -> Option<Event> {
    if is_suspended {
        let changed =
            set_condition(status, labels::SUSPENDED, true, labels::JOB_SUSPENDED, "Job suspended", now);
        return changed.then(|| {
            status.start_time = None;
            Event::normal(labels::EVENT_SUSPENDED, "Suspend", "Job suspended")
        });
    }
    let is_known = status.conditions.iter().flatten().any(|condition| condition.type_ == labels::SUSPENDED);
    let changed =
        is_known && set_condition(status, labels::SUSPENDED, false, labels::JOB_RESUMED, "Job resumed", now);
    changed.then(|| {
        status.start_time = Some(time::second(now));
        Event::normal(labels::EVENT_RESUMED, "Resume", "Job resumed")
    })
}
