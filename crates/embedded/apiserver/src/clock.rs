//! The time of day, asked for in one place, so that a simulation can drive it.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where the API reads the time of day: for timestamps, the age of events and of tokens.
///
/// How long something takes (deadlines, bookmarks, the history of watches) is measured with Tokio's clock. A simulated
/// clock follows that one, so that a test with paused time drives both at once.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Simulated { start: Timestamp, base: Instant },
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that shows `start` now and moves with Tokio's (possibly paused) time.
    pub fn simulated(start: Timestamp) -> Self {
        Self(Source::Simulated { start, base: Instant::now() })
    }

    /// The time of day.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Simulated { start, base } => SignedDuration::try_from(base.elapsed())
                .ok()
                .and_then(|elapsed| start.checked_add(elapsed).ok())
                .unwrap_or(*start),
        }
    }
}
