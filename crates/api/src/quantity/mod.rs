//! Kubernetes quantities with exact arithmetic: `100m`, `1.5Gi`, `3e6`.
//!
//! A quantity is a whole number of nano-units, which is the finest step Kubernetes keeps, and remembers in
//! which of the three notations it was written. Nothing here ever passes through a float.
//!
//! ```
//! use quintet_api::Quantity;
//!
//! let half: Quantity = "500m".parse()?;
//! let two: Quantity = "2".parse()?;
//! assert_eq!((half + two).to_string(), "2500m");
//! assert_eq!("2048Mi".parse::<Quantity>()?.to_string(), "2Gi");
//! assert!("1Gi".parse::<Quantity>()? > "1G".parse::<Quantity>()?);
//! # Ok::<(), quintet_api::quantity::ParseError>(())
//! ```

mod parse;
mod print;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use parse::ParseError;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

/// An amount of something, exact to the nano-unit. Arithmetic saturates far beyond any real amount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// How a quantity prefers to be written. It never changes what a quantity is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notation {
    /// `1500m`, `3k`, `2G`.
    #[default]
    DecimalSi,
    /// `512Mi`, `2Gi`.
    BinarySi,
    /// `3e6`.
    DecimalExponent,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, notation: Notation::DecimalSi };

    /// A whole number of units.
    pub const fn from_units(units: i64, notation: Notation) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, notation }
    }

    /// A whole number of thousandths, as CPUs are counted.
    pub const fn from_millis(millis: i64, notation: Notation) -> Self {
        Self { nanos: millis as i128 * NANOS_PER_MILLI, notation }
    }

    /// A whole number of nano-units.
    pub const fn from_nanos(nanos: i128, notation: Notation) -> Self {
        Self { nanos, notation }
    }

    /// The exact number of nano-units.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// Units, rounded away from zero and clamped to what an `i64` holds.
    pub fn units(self) -> i64 {
        rounded_away(self.nanos, NANOS_PER_UNIT)
    }

    /// Thousandths, rounded away from zero and clamped to what an `i64` holds.
    pub fn millis(self) -> i64 {
        rounded_away(self.nanos, NANOS_PER_MILLI)
    }

    /// The notation it is written in.
    pub const fn notation(self) -> Notation {
        self.notation
    }

    /// The same amount, written in another notation.
    #[must_use]
    pub const fn in_notation(self, notation: Notation) -> Self {
        Self { notation, ..self }
    }

    /// Whether this is nothing.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether this is less than nothing.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// This amount, `times` over.
    #[must_use]
    pub const fn times(self, times: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(times as i128), ..self }
    }

    /// The product with another quantity, rounded away from zero to the nano-unit.
    #[must_use]
    pub fn scaled_by(self, factor: Self) -> Self {
        // Split one side at the unit so that amounts up to 10^19 units multiply without overflow.
        let (whole, fraction) = (factor.nanos / NANOS_PER_UNIT, factor.nanos % NANOS_PER_UNIT);
        let fractional = self.nanos.saturating_mul(fraction);
        let rest = divided_away(fractional, NANOS_PER_UNIT);
        Self { nanos: self.nanos.saturating_mul(whole).saturating_add(rest), ..self }
    }

    /// The larger of this and nothing.
    #[must_use]
    pub fn or_zero(self) -> Self {
        Self { nanos: self.nanos.max(0), ..self }
    }
}

fn divided_away(value: i128, by: i128) -> i128 {
    let (quotient, remainder) = (value / by, value % by);
    quotient + if remainder == 0 { 0 } else { remainder.signum() }
}

fn rounded_away(nanos: i128, step: i128) -> i64 {
    let rounded = divided_away(nanos, step);
    i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
}

// Equality is about the amount: `1000m` equals `1`.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Self;

    /// Nothing has no notation of its own: `0 + 1Gi` is written as `1Gi` is.
    fn add(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self { nanos: self.nanos.saturating_add(other.nanos), notation }
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: self.nanos.saturating_neg(), ..self }
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::ZERO, Add::add)
    }
}

impl TryFrom<&WireQuantity> for Quantity {
    type Error = ParseError;

    fn try_from(wire: &WireQuantity) -> Result<Self, ParseError> {
        wire.0.parse()
    }
}

impl From<Quantity> for WireQuantity {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Reads text and plain numbers: `cpu: 2` is as good as `cpu: "2"`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let text = match &value {
            serde_json::Value::String(text) => text.trim().to_owned(),
            serde_json::Value::Number(number) => number.to_string(),
            other => {
                return Err(de::Error::custom(format!(
                    "expected a quantity such as 500m or 2Gi, found {other}"
                )));
            }
        };
        text.parse().map_err(de::Error::custom)
    }
}
