//! Cron schedules with the grammar and the habits of `robfig/cron` version 3, which Kubernetes and KubeRay use.
//!
//! Five fields (minute, hour, day of month, month, day of week), each a list of ranges with steps, or one of the
//! words `@yearly`, `@monthly`, `@weekly`, `@daily`, `@hourly` (and their other names) or `@every 1h30m`.

use std::str::FromStr;

use crate::duration::GoDuration;
use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, time},
    tz::{AmbiguousOffset, TimeZone},
};

/// A schedule is searched this far into the future; then it counts as one that never comes.
const YEARS: i16 = 5;
/// Clocks are put back by less than this, so that the first time found within it may not be the first.
const FOLD_HOURS: i8 = 3;

/// When to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At these times of day on these days.
    Fields(Fields),
    /// Again and again after this long, in whole seconds.
    Every(SignedDuration),
}

/// The values that each field allows, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
    /// Whether the days of the month are all days, so that only those of the week count.
    any_day: bool,
    /// Whether the days of the week are all days, so that only those of the month count.
    any_weekday: bool,
}

/// What a field may say.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    words: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", min: 0, max: 59, words: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, words: &[] };
const DAY: Field = Field { name: "day of month", min: 1, max: 31, words: &[] };
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Field =
    Field { name: "day of week", min: 0, max: 6, words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if let Some(word) = text.strip_prefix('@') {
            return from_word(word);
        }
        let fields: Vec<_> = text.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            let (found, fields) = (fields.len(), fields.join(" "));
            return Err(format!("expected exactly 5 fields, found {found}: [{fields}]"));
        };
        let (minute, _) = MINUTE.read(minute)?;
        let (hour, _) = HOUR.read(hour)?;
        let (day, any_day) = DAY.read(day)?;
        let (month, _) = MONTH.read(month)?;
        let (weekday, any_weekday) = WEEKDAY.read(weekday)?;
        Ok(Self::Fields(Fields { minute, hour, day, month, weekday, any_day, any_weekday }))
    }
}

fn from_word(word: &str) -> Result<Schedule, String> {
    if let Some(text) = word.strip_prefix("every ") {
        let duration: GoDuration = text
            .parse()
            .map_err(|_| format!("failed to parse duration @{word}: time: invalid duration {text:?}"))?;
        // Seconds are the smallest step there is.
        let seconds = i64::try_from(duration.0.as_secs()).unwrap_or(i64::MAX).max(1);
        return Ok(Schedule::Every(SignedDuration::from_secs(seconds)));
    }
    let fields = match word {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        _ => return Err(format!("unrecognized descriptor: @{word}")),
    };
    fields.parse()
}

impl Field {
    /// The bits of a list of ranges, and whether one of them is all there is.
    fn read(&self, text: &str) -> Result<(u64, bool), String> {
        let mut bits = 0;
        let mut is_star = false;
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (part_bits, part_is_star) = self.read_range(part)?;
            bits |= part_bits;
            is_star |= part_is_star;
        }
        if bits == 0 {
            return Err(format!("{}: nothing is selected: {text}", self.name));
        }
        Ok((bits, is_star))
    }

    fn read_range(&self, text: &str) -> Result<(u64, bool), String> {
        let mut parts = text.split('/');
        let range = parts.next().unwrap_or_default();
        let step = parts.next();
        if parts.next().is_some() {
            return Err(format!("too many slashes: {text}"));
        }
        let mut ends = range.split('-');
        let (low, high) = (ends.next().unwrap_or_default(), ends.next());
        if ends.next().is_some() {
            return Err(format!("too many hyphens: {text}"));
        }
        let is_star = low == "*" || low == "?";
        let (start, end) = if is_star {
            (self.min, self.max)
        } else {
            let start = self.value(low)?;
            let end = match high {
                Some(high) => self.value(high)?,
                None if step.is_some() => self.max,
                None => start,
            };
            (start, end)
        };
        let step = step.map(number).transpose()?.unwrap_or(1);
        if start < self.min {
            return Err(format!("beginning of range ({start}) below minimum ({}): {text}", self.min));
        }
        if end > self.max {
            return Err(format!("end of range ({end}) above maximum ({}): {text}", self.max));
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
        }
        let step_size = usize::try_from(step).unwrap_or_default();
        if step_size == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        let bits = (start..=end).step_by(step_size).fold(0, |bits, value| bits | 1 << value);
        Ok((bits, is_star && step == 1))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        match self.words.iter().position(|word| *word == lower) {
            Some(index) => Ok(self.min + u32::try_from(index).unwrap_or_default()),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        // What is larger is above every maximum.
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        }
    }
}

impl Schedule {
    /// The first time on the schedule after `base`; `None` if none comes within five years.
    pub fn next(&self, base: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(period) => {
                let whole = Timestamp::from_second(base.as_second()).ok()?;
                whole.checked_add(*period).ok()
            }
            Self::Fields(fields) => fields.next(base, zone),
        }
    }

    /// The last time on the schedule after `base` that is not after `now`, and whether it is the first one.
    pub fn last_due(&self, base: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<(Timestamp, bool)> {
        let first = self.next(base, zone).filter(|first| *first <= now)?;
        let last = match self {
            Self::Every(period) => {
                let rounds = now.duration_since(first).as_secs() / period.as_secs().max(1);
                let later = i32::try_from(rounds).ok().and_then(|rounds| period.checked_mul(rounds));
                later.and_then(|later| first.checked_add(later).ok()).unwrap_or(first)
            }
            Self::Fields(_) => self.last_between(first, now, zone),
        };
        Some((last, last == first))
    }

    /// The last time from `first`, which is on the schedule, to `now`: found by looking back twice as far until
    /// something is there, so that a long silence costs little.
    fn last_between(&self, first: Timestamp, now: Timestamp, zone: &TimeZone) -> Timestamp {
        let mut back = SignedDuration::from_mins(1);
        loop {
            let from = now.checked_sub(back).ok().filter(|from| *from > first);
            let Some(from) = from else { break };
            if self.next(from, zone).is_some_and(|tick| tick <= now) {
                break;
            }
            back = back.saturating_mul(2);
        }
        let mut last = now.checked_sub(back).ok().filter(|from| *from > first).unwrap_or(first);
        if let Some(tick) = self.next(last, zone).filter(|tick| *tick <= now) {
            last = tick;
            while let Some(tick) = self.next(last, zone).filter(|tick| *tick <= now) {
                last = tick;
            }
        }
        last
    }
}

impl Fields {
    fn next(&self, base: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = zone.to_datetime(base);
        let first = local.date();
        let mut date = first;
        while date.year() <= first.year().saturating_add(YEARS) {
            if self.has_day(date) {
                let from = if date == first { (local.hour() - FOLD_HOURS).max(0) } else { 0 };
                if let Some(tick) = self.first_of_day(date, from, base, zone) {
                    return Some(tick);
                }
                date = date.tomorrow().ok()?;
            } else if self.month & 1 << date.month() == 0 {
                date = date.first_of_month().checked_add(1.month()).ok()?;
            } else {
                date = date.tomorrow().ok()?;
            }
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        let day = self.day & 1 << date.day() != 0;
        let weekday = self.weekday & 1 << weekday != 0;
        let by_day = if self.any_day || self.any_weekday { day && weekday } else { day || weekday };
        self.month & 1 << date.month() != 0 && by_day
    }

    /// The first time on this day, from an hour on, that is after `base`. Times that clocks skip do not come;
    /// times that they repeat come twice.
    fn first_of_day(&self, date: Date, from: i8, base: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut best: Option<Timestamp> = None;
        let mut last_hour = 23;
        for hour in (from..24).filter(|hour| self.hour & 1 << hour != 0) {
            if hour > last_hour {
                break;
            }
            for minute in (0..60).filter(|minute| self.minute & 1 << minute != 0) {
                let local = date.to_datetime(time(hour, minute, 0, 0));
                let offsets = match zone.to_ambiguous_timestamp(local).offset() {
                    AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
                    AmbiguousOffset::Gap { .. } => [None, None],
                    AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
                };
                let times =
                    offsets.into_iter().flatten().filter_map(|offset| offset.to_timestamp(local).ok());
                for tick in times.filter(|tick| *tick > base) {
                    if best.is_none() {
                        last_hour = hour.saturating_add(FOLD_HOURS);
                    }
                    best = Some(best.map_or(tick, |other| other.min(tick)));
                }
            }
        }
        best
    }
}

/// The time zone of a schedule: `local` unless it names one.
pub fn zone(name: Option<&str>) -> Result<TimeZone, String> {
    match name {
        None | Some("" | "Local") => Ok(TimeZone::try_system().unwrap_or(TimeZone::UTC)),
        Some(name) => TimeZone::get(name).map_err(|_| format!("invalid time zone: unknown time zone {name}")),
    }
}
