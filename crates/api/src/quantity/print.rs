//! From quantity to its canonical text: no fraction, and the largest suffix that allows it.

use std::fmt;

use super::{NANOS_PER_UNIT, Notation, Quantity};

const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const KIBI: i128 = 1024;

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.notation {
            Notation::BinarySi if self.is_binary() => write_binary(self.nanos / NANOS_PER_UNIT, f),
            Notation::BinarySi | Notation::DecimalSi => write_decimal(self.nanos, f),
            Notation::DecimalExponent => write_exponent(self.nanos, f),
        }
    }
}

impl Quantity {
    /// Small amounts and fractions are clearer, and lose nothing, in decimal.
    fn is_binary(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0 && self.nanos.abs() >= KIBI * NANOS_PER_UNIT
    }
}

fn write_binary(units: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (number, steps) = divided_out(units, KIBI, BINARY_SUFFIXES.len() - 1);
    write_suffixed(number, BINARY_SUFFIXES.get(steps), f)
}

fn write_decimal(nanos: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if nanos == 0 {
        return f.write_str("0");
    }
    let (number, steps) = divided_out(nanos, 1000, DECIMAL_SUFFIXES.len() - 1);
    write_suffixed(number, DECIMAL_SUFFIXES.get(steps), f)
}

fn write_exponent(nanos: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if nanos == 0 {
        return f.write_str("0");
    }
    let (number, steps) = divided_out(nanos, 1000, usize::MAX);
    match i64::try_from(steps).unwrap_or(i64::MAX) * 3 - 9 {
        0 => write!(f, "{number}"),
        exponent => write!(f, "{number}e{exponent}"),
    }
}

fn write_suffixed(number: i128, suffix: Option<&&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{number}{}", suffix.copied().unwrap_or_default())
}

/// Divides by `factor` while that leaves a whole number, at most `most` times.
fn divided_out(mut number: i128, factor: i128, most: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < most && number != 0 && number % factor == 0 {
        number /= factor;
        steps += 1;
    }
    (number, steps)
}
