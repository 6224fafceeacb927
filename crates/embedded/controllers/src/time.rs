//! Times in objects have whole seconds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_controller::Next;

/// The second that has begun, as objects keep it.
pub(crate) fn second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// So many seconds after a time.
pub(crate) fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

/// The time until `due`; zero if it has passed.
pub(crate) fn until(now: Timestamp, due: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}

/// Requeue at the earliest of these times.
pub(crate) fn earliest(now: Timestamp, times: impl IntoIterator<Item = Timestamp>) -> Next {
    times.into_iter().min().map_or(Next::AwaitChange, |due| Next::After(until(now, due)))
}
