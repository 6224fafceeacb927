//! Times and durations.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::eval::{EvalError, Outcome};
use super::value::Val;

const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("h", 3600e9), ("m", 60e9), ("s", 1e9)];

/// A duration as Go writes it (`1h30m`, `-0.5s`), in nanoseconds.
pub fn duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut nanos = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(rest.len());
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
        nanos += number * factor;
        rest = rest.get(unit.len()..)?;
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked to fit")]
    (nanos < 9.2e18).then_some((sign * nanos) as i64)
}

/// A duration as expressions print it: seconds with a fraction.
pub(super) fn duration_text(nanos: i64) -> String {
    let seconds = nanos / 1_000_000_000;
    let fraction = (nanos % 1_000_000_000).unsigned_abs();
    if fraction == 0 {
        return format!("{seconds}s");
    }
    let sign = if nanos < 0 && seconds == 0 { "-" } else { "" };
    let text = format!("{sign}{seconds}.{fraction:09}");
    format!("{}s", text.trim_end_matches('0'))
}

/// The `get...` functions of times and durations.
pub(super) fn part<'v>(function: &str, args: &[Val<'v>]) -> Outcome<'v> {
    match args {
        [Val::Duration(nanos)] => {
            let seconds = nanos / 1_000_000_000;
            Ok(Val::Int(match function {
                "getHours" => seconds / 3600,
                "getMinutes" => seconds / 60,
                "getSeconds" => seconds,
                "getMilliseconds" => nanos / 1_000_000,
                _ => return Err(EvalError::no_overload()),
            }))
        }
        [Val::Timestamp(time)] => of_time(function, *time, &TimeZone::UTC),
        [Val::Timestamp(time), Val::String(zone)] => {
            let zone = if zone.as_ref() == "UTC" {
                Some(TimeZone::UTC)
            } else {
                offset(zone).or_else(|| TimeZone::get(zone).ok())
            };
            of_time(function, *time, &zone.ok_or_else(|| EvalError::new("unknown time zone"))?)
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn offset(text: &str) -> Option<TimeZone> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let seconds =
        hours.parse::<i32>().ok()?.checked_mul(3600)? + minutes.parse::<i32>().ok()?.checked_mul(60)?;
    Some(TimeZone::fixed(jiff::tz::Offset::from_seconds(sign * seconds).ok()?))
}

fn of_time<'v>(function: &str, time: Timestamp, zone: &TimeZone) -> Outcome<'v> {
    let zoned = time.to_zoned(zone.clone());
    Ok(Val::Int(match function {
        "getFullYear" => i64::from(zoned.year()),
        "getMonth" => i64::from(zoned.month()) - 1,
        "getDate" => i64::from(zoned.day()),
        "getDayOfMonth" => i64::from(zoned.day()) - 1,
        "getDayOfWeek" => i64::from(zoned.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(zoned.day_of_year()) - 1,
        "getHours" => i64::from(zoned.hour()),
        "getMinutes" => i64::from(zoned.minute()),
        "getSeconds" => i64::from(zoned.second()),
        "getMilliseconds" => i64::from(zoned.millisecond()),
        _ => return Err(EvalError::no_overload()),
    }))
}
