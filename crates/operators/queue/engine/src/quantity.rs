//! Kubernetes quantities, exact to the nano, as far as the engine needs them: read, compare, multiply
//! and print in canonical form.

use std::fmt;

use crate::amount::Amount;

const NANO: i128 = 1_000_000_000;

/// A Kubernetes quantity as a whole number of nano-units. Finer digits round away from zero, as
/// Kubernetes does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// The text is not a Kubernetes quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity")]
pub struct NotAQuantity(String);

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0 };

    /// `value` whole units.
    pub const fn units(value: i64) -> Self {
        Self { nanos: value as i128 * NANO }
    }

    /// `value` thousandths.
    pub const fn milli(value: i64) -> Self {
        Self { nanos: value as i128 * (NANO / 1000) }
    }

    /// `value` billionths.
    pub const fn nanos(value: i128) -> Self {
        Self { nanos: value }
    }

    /// The exact number of billionths.
    pub const fn as_nanos(self) -> i128 {
        self.nanos
    }

    /// Whether it is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Reads the text form: sign, decimal digits, and a binary, decimal or exponent suffix.
    pub fn parse(text: &str) -> Result<Self, NotAQuantity> {
        parse(text).map(|nanos| Self { nanos }).ok_or_else(|| NotAQuantity(text.to_owned()))
    }

    /// The value in units of `nanos_per_unit`, rounded away from zero and clamped to 64 bits.
    fn scaled(self, nanos_per_unit: i128) -> i64 {
        let quotient = self.nanos / nanos_per_unit;
        let rounded =
            if self.nanos % nanos_per_unit == 0 { quotient } else { quotient + self.nanos.signum() };
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        self.scaled(NANO)
    }

    /// Thousandths, rounded away from zero.
    pub fn milli_value(self) -> i64 {
        self.scaled(NANO / 1000)
    }

    /// The engine's integer for this quantity of a resource: milli for `cpu`, units otherwise.
    pub fn request(self, milli: bool) -> i64 {
        if milli { self.milli_value() } else { self.value() }
    }

    /// The engine's quota amount: as [`Quantity::request`], but unlimited from the largest integer on.
    pub fn amount(self, milli: bool) -> Amount {
        let limit = if milli { Self::units(i64::MAX / 1000) } else { Self::units(i64::MAX) };
        if self >= limit { Amount::UNLIMITED } else { Amount::new(self.request(milli)) }
    }

    /// Sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos) }
    }

    /// Product; digits below the nano round away from zero.
    #[must_use]
    pub fn times(self, factor: Self) -> Self {
        // Splitting one factor keeps every realistic product inside 128 bits without losing digits.
        let (whole, rest) = (factor.nanos / NANO, factor.nanos % NANO);
        let tail = self.nanos.saturating_mul(rest);
        let tail = tail / NANO + if tail % NANO == 0 { 0 } else { tail.signum() };
        Self { nanos: self.nanos.saturating_mul(whole).saturating_add(tail) }
    }

    /// The product with a float, taken as the decimal it prints as, rounded down to the nano.
    #[must_use]
    pub fn times_f64(self, factor: f64) -> Self {
        let text = format!("{factor}");
        let (negative, digits) = text.strip_prefix('-').map_or((false, text.as_str()), |rest| (true, rest));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let Ok(mantissa) = format!("{whole}{fraction}").parse::<i128>() else {
            return Self { nanos: if self.nanos == 0 { 0 } else { i128::MAX } };
        };
        let mantissa = if negative { -mantissa } else { mantissa };
        Self { nanos: floor_mul_pow10(self.nanos, mantissa, fraction.len()) }
    }

    /// The value as a float.
    #[expect(clippy::cast_precision_loss, reason = "shares and weights are floats by definition")]
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// Canonical text with binary suffixes (`Ki`, `Mi`, …) where they are exact, decimal otherwise.
    pub fn to_binary_string(self) -> String {
        if self.nanos % NANO != 0 || self.nanos.abs() < 1024 * NANO {
            return self.to_string();
        }
        let (mut value, mut suffix) = (self.nanos / NANO, "");
        for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            if value % 1024 != 0 {
                break;
            }
            value /= 1024;
            suffix = next;
        }
        if suffix.is_empty() { self.to_string() } else { format!("{value}{suffix}") }
    }
}

/// Canonical decimal text: whole digits with the largest suffix that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let (mut value, mut index) = (self.nanos, 0);
        while value % 1000 == 0 && index + 1 < SUFFIXES.len() {
            value /= 1000;
            index += 1;
        }
        write!(f, "{value}{}", SUFFIXES.get(index).unwrap_or(&""))
    }
}

/// `floor(a × b / 10^shift)` without losing the product's upper half.
fn floor_mul_pow10(a: i128, b: i128, shift: usize) -> i128 {
    const STEP: usize = 18;
    const LOW: i128 = 1_000_000_000_000_000_000;
    let (high, low) = (a.div_euclid(LOW), a.rem_euclid(LOW));
    let (high, low) = (high.saturating_mul(b), low.saturating_mul(b));
    let power = |digits: usize| u32::try_from(digits).ok().and_then(|digits| 10i128.checked_pow(digits));
    if let Some(rest) = shift.checked_sub(STEP) {
        let sum = high.saturating_add(low.div_euclid(LOW));
        power(rest).map_or(if sum < 0 { -1 } else { 0 }, |power| sum.div_euclid(power))
    } else {
        let (up, down) = (power(STEP - shift).unwrap_or(1), power(shift).unwrap_or(1));
        high.saturating_mul(up).saturating_add(low.div_euclid(down))
    }
}

fn parse(text: &str) -> Option<i128> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let digits_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let scale = Scale::parse(suffix)?;
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let decimals = i32::try_from(fraction.len()).ok()?;
    let nanos = scale.apply(mantissa, decimals);
    Some(if negative { nanos.saturating_neg() } else { nanos })
}

/// What a suffix multiplies by.
enum Scale {
    Binary(u32),
    Decimal(i32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "" => Self::Decimal(0),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                Self::Decimal(exponent.parse().ok()?)
            }
        })
    }

    /// `mantissa × 10^-decimals × scale` in nanos.
    fn apply(&self, mantissa: i128, decimals: i32) -> i128 {
        let (mantissa, exponent) = match *self {
            Self::Binary(shift) => (mantissa.saturating_mul(1 << shift), 9 - decimals),
            Self::Decimal(exponent) => (mantissa, exponent.saturating_add(9 - decimals)),
        };
        let power = 10i128.checked_pow(exponent.unsigned_abs());
        match (exponent >= 0, power) {
            (_, _) if mantissa == 0 => 0,
            (true, Some(power)) => mantissa.saturating_mul(power),
            (true, None) => i128::MAX,
            (false, Some(power)) => mantissa / power + i128::from(mantissa % power != 0),
            (false, None) => 1,
        }
    }
}
