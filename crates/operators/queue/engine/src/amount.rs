//! Quota amounts: 64-bit integers that saturate, with a value that means *unlimited*.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use quintet_api::Quantity;
use quintet_api::quantity::Notation;

/// An amount of one resource: milli-units of `cpu`, whole units of everything else.
///
/// `i64::MAX` stands for *unlimited*, which absorbs everything added to or taken from it; all other
/// arithmetic saturates, so a sum of absurd requests compares as "too much" instead of wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

impl Amount {
    /// No amount at all.
    pub const ZERO: Self = Self(0);
    /// More than any bounded amount.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// The bounded amount `value`; `i64::MAX` itself is [`Amount::UNLIMITED`].
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// The quota a quantity stands for: milli-units or units, unlimited from the largest integer on.
    pub fn of(quantity: Quantity, milli: bool) -> Self {
        let limit = if milli { i64::MAX / 1000 } else { i64::MAX };
        if quantity >= Quantity::from_units(limit, Notation::DecimalSi) {
            Self::UNLIMITED
        } else {
            Self::new(crate::requests::request_of(quantity, milli))
        }
    }

    /// The raw number (`i64::MAX` when unlimited).
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether this is the *unlimited* sentinel.
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// The amount, or zero when it is negative.
    #[must_use]
    pub fn floor_zero(self) -> Self {
        self.max(Self::ZERO)
    }

    /// The amount in natural units (cores, bytes, devices); unlimited is infinite.
    #[expect(clippy::cast_precision_loss, reason = "reported to people and metrics, which want a float")]
    pub fn as_f64(self, milli: bool) -> f64 {
        if self.is_unlimited() {
            f64::INFINITY
        } else if milli {
            self.0 as f64 / 1000.0
        } else {
            self.0 as f64
        }
    }
}

impl From<i64> for Amount {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        if self.is_unlimited() || other.is_unlimited() {
            Self::UNLIMITED
        } else {
            Self(self.0.saturating_add(other.0))
        }
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Self::ZERO,
            (true, false) => Self::UNLIMITED,
            (false, true) => Self(i64::MIN),
            (false, false) => Self(self.0.saturating_sub(other.0)),
        }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl PartialEq<i64> for Amount {
    fn eq(&self, other: &i64) -> bool {
        self.0 == *other
    }
}

impl PartialOrd<i64> for Amount {
    fn partial_cmp(&self, other: &i64) -> Option<Ordering> {
        Some(if self.is_unlimited() { Ordering::Greater } else { self.0.cmp(other) })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.write_str("<unlimited>") } else { write!(f, "{}", self.0) }
    }
}
