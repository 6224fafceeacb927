//! How long to wait before the next attempt.

use std::time::Duration;

use parking_lot::Mutex;

/// A small random generator (SplitMix64) for jitter: seedable, so that a simulation repeats itself.
#[derive(Debug)]
pub struct Random(Mutex<u64>);

impl Random {
    /// The same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// A seed that differs between processes.
    pub fn from_entropy() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self::seeded(RandomState::new().hash_one(0))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero if the bound is.
    pub fn below(&self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

/// Exponential growth with a cap and jitter.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// No wait is longer.
    pub cap: Duration,
}

impl Backoff {
    /// The wait after `failures` failures in a row (at least one): between half of the nominal time and
    /// all of it, so that objects that failed together do not come back together.
    pub fn wait(&self, failures: u32, random: &Random) -> Duration {
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).filter(|f| *f != 0).unwrap_or(u32::MAX);
        let nominal = self.first.saturating_mul(factor).min(self.cap);
        let half = nominal / 2;
        let jitter = random.below(u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1));
        half + Duration::from_micros(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_the_cap_and_stays_there() {
        let backoff = Backoff { first: Duration::from_millis(10), cap: Duration::from_mins(1) };
        let random = Random::seeded(7);
        for failures in 1..200 {
            let wait = backoff.wait(failures, &random);
            let nominal =
                Duration::from_millis(10).saturating_mul(1 << (failures - 1).min(20)).min(backoff.cap);
            assert!(wait >= nominal / 2 && wait <= nominal, "{failures}: {wait:?} of {nominal:?}");
        }
    }

    #[test]
    fn the_same_seed_waits_the_same() {
        let backoff = Backoff { first: Duration::from_millis(10), cap: Duration::from_mins(1) };
        let waits = |seed| {
            let random = Random::seeded(seed);
            (1..9).map(|n| backoff.wait(n, &random)).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
