//! Wall-clock time that a simulation can drive.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where the machinery reads the time of day.
///
/// Durations are measured with tokio's clock everywhere; this is for the timestamps that others
/// read, such as those of leases and events.
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

    /// A clock that shows `start` now and moves with tokio's (possibly paused) time.
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
