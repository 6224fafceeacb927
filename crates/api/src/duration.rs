//! Durations as Kubernetes writes them: `90s`, `1h30m`, `0.5h`, `100ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time, exact to the nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub Duration);

/// The text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a duration; write it like 30s, 5m or 1h30m")]
pub struct ParseDurationError {
    text: String,
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3600 * NANOS_PER_SECOND),
];

impl GoDuration {
    /// A whole number of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, ParseDurationError> {
        let wrong = || ParseDurationError { text: text.into() };
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        if unsigned == "0" {
            return Ok(Self::default());
        }
        let mut rest = unsigned;
        let mut nanos = 0_u128;
        while !rest.is_empty() || unsigned.is_empty() {
            let (part, behind) = leading_part(rest).ok_or_else(wrong)?;
            nanos = nanos.checked_add(part).ok_or_else(wrong)?;
            rest = behind;
        }
        // Go keeps durations in 64 bits.
        let nanos =
            u64::try_from(nanos).ok().filter(|nanos| i64::try_from(*nanos).is_ok()).ok_or_else(wrong)?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

/// Nanoseconds of the first number and unit, and what follows them.
fn leading_part(text: &str) -> Option<(u128, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(number_end);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, behind) = rest.split_at(unit_end);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || fraction.len() > 18 {
        return None;
    }
    let parse =
        |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok().map(u128::from) };
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some((parse(whole)? * nanos + parse(fraction)? * nanos / scale, behind))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < NANOS_PER_SECOND {
            let (name, unit) = match nanos {
                0..1_000 => ("ns", 1),
                1_000..1_000_000 => ("µs", 1_000),
                _ => ("ms", 1_000_000),
            };
            return write!(f, "{}{name}", decimal(nanos, unit));
        }
        let (minutes, seconds) = (nanos / (60 * NANOS_PER_SECOND), nanos % (60 * NANOS_PER_SECOND));
        let (hours, minutes) = (minutes / 60, minutes % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(seconds, NANOS_PER_SECOND))
    }
}

fn decimal(nanos: u128, unit: u128) -> String {
    let width = unit.ilog10() as usize;
    let fraction = if width == 0 { String::new() } else { format!("{:0width$}", nanos % unit) };
    match fraction.trim_end_matches('0') {
        "" => format!("{}", nanos / unit),
        fraction => format!("{}.{fraction}", nanos / unit),
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_prints_as_go_does() {
        for (text, printed) in [
            ("0", "0s"),
            ("0s", "0s"),
            ("5m", "5m0s"),
            ("1h30m", "1h30m0s"),
            ("90s", "1m30s"),
            ("1.5h", "1h30m0s"),
            (".5s", "500ms"),
            ("1s500ms", "1.5s"),
            ("+2us", "2µs"),
            ("100ns", "100ns"),
            ("168h", "168h0m0s"),
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), printed, "{text}");
        }
        for text in ["", "+", "5", "5 m", "m", "1.2.3s", "-5s", "1d", "99999999999999999999h", "5m3"] {
            let error = text.parse::<GoDuration>().unwrap_err().to_string();
            assert_eq!(error, format!("\"{text}\" is not a duration; write it like 30s, 5m or 1h30m"));
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_changes_nothing(nanos in 0..i64::MAX.unsigned_abs()) {
            let duration = GoDuration(Duration::from_nanos(nanos));
            prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.hmsnuµ+ ]{0,20}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
