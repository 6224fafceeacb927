//! Conditions of a Workload.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time as ApiTime};
use k8s_openapi::jiff::Timestamp;
use quintet_api::conditions::{self, Finding};
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::v1beta2;

use crate::time::Time;

/// Kubernetes rejects longer condition messages.
const MAX_CONDITION_MESSAGE: usize = 32 * 1024;

/// A text of at most `limit` bytes. As `TruncateConditionMessage` and `TruncateEventMessage` in Kueue's
/// `pkg/util/api/api.go`.
pub(super) fn truncated(mut text: String, limit: usize) -> String {
    const MARK: &str = " ...";
    if text.len() > limit {
        let mut end = limit - MARK.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

/// A message as a condition or a check may have it: not too long.
pub fn condition_message(message: String) -> String {
    truncated(message, MAX_CONDITION_MESSAGE)
}

/// A time as the API has it: in whole seconds.
pub fn api_time(time: Time) -> ApiTime {
    let seconds = time.as_nanos().div_euclid(1_000_000_000);
    ApiTime(Timestamp::from_second(seconds).unwrap_or_default())
}

/// The condition of a Workload, if it is set.
pub(super) fn find(object: &v1beta2::Workload, kind: WorkloadCondition) -> Option<&Condition> {
    conditions::find(object.status.as_ref()?.conditions.as_deref()?, kind.as_str())
}

/// What a condition becomes.
pub(super) struct ConditionUpdate<'a> {
    pub(super) kind: WorkloadCondition,
    pub(super) status: bool,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) generation: Option<i64>,
}

/// Sets a condition; the time changes only with the status. True if anything changed.
pub fn set_condition(
    object: &mut v1beta2::Workload,
    kind: WorkloadCondition,
    status: bool,
    reason: &str,
    message: &str,
    now: Time,
) -> bool {
    let generation = object.metadata.generation;
    set(object, &ConditionUpdate { kind, status, reason, message, generation }, now)
}

pub(super) fn set(object: &mut v1beta2::Workload, update: &ConditionUpdate<'_>, now: Time) -> bool {
    let message = truncated(update.message.to_owned(), MAX_CONDITION_MESSAGE);
    let finding = Finding {
        type_: update.kind.as_str(),
        holds: Some(update.status),
        reason: update.reason,
        message: &message,
        observed_generation: update.generation.filter(|generation| *generation != 0),
    };
    let conditions = object.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions::set(conditions, &finding, &api_time(now))
}
