//! Times as Go reads and writes them, in nanoseconds since 1970; in milliseconds where those would not fit.

use std::fmt::Write as _;

use jiff::civil::{Date, DateTime};
use jiff::{SignedDuration, Timestamp};

/// The layout that messages name.
const LAYOUT: &str = "2006-01-02T15:04:05.999999999Z07:00";

/// Reads a time of RFC 3339, as `time.Parse` does with that layout. The error is worded as Go's.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let mut reader = Reader { text, rest: text };
    let year = reader.number(4, "2006")?;
    reader.literal("-")?;
    let month = reader.number(2, "01")?;
    if !(1..=12).contains(&month) {
        return Err(reader.out_of_range("month"));
    }
    reader.literal("-")?;
    let day = reader.number(2, "02")?;
    reader.literal("T")?;
    // Of all numbers, Go's layouts take only the hour with one digit as well.
    let hour = reader.number(2, "15").or_else(|error| reader.number(1, "15").map_err(|_| error))?;
    if hour > 23 {
        return Err(reader.out_of_range("hour"));
    }
    reader.literal(":")?;
    let minute = reader.number(2, "04")?;
    if minute > 59 {
        return Err(reader.out_of_range("minute"));
    }
    reader.literal(":")?;
    let second = reader.number(2, "05")?;
    if second > 59 {
        return Err(reader.out_of_range("second"));
    }
    let fraction = reader.fraction();
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", quoted(text), quoted(reader.rest)));
    }
    // The numbers have two digits at most, and four for the year.
    let small = |number: i64| i8::try_from(number).unwrap_or_default();
    let date = Date::new(i16::try_from(year).unwrap_or_default(), small(month), small(day))
        .map_err(|_| reader.out_of_range("day"))?;
    let civil = date.at(small(hour), small(minute), small(second), 0);
    Ok(from_parts(seconds(civil) - offset, fraction))
}

/// Nanoseconds beyond this, about 146 years from 1970, are kept as milliseconds that are added to it.
const FAR: i64 = 1 << 62;

const FAR_MILLIS: i64 = FAR / 1_000_000;

/// A time of seconds and the nanoseconds after them. All years of four digits have one, and it sorts as they do.
fn from_parts(seconds: i64, fraction: i64) -> i64 {
    if seconds == YEAR_ONE && fraction == 0 {
        return UNKNOWN;
    }
    match seconds.checked_mul(1_000_000_000).and_then(|it| it.checked_add(fraction)) {
        Some(time) if (-FAR..=FAR).contains(&time) => time,
        _ => {
            let millis = seconds.saturating_mul(1000).saturating_add(fraction / 1_000_000);
            if millis < 0 { millis + FAR_MILLIS - FAR } else { millis - FAR_MILLIS + FAR }
        }
    }
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Seconds since 1970. Timestamps of jiff end a day before the last year does.
fn seconds(civil: DateTime) -> i64 {
    civil.duration_since(EPOCH).as_secs()
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Reader<'_> {
    fn number(&mut self, digits: usize, element: &str) -> Result<i64, String> {
        let number = self.rest.get(..digits).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(number) = number else { return Err(self.cannot_parse(element)) };
        self.rest = &self.rest[digits..];
        Ok(number.bytes().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        let rest = self.rest.strip_prefix(literal).ok_or_else(|| self.cannot_parse(literal))?;
        self.rest = rest;
        Ok(())
    }

    /// Nanoseconds of a fraction. Digits after the ninth are dropped.
    fn fraction(&mut self) -> i64 {
        let Some(digits) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return 0;
        }
        self.rest = &digits[length..];
        let digits = digits[..length].bytes().map(|digit| i64::from(digit - b'0'));
        digits.chain(std::iter::repeat(0)).take(9).fold(0, |sum, digit| sum * 10 + digit)
    }

    /// Seconds east of Greenwich.
    fn offset(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let error = self.cannot_parse("Z07:00");
        let bytes = self.rest.as_bytes();
        let sign = match bytes.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(error),
        };
        let pair = |at: usize| -> Option<i64> {
            let digits = self.rest.get(at..at + 2)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let (Some(hours), Some(b':'), Some(minutes)) = (pair(1), bytes.get(3), pair(4)) else {
            return Err(error);
        };
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 3600 + minutes * 60))
    }

    fn cannot_parse(&self, element: &str) -> String {
        let (text, rest) = (quoted(self.text), quoted(self.rest));
        format!("parsing time {text} as {LAYOUT:?}: cannot parse {rest} as {element:?}")
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", quoted(self.text))
    }
}

/// A text in quotes, as Go's `time` writes it: with the bytes of all that is no printable ASCII.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=0x7f => quoted.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(quoted, "\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

/// A time that an event does not tell: Go's zero time. It sorts before all others.
pub(crate) const UNKNOWN: i64 = i64::MIN;

/// Go's zero time in seconds since 1970.
const YEAR_ONE: i64 = -62_135_596_800;

/// Milliseconds since 1970.
pub(crate) fn millis(time: i64) -> i64 {
    micros(time).div_euclid(1000)
}

/// Microseconds since 1970.
pub(crate) fn micros(time: i64) -> i64 {
    match time {
        UNKNOWN => YEAR_ONE * 1_000_000,
        _ if time > FAR => (time - FAR + FAR_MILLIS) * 1000,
        _ if time < -FAR => (time + FAR - FAR_MILLIS) * 1000,
        _ => time.div_euclid(1000),
    }
}

/// The time, unless it is unknown.
pub(crate) fn known(time: i64) -> Option<i64> {
    (time != UNKNOWN).then_some(time)
}

/// The time in the name of a session, `session_2026-01-01_09-30-00…`, in seconds since 1970.
pub(crate) fn of_session(name: &str) -> Option<i64> {
    let rest = name.strip_prefix("session_")?;
    // The second part ends at the next underscore.
    let end = rest.match_indices('_').nth(1).map_or(rest.len(), |(at, _)| at);
    date_time(rest.get(..end)?)
}

/// Seconds since 1970 of `2026-01-01_09-30-00`.
fn date_time(text: &str) -> Option<i64> {
    if text.len() != 19 {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'_'), (13, b'-'), (16, b'-')];
    if separators.iter().any(|(at, expected)| text.as_bytes()[*at] != *expected) {
        return None;
    }
    let small = |number: i64| i8::try_from(number).ok();
    let date =
        Date::new(i16::try_from(number(0..4)?).ok()?, small(number(5..7)?)?, small(number(8..10)?)?).ok()?;
    let time =
        jiff::civil::Time::new(small(number(11..13)?)?, small(number(14..16)?)?, small(number(17..19)?)?, 0)
            .ok()?;
    Some(seconds(date.to_datetime(time)))
}

/// The time of a marker: its name has to hold that of a session, with date, time, and six digits of microseconds.
/// Anything may be before and after.
pub(crate) fn of_marker(name: &str) -> Option<i64> {
    let pattern = b"session_dddd-dd-dd_dd-dd-dd_dddddd";
    let found = name.as_bytes().windows(pattern.len()).position(|window| {
        window.iter().zip(pattern).all(|(byte, expected)| match expected {
            b'd' => byte.is_ascii_digit(),
            other => byte == other,
        })
    })?;
    date_time(name.get(found + "session_".len()..)?.get(..19)?)
}

/// `2026-01-01T09:30:00Z`.
pub(crate) fn rfc3339(seconds: i64) -> String {
    format(seconds, "%Y-%m-%dT%H:%M:%SZ")
}

/// A time in UTC by a format of `strftime`.
pub(crate) fn format(seconds: i64, format: &str) -> String {
    let time = EPOCH.checked_add(SignedDuration::from_secs(seconds));
    time.map(|time| time.strftime(format).to_string()).unwrap_or_default()
}

/// Now, in nanoseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "files and signatures carry the wall clock")]
pub(crate) fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{UNKNOWN, millis, of_marker, of_session, parse};

    #[test]
    fn times_of_all_years_keep_their_order() {
        let texts = [
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("0001-01-01T00:00:00.5Z", -62_135_596_799_500),
            ("1600-01-01T00:00:00Z", -11_676_096_000_000),
            ("1969-12-31T23:59:59.9999Z", -1),
            ("2026-01-01T00:00:00.001002Z", 1_767_225_600_001),
            ("2116-02-21T00:00:00Z", 4_611_686_400_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ];
        let times: Vec<i64> = texts.iter().map(|(text, _)| parse(text).expect(text)).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(times[0], UNKNOWN);
        for ((text, expected), time) in texts.iter().zip(times) {
            assert_eq!(millis(time), *expected, "{text}");
        }
    }

    #[test]
    fn times_are_read_as_go_does() {
        let base = 1_767_225_600_000_000_000;
        let cases = [
            ("2026-01-01T00:00:00Z", Ok(base)),
            ("2026-01-01T0:00:00Z", Ok(base)),
            ("2026-01-01T:00:00Z", Err("cannot parse \":00:00Z\" as \"15\"")),
            ("2026-01-01T00:0:00Z", Err("cannot parse \"0:00Z\" as \"04\"")),
            ("2026-01-01T00:00:00.25+02:00", Ok(base - 7_200_000_000_000 + 250_000_000)),
            ("2026-01-01T00:00:00,5Z", Ok(base + 500_000_000)),
            ("2026-01-01T00:00:00.1234567891234Z", Ok(base + 123_456_789)),
            ("2026-13-01T00:00:00Z", Err("month out of range")),
            ("2026-02-30T00:00:00Z", Err("day out of range")),
            ("2026-01-01T24:00:00Z", Err("hour out of range")),
            ("2026-01-01T00:00:60Z", Err("second out of range")),
            ("2026-01-01t00:00:00z", Err("cannot parse \"t00:00:00z\" as \"T\"")),
            ("2026-01-01T00:00:00", Err("cannot parse \"\" as \"Z07:00\"")),
            ("", Err("cannot parse \"\" as \"2006\"")),
            ("2026-01-01T00:00:00Zx", Err("extra text: \"x\"")),
            ("\u{e9}\u{e9}26-01-01T00:00:00Z", Err("as \"2006\"")),
            ("2026-01-01T00:00:00\u{e9}\n", Err("cannot parse \"\\xc3\\xa9\\x0a\" as \"Z07:00\"")),
        ];
        for (text, expected) in cases {
            match (parse(text), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
                (Err(read), Err(expected)) => assert!(read.ends_with(expected), "{text}: {read}"),
                (read, expected) => assert_eq!(format!("{read:?}"), format!("{expected:?}"), "{text}"),
            }
        }
        assert!(parse("0001-01-01T00:00:00Z").is_ok_and(|time| time < 0));
    }

    #[test]
    fn sessions_are_recognised_by_their_names() {
        assert_eq!(of_session("session_2026-01-01_09-30-00_123456_1"), Some(1_767_259_800));
        assert_eq!(of_session("session_2026-01-01_09-30-00"), Some(1_767_259_800));
        for name in ["old-session_2026-01-01_09-30-00_123456_1", "session_2026-01-01_09-30-000_1"] {
            assert_eq!(of_session(name), None, "{name}");
        }
        assert_eq!(of_marker("session_2026-01-01_09-30-00_123456_1"), Some(1_767_259_800));
        let cases = [
            ("session_2026-01-01_09-30-00_123456_1", true),
            ("session_2026-01-01_09-30-00_123456_1.bak", true),
            ("session_2026-01-01_09-30-00_123456", true),
            ("session_2026-01-01_09-30-00", false),
            ("session_2026-06-02_00-00-00_5_99", false),
            ("session_2026-13-40_99-99-99_000000", false),
            ("session_x", false),
            ("old-session_2026-01-01_09-30-00_123456", true),
            ("session_session_2026-01-01_09-30-00_123456", true),
            ("", false),
        ];
        for (name, expected) in cases {
            assert_eq!(of_marker(name).is_some(), expected, "{name}");
        }
    }
}
