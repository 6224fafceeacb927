//! Wall-clock time that a simulation can drive.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The source of wall-clock time.
///
/// Durations and deadlines are measured with tokio's clock everywhere; this one is for timestamps that
/// leave the process, such as those of leases, events and object metadata. A simulated clock follows
/// tokio's, so a test with paused time drives both.
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

    /// The current wall-clock time.
    #[expect(clippy::disallowed_methods, reason = "the only call; everything else takes a Clock")]
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
