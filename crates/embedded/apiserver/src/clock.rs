//! The time of day, asked for in one place.

use jiff::Timestamp;

/// Now.
#[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
