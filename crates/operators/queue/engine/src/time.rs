//! Instants and lengths of time as the engine sees them: arguments, never a clock.

use std::ops::{Add, Sub};

/// An instant in nanoseconds since the Unix epoch. [`Time::ZERO`] is before all others: an object
/// without a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// After every other time.
    pub const LAST: Self = Self(i64::MAX);
    /// No time given; sorts first.
    pub const ZERO: Self = Self(i64::MIN);

    /// The instant `nanos` after the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The instant `seconds` after the epoch.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whether no time was given.
    pub const fn is_zero(self) -> bool {
        self.0 == i64::MIN
    }

    /// Seconds from `earlier` to this instant.
    #[expect(clippy::cast_precision_loss, reason = "fractions of a nanosecond do not matter here")]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        (self - earlier).0 as f64 / 1e9
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

impl Span {
    /// `nanos` nanoseconds.
    pub const fn nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// `millis` milliseconds.
    pub const fn millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `seconds` seconds.
    pub const fn secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The length in seconds.
    #[expect(clippy::cast_precision_loss, reason = "fractions of a nanosecond do not matter here")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Time {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}
