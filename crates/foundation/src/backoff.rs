//! Exponential backoff with jitter.

use std::time::Duration;

use crate::rng::Rng;

/// Exponential growth with a cap and jitter.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// No wait is longer.
    pub cap: Duration,
}

impl Backoff {
    /// The wait after `failures` failures in a row (at least one), without jitter.
    pub fn nominal(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.cap)
    }

    /// The wait after `failures` failures in a row: between half of the nominal time and all of it, so that
    /// objects that failed together do not come back together.
    pub fn wait(&self, failures: u32, rng: &Rng) -> Duration {
        let half = self.nominal(failures) / 2;
        let jitter = rng.below(u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1));
        half + Duration::from_micros(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_the_cap_and_stays_there() {
        let backoff = Backoff { first: Duration::from_millis(10), cap: Duration::from_mins(1) };
        let rng = Rng::seeded(7);
        for failures in 1..200 {
            let wait = backoff.wait(failures, &rng);
            let nominal =
                Duration::from_millis(10).saturating_mul(1 << (failures - 1).min(20)).min(backoff.cap);
            assert!(wait >= nominal / 2 && wait <= nominal, "{failures}: {wait:?} of {nominal:?}");
        }
    }

    #[test]
    fn the_same_seed_waits_the_same() {
        let backoff = Backoff { first: Duration::from_millis(10), cap: Duration::from_mins(1) };
        let waits = |seed| {
            let rng = Rng::seeded(seed);
            (1..9).map(|n| backoff.wait(n, &rng)).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
