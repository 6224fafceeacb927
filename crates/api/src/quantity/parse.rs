//! From text to quantity, with Kubernetes' rounding and caps.

use std::str::FromStr;

use super::{NANOS_PER_UNIT, Notation, Quantity, divided_away};

/// Why a text is not a quantity; worded as the API server words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not of the form number and suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number before the suffix is not one.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// No such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Digits are kept while the number is below this; what follows can only round the last nano up.
const KEPT_BELOW: i128 = 10_i128.pow(26);
/// Up to this many digits Kubernetes keeps a decimal as it is, however large its suffix makes it.
const UNCAPPED_DIGITS: usize = 18;
/// Otherwise amounts stop at the largest 64-bit integer.
const CAP: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
const NANO_EXPONENT: i32 = -9;

/// What a suffix multiplies by.
enum Factor {
    Decimal { exponent: i32, notation: Notation },
    Binary { shift: u32 },
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(ParseError::Format),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        if number.is_empty() || !suffix.bytes().all(is_suffix_byte) {
            return Err(ParseError::Format);
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(ParseError::Number);
        }
        let decimal = Decimal::new(whole, fraction);
        let (nanos, notation) = match factor(suffix)? {
            Factor::Decimal { exponent, notation } => (decimal.scaled(exponent), notation),
            Factor::Binary { shift } => decimal.shifted(shift),
        };
        Ok(Self { nanos: if negative { -nanos } else { nanos }, notation })
    }
}

fn is_suffix_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || b"+-eEinumkKMGTP".contains(&byte)
}

fn factor(suffix: &str) -> Result<Factor, ParseError> {
    let decimal = |exponent| Factor::Decimal { exponent, notation: Notation::DecimalSi };
    Ok(match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Factor::Binary { shift: 10 },
        "Mi" => Factor::Binary { shift: 20 },
        "Gi" => Factor::Binary { shift: 30 },
        "Ti" => Factor::Binary { shift: 40 },
        "Pi" => Factor::Binary { shift: 50 },
        "Ei" => Factor::Binary { shift: 60 },
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(ParseError::Suffix)?;
            let exponent = exponent.parse().map_err(|_| ParseError::Suffix)?;
            Factor::Decimal { exponent, notation: Notation::DecimalExponent }
        }
    })
}

/// An unsigned decimal number: `digits * 10^exponent`, and whether non-zero digits were cut off behind it.
struct Decimal {
    digits: i128,
    exponent: i32,
    is_cut: bool,
    /// How many digits were written, leading zeros aside.
    written: usize,
}

impl Decimal {
    fn new(whole: &str, fraction: &str) -> Self {
        let whole = whole.trim_start_matches('0');
        let (mut digits, mut kept, mut is_cut) = (0_i128, 0_usize, false);
        for digit in whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0')) {
            if digits < KEPT_BELOW {
                digits = digits * 10 + digit;
                kept += 1;
            } else {
                is_cut |= digit != 0;
            }
        }
        Self {
            digits,
            exponent: to_i32(whole.len()) - to_i32(kept),
            is_cut,
            written: whole.len() + fraction.len(),
        }
    }

    /// Nano-units of `self * 10^exponent`.
    fn scaled(&self, exponent: i32) -> i128 {
        let finest = self.exponent.saturating_add(exponent);
        let nanos = self.nanos(self.digits, finest);
        let is_kept_as_is = self.written <= UNCAPPED_DIGITS && finest >= NANO_EXPONENT;
        if is_kept_as_is { nanos } else { nanos.min(CAP) }
    }

    /// Nano-units of `self * 2^shift`, and the notation that shows them without loss.
    fn shifted(&self, shift: u32) -> (i128, Notation) {
        let factor = 1_i128 << shift;
        let nanos = match self.digits.checked_mul(factor) {
            Some(digits) => self.nanos(digits, self.exponent),
            None => self.nanos(self.digits, self.exponent).saturating_mul(factor),
        };
        let is_fraction = 0 < nanos && nanos < NANOS_PER_UNIT;
        (nanos.min(CAP), if is_fraction { Notation::DecimalSi } else { Notation::BinarySi })
    }

    /// Nano-units of `digits * 10^exponent`, rounded up; saturates.
    fn nanos(&self, digits: i128, exponent: i32) -> i128 {
        let power = exponent.saturating_sub(NANO_EXPONENT);
        let magnitude = 10_i128.checked_pow(power.unsigned_abs());
        match (digits, magnitude) {
            (0, _) => 0,
            (_, None) if power < 0 => 1,
            (_, None) => i128::MAX,
            (_, Some(divisor)) if power < 0 => {
                divided_away(digits, divisor) + i128::from(self.is_cut && digits % divisor == 0)
            }
            (_, Some(factor)) => digits.saturating_mul(factor).saturating_add(i128::from(self.is_cut)),
        }
    }
}

fn to_i32(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
